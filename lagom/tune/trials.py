# SPDX-License-Identifier: Apache-2.0
"""Which process comes next: a pure function of the results so far.

Five stages, in shuffled rounds but for the design; all but *repeat* with plain NCCL twice in every round:

*screen*   every known group; after a round, what is clearly slower than the best is left out
*best two* against each other, on fresh processes: choosing the best of many overestimates it
*design*   with the best group in force, all other variables at once (``design.py``), folded over where noise is high
*repeat*   the fastest process of the design, where its fit does not explain it, against what the fit chose, or else
           against what the design had in force
*confirm*  what the design chose, and the best group alone, against plain NCCL, again on fresh processes, until they
           show which is faster: only these say by how much

A group whose processes break down or give nothing twice in a stage is left out: that is a result, too. Of a process of
the design that breaks down the suspected setting is left out, and the process is replaced.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Iterator, Sequence

from lagom.start import StartGroup
from lagom.tune.compare import best_group, best_two, clearly_slower, is_given_up, is_settled, mean_log
from lagom.tune.screening import combination, is_folded, missing_rows, most_rows, repeated
from lagom.tune.stages import PLAIN, STAGES, Stage, Tried, TunePlan, TuneTrial

MOST_CONFIRM = 6


def next_trial(plan: TunePlan, tried: Sequence[Tried]) -> TuneTrial | None:
    """The next process; None when everything is known."""
    return next(left(plan, tried), None)


def left(plan: TunePlan, tried: Sequence[Tried]) -> Iterator[TuneTrial]:
    """The processes that are still wanted, as things stand: what comes may leave some out."""
    for stage in STAGES:
        yield from missing_rows(plan, tried) if stage == "design" else _left_of(plan, tried, stage)


def _left_of(plan: TunePlan, tried: Sequence[Tried], stage: Stage) -> Iterator[TuneTrial]:
    """Of a stage in rounds. What a round says that is not over, its last processes may undo: nothing is left out by
    it."""
    groups, is_whole = entrants(plan, tried, stage), True
    for number in range(rounds(plan, tried, stage) if groups else 0):
        if stage == "screen" and is_whole:
            slower = clearly_slower(plan, tried, number)
            groups = tuple(group for group in groups if group.name not in slower)
        if _has_nothing_left(tried, stage, groups) or (
            stage == "confirm" and is_whole and is_settled(tried, groups, number)
        ):
            return
        missing = list(_missing(plan, tried, stage, number, groups))
        is_whole = is_whole and not missing
        yield from missing


def _has_nothing_left(tried: Sequence[Tried], stage: Stage, groups: Sequence[StartGroup]) -> bool:
    """Whether those that a stage is for break down: the others would be compared with nothing."""
    return all(is_given_up(tried, group) for group in (groups[:1] if stage == "repeat" else groups))


def most_left(plan: TunePlan, tried: Sequence[Tried]) -> int:
    """How many processes may still come, if none breaks down: of the stage that runs, and of all later ones. Processes
    of an earlier call with another plan are no part of this one's."""
    waiting = Counter(trial.stage for trial in left(plan, tried))
    if not waiting:
        return 0
    now = min(waiting, key=STAGES.index)
    later = STAGES[STAGES.index(now) + 1 :]
    if "design" in (now, *later):  # its second pass, which saves as much if it is not wanted, is counted
        confirming = plan.rounds("confirm")
    else:
        confirming = rounds(plan, tried, "confirm")
    most = most_rows(plan, tried) if now == "design" else waiting[now]
    return most + sum(plan.most(stage, confirming if stage == "confirm" else plan.rounds(stage)) for stage in later)


def rounds(plan: TunePlan, tried: Sequence[Tried], stage: str) -> int:
    """Of a stage. A design that need not be folded over leaves time for more that confirm."""
    saved = stage == "confirm" and plan.design > 1 and not is_folded(plan, tried)
    return max(plan.rounds(stage), MOST_CONFIRM) if saved else plan.rounds(stage)


def _missing(
    plan: TunePlan, tried: Sequence[Tried], stage: Stage, number: int, groups: Sequence[StartGroup]
) -> Iterator[TuneTrial]:
    """Of one round, in an order of its own."""
    wanted = [*groups, *(() if stage == "repeat" else (PLAIN, PLAIN))]
    random.Random(f"{plan.seed} {stage} {number}").shuffle(wanted)
    done = Counter(one.group for one in tried if (one.stage, one.round) == (stage, number) and one.time is not None)
    for group in wanted:
        if done[group.name]:
            done[group.name] -= 1
        elif group is PLAIN or not is_given_up(tried, group):
            yield TuneTrial(group, stage, number)


def entrants(plan: TunePlan, tried: Sequence[Tried], stage: Stage) -> tuple[StartGroup, ...]:
    """The groups that a stage compares. For a stage without results: the groups it would compare by the results so
    far."""
    if stage == "screen":
        return plan.groups
    if stage == "best two":
        best = best_two(plan, tried)
        return tuple(best) if len(best) == 2 else ()
    if stage == "repeat":
        return repeated(plan, tried)
    leader, combined = best_group(plan, tried), combination(plan, tried)
    return tuple(group for group in (combined, leader) if group is not None)


def best_so_far(plan: TunePlan, tried: Sequence[Tried]) -> StartGroup | None:
    """The group that is ahead, of those that a stage has compared last; None where that is plain NCCL."""
    for stage in reversed(STAGES):
        groups = () if stage in ("design", "repeat") else entrants(plan, tried, stage)
        known = [(mean, group) for group in groups if math.isfinite(mean := mean_log(tried, group, stage))]
        if known:
            mean, best = min(known, key=lambda one: one[0])
            return best if mean < mean_log(tried, PLAIN, stage) else None
    return None
