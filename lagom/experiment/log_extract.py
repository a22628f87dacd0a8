# SPDX-License-Identifier: Apache-2.0
"""What a log holds about a run: windows by arm, sites, outcome, and what a tuning run would use, as an arm."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from lagom import journal
from lagom.controller.arms import ArmWish, SiteWish
from lagom.experiment.diagnosis import UNENDED
from lagom.experiment.store import ArmWindow, RunRecord
from lagom.format import format_interval
from lagom.journal import RunState
from lagom.journal.schema import Base, ConfigRecord

PROPOSED = ":proposed"


def fill_record(run: RunRecord, events: Sequence[Base]) -> None:
    """Everything the log says that belongs to the record. Of a communicator that was learnt anew in mid-search, what
    was measured before is of another iteration, or by times that were not its kernels': :class:`RunState` drops it."""
    state = RunState(first_searches(events))
    outcomes: list[journal.Outcome] = []
    not_tuned = list(state.not_tuned)
    for comm in state.comms.values():
        run.windows += windows(comm.moves)
        run.sites += [site.model_dump() for site in comm.sites]
        run.measured_by = run.measured_by or ("" if comm.program is None else comm.program.tier)
        outcomes += filter(None, [comm.outcome])
        not_tuned += comm.not_tuned
    first = min(state.ranks, key=lambda rank: (rank.rank is None, rank.rank or 0), default=None)
    run.nccl, run.gpu = (first.nccl, first.gpu) if first is not None else ("", "")
    run.outcome = min(outcomes, key=lambda outcome: outcome.t).model_dump(mode="json") if outcomes else None
    run.notes += dict.fromkeys([*state.warnings, *(f"not tuned: {reason}" for reason in not_tuned)])


def first_searches(events: Iterable[Base]) -> Iterator[Base]:
    """The events without what follows the outcome of a communicator's first search: after a drift it is tuned again."""
    over: set[int] = set()
    for event in events:
        where = getattr(event, "communicator", None)
        if where not in over:
            yield event
        if isinstance(event, journal.Outcome):
            over.add(event.communicator)


def windows(moves: Iterable[journal.Move]) -> Iterator[ArmWindow]:
    """The windows of named arms."""
    for move in moves:
        if move.arm and move.samples:
            pairs = move.samples
            seen = [(a.x, b.x) if a.x is not None and b.x is not None else None for a, b in pairs]
            times = [(float(round(a.z)), float(round(b.z))) for a, b in pairs]
            yield ArmWindow(arm=move.arm, iteration=move.iteration, z=times, x=seen)


def arms_of_search(run: RunRecord) -> Iterator[ArmWish]:
    """What the search leaves the job with, and what it proposed where that was turned down.

    A strategy that has no final say of its own (comm-only tuning) is judged by what it proposed.
    """
    if (outcome := search_of(run)) is None:
        return
    chosen, proposed = outcome.configs_chosen, outcome.proposed
    if _changes(chosen):
        yield ArmWish(name=run.arm, sites=tuple(_wishes(run.sites, chosen)))
    if proposed is not None and _changes(proposed) and proposed != chosen:
        yield ArmWish(name=run.arm + PROPOSED, sites=tuple(_wishes(run.sites, proposed)))


def _changes(configs: Sequence[ConfigRecord]) -> bool:
    return any(config != ConfigRecord() for config in configs)


def _wishes(sites: Sequence[dict[str, Any]], configs: Sequence[ConfigRecord]) -> Iterator[SiteWish]:
    for site, record in zip(sites, configs, strict=False):
        config = record.config()
        yield SiteWish(
            function=site["function"],
            bytes=site["bytes"],
            context=site.get("context", ""),
            channels=config.channels,
            threads=config.threads,
            chunk_bytes=config.chunk_bytes,
            algorithm=None if config.algorithm is None else int(config.algorithm),
            protocol=None if config.protocol is None else int(config.protocol),
        )


def search_of(run: RunRecord) -> journal.Outcome | None:
    """How the search of a process went; None if it had not ended."""
    return None if run.outcome is None else journal.Outcome.model_validate(run.outcome)


def gain_text(search: journal.Outcome) -> str:
    """``1.050x [1.040, 1.060]``, by the search's own final A/B; empty without one."""
    if search.speedup is None:
        return ""
    return f"{search.speedup:.3f}x {format_interval(search.speedup_low, search.speedup_high)}".strip()


def search_note(run: RunRecord) -> str:
    """Why a search left nothing to compare, or what to know beside its gain."""
    if (search := search_of(run)) is None:
        return run.reason or UNENDED
    if search.verdict == "stopped":  # on whatever was confirmed until then
        return f"its search was stopped: {search.reason}"
    return "" if search.verdict == "improved" else f"{search.verdict.replace('_', ' ')}: the job keeps stock"
