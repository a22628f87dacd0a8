"""What a log tells of a run: windows by arm, sites, outcome, and what a tuning run would use, as an arm."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lagom import journal
from lagom.bench.store import ArmWindow, RunRecord
from lagom.controller.arms import ArmWish, SiteWish
from lagom.journal.schema import Base, ConfigRecord

PROPOSED = ":proposed"


@dataclass(frozen=True, slots=True)
class Search:
    """How a tuning run went: its verdict, its own final A/B, and what it cost the job."""

    verdict: str
    speedup: float | None
    low: float | None
    high: float | None
    configs: int
    iterations: int
    lost: float
    reason: str


def fill_record(run: RunRecord, events: Sequence[Base]) -> None:
    """Everything the log says that belongs to the record."""
    events = since_last_learning(events)
    run.windows = list(windows(events))
    run.sites = [site.model_dump() for event in events if isinstance(event, journal.Program) for site in event.sites]
    run.measured_by = _tier(events)
    ranks = [event for event in events if isinstance(event, journal.RankJoined)]
    first = min(ranks, key=lambda event: (event.rank is None, event.rank or 0), default=None)
    run.nccl, run.gpu = (first.nccl, first.gpu) if first is not None else ("", "")
    outcomes = [event for event in events if isinstance(event, journal.Outcome)]
    run.outcome = outcomes[0].model_dump(mode="json") if outcomes else None
    warnings = [event.text for event in events if isinstance(event, journal.Note) and event.level == "warning"]
    passthrough = [event.reason for event in events if isinstance(event, journal.Passthrough)]
    run.notes += dict.fromkeys([*warnings, *(f"not tuned: {reason}" for reason in passthrough)])


def since_last_learning(events: Sequence[Base]) -> list[Base]:
    """The events less what was measured on a communicator before it was learnt anew in mid-search: of another
    iteration, or by times that were not its kernels'."""
    stale: set[int] = set()
    searches: dict[int, list[int]] = {}  # communicator -> its search under way: indices of events
    for index, event in enumerate(events):
        if isinstance(event, journal.Program):
            stale.update(searches.get(event.communicator, ()))
            searches[event.communicator] = [index]
        elif isinstance(event, journal.Move):
            searches.setdefault(event.communicator, []).append(index)
        elif isinstance(event, journal.Outcome):
            searches.pop(event.communicator, None)
    return [event for index, event in enumerate(events) if index not in stale]


def windows(events: Sequence[Base]) -> Iterator[ArmWindow]:
    """The windows of named arms."""
    for event in events:
        if isinstance(event, journal.Move) and event.arm and event.samples:
            pairs = event.samples
            seen = [(a.x, b.x) if a.x is not None and b.x is not None else None for a, b in pairs]
            times = [(float(round(a.z)), float(round(b.z))) for a, b in pairs]
            yield ArmWindow(arm=event.arm, iteration=event.iteration, z=times, x=seen)


def _tier(events: Sequence[Base]) -> str:
    return next((event.tier for event in events if isinstance(event, journal.Program)), "")


def arms_of_search(run: RunRecord) -> Iterator[ArmWish]:
    """What the search leaves the job with, and what it proposed where that was turned down.

    A strategy that has no final say of its own (comm-only tuning) is judged by what it proposed.
    """
    if run.outcome is None:
        return
    outcome = journal.Outcome.model_validate(run.outcome)
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


def search_of(run: RunRecord) -> Search | None:
    """How a tuning run went; None if its search had not ended."""
    outcome = run.outcome
    if outcome is None:
        return None
    return Search(
        verdict=outcome["verdict"],
        speedup=outcome.get("speedup"),
        low=outcome.get("speedup_low"),
        high=outcome.get("speedup_high"),
        configs=outcome.get("configs", 0),
        iterations=outcome.get("iterations", 0),
        lost=outcome.get("regret_iterations", 0.0),
        reason=outcome.get("reason", ""),
    )


def search_note(run: RunRecord) -> str:
    """Why a search left nothing to compare, or what to know beside its gain."""
    if run.outcome is None:
        return run.reason or "its search had not ended when the job did"
    verdict = run.outcome["verdict"]
    if verdict == "stopped":  # on whatever was confirmed until then
        return f"its search was stopped: {run.outcome.get('reason', '')}"
    return "" if verdict == "improved" else f"{verdict.replace('_', ' ')}: the job keeps stock"
