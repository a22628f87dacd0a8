# SPDX-License-Identifier: Apache-2.0
"""Groups of start settings compared by their processes: which is ahead, which is not worth another process."""

from __future__ import annotations

import itertools
import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from lagom.experiment.estimate import SpeedupEstimate, estimate_speedup
from lagom.start import StartGroup
from lagom.tune.stages import PLAIN, STAGES, Stage, Tried, TunePlan

#: After so many processes of a stage that gave nothing a group is left out.
ATTEMPTS = 2
#: A group is clearly slower than the best by so many standard deviations between processes, and by this share at least.
CLEARLY, AT_LEAST = 2.0, 0.15
#: Confirming may end after so many rounds, where intervals of this confidence hold no ratio of 1. Looking so after each
#: of six rounds, and after the last one at 95 %, accepts at most 3 % of the groups that gain nothing. An interval that
#: is printed, at 95 %, covers the true ratio in 94 to 96 % of searches (simulated: Student's t, effects of 0 to 275 %).
LEAST_CONFIRM, EARLY = 2, 0.995
#: A process is ended early once so many steady iterations were so many times as long as plain NCCL's.
LOST_SAMPLES, LOST = 3, 2.0


def best_two(plan: TunePlan, tried: Sequence[Tried]) -> list[StartGroup]:
    """Of those that the screen has a time of, fastest first, without what is slower than plain NCCL."""
    means = {group.name: mean_log(tried, group, "screen") for group in plan.groups}
    known = (group for group in plan.groups if math.isfinite(means[group.name]) and not is_given_up(tried, group))
    ranked = sorted(known, key=lambda group: means[group.name])
    return [group for group in ranked if not _loses_to_plain(tried, group)][:2]


def best_group(plan: TunePlan, tried: Sequence[Tried]) -> StartGroup | None:
    """Of the known groups, by the processes of the best two alone where there were two; None where none is worth it."""
    best = best_two(plan, tried)
    met = {group.name: mean_log(tried, group, "best two") for group in best}
    known = [group for group in best if math.isfinite(met[group.name])]
    return min(known, key=lambda group: met[group.name]) if len(best) == 2 and known else next(iter(best), None)


def is_given_up(tried: Sequence[Tried], group: StartGroup, stage: Stage | None = None) -> bool:
    """Whether its processes gave nothing too often in one stage (``stage``: in this one). Not over all of them: once in
    each of two would take away what the first of them has decided."""
    failed = Counter(one.stage for one in tried if one.group == group.name and one.time is None)
    return (max(failed.values(), default=0) if stage is None else failed[stage]) >= ATTEMPTS


def mean_log(tried: Sequence[Tried], group: StartGroup, stage: Stage, rounds: int | None = None) -> float:
    """Mean of ln(time) of a group's processes in a stage; infinite without any. ``rounds``: the first so many only."""
    logs = [math.log(time) for time in times_of(tried, group, stage, rounds)]
    return statistics.fmean(logs) if logs else math.inf


def times_of(tried: Sequence[Tried], group: StartGroup, stage: Stage, rounds: int | None = None) -> list[float]:
    """What a group's processes of a stage gave."""
    mine = (one for one in tried if (one.group, one.stage) == (group.name, stage))
    return [one.time for one in mine if one.time is not None and (rounds is None or one.round < rounds)]


@dataclass(frozen=True, slots=True)
class DecidingRuns:
    """What a group is judged by: times of its processes and of plain NCCL's in one ``stage``, empty if it has none."""

    stage: str = ""
    plain: tuple[float, ...] = ()
    own: tuple[float, ...] = ()

    @property
    def speedup(self) -> SpeedupEstimate | None:
        return estimate_speedup(self.plain, self.own)


def deciding_runs(tried: Sequence[Tried], group: StartGroup) -> DecidingRuns:
    """The last stage of a group that gives an interval, or else anything. No other: by the processes that chose it the
    best of many looks better than it is, and those that confirm it would be a second verdict beside the first."""
    stages = [
        DecidingRuns(stage, tuple(times_of(tried, PLAIN, stage)), tuple(times_of(tried, group, stage)))
        for stage in reversed(STAGES)
    ]
    known = [runs for runs in stages if runs.own]
    return next((runs for runs in known if runs.speedup is not None), next(iter(known), DecidingRuns()))


def clearly_slower(plan: TunePlan, tried: Sequence[Tried], rounds: int) -> set[str]:
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


def is_settled(tried: Sequence[Tried], groups: Sequence[StartGroup], rounds: int) -> bool:
    """Whether the first so many confirming rounds have shown which of any two of these groups and plain NCCL is faster,
    so that more of them could not change the result."""
    if rounds < LEAST_CONFIRM:
        return False
    times = [times_of(tried, group, "confirm", rounds) for group in (*groups, PLAIN)]
    found = [estimate_speedup(one, other, EARLY) for one, other in itertools.combinations(times, 2)]
    return all(ratio is not None and (ratio.low > 1.0 or ratio.high < 1.0) for ratio in found)


def is_lost(tried: Sequence[Tried], samples: Sequence[float], *, is_speed: bool = False) -> bool:
    """Whether a process whose first steady iterations gave ``samples`` may be ended: they are :data:`LOST` times as
    long as plain NCCL's, which no later iteration makes good."""
    times = [1.0 / one for one in samples] if is_speed else samples
    plain = [one.time for one in tried if one.group == PLAIN.name and one.time is not None]
    return len(times) >= LOST_SAMPLES and bool(plain) and statistics.median(times) > LOST * statistics.fmean(plain)


def _loses_to_plain(tried: Sequence[Tried], group: StartGroup) -> bool:
    """Whether the screen has shown it slower than plain NCCL, beyond noise."""
    slower = mean_log(tried, group, "screen") - mean_log(tried, PLAIN, "screen")
    return math.isfinite(slower) and slower > max(CLEARLY * scatter(tried, "screen"), math.log1p(AT_LEAST))
