# SPDX-License-Identifier: Apache-2.0
"""Builds the snapshot from shared memory, log and the previous snapshot: pure."""

from __future__ import annotations

from dataclasses import dataclass

from lagom import journal
from lagom.format import format_config, format_site, format_version
from lagom.journal import CommState, SiteRecord
from lagom.records import STOCK, CommConfig, printable, readable_name
from lagom.watch.log_view import LogView
from lagom.watch.snapshot import Agreement, GroupPhase, GroupSnapshot, JobSnapshot, SiteSnapshot, Speedup
from lagom.wire.library import library
from lagom.wire.peek import GroupView, PlanView, RegionView
from lagom.wire.plan import format_rule

SHOWN_DECISIONS = 10
PURPOSES = {"baseline": GroupPhase.BASELINE, "confirm": GroupPhase.CONFIRMING, "final": GroupPhase.PROVING}
VERDICTS = {"improved": GroupPhase.TUNED, "stock_is_best": GroupPhase.STOCK_IS_BEST, "cut_short": GroupPhase.CUT_SHORT}


@dataclass(frozen=True, slots=True)
class Count:
    """A communicator's counters at one moment; ``at`` is monotonic seconds."""

    at: float
    comm_id: int
    epoch: int
    calls: int
    iterations: int


def read_counters(shared: RegionView, at: float) -> dict[int, Count]:
    """Every communicator's counters: of its slowest rank."""
    return {
        group.view.index: Count(
            at,
            group.view.comm_id,
            max(slot.active_epoch for slot in group.slots),
            min(slot.calls for slot in group.slots),
            min(slot.iterations for slot in group.slots),
        )
        for group in shared.groups
        if group.slots
    }


def build_job(
    shared: RegionView, log: LogView, folder: str, before: dict[int, Count], now: dict[int, Count]
) -> JobSnapshot:
    """One running job."""
    start = log.state.start
    first = shared.processes[0] if shared.processes else None
    said = {text for process in shared.processes for text in (process.remark, process.timeline_remark)}
    return JobSnapshot(
        job=readable_name(start.job if start is not None else shared.job_key),
        region=str(shared.path),
        folder=folder,
        ended="",
        mode=_mode(start),
        strategy=_strategy(start),
        controller_pid=shared.controller_pid if shared.controller_alive else 0,
        ranks=len(shared.processes),
        nccl=tuple(sorted({format_version(process.nccl_version) for process in shared.processes} - {""})),
        gpu=printable(first.gpu) if first is not None else "",
        started=shared.created_ns / 1e9,
        simulated_clock=shared.simulated_clock,
        remarks=tuple(dict.fromkeys([*map(printable, sorted(said - {""})), *log.state.not_tuned])),
        groups=tuple(_build_group(shared, group, log, before, now) for group in shared.groups),
        decisions=tuple(log.decisions)[-SHOWN_DECISIONS:],
    )


def build_ended(log: LogView, folder: str, region: str, reason: str, last: JobSnapshot | None) -> JobSnapshot:
    """A job that has ended: its last snapshot, and how it ended."""
    start = log.state.start
    return JobSnapshot(
        job=readable_name(start.job) if start is not None else (last.job if last is not None else region),
        region=region,
        folder=folder,
        ended=reason,
        mode=_mode(start),
        strategy=_strategy(start),
        controller_pid=0,
        ranks=0,
        nccl=last.nccl if last is not None else (),
        gpu=last.gpu if last is not None else "",
        started=start.t if start is not None else (last.started if last is not None else 0.0),
        simulated_clock=last.simulated_clock if last is not None else False,
        remarks=last.remarks if last is not None else tuple(log.state.not_tuned),
        groups=(),
        decisions=tuple(log.decisions)[-SHOWN_DECISIONS:],
    )


def _mode(start: journal.JobStart | None) -> str:
    """A job that was started with pinned rules is in mode tune, and tunes nothing."""
    if start is None:
        return ""
    return "pin" if start.rules and start.mode == "tune" else start.mode


def _strategy(start: journal.JobStart | None) -> str:
    """Empty where nothing is searched."""
    return "" if start is None or start.rules else start.strategy


def _build_group(
    shared: RegionView, group: GroupView, log: LogView, before: dict[int, Count], now: dict[int, Count]
) -> GroupSnapshot:
    view, slots = group.view, group.slots
    comm = log.state.comm(view.index)
    force = in_force(group, comm)
    count = now.get(view.index)
    calls_rate, iterations_rate = _rates(before.get(view.index), count)
    phase, detail = _phase(shared, group, comm, count)
    return GroupSnapshot(
        index=view.index,
        comm_id=f"{view.comm_id:#x}",
        name=printable(view.name) or f"comm{view.index}",
        ranks=view.rank_count,
        here=len(slots),
        nodes=view.node_count,
        phase=phase,
        detail=detail,
        agreement=_agreement(group, count),
        epoch=count.epoch if count is not None else 0,
        calls=count.calls if count is not None else 0,
        calls_per_second=calls_rate,
        iterations_per_second=iterations_rate,
        changed=sum(slot.applied for slot in slots),
        unrecorded=sum(slot.call_drops for slot in slots),
        suspensions=sum(slot.suspensions for slot in slots),
        graph_captured=any(slot.capturing for slot in slots),
        untunable={
            "p2p": group.untunable.p2p,
            "symmetric": group.untunable.symmetric,
            "copy_engine": group.untunable.copy_engine,
        },
        stock_z_ns=comm.stock_z,
        speedup=_speedup(comm),
        resolvable=None if comm.drift else comm.resolvable,
        configs_tried=comm.windows,
        lost_iterations=comm.lost_iterations,
        lost_seconds=comm.lost_iterations * comm.stock_z / 1e9 if comm.stock_z is not None else None,
        plans_committed=comm.plans_committed,
        plans_aborted=comm.plans_aborted,
        drifts=comm.drifts,
        sites=_sites(group, comm, force, iterations_rate),
        rules=force.rules,
    )


def _rates(before: Count | None, now: Count | None) -> tuple[float | None, float | None]:
    """Calls and iterations a second since the look before; iterations only under one and the same plan."""
    if before is None or now is None or before.comm_id != now.comm_id or now.at <= before.at:
        return None, None
    seconds = now.at - before.at
    calls = (now.calls - before.calls) / seconds if now.calls >= before.calls else None
    same_plan = before.epoch == now.epoch and 0 < before.iterations <= now.iterations
    return calls, (now.iterations - before.iterations) / seconds if same_plan else None


def _agreement(group: GroupView, count: Count | None) -> Agreement:
    lib = library()
    if group.switch_state == lib.LAGOM_PREPARED:
        return Agreement.OFFERED
    running = {slot.active_epoch for slot in group.slots}
    coming = group.switch_state == lib.LAGOM_COMMITTED and count is not None and running != {group.switch_epoch}
    return Agreement.COMING if coming else Agreement.AGREED


def _phase(shared: RegionView, group: GroupView, comm: CommState, count: Count | None) -> tuple[GroupPhase, str]:
    """Where it stands, and why where that wants a reason."""
    if len(group.slots) < group.view.rank_count and group.view.node_count == 1:
        return GroupPhase.JOINING, f"{len(group.slots)} of {group.view.rank_count} ranks"
    if comm.not_tuned:
        return GroupPhase.PASSTHROUGH, comm.not_tuned[-1]
    if comm.outcome is not None and not comm.drift:
        return VERDICTS.get(comm.outcome.verdict, GroupPhase.STOPPED), comm.outcome.reason
    if comm.pinned:
        return GroupPhase.PINNED, ""
    agreed = count is not None and count.epoch > 0
    if not shared.controller_alive:
        return _without_controller(comm, agreed)
    if comm.phase is None or comm.phase.phase not in ("searching", "finalizing"):
        return GroupPhase.LEARNING, comm.drift
    return PURPOSES.get(comm.phase.purpose, GroupPhase.SEARCHING), ""


def _without_controller(comm: CommState, agreed: bool) -> tuple[GroupPhase, str]:
    if comm.program is not None:
        return GroupPhase.UNATTENDED, "the controller is gone; what was agreed stays in force"
    return (GroupPhase.REPLAYING, "") if agreed else (GroupPhase.STOCK, "no controller, no saved config")


def _speedup(comm: CommState) -> Speedup | None:
    """The speed-up of the final A/B, or during the search that of the config in force, confirmed by fresh windows."""
    outcome = comm.outcome
    if comm.drift:
        return None
    if outcome is None:
        confirmed = [step for step in comm.steps() if step.move.verdict == "confirmed"]
        last = confirmed[-1] if confirmed else None
        return None if last is None or last.speedup is None else Speedup(last.speedup, last.low, last.high)
    if outcome.verdict != "improved" or outcome.speedup is None:
        return None
    return Speedup(outcome.speedup, outcome.speedup_low, outcome.speedup_high)


def _sites(
    group: GroupView, comm: CommState, force: InForce, iterations_rate: float | None
) -> tuple[SiteSnapshot, ...]:
    """As the log names them; in replay, where there is no log, as the plan does."""
    known = comm.program.sites if comm.program is not None else _planned(group)
    return tuple(_site(site, force, iterations_rate) for site in known)


def _planned(group: GroupView) -> tuple[SiteRecord, ...]:
    sites = group.plan.sites if group.plan is not None else ()
    return tuple(
        SiteRecord(index=index, function=site.function.word, bytes=site.bytes, calls_per_iteration=site.positions)
        for index, site in enumerate(sites)
    )


def _site(site: SiteRecord, force: InForce, iterations_rate: float | None) -> SiteSnapshot:
    config, trial = force.config(site.index), force.tried(site.index)
    return SiteSnapshot(
        index=site.index,
        name=format_site(site),
        function=site.function,
        bytes=site.bytes,
        context=site.context,
        calls_per_iteration=site.calls_per_iteration,
        calls_per_second=iterations_rate * site.calls_per_iteration if iterations_rate is not None else None,
        nccl=format_config(site.stock) if site.stock is not None else "",
        in_force=str(config) if force.known else "?",
        trial="" if trial is None else str(trial),
        channels=config.channels,
        chunk_bytes=config.chunk_bytes,
    )


# -- which config each site runs under now: from the plan in shared memory where that is the one in force, else from the
# log's copy of it. The region holds one plan a communicator: the last one offered. The ranks run the last one that they
# agreed to, and say which (``active_epoch``). A trial's candidate counts until its lease ends.


@dataclass(frozen=True, slots=True)
class InForce:
    """``trial`` has a config where the candidate differs from the incumbent, else None. ``known``: whether any of this
    is more than a guess."""

    incumbent: tuple[CommConfig, ...] = ()
    trial: tuple[CommConfig | None, ...] = ()
    rules: tuple[str, ...] = ()
    known: bool = True

    def config(self, site: int) -> CommConfig:
        """The incumbent at a site; stock where the plan has no such site."""
        return self.incumbent[site] if site < len(self.incumbent) else STOCK

    def tried(self, site: int) -> CommConfig | None:
        """The candidate there, if it is another."""
        return self.trial[site] if site < len(self.trial) else None


NOTHING = InForce()
UNKNOWN = InForce(known=False)


def in_force(group: GroupView, comm: journal.CommState) -> InForce:
    """What the ranks of a communicator run under."""
    epochs = {slot.active_epoch for slot in group.slots}
    if not epochs or epochs == {0}:
        return NOTHING
    epoch = max(epochs)
    calls = min(slot.calls for slot in group.slots)
    if group.plan is not None and group.plan.epoch == epoch:
        found = _from_region(group.plan, calls)
    elif (logged := comm.plans.get(epoch)) is not None:
        found = _from_log(logged, calls)
    else:
        return UNKNOWN
    return found if group.has_begun else InForce(rules=found.rules)


def _from_region(plan: PlanView, calls: int) -> InForce:
    trying = plan.has_candidate and calls < plan.end_call
    return InForce(
        tuple(site.incumbent for site in plan.sites),
        tuple(site.candidate if trying and site.candidate != site.incumbent else None for site in plan.sites),
        tuple(format_rule(rule) for rule in plan.rules),
    )


def _from_log(plan: journal.PlanPublished, calls: int) -> InForce:
    incumbent = _configs(plan.incumbent)
    candidate = _configs(plan.candidate or ()) if calls < (plan.end_call or 0) else incumbent
    return InForce(
        incumbent,
        tuple(new if new != old else None for old, new in zip(incumbent, candidate, strict=False)),
        plan.rules,
    )


def _configs(records: tuple[journal.ConfigRecord, ...]) -> tuple[CommConfig, ...]:
    try:
        return tuple(record.config() for record in records)
    except ValueError:  # a name that this lagom does not know
        return ()
