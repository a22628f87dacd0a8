"""Which process comes next: a pure function of the results so far.

Three stages, each in shuffled rounds with plain NCCL twice in every round:

*screen*   every known group; after a round, what is clearly slower than the best is left out
*best two* against each other, on fresh processes: the best of many is not as good as it looked
*confirm*  the winner against plain NCCL, again on fresh processes: only these say how much faster it is

A group whose processes break down or give nothing twice is left out: that is a result, too.
"""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from lagom.start import StartGroup

Stage = Literal["screen", "best two", "confirm"]
STAGES: tuple[Stage, ...] = ("screen", "best two", "confirm")
PLAIN = StartGroup("plain NCCL")
#: After so many processes of a group that gave nothing it is left out.
ATTEMPTS = 2
#: A group is clearly slower than the best by so many standard deviations between processes, and by this share at least.
CLEARLY, AT_LEAST = 2.0, 0.15


#: A process is ended early once so many steady iterations were so many times as long as plain NCCL's.
LOST_SAMPLES, LOST = 3, 2.0


@dataclass(frozen=True, slots=True)
class Trial:
    """One process to run."""

    group: StartGroup
    stage: Stage
    round: int


@dataclass(frozen=True, slots=True)
class Tried:
    """What a process gave: the time of an iteration, or None."""

    group: str
    stage: str
    round: int
    time: float | None


@dataclass(frozen=True, slots=True)
class Plan:
    """What the time is enough for: the groups to try, most promising first, and the rounds of each stage."""

    groups: tuple[StartGroup, ...]
    screen: int = 2
    best_two: int = 3
    confirm: int = 6
    seed: int = 0

    def rounds(self, stage: Stage) -> int:
        """Of a stage."""
        return {"screen": self.screen, "best two": self.best_two, "confirm": self.confirm}[stage]

    @property
    def most_processes(self) -> int:
        """If nothing is left out on the way."""
        return (len(self.groups) + 2) * self.screen + 4 * self.best_two + 3 * self.confirm


#: Tried in this order until one fits into the budget: (groups, rounds of screen, best two, confirm).
_SIZES = ((99, 2, 3, 6), (99, 1, 3, 6), (5, 1, 2, 6), (3, 1, 2, 6), (2, 1, 1, 6), (2, 1, 1, 4))


def plan_for(groups: Sequence[StartGroup], seconds_each: float, budget: float | None, seed: int = 0) -> Plan:
    """The largest plan whose processes fit into ``budget`` seconds, each taking ``seconds_each``; else the smallest."""
    plan = Plan(())
    for count, screen, best_two, confirm in _SIZES:
        plan = Plan(tuple(groups[:count]), screen, best_two, confirm, seed)
        if budget is None or plan.most_processes * seconds_each <= budget:
            break
    return plan


def next_trial(plan: Plan, tried: Sequence[Tried]) -> Trial | None:
    """The next process; None when everything is known."""
    return next(left(plan, tried), None)


def left(plan: Plan, tried: Sequence[Tried]) -> Iterator[Trial]:
    """The processes that are still wanted, as things stand: what comes may leave some out."""
    for stage in STAGES:
        groups = entrants(plan, tried, stage)
        for number in range(plan.rounds(stage) if groups else 0):
            if stage == "screen":
                slower = clearly_slower(plan, tried, number)
                groups = tuple(group for group in groups if group.name not in slower)
            if all(is_given_up(tried, group) for group in groups):
                break  # plain NCCL alone would be compared with nothing
            yield from _missing(plan, tried, stage, number, groups)


def _missing(
    plan: Plan, tried: Sequence[Tried], stage: Stage, number: int, groups: Sequence[StartGroup]
) -> Iterator[Trial]:
    """Of one round, in an order of its own."""
    wanted = [*groups, PLAIN, PLAIN]
    random.Random(f"{plan.seed} {stage} {number}").shuffle(wanted)
    done = Counter(one.group for one in tried if (one.stage, one.round) == (stage, number) and one.time is not None)
    for group in wanted:
        if done[group.name]:
            done[group.name] -= 1
        elif group is PLAIN or not is_given_up(tried, group):
            yield Trial(group, stage, number)


def is_given_up(tried: Sequence[Tried], group: StartGroup) -> bool:
    """Whether its processes gave nothing too often."""
    return sum(one.group == group.name and one.time is None for one in tried) >= ATTEMPTS


def entrants(plan: Plan, tried: Sequence[Tried], stage: Stage) -> tuple[StartGroup, ...]:
    """The groups that a stage is about. Of a stage whose results are not there yet: those it would have as things
    stand."""
    if stage == "screen":
        return plan.groups
    screened = (group for group in ranking(plan, tried, "screen") if not is_given_up(tried, group))
    best = [group for group in screened if not _loses_to_plain(tried, group)][:2]
    if stage == "best two":
        return tuple(best) if len(best) == 2 else ()
    if len(best) < 2:
        return tuple(best)
    met = {group.name: mean_log(tried, group, "best two") for group in best}
    known = [group for group in best if math.isfinite(met[group.name])]
    return (min(known, key=lambda group: met[group.name]),) if known else tuple(best[:1])


def ranking(plan: Plan, tried: Sequence[Tried], stage: Stage) -> list[StartGroup]:
    """The groups that gave something in a stage, fastest first."""
    means = {group.name: mean_log(tried, group, stage) for group in plan.groups}
    known = (group for group in plan.groups if math.isfinite(means[group.name]))
    return sorted(known, key=lambda group: means[group.name])


def mean_log(tried: Sequence[Tried], group: StartGroup, stage: Stage, rounds: int | None = None) -> float:
    """Mean of ln(time) of a group's processes in a stage; infinite without any. ``rounds``: the first so many only."""
    logs = [math.log(time) for time in times_of(tried, group, stage, rounds)]
    return statistics.fmean(logs) if logs else math.inf


def times_of(tried: Sequence[Tried], group: StartGroup, stage: Stage, rounds: int | None = None) -> list[float]:
    """What a group's processes of a stage gave."""
    mine = (one for one in tried if (one.group, one.stage) == (group.name, stage))
    return [one.time for one in mine if one.time is not None and (rounds is None or one.round < rounds)]


def every_time(tried: Sequence[Tried], group: StartGroup) -> list[float]:
    """What a group's processes gave in all stages together."""
    return [one.time for one in tried if one.group == group.name and one.time is not None]


def clearly_slower(plan: Plan, tried: Sequence[Tried], rounds: int) -> set[str]:
    """After the first so many rounds of the screen: names of groups that are not worth another process."""
    means = {group.name: mean_log(tried, group, "screen", rounds) for group in (*plan.groups, PLAIN)}
    best = min(means.values())
    if not rounds or not math.isfinite(best):
        return set()
    margin = max(CLEARLY * scatter(tried, "screen", rounds), math.log1p(AT_LEAST))
    return {name for name, mean in means.items() if name != PLAIN.name and margin < mean - best < math.inf}


def scatter(tried: Sequence[Tried], stage: Stage, rounds: int | None = None) -> float:
    """Standard deviation of ln(time) between processes of plain NCCL in one round of a stage: the noise between
    processes. Of this stage alone, or what a later one shows would change what was decided before it."""
    by_round: dict[int, list[float]] = {}
    for one in tried:
        known = (one.group, one.stage) == (PLAIN.name, stage) and (rounds is None or one.round < rounds)
        if known and one.time is not None:
            by_round.setdefault(one.round, []).append(math.log(one.time))
    variances = [statistics.variance(logs) for logs in by_round.values() if len(logs) > 1]
    return math.sqrt(statistics.fmean(variances)) if variances else 0.0


def is_lost(tried: Sequence[Tried], times: Sequence[float]) -> bool:
    """Whether a process whose first steady iterations took ``times`` may be ended: they are :data:`LOST` times as long
    as plain NCCL's, which no later iteration makes good."""
    plain = [one.time for one in tried if one.group == PLAIN.name and one.time is not None]
    return len(times) >= LOST_SAMPLES and bool(plain) and statistics.median(times) > LOST * statistics.fmean(plain)


def best_so_far(plan: Plan, tried: Sequence[Tried]) -> StartGroup | None:
    """The group that is ahead, of those that a stage has compared last."""
    for stage in reversed(STAGES):
        if found := ranking(plan, tried, stage):
            return found[0]
    return None


def _loses_to_plain(tried: Sequence[Tried], group: StartGroup) -> bool:
    """Whether the screen has shown it slower than plain NCCL, beyond noise."""
    slower = mean_log(tried, group, "screen") - mean_log(tried, PLAIN, "screen")
    return math.isfinite(slower) and slower > max(CLEARLY * scatter(tried, "screen"), math.log1p(AT_LEAST))
