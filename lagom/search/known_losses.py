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
from lagom.search.measurements import Measurements, Trial
from lagom.search.space import Space

FAR = 0.1  # of Z; with certainty, so that a few bad iterations do not rule out what lies beyond them
CERTAIN = 2.0  # standard errors


class KnownLosses:
    """Reads the measurements of a run; they grow with each window."""

    def __init__(self, space: Space, measurements: Measurements) -> None:
        self._space = space
        self._measurements = measurements
        self._bytes = [site.bytes * site.calls_per_iteration for site in space.problem.sites]

    def rule_out(self, candidate: Assignment) -> bool:
        """Whether ``candidate`` is expected to be slower than the best so far by more than ``FAR``."""
        best = self._measurements.known(self._measurements.fastest())
        return any(
            self._share(candidate, trial.assignment, best.assignment) * loss > FAR
            for trial, loss in self._far_slower(best)
        )

    def _far_slower(self, best: Trial) -> list[tuple[Trial, float]]:
        """Trials that are surely slower than ``best`` by more than ``FAR``, and by how much."""
        known = [
            (trial, math.log(trial.z / best.z) - CERTAIN * math.hypot(trial.z_se, best.z_se))
            for trial in self._measurements.trials()
        ]
        return [(trial, loss) for trial, loss in known if loss > FAR]

    def _share(self, candidate: Assignment, slow: Assignment, best: Assignment) -> float:
        """Of the bytes at the sites where ``slow`` has less than ``best``, those where ``candidate`` is as extreme."""
        changed = [site for site in range(len(candidate)) if self._changes(slow, best, site)]
        alike = [site for site in changed if self._is_as_extreme(candidate, slow, best, site)]
        return sum(self._bytes[site] for site in alike) / (sum(self._bytes[site] for site in changed) or 1)

    def _changes(self, slow: Assignment, best: Assignment, site: int) -> bool:
        """``slow`` has less of a knob, or another protocol. That NCCL's own protocol is slower says nothing of other
        knobs on it."""
        is_another = slow[site].protocol is not None and _pair(slow, site) != _pair(best, site)
        return is_another or bool(self._lowered(slow, best, site))

    def _is_as_extreme(self, candidate: Assignment, slow: Assignment, best: Assignment, site: int) -> bool:
        """The same algorithm and protocol as ``slow``, and no more than it of what it has less of than ``best``."""
        lowered = self._lowered(slow, best, site)
        return _pair(candidate, site) == _pair(slow, site) and all(
            self._space.rung(candidate, site, dim) <= self._space.rung(slow, site, dim) for dim in lowered
        )

    def _lowered(self, slow: Assignment, best: Assignment, site: int) -> list[str]:
        return [
            dim for dim in self._space.dims if self._space.rung(slow, site, dim) < self._space.rung(best, site, dim)
        ]


def _pair(assignment: Assignment, site: int) -> tuple[Algorithm | None, Protocol | None]:
    return assignment[site].algorithm, assignment[site].protocol
