"""What the demo shows, made of the controller's log and of nothing else."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from lagom import journal
from lagom.journal.schema import Base, SampleRecord


@dataclass(frozen=True, slots=True)
class Level:
    """Medians of one config's iterations in the deciding window, ns."""

    x: float | None
    y: float | None
    z: float


@dataclass(frozen=True, slots=True)
class SiteResult:
    """One site: what NCCL picks by itself, what the search chose, and its communication time under both, ns."""

    site: journal.SiteRecord
    chosen: journal.ConfigRecord | None
    x_before: float | None
    x_after: float | None


@dataclass(slots=True)
class Story:
    """The log so far. ``read`` takes events in order; everything else is looked up."""

    program: journal.Program | None = None
    outcome: journal.Outcome | None = None
    moves: list[journal.Move] = field(default_factory=list)
    ranks: int = 0
    committed: int = 0
    aborted: int = 0
    ended: bool = False

    def read(self, events: Iterable[Base]) -> None:
        """More of the log."""
        for event in events:
            if isinstance(event, journal.Program):
                self.program = event
            elif isinstance(event, journal.Move):
                self.moves.append(event)
            elif isinstance(event, journal.Outcome):
                self.outcome = event
            elif isinstance(event, journal.JobEnd):
                self.ended = True
            self.ranks += isinstance(event, journal.RankJoined)
            self.committed += isinstance(event, journal.PlanCommitted)
            self.aborted += isinstance(event, journal.PlanAborted)

    @property
    def configs_tried(self) -> int:
        """Different assignments measured so far."""
        return len({move.candidate for move in self.moves if move.purpose != "baseline"})

    @property
    def best_ratio(self) -> float | None:
        """The smallest Z ratio seen in a trial so far, candidate over incumbent."""
        return min(
            (move.ratio for move in self.moves if move.ratio is not None and move.purpose != "baseline"), default=None
        )

    @property
    def lost_iterations(self) -> float:
        """Regret so far, in stock iterations."""
        return self.moves[-1].lost_iterations if self.moves else 0.0

    def _deciding(self) -> list[tuple[SampleRecord, SampleRecord]]:
        """(before, after) pairs that decide: the final A/B against stock, else the last confirmation, else the A/A."""
        for purpose in ("final", "confirm", "baseline"):
            moves = [move for move in self.moves if move.purpose == purpose and move.samples]
            if moves:
                last = moves[-1].candidate
                return [pair for move in moves if move.candidate == last for pair in move.samples]
        return []

    def levels(self) -> tuple[Level, Level] | None:
        """X, Y, Z under NCCL's own picks and under ours; ``None`` before anything was measured."""
        pairs = self._deciding()
        if not pairs:
            return None
        before, after = _level([pair[0] for pair in pairs]), _level([pair[1] for pair in pairs])
        return before, after if self.outcome is None or self.outcome.verdict == "improved" else before

    def sites(self) -> list[SiteResult]:
        """One entry a site of the program."""
        if self.program is None:
            return []
        pairs = self._deciding()
        chosen = self.outcome.configs_chosen if self.outcome else ()
        return [
            SiteResult(
                site,
                chosen[site.index] if site.index < len(chosen) else None,
                _x_at([pair[0] for pair in pairs], site.index),
                _x_at([pair[1] for pair in pairs], site.index),
            )
            for site in self.program.sites
        ]

    def as_json(self) -> dict[str, Any]:
        """Everything above, for ``--json``. Times in ns."""
        levels = self.levels()
        return {
            "ranks": self.ranks,
            "configs": self.configs_tried,
            "plans_committed": self.committed,
            "plans_aborted": self.aborted,
            "before": None if levels is None else asdict(levels[0]),
            "after": None if levels is None else asdict(levels[1]),
            "outcome": None if self.outcome is None else self.outcome.model_dump(by_alias=True),
            "sites": [
                {
                    "site": result.site.model_dump(),
                    "chosen": None if result.chosen is None else result.chosen.model_dump(),
                    "x_before": result.x_before,
                    "x_after": result.x_after,
                }
                for result in self.sites()
            ],
        }


def _level(samples: Sequence[SampleRecord]) -> Level:
    xs = [sample.x for sample in samples if sample.x is not None]
    ys = [sample.y for sample in samples if sample.y is not None]
    return Level(
        statistics.median(xs) if xs else None,
        statistics.median(ys) if ys else None,
        statistics.median(sample.z for sample in samples),
    )


def _x_at(samples: Sequence[SampleRecord], site: int) -> float | None:
    times = [s.x_by_site[site] for s in samples if s.x_by_site is not None and site < len(s.x_by_site)]
    return statistics.median(times) if times else None
