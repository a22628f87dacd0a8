"""A tuning run as a reader wants it, gathered from the events of its decision log.

One :class:`Search` for each communicator: its sites, its moves in order, how it ended. Everything is plain values; what
the log does not say (X and Y without kernel spans, an outcome of a job still running) stays ``None``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from lagom import journal
from lagom.format import format_config, format_site


@dataclass(frozen=True, slots=True)
class Step:
    """One move, with its speed-up over stock: that of the incumbent it was measured against, over the move's ratio."""

    move: journal.Move
    speedup: float | None
    low: float | None
    high: float | None
    what: str  # the move in words: site and config that it tried

    @property
    def settles(self) -> bool:
        """False for a window that only asked for more samples."""
        return self.move.verdict not in ("more", "missing")


@dataclass(frozen=True, slots=True)
class SiteChange:
    """A site before and after: configs in words, communication time an iteration in ns where the final A/B shows it."""

    name: str
    calls: int
    before: str
    after: str
    stock_ns: float | None
    tuned_ns: float | None

    @property
    def changed(self) -> bool:
        """True if the site is no longer left to NCCL."""
        return self.after != "stock"


@dataclass(slots=True)
class Search:
    """One communicator's search."""

    communicator: int
    name: str = ""
    ranks: int = 0
    period: int = 0
    sites: tuple[journal.SiteRecord, ...] = ()
    moves: list[journal.Move] = field(default_factory=list)
    outcome: journal.Outcome | None = None

    @property
    def baseline(self) -> journal.Move | None:
        """Stock against itself: the first levels of X, Y and Z."""
        return next((move for move in self.moves if move.purpose == "baseline" and move.z is not None), None)

    @property
    def regret(self) -> float:
        """Time lost against stock while searching, in iterations."""
        if self.outcome is not None:
            return self.outcome.regret_iterations
        return self.moves[-1].lost_iterations if self.moves else 0.0

    def steps(self) -> list[Step]:
        """Every move with its speed-up over stock."""
        found, standing = [], 1.0
        for move in self.moves:
            base = 1.0 if move.purpose == "final" else standing
            found.append(_step(move, base, self.sites))
            if move.verdict == "confirmed" and move.ratio:
                standing = base / move.ratio
        return found

    def incumbent_line(self) -> list[tuple[int, float]]:
        """(iteration, speed-up of the incumbent over stock) wherever it changes, from the first move on."""
        line = [(_iteration(self.moves[0], 0), 1.0)] if self.moves else []
        for place, step in enumerate(self.steps()):
            if step.move.verdict == "confirmed" and step.speedup is not None:
                line.append((_iteration(step.move, place), step.speedup))
        return line

    def changes(self) -> list[SiteChange]:
        """Every site before and after."""
        chosen = self.outcome.configs_chosen if self.outcome is not None else ()
        before, after = self._site_times()
        return [
            SiteChange(
                name=format_site(site), calls=site.calls_per_iteration,
                before=format_config(site.stock) if site.stock is not None else "",
                after=format_config(chosen[place]) if place < len(chosen) else "stock",
                stock_ns=before[place] if place < len(before) else None,
                tuned_ns=after[place] if place < len(after) else None,
            )
            for place, site in enumerate(self.sites)
        ]  # fmt: skip

    def _site_times(self) -> tuple[list[float], list[float]]:
        """Medians of each site's communication time under stock and under the choice, from the final A/B."""
        final = [move for move in self.moves if move.purpose == "final" and move.samples]
        pairs = [pair for move in final for pair in move.samples]
        sides = [[pair[side].x_by_site for pair in pairs if pair[side].x_by_site] for side in (0, 1)]
        stock, tuned = ([median(column) for column in zip(*side, strict=False)] for side in sides)  # type: ignore[arg-type]
        return stock, tuned


@dataclass(slots=True)
class TuningStory:
    """A job's log, gathered."""

    job: str = ""
    strategy: str = ""
    mode: str = ""
    began: float = 0.0  # wall clock, s
    gpu: str = ""
    nccl: str = ""
    ranks: int = 0
    seconds: float | None = None
    ended: bool = False
    searches: dict[int, Search] = field(default_factory=dict)
    remarks: list[str] = field(default_factory=list)
    aborted: int = 0

    def search(self, communicator: int) -> Search:
        """The search of a communicator, made on first mention."""
        return self.searches.setdefault(communicator, Search(communicator))

    @property
    def told(self) -> list[Search]:
        """Searches that have something to show."""
        return [search for search in self.searches.values() if search.moves or search.outcome is not None]


def gather(events: Iterable[Any]) -> TuningStory:
    """The story of a log's newest job, told by its events in order; events it does not know are passed over."""
    story = TuningStory()
    for event in journal.last_job(events):
        take = _TAKERS.get(type(event))
        if take is not None:
            take(story, event)
    return story


def _job_start(story: TuningStory, event: journal.JobStart) -> None:
    story.job, story.strategy, story.mode, story.began = event.job, event.strategy, event.mode, event.t


def _rank_joined(story: TuningStory, event: journal.RankJoined) -> None:
    story.ranks += 1
    story.gpu, story.nccl = event.gpu or story.gpu, event.nccl or story.nccl
    if event.remark and event.remark not in story.remarks:
        story.remarks.append(event.remark)


def _communicator(story: TuningStory, event: journal.Communicator) -> None:
    search = story.search(event.communicator)
    search.name, search.ranks = event.name, event.ranks


def _program(story: TuningStory, event: journal.Program) -> None:
    search = story.search(event.communicator)
    if search.moves:  # its iteration changed, or it drifted: numbers start anew, and so does the story
        who = search.name or f"communicator {event.communicator}"
        story.remarks.append(f"{who} was searched more than once; told is the last time, the log has all.")
        search = story.searches[event.communicator] = Search(event.communicator, search.name, search.ranks)
    search.period, search.sites = event.period, event.sites


def _move(story: TuningStory, event: journal.Move) -> None:
    story.search(event.communicator).moves.append(event)


def _outcome(story: TuningStory, event: journal.Outcome) -> None:
    story.search(event.communicator).outcome = event


def _aside(story: TuningStory, event: journal.StandingAside) -> None:
    story.remarks.append(f"standing aside: {event.reason}")


def _note(story: TuningStory, event: journal.Note) -> None:
    if event.level == "warning":
        story.remarks.append(event.text)


def _aborted(story: TuningStory, event: journal.PlanAborted) -> None:
    story.aborted += 1


def _job_end(story: TuningStory, event: journal.JobEnd) -> None:
    story.ended, story.seconds = True, event.seconds


_TAKERS: dict[type, Any] = {
    journal.JobStart: _job_start,
    journal.RankJoined: _rank_joined,
    journal.Communicator: _communicator,
    journal.Program: _program,
    journal.Move: _move,
    journal.Outcome: _outcome,
    journal.StandingAside: _aside,
    journal.Note: _note,
    journal.PlanAborted: _aborted,
    journal.JobEnd: _job_end,
}


def _step(move: journal.Move, base: float, sites: Sequence[journal.SiteRecord]) -> Step:
    def over(ratio: float | None) -> float | None:
        return base / ratio if ratio else None

    return Step(move, over(move.ratio), over(move.ratio_high), over(move.ratio_low), _what(move, sites))


def _what(move: journal.Move, sites: Sequence[journal.SiteRecord]) -> str:
    """Which sites the candidate sets otherwise than the incumbent, and how."""
    if move.purpose == "baseline":
        return "stock against itself"
    before = move.incumbent or (journal.ConfigRecord(),) * len(move.candidate)
    tried: dict[str, list[int]] = {}
    for place, (old, new) in enumerate(zip(before, move.candidate, strict=False)):
        if old != new:
            tried.setdefault(format_config(new), []).append(place)
    parts = [f"{_named(places, len(move.candidate), sites)}: {config}" for config, places in tried.items()]
    return "; ".join(parts) or "the incumbent"


def _named(places: list[int], count: int, sites: Sequence[journal.SiteRecord]) -> str:
    if len(places) == count and count > 1:
        return f"all {count} sites"
    return ", ".join(format_site(sites[place]) if place < len(sites) else f"site {place}" for place in places)


def _iteration(move: journal.Move, place: int) -> int:
    return move.iteration if move.iteration is not None else place
