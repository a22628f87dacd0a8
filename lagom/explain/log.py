"""A decision log as an explanation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from lagom import environment, journal
from lagom.explain import evidence, untuned
from lagom.explain.model import CommunicatorStory, Explanation, SiteStory, Trial
from lagom.format import format_percent
from lagom.journal.ending import NOBODY_CAME, nobody_came
from lagom.records import STOCK, CommConfig
from lagom.report import tuning_report, tuning_story
from lagom.report.tuning_story import Search


def explain(events: Iterable[Any], source: str) -> Explanation:
    """The whole story of a log's newest job, told by communicator and site."""
    kept = journal.last_job(events)
    story = tuning_story.gather(kept)
    started = next((event for event in kept if isinstance(event, journal.JobStart)), None)
    joined = next((event for event in kept if isinstance(event, journal.RankJoined) and event.environment), None)
    asides = [event for event in kept if isinstance(event, journal.StandingAside)]
    ended = [event for event in kept if isinstance(event, journal.JobEnd)]
    not_asked = {record.communicator: record for end in ended for record in end.not_asked}
    nobody = [f"{NOBODY_CAME}."] if nobody_came(kept) else []
    pinned = _pinned(kept)
    parts = [
        _communicator(search, _program(kept, search.communicator), _applied(pinned, asides, search.communicator),
                      untuned.told(not_asked.get(search.communicator), asides, search.communicator),
                      headroom=started is not None and bool(started.headroom))
        for search in story.searches.values()
    ]  # fmt: skip
    return Explanation(
        source=source,
        kind="log",
        facts=_facts(story, started),
        communicators=tuple(parts),
        environment=environment.told_by(joined.environment) if joined is not None else {},
        remarks=tuple(dict.fromkeys((*story.remarks, *nobody))),
    )


def _facts(story: tuning_story.TuningStory, started: journal.JobStart | None) -> tuple[tuple[str, str], ...]:
    facts = [("job", story.job), ("NCCL", story.nccl), ("GPU", story.gpu), ("ranks", str(story.ranks or ""))]
    if started is not None:
        facts += [("mode", started.mode), ("strategy", started.strategy), ("head-room", started.headroom)]
    return tuple((label, value) for label, value in facts if value)


def _program(events: Sequence[Any], communicator: int) -> journal.Program | None:
    """The last one: an iteration that changed was learnt anew."""
    found = (event for event in reversed(events) if isinstance(event, journal.Program))
    return next((event for event in found if event.communicator == communicator), None)


def _pinned(events: Sequence[Any]) -> dict[int, journal.PlanPublished]:
    """What was put in force by hand or from a profile, by communicator: the last plan that was committed."""
    offered: dict[tuple[int, int], journal.PlanPublished] = {}
    found: dict[int, journal.PlanPublished] = {}
    for event in events:
        if isinstance(event, journal.PlanPublished) and event.end_call is None:
            offered[event.communicator, event.epoch] = event
        elif isinstance(event, journal.PlanCommitted) and (event.communicator, event.epoch) in offered:
            found[event.communicator] = offered[event.communicator, event.epoch]
    return found


def _applied(
    pinned: Mapping[int, journal.PlanPublished], asides: Iterable[journal.StandingAside], communicator: int
) -> journal.PlanPublished | None:
    """What stands in force there: not a profile of which it was said that nothing of it came up."""
    plan = pinned.get(communicator)
    said = any(aside.communicator == communicator for aside in asides)
    return None if plan is not None and plan.purpose == "replay" and said else plan


def _communicator(
    search: Search,
    program: journal.Program | None,
    pinned: journal.PlanPublished | None,
    not_tuned: tuple[Any, ...],
    *,
    headroom: bool,
) -> CommunicatorStory:
    outcome, base = search.outcome, search.baseline
    rules = pinned.rules if pinned is not None else ()
    return CommunicatorStory(
        name=search.name or f"communicator {search.communicator}",
        ranks=search.ranks,
        answer=_answer(search, program, pinned),
        channels_built=program.channels_built if program is not None else None,
        headroom=headroom,
        tier=program.tier if program is not None else "",
        period=search.period,
        z=base.z if base is not None else None,
        proof=outcome.reason if outcome is not None else "",
        cost=_cost(search),
        sites=_sites(search),
        rules=rules,
        not_tuned=not_tuned,
    )


def _answer(search: Search, program: journal.Program | None, pinned: journal.PlanPublished | None) -> str:
    if search.moves or search.outcome is not None:
        return tuning_report.answer(search)
    if pinned is not None and pinned.purpose == "replay":
        return "Replayed from a profile, agreed by every rank; nothing was tried here."
    if pinned is not None and pinned.rules:
        return "Pinned by hand: " + "; ".join(pinned.rules) + "."
    if program is None:
        return "No iteration was found here, so nothing was tried; NCCL decides."
    return "Nothing was tried here; NCCL decides."


def _cost(search: Search) -> str:
    outcome = search.outcome
    if outcome is None:
        return f"{len(search.moves)} windows so far, {search.regret:.1f} iterations lost" if search.moves else ""
    seen = ""
    if outcome.resolvable is not None and not outcome.cut_short:
        seen = f"; a gain of {format_percent(outcome.resolvable)} would have shown"
    tried = f"{outcome.configs} configs in {outcome.windows} windows, {outcome.iterations} iterations"
    return f"{tried}, {outcome.regret_iterations:.1f} of them lost against stock{seen}"


def _sites(search: Search) -> tuple[SiteStory, ...]:
    chosen, moved = _in_force(search), _moved(search.moves)
    proven = search.outcome is not None and search.outcome.verdict == "improved"
    times = {place: (change.stock_ns, change.tuned_ns) for place, change in enumerate(search.changes())}
    return tuple(
        SiteStory(
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
            evidence=evidence.of(_value(chosen[place]) if place < len(chosen) else STOCK, trials, proven=proven),
        )
        for place, site in enumerate(search.sites)
    )


def _in_force(search: Search) -> tuple[journal.ConfigRecord, ...]:
    """What the search ended on; while it runs, what it has confirmed."""
    if search.outcome is not None:
        return search.outcome.configs_chosen
    confirmed = [move for move in search.moves if move.verdict == "confirmed"]
    return confirmed[-1].candidate if confirmed else ()


def _trials(search: Search, moved: Mapping[int, frozenset[int]], place: int) -> Iterable[Trial]:
    """Every window whose question was this site's config."""
    for move in search.moves:
        sites = moved.get(move.number, frozenset())
        if place in sites:
            yield Trial(
                move.number, move.iteration, _value(move.candidate[place]), len(sites) > 1, move.verdict, move.reason,
                move.ratio, move.ratio_low, move.ratio_high, move.pairs, move.h, move.x, move.y, move.z,
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
        changes = (_differing(point, move.candidate) for point in before)
        found[move.number] = min((sites for sites in changes if sites), key=len, default=frozenset())
        points[move.candidate] = move.number
    return found


def _differing(old: Sequence[journal.ConfigRecord], new: Sequence[journal.ConfigRecord]) -> frozenset[int]:
    return frozenset(at for at, (a, b) in enumerate(zip(old, new, strict=False)) if a != b)


def _value(record: journal.ConfigRecord) -> CommConfig:
    """As a value; a config whose names are not NCCL's (a later NCCL's) is told without them."""
    try:
        return record.config()
    except ValueError:
        return CommConfig(None, None, record.channels, record.threads, record.chunk_bytes)
