# SPDX-License-Identifier: Apache-2.0
"""The state of one communicator, from a log: its sites, the moves of its search with their speed-ups, how it ended."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from statistics import median

from lagom.format import format_config, format_site
from lagom.journal import schema
from lagom.journal.schema import ConfigRecord, SampleRecord, SiteRecord

#: Plans of one communicator that are remembered; older ones are long decided.
PLANS_KEPT = 50
STOCK = ConfigRecord()


def describe_changes(
    sites: tuple[SiteRecord, ...],
    configs: tuple[ConfigRecord, ...],
    before: tuple[ConfigRecord, ...] | None = None,
    most: int | None = None,
    *,
    config_first: bool = False,
) -> str:
    """``allgather 416M: nc=6 chunk=512K``: the sites that ``configs`` set otherwise than ``before`` (``None``: than
    stock), those with the same config together, ``most`` of them by name; empty where none is. ``config_first``:
    ``nc=6 chunk=512K at allgather 416M``, for a line that is cut at its end."""
    places: dict[str, list[int]] = {}
    for place, (old, new) in enumerate(zip(before or (STOCK,) * len(configs), configs, strict=False)):
        if old != new:
            places.setdefault(format_config(new), []).append(place)

    def names(changed: list[int]) -> str:
        if len(changed) == len(configs) > 1:
            return f"all {len(changed)} sites"
        named = changed[:most]
        more = f" +{len(changed) - len(named)}" if len(named) < len(changed) else ""
        return ", ".join(format_site(sites[at]) if at < len(sites) else f"site {at}" for at in named) + more

    if config_first:
        return "; ".join(f"{config} at {names(changed)}" for config, changed in places.items())
    return "; ".join(f"{names(changed)}: {config}" for config, changed in places.items())


@dataclass(frozen=True, slots=True)
class Step:
    """A move with its speed-up over stock. ``base``: that of the incumbent it was measured against."""

    move: schema.Move
    base: float
    sites: tuple[SiteRecord, ...] = ()
    point: tuple[ConfigRecord, ...] | None = None  # from which the search moved; None: from stock

    @property
    def speedup(self) -> float | None:
        return self.base / self.move.ratio if self.move.ratio else None

    @property
    def low(self) -> float | None:
        return self.base / self.move.ratio_high if self.move.ratio_high else None

    @property
    def high(self) -> float | None:
        return self.base / self.move.ratio_low if self.move.ratio_low else None

    @property
    def over_incumbent(self) -> float | None:
        """Its speed-up over the config in force; None where that is plain NCCL's, or was not measured."""
        is_plain = self.move.purpose == "final" or not any(one != STOCK for one in self.move.incumbent or ())
        return None if is_plain or not self.move.ratio else 1.0 / self.move.ratio

    @property
    def decision(self) -> str:
        """What was decided, in a word or two."""
        move = self.move
        if move.verdict == "baseline":
            return "baseline"
        if move.verdict == "confirmed" and move.against == "stock":
            return "proven"
        words = {"confirmed": "confirmed", "rejected": "rejected", "missing": "no data", "more": "undecided"}
        if move.kept or move.verdict in words:
            return words.get(move.verdict, "kept")
        # A config that is not slower may still be chosen later: nothing that is proven below is called "not kept" here.
        return "not kept" if move.verdict == "worse" else "measured"

    @property
    def settles(self) -> bool:
        """False for a window that only asked for more samples, or brought none."""
        return self.move.verdict not in ("more", "missing")

    @property
    def what(self) -> str:
        """Which sites the candidate sets otherwise than the incumbent, and how."""
        if self.move.purpose == "baseline":
            return "stock against itself"
        return describe_changes(self.sites, self.move.candidate, self.move.incumbent) or "the incumbent"

    def describe_moved(self, *, config_first: bool = False) -> str:
        """Which sites the candidate sets otherwise than the search's last point, and how; all it sets where it is
        proven. Of several sites that were moved alike the first is named."""
        point = None if self.move.purpose in ("confirm", "final") else self.point
        changes = describe_changes(self.sites, self.move.candidate, point, most=1, config_first=config_first)
        return changes or ("stock" if point is None else "as before")


@dataclass(frozen=True, slots=True)
class SiteChange:
    """A site before and after the search: its configs, and its communication time an iteration in the deciding
    windows."""

    site: SiteRecord
    chosen: ConfigRecord | None  # None: no search has ended
    stock_ns: float | None
    tuned_ns: float | None

    @property
    def name(self) -> str:
        return format_site(self.site)

    @property
    def before(self) -> str:
        """NCCL's own pick; empty where it was not seen."""
        return "" if self.site.stock is None else format_config(self.site.stock)

    @property
    def after(self) -> str:
        return format_config(self.chosen or STOCK)

    @property
    def changed(self) -> bool:
        """Whether the site is no longer left to NCCL."""
        return self.after != "stock"


@dataclass(slots=True)
class CommState:
    """One communicator. Of several searches ``moves`` and ``outcome`` are the last one's."""

    index: int
    communicator: schema.Communicator | None = None
    program: schema.Program | None = None
    moves: list[schema.Move] = field(default_factory=list)
    outcome: schema.Outcome | None = None
    phase: schema.Phase | None = None  # of its tuner; None: not recorded, as in a replay
    drifts: int = 0
    drift: str = ""  # why it is being learnt again; empty once a program is found
    not_tuned: list[str] = field(default_factory=list)  # why it was left to NCCL
    causes: set[schema.Cause] = field(default_factory=set)  # the same, as far as a reader decides by it
    plans: dict[int, schema.PlanPublished] = field(default_factory=dict)
    in_force: schema.PlanPublished | None = None  # the last open-ended plan that every rank agreed to
    plans_committed: int = 0
    plans_aborted: int = 0
    best_speedup: float | None = None  # over stock, of the trials so far
    _standing: float = 1.0  # speed-up of the incumbent
    _bases: list[float] = field(default_factory=list)  # the same at each move
    _points: list[tuple[ConfigRecord, ...] | None] = field(default_factory=list)  # where the search was at each move
    _tried: set[tuple[ConfigRecord, ...]] = field(default_factory=set)
    _lost_before: float = 0.0  # in searches that are over

    @property
    def given_name(self) -> str:
        """As the framework named it; empty if it did not."""
        return self.communicator.name if self.communicator is not None else ""

    @property
    def name(self) -> str:
        """What to call it."""
        return self.given_name or f"comm{self.index}"

    @property
    def ranks(self) -> int:
        return self.communicator.ranks if self.communicator is not None else 0

    @property
    def sites(self) -> tuple[SiteRecord, ...]:
        return self.program.sites if self.program is not None else ()

    @property
    def period(self) -> int:
        return self.program.period if self.program is not None else 0

    @property
    def was_searched(self) -> bool:
        """Whether there is anything to show."""
        return bool(self.moves) or self.outcome is not None

    @property
    def replayed(self) -> schema.PlanPublished | None:
        """What a saved config put in force here; None where there was none, or none of its iterations came up."""
        plan = self.in_force
        return plan if plan is not None and plan.purpose == "replay" and "other_program" not in self.causes else None

    @property
    def pinned(self) -> tuple[str, ...]:
        """Rules that were put in force by hand."""
        return self.in_force.rules if self.in_force is not None and self.in_force.purpose == "pin" else ()

    @property
    def baseline(self) -> schema.Move | None:
        """Stock against itself: the first levels of X, Y and Z."""
        return next((move for move in self.moves if move.purpose == "baseline" and move.z is not None), None)

    @property
    def stock_z(self) -> float | None:
        """An iteration under stock, as the baseline measured it last."""
        known = (move.z for move in reversed(self.moves) if move.purpose == "baseline" and move.z is not None)
        return next(known, None)

    @property
    def confirmed(self) -> schema.Move | None:
        """The last move whose candidate was proven better."""
        return next((move for move in reversed(self.moves) if move.verdict == "confirmed"), None)

    @property
    def chosen(self) -> tuple[ConfigRecord, ...]:
        """What the search ended on, by site; empty while it has not."""
        return self.outcome.configs_chosen if self.outcome is not None else ()

    @property
    def is_untunable(self) -> bool:
        """Whether there was nothing to tune: a saved config that no rank put in force is another matter."""
        return bool(self.not_tuned) and "not_agreed" not in self.causes

    @property
    def resolvable(self) -> float | None:
        """The smallest effect, as a fraction of Z, that could be distinguished from noise at the end, or so far."""
        if self.outcome is not None and self.outcome.resolvable is not None:
            return self.outcome.resolvable
        return self.moves[-1].resolvable if self.moves else None

    @property
    def windows(self) -> int:
        """Windows measured by the search; the baseline is not counted."""
        return sum(move.purpose != "baseline" for move in self.moves)

    @property
    def configs_tried(self) -> int:
        """Different assignments among them."""
        return len(self._tried)

    @property
    def regret(self) -> float:
        """Time lost against stock in this search."""
        if self.outcome is not None:
            return self.outcome.regret_iterations
        return self.moves[-1].lost_iterations if self.moves else 0.0

    @property
    def lost_iterations(self) -> float:
        """The same of all its searches."""
        return self._lost_before + self.regret

    def steps(self) -> list[Step]:
        """Every move with its speed-up over stock."""
        return [self._step(place) for place in range(len(self.moves))]

    @property
    def last_step(self) -> Step:
        """The newest move; there must be one."""
        return self._step(-1)

    def _step(self, place: int) -> Step:
        return Step(self.moves[place], self._bases[place], self.sites, self._points[place])

    def incumbent_line(self) -> list[tuple[int, float]]:
        """(iteration, speed-up of the incumbent over stock) wherever it changes, from the first move on."""
        line = [(0 if self.moves[0].iteration is None else self.moves[0].iteration, 1.0)] if self.moves else []
        for place, step in enumerate(self.steps()):
            if step.move.verdict == "confirmed" and step.speedup is not None:
                line.append((place if step.move.iteration is None else step.move.iteration, step.speedup))
        return line

    def sides(self, *purposes: str) -> tuple[list[SampleRecord], list[SampleRecord]]:
        """Iterations under stock, and under one candidate that was measured for the first of these purposes: under
        what the job was left with where it is among them, else the last. A candidate that was held against another one
        has stock's iterations from the baseline."""
        for purpose in purposes:
            moves = [move for move in self.moves if move.purpose == purpose and move.samples]
            if moves:
                candidates = [move.candidate for move in moves]
                one = self.chosen if self.chosen in candidates else candidates[-1]
                measured = [move for move in moves if move.candidate == one]
                is_beside_stock = purpose == "final" or measured[-1].against == "stock"
                beside = measured if is_beside_stock else self.moves[:1]
                return _side(beside, 0), _side(measured, 1)
        return [], []

    def changes(self, *purposes: str) -> list[SiteChange]:
        """Every site before and after; times from the windows that proved it, or from those of ``purposes``."""
        chosen = self.chosen
        before, after = map(_site_times, self.sides(*(purposes or ("final", "confirm"))))
        return [
            SiteChange(
                site,
                chosen[place] if place < len(chosen) else None,
                before[place] if place < len(before) else None,
                after[place] if place < len(after) else None,
            )
            for place, site in enumerate(self.sites)
        ]

    # -- called by RunState

    def begin_search(self, program: schema.Program) -> None:
        """A program was found, perhaps not the first: numbers start anew, what was lost counts on."""
        self._lost_before = self.lost_iterations
        self.program, self.outcome, self.drift = program, None, ""
        self.best_speedup, self._standing = None, 1.0
        for kept in (self.moves, self._bases, self._points, self._tried):
            kept.clear()

    def add_move(self, move: schema.Move) -> None:
        base = 1.0 if move.purpose == "final" else self._standing
        point = self._point_before(move)
        self.moves.append(move)
        self._bases.append(base)
        self._points.append(point)
        if move.purpose != "baseline":
            self._tried.add(move.candidate)
        if move.purpose != "baseline" and move.ratio:
            self.best_speedup = max(base / move.ratio, self.best_speedup or 0.0)
        if move.verdict == "confirmed" and move.ratio:
            self._standing = base / move.ratio

    def _point_before(self, move: schema.Move) -> tuple[ConfigRecord, ...] | None:
        """A search that walks on from what is slower than the incumbent begins with it: at its second move."""
        if move.against != "point":
            return move.incumbent
        kept = (one for one in reversed(self.moves) if one.kept)
        last = next(kept, self.moves[-1] if self.moves else None)
        return None if last is None else last.candidate

    def offer_plan(self, plan: schema.PlanPublished) -> None:
        self.plans[plan.epoch] = plan
        while len(self.plans) > PLANS_KEPT:
            del self.plans[min(self.plans)]

    def commit_plan(self, epoch: int) -> None:
        self.plans_committed += 1
        plan = self.plans.get(epoch)
        if plan is not None and plan.end_call is None:
            self.in_force = plan


def median_of(values: Iterable[float | None]) -> float | None:
    """The median of those that are known."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _side(moves: Iterable[schema.Move], side: int) -> list[SampleRecord]:
    return [pair[side] for move in moves for pair in move.samples]


def _site_times(samples: Iterable[SampleRecord]) -> list[float]:
    """Medians of each site's communication time, in site order."""
    rows = [sample.x_by_site for sample in samples if sample.x_by_site]
    return [median(column) for column in zip(*rows, strict=False)]
