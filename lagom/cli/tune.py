# SPDX-License-Identifier: Apache-2.0
"""``lagom tune -- CMD``: start settings, measured on the job itself."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.cli.common import say
from lagom.cli.measured_job import ask_for_direction, check_job, claim_folder, show_tuned, told_how_to_go_on
from lagom.cli.tune_nodes import (
    at_exchange,
    facts_of_search,
    keep_found,
    keep_on_nodes,
    request_of,
    session_of,
)
from lagom.errors import UsageError
from lagom.format import format_count

if TYPE_CHECKING:
    from lagom.config_file import SavedConfig
    from lagom.experiment.request import Request
    from lagom.experiment.store import Store
    from lagom.nodes.enrolment import Session
    from lagom.start import Transport
    from lagom.tune import TuneRecord, TuneResult
    from lagom.tune.course import MoreTime
    from lagom.tune.on_nodes import Coordinator
    from lagom.tune.stages import SearchAim
    from lagom.tune.tune_result import PlainNccl

DEMO = ("--iterations", "8", "--sockets", "--ranks", "2", "--layers", "2")
DEMO_SECONDS = 100.0  # enough for the groups; the other variables do nothing to the simulated job
#: What a process of the demo counts of that, however long it takes: on an idle machine about as long.
DEMO_PROCESS_SECONDS = 2.5
DEMO_METRIC = r"iteration \d+: ([0-9.]+) ms"
_DURATION = re.compile(r"(\d+(?:\.\d+)?)([smh]?)")
_SECONDS = {"": 1.0, "s": 1.0, "m": 60.0, "h": 3600.0}
FOLDER = Path("lagom-tune")
FOUND, NOTHING = 0, 1


def tune(
    command: Annotated[
        list[str] | None,
        typer.Argument(help="The job's command, after `--`.", metavar="[-- CMD...]", show_default=False),
    ] = None,
    budget: Annotated[
        str,
        typer.Option(
            metavar="TIME", help="Time for all processes: 90s, 20m, 2h. The same command continues where it ended."
        ),
    ] = "20m",
    metric: Annotated[
        str,
        typer.Option(
            help="Regular expression with one group: an iteration's time in a line of the job's output. Default: the "
            "rate of the job's NCCL calls.",
            metavar="REGEX",
            show_default=False,
        ),
    ] = "",
    higher_is_better: Annotated[
        bool, typer.Option("--higher-is-better", help="The metric is a speed, not a time.")
    ] = False,
    samples: Annotated[
        int, typer.Option(metavar="N", help="End a process after this many steady samples.", min=3)
    ] = 10,
    run_limit: Annotated[float, typer.Option(metavar="SECONDS", help="Time limit of one process.", min=1)] = 300.0,
    transport: Annotated[
        str,
        typer.Option(
            metavar="NAME", help="sockets: do not find out from NCCL how the ranks are connected.", show_default=False
        ),
    ] = "",
    out: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Folder of the raw samples and of the result.", show_default=str(FOLDER)),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Random seed of the order of processes.")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the earlier results in the folder.")] = False,
    nnodes: Annotated[
        int,
        typer.Option(
            metavar="N", help="The job runs on N nodes: start this command on each, with the same --out.", min=1
        ),
    ] = 1,
    rdzv_endpoint: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="With --nnodes, where no folder is shared: one of the nodes, and a free port.",
            show_default=False,
        ),
    ] = "",
    demo: Annotated[bool, typer.Option("--demo", help="Tune a simulated job instead; no GPU needed.")] = False,
    json_out: Annotated[bool, typer.Option("--json", help="Print the result as JSON.")] = False,
) -> None:
    """Find start settings for a job: NCCL variables that only a start can change, measured on the job itself.

    The job's own command runs in short processes, in shuffled rounds, plain NCCL twice in each. What is faster beyond
    the noise between processes is confirmed on fresh ones and becomes a saved config for `lagom run --config`.

    Example: lagom tune --metric "step time: ([0-9.]+)" -- torchrun --nproc-per-node 8 train.py
    """
    from lagom.experiment.process import leave_in_order
    from lagom.experiment.request import Request

    if demo and nnodes > 1:
        raise UsageError("--demo simulates one node; leave --nnodes out.")
    if rdzv_endpoint and nnodes == 1:
        raise UsageError("--rdzv-endpoint is for a job on several nodes; give their number with --nnodes.")
    if demo:
        command = [sys.executable, "-m", "lagom.demo.job", *DEMO]
        metric, transport = DEMO_METRIC, "sockets"
        samples, budget = 3, f"{min(_seconds(budget), DEMO_SECONDS):g}"
        _say("simulated: two virtual ranks on a model of sockets (lagom/sim/sockets.py), no measurement of yours.")
        _say(_demo_limit(_seconds(budget)))
    if not command:
        raise UsageError("give the job's command after `--`, or --demo.")
    check_job(command, metric, _say, nnodes)
    request = Request(
        command=tuple(command), folder=(out or FOLDER).absolute(), samples=samples, metric=metric,
        higher_is_better=higher_is_better, budget=_seconds(budget), run_limit=run_limit, seed=seed,
    )  # fmt: skip
    search = SearchOptions(_transport_named(transport), is_demo=demo, as_json=json_out)
    ask_for_direction(request, _say)
    leave_in_order()
    with told_how_to_go_on(out or FOLDER, _say):
        if nnodes == 1:
            _tune(request, _store_of(request, is_named=out is not None, fresh=fresh), search)
            return
        request = at_exchange(request, nnodes, rdzv_endpoint)
        with session_of(request, facts_of_search(request, transport, fresh=fresh), _say) as session:
            request = request_of(session, request)
            store = _store_of(request, is_named=out is not None, fresh=fresh)
            _take_part(session, request, store, search)


@dataclass(frozen=True)
class SearchOptions:
    """What is asked for beside the request. ``transport``: None = found out from NCCL."""

    transport: Transport | None
    is_demo: bool
    as_json: bool


def _store_of(request: Request, *, is_named: bool, fresh: bool) -> Store[TuneRecord]:
    from lagom.experiment.results_folder import discard
    from lagom.experiment.store import Store
    from lagom.tune import TuneRecord
    from lagom.tune.tune_result import found_in, refuse_others

    claim_folder(request, _say, is_named=is_named)
    if fresh and (kept := discard(request.folder, found_in(request.folder))):
        _say(kept)
    store = Store(request, TuneRecord)  # which says what is wrong with a record
    if request.nnodes == 1:  # other nodes may have the files without a record: what the first one found
        refuse_others(request.folder)
    return store


def _take_part(session: Session, request: Request, store: Store[TuneRecord], search: SearchOptions) -> None:
    """One of several nodes: it searches, or does what the one that searches says."""
    from lagom.tune.on_nodes import Coordinator, follow

    if not session.is_coordinator:
        verdict, found = follow(session, request, store, _say)
        _say(f"node {session.nodes[0]} has finished: {verdict.replace('_', ' ')}.")
        if found is None:
            raise typer.Exit(NOTHING)
        keep_found(request, found, _say)
        return
    coordinator = Coordinator(session)
    store.record.nodes = list(session.nodes)
    try:
        _tune(request, store, search, coordinator)
    except typer.Exit:
        coordinator.finish("nothing_to_try")  # where nothing else was said before
        raise


def _tune(
    request: Request, store: Store[TuneRecord], search: SearchOptions, coordinator: Coordinator | None = None
) -> None:
    """``coordinator``: of a job on several nodes."""
    from lagom.tune import run_tune
    from lagom.tune.course import kept_text, needs_more_time, plain_nccl, shortest_text

    plain = plain_nccl(os.environ)
    _say(f"{plain.text}.")
    used = 0.0  # of the budget
    if store.record.aim is None:
        _warn_of_checkpoints(request, search)
        store.record.aim = _choose_groups(request, search, plain, coordinator)
        used = store.record.aim.look_seconds
    aim = store.record.aim
    if not aim.groups and not aim.factors:
        _say(
            f"nothing to try: no start setting is known for {aim.transport or 'this job'} that you have not set "
            "yourself; `lagom run -- CMD` tunes the job while it runs."
        )
        raise typer.Exit(NOTHING)
    _say(shortest_text(request))
    if kept := kept_text(store.record.runs):
        _say(kept)
    simulated = DEMO_PROCESS_SECONDS if search.is_demo else None
    run_one = None if coordinator is None else coordinator.run_task
    plan, result = run_tune(request, store, _say, simulated, used, run_one)
    show_tuned(plan, store.record, result, as_json=search.as_json)
    saved = _write(request, store, result)
    if coordinator is not None:
        coordinator.finish(result.verdict, saved, result.text)
    if saved is None:
        _say_what_it_needs(needs_more_time(request, plan, store.record, result, simulated), is_demo=search.is_demo)
        raise typer.Exit(NOTHING)


def _warn_of_checkpoints(request: Request, search: SearchOptions) -> None:
    from lagom.config_cache import PLACEHOLDER

    if not search.is_demo and not any(PLACEHOLDER in word for word in request.command):
        _say("warning: every process runs the whole job, and could overwrite its checkpoints; write {trial} in the "
             "command, or read LAGOM_TRIAL, for a folder of its own.")  # fmt: skip


def _say_what_it_needs(more: MoreTime | None, *, is_demo: bool) -> None:
    if more is not None and not (is_demo and more.budget > DEMO_SECONDS):
        _say(f"next: {more.text}")


def _choose_groups(
    request: Request, search: SearchOptions, plain: PlainNccl, coordinator: Coordinator | None
) -> SearchAim:
    """What a search that begins will try."""
    from lagom.doctor.libraries import find_nccl
    from lagom.start import known_factors, known_groups
    from lagom.tune.course import leave_out_set
    from lagom.tune.stages import SearchAim
    from lagom.tune.transport import Connected, find_connected

    connected, cores = Connected(search.transport), 0 if search.is_demo else len(os.sched_getaffinity(0))
    if search.transport is None:
        _say("the first process shows how NCCL connects the ranks; it is not compared.")
        run = None if coordinator is None else coordinator.process_with({})
        connected = find_connected(request, _say, run)
        if connected.why_not:
            _say(f"nothing to try: {connected.why_not}.")
            raise typer.Exit(NOTHING)
        _say(f"{connected.text}.")
    transport = connected.transport
    groups, remarks = leave_out_set(known_groups(transport, cores, has_windows=connected.has_windows), plain)
    for remark in (*_left_out(transport, cores), *remarks):
        _say(remark)
    factors = known_factors(transport, groups, plain.settings, find_nccl(os.environ))
    return SearchAim(
        transport=connected.name, groups=groups,
        factors={name: list(values) for name, values in factors.items()}, look_seconds=round(connected.seconds, 2),
    )  # fmt: skip


def _left_out(transport: Transport | None, cores: int) -> Iterator[str]:
    """Groups that this machine has too few cores for."""
    from lagom.start import known_groups

    kept = {group.name for group in known_groups(transport, cores)}
    if names := [group.name for group in known_groups(transport) if group.name not in kept]:
        yield f"{cores} cores are too few for the helper threads of {'; '.join(names)}: left out."


def _write(request: Request, store: Store[TuneRecord], result: TuneResult) -> SavedConfig | None:
    """The saved config, and the start settings in a file for NCCL_CONF_FILE; None if there is nothing to write."""
    from lagom.launch.cached_config import keep_config
    from lagom.tune.live_search import found_by, live_config
    from lagom.tune.on_nodes import found_of, saved_of
    from lagom.tune.tune_result import CONFIG, saved_config, write_found

    live = live_config(found_by(store.record.runs), request.folder)
    if (saved := saved_config(result, store.record.runs, request.metric, live)) is None:
        if os.path.lexists(earlier := request.folder / CONFIG):
            _say(f"note: {earlier} is what a shorter search here found; it stays, and the next start may use it.")
        return None
    if request.nnodes > 1:
        saved = saved_of(found_of(saved, result.text))  # as the other nodes write it
    is_simulated = saved.fingerprint.simulated
    config, conf = write_found(saved, request.folder, result.text)
    if saved.environment and result.group is not None:
        for remark in result.group.remarks(saved.fingerprint.ranks):
            _say(f"note: {remark}")
        _say(f"written: {conf}, the start settings{' of a simulated job' if is_simulated else ' for NCCL_CONF_FILE'}")
    _say(f"written: {config}")
    if request.nnodes > 1:
        keep_on_nodes(request, config, _say)
        return saved
    if kept := keep_config(request.command, config, os.environ, "lagom tune").text:
        _say(kept)
    clock = "LAGOM_CLOCK=simulated " if is_simulated else ""  # without it the saved config is refused
    command = f"lagom run --config {shlex.quote(os.path.relpath(config))} -- {shlex.join(request.command)}"
    _say(f"next: {clock}{command}", whole=True)
    return saved


def _demo_limit(seconds: float) -> str:
    most = int(seconds / DEMO_PROCESS_SECONDS)
    return (
        f"limit: {format_count(most, 'process', 'processes')}, which are {seconds:g} s of simulated time "
        f"({DEMO_PROCESS_SECONDS:g} s each); a busy machine takes longer and finds the same."
    )


def _transport_named(word: str) -> Transport | None:
    from lagom.start import Transport

    known = {"sockets": Transport.SOCKET}
    if word and word not in known:
        raise UsageError(f"--transport {word}: groups of start settings are known for: {', '.join(known)}.")
    return known.get(word)


def _seconds(text: str) -> float:
    found = _DURATION.fullmatch(text.strip())
    if found is None or float(found[1]) <= 0:
        raise UsageError(f"--budget {text}: write a time such as 90s, 20m or 2h.")
    return float(found[1]) * _SECONDS[found[2]]


def _say(text: str, *, whole: bool = False) -> None:
    """Progress, on stderr."""
    say("lagom tune: ", text, whole=whole)
