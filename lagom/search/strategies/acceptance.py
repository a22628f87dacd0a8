# SPDX-License-Identifier: Apache-2.0
"""What one measured step meant for ``lagom``: was it worth keeping, what did it cost, is communication hidden?

The paper's Eq. 7 and its three boundary conditions, as far as they can be told from one answer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lagom.records import Problem
from lagom.search.base import TIE, Comparison, percent
from lagom.search.measurements import Trial
from lagom.search.space import Unit

HIDDEN = 0.05  # Z above max(X, Y) by more than this: some communication is exposed and X <= Y proves nothing


@dataclass(frozen=True, slots=True)
class Acceptance:
    """``delta``: X must lie this far below Y to count as hidden. ``epsilon``: a rise of Z below this fraction is no
    rise."""

    problem: Problem
    delta: float
    epsilon: float

    def kept(self, answer: Comparison, watch: Unit) -> tuple[bool, str]:
        """Better, and why: Z falls, or Z ties and the communication that the iteration waits for gets faster."""
        if answer.new is None:
            return False, "it could not be measured"
        if answer.better:
            return True, f"Z {percent(answer.delta)}"
        faster = answer.x_change(watch)
        if answer.verdict == TIE and faster < -self.epsilon and answer.delta < answer.se:
            return True, f"Z ties and its own time is {percent(faster)}"
        return False, f"Z {percent(answer.delta)}" + ("" if answer.verdict != TIE else " within noise and epsilon")

    def awaited(self, unit: Unit, trial: Trial, *, growing: bool = False) -> Unit:
        """``unit`` if the iteration waits for its communication (X > Y, or it is exposed anyway), else nothing.

        Where Y is not seen, growth gives it the benefit of the doubt (polish takes back what Z does not need).
        """
        if trial.x is None:
            return ()
        bound = growing if trial.y is None else trial.x > trial.y
        return unit if bound or self.exposed(unit) else ()

    def exposed(self, unit: Unit) -> bool:
        """No compute covers it: it wants every channel."""
        return all(self.problem.sites[site].context == "exposed" for site in unit)

    def metric_h(self, answer: Comparison, unit: Unit) -> float | None:
        """Eq. 7 with its denominator the right way round: ns of compute lost per ns of communication won.

        +inf where the communication did not get faster beyond noise ("already optimal" in the paper's words).
        """
        old, new = answer.old, answer.new
        if new is None or old.y is None or new.y is None or old.x is None or new.x is None:
            return None
        x_old, x_new = old.x_of(unit), new.x_of(unit)
        if x_old is None or x_new is None:
            x_old, x_new = old.x, new.x
        won = x_old - x_new
        noise = 2.0 * math.hypot(old.x_se, new.x_se) * x_old
        return (new.y - old.y) / won if won > noise else math.inf

    def hidden(self, trial: Trial) -> bool:
        """Conditions 1 and 3: all communication fits behind compute, and the wall clock agrees."""
        if trial.x is None or trial.y is None or trial.x > (1.0 - self.delta) * trial.y:
            return False
        return trial.z <= (1.0 + HIDDEN) * max(trial.x, trial.y)

    def why_ended(self, hidden: bool, above_floor: bool, trial: Trial) -> str:
        """Which of the three conditions ended growth."""
        if not hidden:
            return f"no increase of resources lowers Z any more ({where(trial)})"
        found = "after resources were increased" if above_floor else "with the fewest resources"
        return f"communication is hidden behind compute {found} ({where(trial)})"


def where(trial: Trial) -> str:
    """X, Y and Z in words."""
    z = f"Z {trial.z / 1e6:.2f} ms"
    if trial.x is None or trial.y is None:
        x = "X not seen" if trial.x is None else f"X {trial.x / 1e6:.2f} ms"
        y = "Y not seen" if trial.y is None else f"Y {trial.y / 1e6:.2f} ms"
        return f"{x}, {y}, {z}"
    sign = "<" if trial.x < trial.y else ">="
    return f"X {trial.x / 1e6:.2f} {sign} Y {trial.y / 1e6:.2f} ms, {z}"
