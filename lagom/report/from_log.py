# SPDX-License-Identifier: Apache-2.0
"""The report of a job, from its decision log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from lagom import environment, journal
from lagom.format import format_count, format_payback, format_percent, format_variables
from lagom.journal import CommState, RunState
from lagom.journal.log_status import NO_RANK_JOINED
from lagom.records import STOCK, CommConfig
from lagom.report import tuning_report
from lagom.report.run_model import CommReport, NotTuned, RunReport, SiteReport, TriedConfig
from lagom.report.tuning_report import gpu_of, nccl_of


def build_report(run: RunState, source: str) -> RunReport:
    """A log's newest job, by communicator and site."""
    not_asked = {record.communicator: record for record in run.end.not_asked} if run.end is not None else {}
    first = run.first_rank
    return RunReport(
        source=source,
        kind="log",
        verdict=journal.verdict_of(run),
        is_simulated=run.is_simulated,
        start=_started(run),
        nothing="" if run.comms else tuning_report.describe_no_search(run),
        facts=_facts(run),
        communicators=tuple(_communicator(run, comm, not_asked.get(comm.index)) for comm in run.comms.values()),
        environment=environment.select_known(first.environment) if first is not None else {},
        remarks=(*run.remarks, *([f"{NO_RANK_JOINED}."] if run.no_rank_joined else [])),
    )


def _started(run: RunState) -> str:
    start = run.start_settings
    if start is None:
        return ""
    what = format_variables(start.settings)
    if not start.in_force:
        return f"Start settings of the saved config ({what}) are not in force: {start.reason}"
    return f"Start settings are in force on {format_count(start.ranks, 'rank')}: {what}."


def _facts(run: RunState) -> tuple[tuple[str, str], ...]:
    start = run.start
    facts = [("job", start.job)] if start is not None else []
    facts += [("NCCL", nccl_of(run)), ("GPU", gpu_of(run)), ("ranks", str(len(run.ranks) or ""))]
    if start is not None:
        facts += [("mode", start.mode), ("strategy", start.strategy), ("head-room", start.headroom)]
        facts += [("agreed by nodes", ", ".join(start.nodes))]
    return tuple((label, value) for label, value in facts if value)


def _communicator(run: RunState, comm: CommState, record: journal.NotAsked | None) -> CommReport:
    outcome, program, plan = comm.outcome, comm.program, tuning_report.find_applied(comm)
    return CommReport(
        name=comm.name,
        ranks=comm.ranks,
        answer=tuning_report.describe_communicator(comm, run.start.config if run.start is not None else ""),
        channels_built=program.channels_built if program is not None else None,
        headroom=run.start is not None and bool(run.start.headroom),
        tier=program.tier if program is not None else "",
        period=comm.period,
        z=comm.stock_z,
        proof=outcome.reason if outcome is not None else "",
        proven=outcome is not None and outcome.verdict == "improved",
        cost=_cost(comm),
        sites=_sites(comm),
        rules=plan.rules if plan is not None else (),
        not_tuned=(
            *_counted(record),
            *(NotTuned("everything here", None, reason) for reason in dict.fromkeys((*run.not_tuned, *comm.not_tuned))),
        ),
    )


def _cost(search: CommState) -> str:
    outcome = search.outcome
    if outcome is None:
        return f"{len(search.moves)} windows so far, {search.regret:.1f} iterations lost" if search.moves else ""
    seen = ""
    if outcome.resolvable is not None and not outcome.cut_short:
        seen = f"; a gain of {format_percent(outcome.resolvable)} would have shown"
    tried = f"{outcome.configs} configs in {outcome.windows} windows, {outcome.iterations} iterations"
    lost = (
        f"{outcome.regret_iterations:.1f} of them lost against plain NCCL{format_payback(outcome.payback_iterations)}"
    )
    return f"{tried}, {lost}{seen}"


def _sites(search: CommState) -> tuple[SiteReport, ...]:
    chosen, moved = _in_force(search), _moved(search.moves)
    proven = search.outcome is not None and search.outcome.verdict == "improved"
    times = {place: (change.stock_ns, change.tuned_ns) for place, change in enumerate(search.changes())}
    return tuple(
        SiteReport(
            index=site.index,
            function=site.function,
            bytes=site.bytes,
            calls=site.calls_per_iteration,
            context=site.context,
            stock=_value(site.stock) if site.stock is not None else None,
            ours=_value(chosen[place]) if place < len(chosen) else STOCK,
            trials=(trials := tuple(_trials(search, moved, place))),
            stock_ns=times[place][0],
            ours_ns=times[place][1],
            evidence=describe_evidence(_value(chosen[place]) if place < len(chosen) else STOCK, trials, proven=proven),
        )
        for place, site in enumerate(search.sites)
    )


def _in_force(search: CommState) -> tuple[journal.ConfigRecord, ...]:
    """What the search ended on; while it runs, what it has confirmed."""
    if search.outcome is not None:
        return search.outcome.configs_chosen
    return search.confirmed.candidate if search.confirmed is not None else ()


def _trials(search: CommState, moved: Mapping[int, frozenset[int]], place: int) -> Iterable[TriedConfig]:
    """Every window whose question was this site's config."""
    for step in search.steps():
        move = step.move
        sites = moved.get(move.number, frozenset())
        if place in sites:
            yield TriedConfig(
                move.number, move.iteration, _value(move.candidate[place]), len(sites) > 1, move.verdict,
                step.decision, move.kept, move.phase, move.reason,
                move.ratio, move.ratio_low, move.ratio_high, step.speedup, step.low, step.high, step.over_incumbent,
                move.pairs, move.h, move.x, move.y, move.z,
            )  # fmt: skip


def _moved(moves: Sequence[journal.Move]) -> dict[int, frozenset[int]]:
    """The sites that each move was about: those it set otherwise than the nearest point that had been measured before.

    The incumbent will not do for that: it stands still while the search walks away from it, move upon move. A point
    measured again is about what it was about the first time.
    """
    found: dict[int, frozenset[int]] = {}
    points: dict[tuple[journal.ConfigRecord, ...], int] = {}
    for move in moves:
        if move.purpose in ("baseline", "confirm", "final"):
            continue
        if move.candidate in points:
            found[move.number] = found[points[move.candidate]]
            continue
        stock = (journal.ConfigRecord(),) * len(move.candidate)
        before = [*reversed(points), move.incumbent or stock, stock]
        pairs = (enumerate(zip(point, move.candidate, strict=False)) for point in before)
        changes = (frozenset(at for at, (old, new) in sites if old != new) for sites in pairs)
        found[move.number] = min(filter(None, changes), key=len, default=frozenset())
        points[move.candidate] = move.number
    return found


def _value(record: journal.ConfigRecord) -> CommConfig:
    """As a value; a config whose names are not NCCL's (a later NCCL's) is shown without them."""
    try:
        return record.config()
    except ValueError:
        return CommConfig(None, None, record.channels, record.threads, record.chunk_bytes)


# -- the evidence for the config in force at one site


def describe_evidence(ours: CommConfig, trials: Sequence[TriedConfig], *, proven: bool) -> str:
    """One clause. ``proven``: all sites together were proven faster than stock. Empty where NCCL decides."""
    if ours.is_stock:
        return ""
    settled = [trial for trial in trials if trial.settled]
    own = [trial for trial in settled if trial.config == ours]
    kept = [trial for trial in own if trial.kept]
    since = 0
    why = "no window was about this config here alone"
    if kept:
        why, since = f"kept by {_where(kept[-1])}, {kept[-1].verdict}", kept[-1].number
    elif own:
        why, since = _measured(own), own[0].number
    proof = ["proven with all sites together"] if proven else []
    return "; ".join([why, *_moves_away(settled, ours, since), *proof])


def _measured(own: Sequence[TriedConfig]) -> str:
    """A config that no window of its own kept. That of the phase `floor` is where a search begins, even if it is
    slower: the search increases resources from there. Any other was chosen later, and proven with all sites."""
    if own[0].phase == "floor":
        return f"the smallest config, where this search began ({_where(own[0])}: {own[0].verdict})"
    return f"measured by {_where(own[-1])}"


def _where(trial: TriedConfig) -> str:
    return f"#{trial.number}{' with other sites' if trial.joint else ''}"


def _moves_away(trials: Iterable[TriedConfig], ours: CommConfig, since: int) -> list[str]:
    """What became of the other configs that were tried after it: they are not what is in force."""
    came_to: dict[str, list[str]] = {}
    for trial in (trial for trial in trials if trial.config != ours and trial.number > since):
        what = "kept, and not what was confirmed" if trial.kept else "worse" if trial.verdict == "worse" else "not kept"
        came_to.setdefault(what, []).append(f"#{trial.number}")
    moves = [f"{what} ({', '.join(numbers)})" for what, numbers in came_to.items()]
    return [f"changes from it were {' or '.join(moves)}"] if moves else []


# -- what NCCL ran without asking a tuner

_SEND_RECV = "NCCL has no tuner for it; its channels and chunk are fixed when the communicator is built"
_P2P_KNOBS = "start settings, which `lagom tune` tries: see below"
_SYMMETRIC = "kernels on window-registered buffers choose their own, few CTAs"
_COPY_ENGINE = "copy engines move the data; no SM is taken"
_NOTHING = "asked without an algorithm on offer, as for candidates of symmetric kernels"
_CAPTURED = "a captured choice stands for the life of the graph, so nothing was tried here after the capture"


def _counted(record: journal.NotAsked | None) -> list[NotTuned]:
    """Every kind of call that was seen, with its count; kinds that never came are left out."""
    if record is None:
        return []
    kinds = [
        ("send/recv and AlltoAll", record.send_recv, _SEND_RECV, _P2P_KNOBS),
        ("symmetric kernels", record.symmetric, _SYMMETRIC, "NCCL_SYM_CTAS, NCCL_WIN_ENABLE=0"),
        ("copy-engine collectives", record.copy_engine, _COPY_ENGINE, "NCCL_CTA_POLICY"),
        ("calls without an algorithm on offer", record.nothing_offered, _NOTHING, ""),
    ]
    found = [NotTuned(what, count, why, instead) for what, count, why, instead in kinds if count]
    if record.captured:
        found.append(NotTuned("CUDA graphs", None, _CAPTURED, "replay a saved config: it is in force at capture"))
    if record.send_recv is None:
        blind = "only the NCCL profiler plugin (NCCL_PROFILER_PLUGIN) reports it"
        found.append(NotTuned("send/recv, AlltoAll, copy engines", None, blind))
    return found
