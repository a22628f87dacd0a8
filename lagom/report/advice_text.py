# SPDX-License-Identifier: Apache-2.0
"""Advice on the next start: as text, export lines, a saved config's environment, Megatron's communicator file, JSON."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Iterable, Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from lagom import environment
from lagom.bench.results import BenchRecord
from lagom.errors import UsageError
from lagom.experiment.store import FILE, read_record
from lagom.format import format_variables
from lagom.journal import RunState
from lagom.report.advice import Advices, Standing, join_advice
from lagom.report.advice_from_bench import OWN_TUNED, advise_from_bench, count_rounds
from lagom.report.advice_from_log import advise_from_log

#: In the log folder: where the printed `lagom bench` line puts what it measured.
BENCH_FOLDER = "advise"
#: How Megatron calls a process group in its communicator file, by the description it gives torch and so NCCL
#: (megatron/core/parallel_state.py: create_group(..., group_desc=...), get_nccl_options(name)).
MEGATRON = {
    "DATA_PARALLEL_GROUP": "dp", "DATA_PARALLEL_GROUP_WITH_CP": "dp_cp", "CONTEXT_PARALLEL_GROUP": "cp",
    "TENSOR_MODEL_PARALLEL_GROUP": "tp", "PIPELINE_MODEL_PARALLEL_GROUP": "pp", "MODEL_PARALLEL_GROUP": "mp",
    "TENSOR_AND_DATA_PARALLEL_GROUP": "tp_dp", "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP": "tp_dp_cp",
    "TENSOR_AND_CONTEXT_PARALLEL_GROUP": "tp_cp", "EXPERT_MODEL_PARALLEL_GROUP": "ep",
    "EXPERT_TENSOR_PARALLEL_GROUP": "ep_tp", "EXPERT_DATA_PARALLEL_GROUP": "ep_dp", "EMBEDDING_GROUP": "embd",
}  # fmt: skip


_TITLES = {
    Standing.GAIN: "Measured to be worth it:",
    Standing.NO_GAIN: "Measured, and not worth it:",
    Standing.PROPOSAL: "Not measured; worth a try:",
}


def format_advice(advices: Advices, folder: Path | None = None) -> Iterator[str]:
    """For a terminal: measured gains first, then what was measured in vain, then proposals with the command that
    would measure them; its results go into the log folder ``folder``, where the next report finds them."""
    for standing, title in _TITLES.items():
        mine = advices.of(standing)
        if mine:
            yield title
        for advice in mine:
            yield f"  {advice.what}"
            yield f"    {advice.evidence}"
            if advice.environment and standing is not Standing.NO_GAIN:
                yield f"    {format_variables(advice.environment)}"
    if not advices.all:
        yield "No advice: nothing that only a start can change shows in this log."
    if len([one for one in advices.gains if one.environment]) > 1:
        yield "Each of these was measured alone; exported is the greatest, by itself."
    if arms := list_proposed_arms(advices):
        yield f"To measure the proposals: {format_bench_command(arms, folder)}"
    yield from (f"Remark: {remark}" for remark in advices.remarks)


def list_proposed_arms(advices: Advices) -> tuple[str, ...]:
    """The arms of `lagom bench` that would measure every proposal, each once, but not those measured already; several
    gains also at once, and head-room beside the same tuning without it."""
    measured = {arm for advice in advices.all if advice.standing is not Standing.PROPOSAL for arm in advice.arms}
    wanted = [arm for advice in advices.of(Standing.PROPOSAL) for arm in advice.arms]
    if both := advices.together():
        wanted.append("env=" + ",".join(f"{name}={value}" for name, value in both.items()))
    arms = [arm for arm in dict.fromkeys(wanted) if arm not in measured]
    beside = [OWN_TUNED] if any(arm.startswith("headroom=") for arm in arms) else []
    return (*beside, *arms)


def format_bench_command(arms: tuple[str, ...], folder: Path | None = None) -> str:
    """What to type, with the job's command for CMD."""
    out = ""
    if folder is not None:
        place, arms = choose_bench_folder(folder / BENCH_FOLDER, arms)
        out = f" --out {shlex.quote(str(place))}"
    words = shlex.quote(",".join(("stock", *arms)))
    return f"lagom bench --arms {words} --rounds {count_rounds(count_judged_arms(arms))}{out} -- CMD"


def choose_bench_folder(folder: Path, arms: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """(where these arms are measured, all arms of that benchmark): the folder that has them all already, so that it
    goes on, else the next that is free: proposals change with what is known, and a benchmark's arms do not."""
    for number in itertools.count(1):
        place = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        if not (place / FILE).exists():
            break
        known = tuple(arm for arm in read_record(place / FILE, BenchRecord).arms if arm not in ("stock", "own:stock"))
        if set(arms) <= set(known):
            return place, known
    return place, arms


def gather_advice(run: RunState, log: Path, bench: Iterable[Path] = ()) -> Advices:
    """Everything that a log and benchmarks (files or folders) say; those beside the log are found."""
    folders = [*bench, *(file.parent for file in sorted(log.parent.glob(f"{BENCH_FOLDER}*/{FILE}")))]
    told = [advise_from_bench(folder / FILE if folder.is_dir() else folder) for folder in folders]
    measured = [advice for advices, _ in told for advice in advices]
    remarks = tuple(remark for _, found in told for remark in found)
    return Advices(str(log), join_advice(advise_from_log(run), measured), remarks)


def count_judged_arms(arms: tuple[str, ...]) -> int:
    """How many of them are compared: not what others are held against."""
    return len([arm for arm in arms if arm != OWN_TUNED])


def format_exports(advices: Advices) -> list[str]:
    """``export NAME=VALUE`` lines of the greatest measured gain."""
    return [f"export {name}={shlex.quote(value)}" for name, value in advices.environment().items()]


def write_into_config(advices: Advices, config: Path, out: Path) -> dict[str, str]:
    """A copy of a saved config that also asks for the greatest measured gain; returns what it asks for. Raises
    UsageError where it contradicts what the saved config asks for already, and where the copy cannot be written."""
    from lagom.config_file import load_config, save_config

    saved, gained = load_config(config), advices.environment()
    before = saved.environment
    if clash := [name for name, value in gained.items() if before.get(name, value) != value]:
        raise UsageError(f"{config} asks for another {', '.join(clash)}; its configs were not measured with this one.")
    wanted = environment.select_known({**before, **gained})
    evidence = "nothing" if advices.exported is None else advices.exported.evidence
    remark = f"environment by lagom report, measured without these configs: {evidence}"
    try:
        save_config(replace(saved, environment=wanted), out, remark=remark.replace("\n", " "))
    except OSError as error:
        raise UsageError(f"{out} cannot be written ({error.strerror}); name another file.") from error
    return wanted


def format_megatron(advices: Advices) -> str:
    """The file of ``--nccl-communicator-config-path``: one entry a process group that Megatron has a name for."""
    entries, remarks = [], []
    for advice in advices.all:
        for group in advice.groups:
            name = MEGATRON.get(group.name)
            if name is None:
                remarks.append(f"# {group.name}: no group that Megatron configures; max_ctas {group.max_ctas}")
                continue
            # What was not measured is for the reader to switch on; a variable's gain is that of all groups together.
            off = "" if advice.is_measured_gain and group.alone else "# "
            entries.append(f"# {advice.standing.value}: {advice.evidence}")
            entries += [f"{off}{name}:", f"{off}  max_ctas: {group.max_ctas}"]
    if not entries and not remarks:
        return ""
    head = (
        "# lagom report: for --nccl-communicator-config-path of Megatron-LM. What a group does not name is NCCL's own."
    )
    return "\n".join([head, *entries, *remarks]) + "\n"


def advice_to_json(advices: Advices) -> dict[str, Any]:
    """All of it for programs."""
    return {
        "environment": advices.environment(),
        "advice": [
            {**asdict(advice), "standing": advice.standing.value, "environment": dict(advice.environment)}
            for advice in advices.all
        ],
        "to_measure": list(list_proposed_arms(advices)),
        "remarks": list(advices.remarks),
    }
