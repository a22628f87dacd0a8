# SPDX-License-Identifier: Apache-2.0
"""``lagom run -- CMD...``: run a job unchanged, with the tuner loaded and a controller process."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.cli import complete
from lagom.errors import UsageError
from lagom.headroom import parse as parse_headroom
from lagom.launch.supervise import signals_left_to_us
from lagom.settings import SETTINGS, config_named, read

if TYPE_CHECKING:
    from lagom.launch.job_plan import JobPlan


def run(
    command: Annotated[
        list[str], typer.Argument(help="The job's command, after `--`.", metavar="-- CMD...", show_default=False)
    ],
    mode: Annotated[
        str,
        typer.Option(
            "--mode",
            help="auto, tune, replay, replay-or-tune or off: LAGOM_MODE in `lagom env --settings`.",
            metavar="MODE",
            autocompletion=complete.modes,
        ),
    ] = "",
    strategy: Annotated[
        str,
        typer.Option(
            help="Search strategy, or your own as package.module:Class; default: LAGOM_STRATEGY, else auto.",
            metavar="NAME",
            autocompletion=complete.strategies,
        ),
    ] = "",
    rules: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="RULES",
            help='Pin a config by hand, like "allgather:>=1M:nc=4,chunk=512K"; may be repeated.',
            show_default=False,
            autocompletion=complete.rules,
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            help="Replay this saved config if it fits the job; never search, unless --or-tune is given.",
            metavar="FILE",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    or_tune: Annotated[bool, typer.Option("--or-tune", help="With a saved config: search if it does not fit.")] = False,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir", metavar="FOLDER", help="Log folder; default: LAGOM_DIR, else ./lagom-<job>.", show_default=False
        ),
    ] = None,
    compare: Annotated[
        list[str] | None,
        typer.Option(
            metavar="RULES",
            help="Measure this config (rules, `;` between them) against plain NCCL instead of searching; may be "
            "repeated.",
            show_default=False,
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed of the search.")] = 0,
    stable_iterations: Annotated[
        int | None,
        typer.Option(
            metavar="N", help="Iterations with the same calls before the first trial.", min=1, show_default=False
        ),
    ] = None,
    search_seconds: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="Time limit of the search, for all process groups together, proofs included.",
            min=1,
            show_default=False,
        ),
    ] = None,
    search_percent: Annotated[
        float | None,
        typer.Option(
            metavar="PERCENT",
            help="Let the search of each process group lose at most this share of the group's iterations so far: it "
            "waits with further trials where it has lost more.",
            min=0.1,
            max=100,
            show_default=False,
        ),
    ] = None,
    record: Annotated[
        bool, typer.Option("--record", help="Keep the raw call and kernel records in the log folder.")
    ] = False,
    headroom: Annotated[
        str,
        typer.Option(
            metavar="NC[:NC]",
            help="Let NCCL build this many channels, like 32, so that more channels can be tried. Calls that are not "
            "tuned keep plain NCCL's number, which is read from a log of this job without head-room, or given: 32:24.",
            show_default=False,
        ),
    ] = "",
    headroom_from: Annotated[
        Path | None,
        typer.Option(
            metavar="LOG",
            help="The log from which --headroom reads plain NCCL's number of channels.",
            exists=True,
            show_default=False,
        ),
    ] = None,
    fresh: Annotated[
        bool, typer.Option("--fresh", help="Search anew: neither the cache (LAGOM_CACHE) nor the atlas is used.")
    ] = False,
    no_atlas: Annotated[
        bool,
        typer.Option("--no-atlas", help="Do not try first what searches of other jobs on such machines found."),
    ] = False,
    nnodes: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="The job runs on N nodes, and this command is started on each: they agree on a config of the cache, "
            "so that all use it or none. Default: as `lagom tune` found it, or as CMD says.",
            min=0,
            show_default=False,
        ),
    ] = 0,
    rdzv_endpoint: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="Where they agree: one of the nodes, and a free port; default: LAGOM_EXCHANGE, else as `lagom tune` "
            "found it.",
            show_default=False,
        ),
    ] = "",
    quiet: Annotated[
        bool,
        typer.Option(
            "--quiet", "-q", help="Print only the first and the last `lagom:` line, no progress between them."
        ),
    ] = False,
    no_profiler: Annotated[bool, typer.Option("--no-profiler", help="Leave NCCL's profiler slot free.")] = False,
    replace_plugin: Annotated[
        bool,
        typer.Option("--replace-plugin", help="Run even if NCCL_TUNER_PLUGIN names another plugin, and replace it."),
    ] = False,
    arms: Annotated[
        Path | None, typer.Option("--arms", help="Compare the arms of this file (lagom bench).", hidden=True)
    ] = None,
    candidates: Annotated[
        list[Path] | None,
        typer.Option(
            "--candidates", help="Try the configs of this saved config first.", exists=True, dir_okay=False, hidden=True
        ),
    ] = None,
    bare: Annotated[
        bool, typer.Option("--bare", help="Nothing but the command, timed (lagom bench).", hidden=True)
    ] = False,
    seconds_file: Annotated[
        Path | None, typer.Option(help="Write how long the command ran (lagom bench).", hidden=True)
    ] = None,
) -> None:
    """Run a training job under the tuner. Script, terminal, signals and exit code stay as they are.

    Example: lagom run -- torchrun --nproc-per-node 8 train.py
    """
    with signals_left_to_us():  # numpy's BLAS starts a thread
        from lagom.launch.cached_config import NO_CACHE, find_cached
        from lagom.launch.job_plan import JobOptions
        from lagom.launch.launchers import check_node_count
        from lagom.launch.run_job import check_command, run_bare, run_job
        from lagom.launch.start_agreement import plan_start, told_meeting
        from lagom.wire.plan import check_rules, choose_rules

    if bare:
        raise typer.Exit(run_bare(command, seconds_file))
    asked, given = _check_start(mode, strategy, config)
    pinned = choose_rules(rules, read("LAGOM_SET"))
    compared = [";".join(check_rules([one])) for one in compare or []]  # the controller starts too late to refuse them
    other = (given, or_tune, pinned, compared, arms, record, headroom, read("LAGOM_HEADROOM"))
    cache = NO_CACHE
    if asked in ("auto", "tune") and not any(other):
        check_node_count(command, nnodes, os.environ)
        told = told_meeting(nnodes, rdzv_endpoint, command, os.environ)
        cache = find_cached(command, os.environ, may_use=asked == "auto" and not fresh, told=told)
    elif nnodes or rdzv_endpoint:
        raise UsageError(
            "--nnodes and --rdzv-endpoint are for a config of the cache, and this start takes none; leave them out."
        )
    for_controller = _controller_options(
        record=[record],
        compare=compared,
        seed=[seed],
        stable_iterations=[stable_iterations],
        search_seconds=[search_seconds],
        search_percent=[search_percent],
        candidates=[*(candidates or []), *([cache.unfinished.path] if cache.unfinished else [])],
        arms=[arms],
    )
    job_options = JobOptions(
        mode=mode,
        strategy=strategy,
        rules=pinned,
        config=config,
        or_tune=or_tune,
        directory=directory,
        use_profiler=not no_profiler,
        use_atlas=not (no_atlas or fresh),
        replace_plugin=replace_plugin,
        controller_options=for_controller,
        compared=len(compared),
        search_seconds=search_seconds,
    )
    check_command(command[0])
    plan, cache = plan_start(command, job_options, cache, headroom, headroom_from)
    left_out = _left_out(plan, given, search_seconds, search_percent, stable_iterations, record=record, seed=seed)
    plan = plan.with_variables({}, tuple(left_out))
    raise typer.Exit(run_job(command, plan, quiet=quiet, seconds_file=seconds_file, cache=cache))


def _left_out(plan: JobPlan, given: Path | None, *numbers: float | None, record: bool, seed: int) -> Iterator[str]:
    """A sentence for each option that has no effect in this mode."""
    if given is not None and plan.config is None:
        yield f"mode {plan.mode} replays no saved config: {given} is not used."
    if plan.cached_by and plan.mode == "replay":  # the plan says already that nothing is searched
        return
    if plan.config is not None and (record or seed or any(number is not None for number in numbers)):
        yield (
            "nothing is searched here, so --record, --seed, --search-seconds, --search-percent and --stable-iterations "
            "have no effect."
            if plan.mode == "replay"
            else "if the saved config is for other ranks, another NCCL or GPU, the ranks start the controller "
            "themselves, without --record, --seed, --search-seconds, --search-percent and --stable-iterations; --mode "
            "tune searches with them."
        )


def _controller_options(**given: Sequence[str | float | Path | None]) -> tuple[str, ...]:
    """As they stand on the controller's command line: each as often as it has values, True and False for a switch."""
    options: list[str] = []
    for name, values in given.items():
        for value in values:
            if value is not None and value is not False:
                word = str(value.absolute() if isinstance(value, Path) else value)
                options += [f"--{name.replace('_', '-')}", *([] if value is True else [word])]
    return tuple(options)


def check_settings(environ: Mapping[str, str]) -> None:
    """Refuse wrong values in the environment before anything starts."""
    for setting in SETTINGS:
        setting.read(environ)
    parse_headroom(read("LAGOM_HEADROOM", environ))


def _check_start(mode: str, strategy: str, config: Path | None) -> tuple[str, Path | None]:
    """Check the environment together with the options, the files and the strategy they name; returns the mode and the
    saved config that are asked for."""
    environ = {**os.environ, **({"LAGOM_MODE": mode} if mode else {})}
    check_settings(environ)
    asked, named = read("LAGOM_MODE", environ), config or config_named(environ)
    if named is not None and asked != "off":
        from lagom.config_file import check_config

        check_config(named)
    from lagom.search import find_strategy

    find_strategy(strategy or read("LAGOM_STRATEGY"))
    return asked, named
