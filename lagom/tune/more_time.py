# SPDX-License-Identifier: Apache-2.0
"""What a search without a result needs: a time limit that is enough for more processes, by what each took."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lagom.format import format_count
from lagom.start import StartGroup
from lagom.tune.stages import Tried, TunePlan, plan_for, plans
from lagom.tune.trials import left


@dataclass(frozen=True, slots=True)
class MoreTime:
    """``budget``: the time limit, in seconds, with which the same command comes to an end; ``missing`` processes then,
    which take ``seconds`` each."""

    budget: int
    missing: int
    seconds: float

    @property
    def text(self) -> str:
        """For `next:`."""
        limit = f"{self.budget // 60}m" if self.budget % 60 == 0 else f"{self.budget}s"
        missing = format_count(self.missing, "more process", "more processes")
        return f"the same command with --budget {limit}: {missing} of about {self.seconds:.3g} s each"


def more_time(
    plan: TunePlan,
    tried: Sequence[Tried],
    groups: Sequence[StartGroup],
    factors: Mapping[str, Sequence[str]],
    seconds: tuple[float, float],
    budget: float,
    look_seconds: float = 0.0,
) -> MoreTime | None:
    """The least budget, of what was given at least, that is enough for what is missing of ``plan``, or of the next
    larger one where nothing is; None where the largest is done. A budget chooses the plan, so that it must be one
    that chooses this one. ``seconds``: by which a plan is chosen, and what a process takes. ``look_seconds``: of any
    budget, what the process took that is not compared."""
    chooses, each = seconds
    smallest_first = reversed(list(plans(groups, plan.seed, factors)))
    found = None
    for one in (plan, *(one for one in smallest_first if one.most_processes > plan.most_processes)):
        waiting = list(left(one, tried))
        missing = len(waiting)
        if any(trial.stage in ("screen", "design") for trial in waiting):  # what is confirmed is not known yet
            missing = max(missing, one.most_processes - sum(run.time is not None for run in tried))
        if missing:
            needed = max(budget, 0.0 if one == plan else look_seconds + one.most_processes * chooses, missing * each)
            found = MoreTime(_rounded_up(needed), missing, each)
            if plan_for(groups, chooses, found.budget - look_seconds, plan.seed, factors) == one:
                break
    return found


def _rounded_up(seconds: float) -> int:
    """To whole minutes, unless it is less than three."""
    step = 60 if seconds > 180 else 1
    return step * math.ceil(seconds / step)
