# SPDX-License-Identifier: Apache-2.0
"""Configs that need no window, because less extreme ones were far slower.

Z over NC, or over C, has one minimum: less of either makes communication longer and compute faster, so that beyond a
config that is far slower than NCCL's own pick nothing is found. What such a config costs is shared out among the
communications that it changes, by their bytes: a candidate that is as extreme at some of them is expected to cost as
much as these do.
"""

from __future__ import annotations

from lagom.records import Assignment
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
        """Whether ``candidate`` is expected to be slower than NCCL's own pick by more than ``FAR``."""
        return any(self._share(candidate, trial) * loss > FAR for trial, loss in self._far_slower())

    def _far_slower(self) -> list[tuple[Trial, float]]:
        """Trials that are surely slower by more than ``FAR``, and by how much."""
        known = [
            (trial, -self._measurements.gain(trial) - CERTAIN * trial.z_se) for trial in self._measurements.trials()
        ]
        return [(trial, loss) for trial, loss in known if loss > FAR]

    def _share(self, candidate: Assignment, trial: Trial) -> float:
        """Of the bytes at the sites that ``trial`` changes, those where ``candidate`` is as extreme."""
        changed = [site for site in range(len(candidate)) if self._is_changed(trial.assignment, site)]
        alike = [site for site in changed if self._is_as_extreme(candidate, trial.assignment, site)]
        return sum(self._bytes[site] for site in alike) / (sum(self._bytes[site] for site in changed) or 1)

    def _is_changed(self, assignment: Assignment, site: int) -> bool:
        """It has less of a knob than NCCL's own pick, or another algorithm or protocol."""
        return assignment[site].protocol is not None or any(
            self._is_below(assignment, self._space.stock, site, dim) for dim in self._space.dims
        )

    def _is_as_extreme(self, candidate: Assignment, other: Assignment, site: int) -> bool:
        """The same algorithm and protocol, and of every knob that ``other`` has less of, no more than it."""
        config, against = candidate[site], other[site]
        return (config.algorithm, config.protocol) == (against.algorithm, against.protocol) and not any(
            self._is_below(other, self._space.stock, site, dim) and self._is_below(other, candidate, site, dim)
            for dim in self._space.dims
        )

    def _is_below(self, assignment: Assignment, other: Assignment, site: int, dim: str) -> bool:
        return self._space.rung(assignment, site, dim) < self._space.rung(other, site, dim)
