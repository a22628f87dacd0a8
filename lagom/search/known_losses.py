# SPDX-License-Identifier: Apache-2.0
"""Configs that need no window, because less extreme ones were far slower.

Z over NC, or over C, has one minimum: less of either makes communication longer and compute faster, so that beyond a
config that is far slower than the best, nothing is found. What such a config costs is shared out among the
communications at which it differs from the best, by their bytes: a candidate that is as extreme at some of them is
expected to cost as much as these do.
"""

from __future__ import annotations

import math

from lagom.records import Algorithm, Assignment, Protocol
from lagom.search.measurements import Measurements
from lagom.search.space import Space

FAR = 0.1  # of Z; with certainty, so that a few bad iterations do not rule out what lies beyond them
CERTAIN = 2.0  # standard errors


class KnownLosses:
    """By what was measured until now."""

    def __init__(self, space: Space, measurements: Measurements) -> None:
        self._space = space
        self._bytes = [site.bytes * site.calls_per_iteration for site in space.problem.sites]
        best = measurements.known(measurements.fastest())
        self._best = best.assignment
        known = [
            (trial.assignment, math.log(trial.z / best.z) - CERTAIN * math.hypot(trial.z_se, best.z_se))
            for trial in measurements.trials()
        ]
        self._far_slower = [(slow, loss) for slow, loss in known if loss > FAR]  # surely, and by so much

    def rule_out(self, candidate: Assignment) -> bool:
        """Whether ``candidate`` is expected to be slower than the best so far by more than ``FAR``."""
        return any(self._share(candidate, slow) * loss > FAR for slow, loss in self._far_slower)

    def _share(self, candidate: Assignment, slow: Assignment) -> float:
        """Of the bytes at the sites where ``slow`` has less than the best, those where ``candidate`` is as extreme."""
        changed = [site for site in range(len(candidate)) if self._changes(slow, site)]
        alike = [site for site in changed if self._is_as_extreme(candidate, slow, site)]
        return sum(self._bytes[site] for site in alike) / (sum(self._bytes[site] for site in changed) or 1)

    def _changes(self, slow: Assignment, site: int) -> bool:
        """``slow`` has less of a knob, or another protocol. That NCCL's own protocol is slower says nothing of other
        knobs on it."""
        is_another = slow[site].protocol is not None and _pair(slow, site) != _pair(self._best, site)
        return is_another or bool(self._lowered(slow, site))

    def _is_as_extreme(self, candidate: Assignment, slow: Assignment, site: int) -> bool:
        """The same algorithm and protocol as ``slow``, and no more than it of what it has less of than the best."""
        return _pair(candidate, site) == _pair(slow, site) and all(
            self._space.rung(candidate, site, dim) <= self._space.rung(slow, site, dim)
            for dim in self._lowered(slow, site)
        )

    def _lowered(self, slow: Assignment, site: int) -> list[str]:
        rungs = [
            (dim, self._space.rung(slow, site, dim), self._space.rung(self._best, site, dim))
            for dim in self._space.dims
        ]
        return [dim for dim, has, best in rungs if has < best]


def _pair(assignment: Assignment, site: int) -> tuple[Algorithm | None, Protocol | None]:
    return assignment[site].algorithm, assignment[site].protocol
