# SPDX-License-Identifier: Apache-2.0
"""``lagom profile``: is NCCL slowing my matmuls, and by how much?"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.cli import complete
from lagom.cli.common import console
from lagom.errors import UsageError
from lagom.files import check_named

if TYPE_CHECKING:
    from lagom.sim.machine import MachineModel
    from lagom.sim.operations import Workload
    from lagom.timeline.job_profile import Profile
    from lagom.timeline.kernel_table import KernelTable
    from lagom.timeline.trace_coverage import Calls

#: Simulated iterations: enough for medians, quick to draw; fewer, and of fewer ranks, where an iteration is huge.
_ITERATIONS, _MIN_ITERATIONS = 8, 4
_ENOUGH_KERNELS = 400_000
#: Iterations that must look alike before a live job is recorded.
_SETTLED = 5
#: Variables that would tune the job, which is profiled under plain NCCL.
_AS_IT_IS = {"LAGOM_SET": "", "LAGOM_CONFIG": "", "LAGOM_STRATEGY": ""}


def profile(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[-- CMD...]",
            help="A job to run; or further traces, one a rank (with --trace).",
            show_default=False,
        ),
    ] = None,
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            "--trace",
            metavar="TRACE",
            help="A Kineto trace (.json, .json.gz or .zip), one file a rank; or the folder of an earlier recording "
            "(lagom-profile, or a log of lagom run --record).",
            show_default=False,
        ),
    ] = None,
    reference: Annotated[
        list[Path] | None,
        typer.Option(
            "--reference",
            metavar="TRACE",
            help="A trace of the same job with hardly any communication (lagom run --set "
            "any:>=64K:nc=1,chunk=32K): the reference for kernels that never run alone.",
            show_default=False,
        ),
    ] = None,
    simulate: Annotated[
        str,
        typer.Option(
            "--simulate",
            metavar="PRESET",
            help="Simulate a machine instead: a40-nvlink, h200-host, ...",
            autocompletion=complete.machines,
        ),
    ] = "",
    workload: Annotated[
        str,
        typer.Option(
            "--workload",
            metavar="PRESET",
            help="What to simulate: fsdp, tp or ep, then the model.",
            autocompletion=complete.workloads,
        ),
    ] = "fsdp-llama3-8b",
    sms: Annotated[
        int,
        typer.Option(
            "--sms",
            metavar="N",
            help="SMs of the GPU, to split the overhead; default: as in the trace.",
            min=0,
            max=1024,
        ),
    ] = 0,
    iterations: Annotated[
        int,
        typer.Option("--iterations", metavar="N", help="Iterations of the job (-- CMD) to record.", min=4, max=1000),
    ] = 20,
    out: Annotated[
        Path, typer.Option("--out", metavar="FOLDER", help="Folder for profile.html, the pictures and trace.json.gz.")
    ] = Path("lagom-profile"),
    json_file: Annotated[
        Path | None,
        typer.Option("--json", metavar="FILE", help="Also write all numbers to this file.", show_default=False),
    ] = None,
) -> None:
    """Answer "is NCCL slowing my matmuls, and by how much?" from a job, from traces of one, or from a simulated one.

    A job runs to its end under plain NCCL: lagom profile -- torchrun --nproc-per-node 8 train.py

    Record a trace with torch.profiler (ProfilerActivity.CUDA) over at least four iterations. Its ProfilerStep marks
    (prof.step()) are the steps; without them, the repetition of the kernels tells them.
    """
    import json

    from lagom.report import page, profile_report
    from lagom.timeline.load import trace_files

    reference = reference or []
    if reference and simulate:
        raise UsageError("--reference goes with --trace; a simulated job brings its own reference trace.")
    if json_file is not None and out not in json_file.parents:  # that folder will be made
        check_named(json_file)
    if words and _is_job(words, bool(trace), simulate):
        seen = _live(words, iterations, out)
    else:
        traces = [*(trace or []), *map(Path, words or [])]
        _check_kept([*trace_files(traces), *trace_files(reference)], out, json_file)
        seen = _tables(traces, bool(trace), simulate, workload)
    found = seen.profile(reference, sms)
    written = profile_report.write_folder(found, out, seen.source)
    if json_file is not None:
        page.write(json_file, json.dumps(profile_report.to_json(found, seen.source), indent=2) + "\n")
        written.append(json_file)
    screen = console()
    profile_report.show(found, screen)
    screen.print("\nWritten: " + ", ".join(map(str, written)), highlight=False, soft_wrap=True)
    if seen.code:
        raise typer.Exit(seen.code)


@dataclass(frozen=True, slots=True)
class _Recorded:
    """``tables``: the kernels to look at, a rank each, and where they come from in words; their ``calls``, if these
    were recorded; ``alone``: kernels of a reference trace, if there is one; ``code``: exit code of the job."""

    tables: list[KernelTable]
    source: str
    calls: Calls | None = None
    alone: list[KernelTable] | None = None
    code: int = 0

    def profile(self, reference: list[Path], sms: int) -> Profile:
        """By another ``reference`` trace, and for another number of SMs, where these are given."""
        from lagom.timeline.load import load_trace
        from lagom.timeline.overlap import overlap

        tables = [replace(table, sms=sms or table.sms) for table in self.tables]
        alone = load_trace(reference)[0] if reference else self.alone
        return overlap(tables, reference=alone or None, calls=self.calls).profile


def _check_kept(inputs: list[Path], out: Path, json_file: Path | None) -> None:
    """Raises UsageError if what is read would be written over."""
    from lagom.timeline.load import REFERENCE_NAME, TRACE_NAME

    written = [out / TRACE_NAME, out / REFERENCE_NAME, *([json_file] if json_file else [])]
    for path in written:
        if path.exists() and any(given.exists() and given.samefile(path) for given in inputs):
            raise UsageError(f"{path} is read and would be written over; give another --out or --json.")


def _is_job(words: list[str], traced: bool, simulate: str) -> bool:
    """Whether the words after the options are a command, not traces somebody forgot to announce."""
    return not traced and not simulate and not words[0].endswith((".json", ".json.gz", ".txt", ".txt.gz", ".zip"))


def _live(command: list[str], iterations: int, out: Path) -> _Recorded:
    """Run the job with the controller recording some iterations. Raises LagomError where no record came, or Exit if the
    job failed before that."""
    from lagom.cli.run import check_settings
    from lagom.errors import LagomError
    from lagom.launch.job_plan import JobOptions, plan_job, say
    from lagom.launch.run_job import check_command, run_job
    from lagom.timeline.ring_records import forget_records, has_records, load_records
    from lagom.wire.library import plugin_path

    check_command(command[0])
    check_settings({**os.environ, **_AS_IT_IS})
    options = ("--profile-iterations", str(iterations), "--stable-iterations", str(_SETTLED))
    job_options = JobOptions(
        mode="tune", directory=out / "log", controller_options=options, recorded=iterations, timeline=True
    )
    left_out = [f"{name} is left out: NCCL is looked at as it is" for name in _AS_IT_IS if os.environ.get(name)]
    plan = plan_job(job_options, {**os.environ, **_AS_IT_IS}, plugin_path()).with_variables(_AS_IT_IS, tuple(left_out))
    if not plan.tunes:
        raise UsageError(
            "another launcher runs this job; use `lagom run --record` there and `lagom report` afterwards."
        )
    say("kernels are recorded through CUPTI, which serves one user: a torch.profiler in this job would lose some.")
    say(f"{iterations} iterations are recorded; the report is made when the job ends, and it may be ended then.")
    forget_records(plan.folder)
    code = run_job(command, plan)
    recorded = has_records(plan.folder)
    if code and not recorded:
        raise typer.Exit(code)
    if not recorded:
        raise LagomError(f"the job ended before {iterations} iterations were recorded; see `lagom log {plan.folder}`.")
    tables, calls = load_records(plan.folder)
    source = f"{' '.join(command[:4])}{' ...' if len(command) > 4 else ''}"
    return _Recorded(tables, source, calls, code=code)


def _tables(paths: list[Path], traced: bool, simulate: str, workload: str) -> _Recorded:
    if bool(paths) == bool(simulate):
        raise UsageError("say what to profile: --trace FILE... (a Kineto trace a rank) or --simulate PRESET, not both.")
    if paths and not traced:
        raise UsageError(f"put --trace before the traces: lagom profile --trace {paths[0]} ...")
    if paths:
        from lagom.timeline.load import load_reference, load_trace

        named = ", ".join(path.name for path in paths[:3]) + (" ..." if len(paths) > 3 else "")
        tables, calls = load_trace(paths)
        return _Recorded(tables, named, calls, load_reference(paths))
    return _simulated(_machine(simulate), _workload(workload))


def _simulated(machine: MachineModel, workload: Workload) -> _Recorded:
    from lagom.errors import LagomError
    from lagom.sim import Simulator
    from lagom.sim.simulated_trace import build_kernel_table, throttled

    try:
        simulator = Simulator(workload, machine)
    except ValueError as error:
        raise LagomError(f"{workload.name} cannot be simulated on {machine.name}: {error}; choose another.") from error
    kernels = max(len(simulator.run(simulator.stock()).kernels), 1)
    iterations = max(_MIN_ITERATIONS, min(_ITERATIONS, _ENOUGH_KERNELS // kernels))
    ranks = range(max(1, min(workload.ranks, 8, _ENOUGH_KERNELS // (kernels * iterations))))
    tables = [build_kernel_table(simulator, iterations, rank=rank) for rank in ranks]
    alone = build_kernel_table(simulator, _MIN_ITERATIONS, throttled(simulator), seed=1)
    return _Recorded(tables, f"simulated: {workload.name} on {machine.name} ({workload.note})", alone=[alone])


def _machine(name: str) -> MachineModel:
    from lagom.sim import machine

    wanted = _plain(name)
    if wanted not in machine.PRESETS:
        known = ", ".join(preset.replace("_", "-") for preset in machine.PRESETS)
        raise UsageError(f"there is no machine preset {name!r}; choose one of: {known}.")
    return machine.PRESETS[wanted]


def _workload(name: str) -> Workload:
    from lagom.sim import workloads
    from lagom.sim.layers import SHAPES

    kinds: dict[str, Callable[[str], Workload]] = {
        "fsdp": workloads.fsdp, "tp": workloads.domino, "ep": workloads.expert
    }  # fmt: skip
    kind, _, model = _plain(name).partition("_")
    model = "_".join(part for part in model.split("_") if part)
    if kind not in kinds or model not in SHAPES:
        models = ", ".join(shape.replace("_", "-") for shape in SHAPES)
        raise UsageError(f"there is no workload {name!r}; write fsdp-, tp- or ep- and a model: {models}.")
    return kinds[kind](model)


def _plain(name: str) -> str:
    return name.strip().lower().replace("-", "_")
