# SPDX-License-Identifier: Apache-2.0
"""Everything measured so far in one run, on one clock.

A candidate is only ever measured beside an incumbent, so all that is known about it is relative. The measurements puts
every window onto the clock of the baseline window: each pair's times are scaled by (incumbent's known Z / incumbent's
Z in that pair). Two candidates measured minutes apart, or against different incumbents, can then be compared.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from lagom.records import Assignment
from lagom.search.moves import Pairs
from lagom.search.statistics import MAD_TO_SIGMA, Estimate, Noise, estimate, median_of_known, outlier_mask


@dataclass(frozen=True, slots=True)
class Trial:
    """What is known about one assignment, medians on the baseline's clock.

    ``z``, ``x``, ``y``, ``x_by_site`` in ns (``None`` where it was not seen); ``z_se``, ``x_se`` and ``x_se_by_site``
    are relative standard errors; ``pairs`` went into it and ``discarded`` were outliers.
    """

    assignment: Assignment
    z: float
    z_se: float
    x: float | None = None
    x_se: float = 0.0
    y: float | None = None
    x_by_site: tuple[float, ...] | None = None
    x_se_by_site: tuple[float, ...] | None = None
    pairs: int = 0
    discarded: int = 0

    def x_of(self, sites: tuple[int, ...]) -> float | None:
        """Communication time of these sites together, ns."""
        if self.x_by_site is None:
            return None
        return sum(self.x_by_site[site] for site in sites)

    def x_error(self, sites: tuple[int, ...]) -> float:
        """Relative standard error of :meth:`x_of`, errors taken to add up; of X where x_j was not seen."""
        total = self.x_of(sites)
        if not total or self.x_by_site is None or self.x_se_by_site is None:
            return self.x_se
        return sum(self.x_by_site[site] * self.x_se_by_site[site] for site in sites) / total


@dataclass
class _Evidence:
    """The pairs of one candidate: ln(Z / Z of stock), and X, Y, x_j on the baseline's clock."""

    log_z: list[float] = field(default_factory=list)
    x: list[float | None] = field(default_factory=list)
    y: list[float | None] = field(default_factory=list)
    sites: list[tuple[float, ...] | None] = field(default_factory=list)


class Measurements:
    """The run's measurements. The session writes it; strategies and models only read."""

    def __init__(self, stock: Assignment) -> None:
        self.stock = stock
        self.incumbent = stock
        self.noise = Noise()
        self._evidence: dict[Assignment, _Evidence] = {}
        self._levels: dict[Assignment, Trial] = {}
        self._trials: dict[Assignment, Trial] = {}

    # -- reading

    def trial(self, assignment: Assignment) -> Trial | None:
        """What is known about ``assignment``; ``None`` if it was never measured."""
        level = self._levels.get(assignment)
        if level is not None and (assignment == self.stock or assignment == self.incumbent):
            return level
        if assignment in self._evidence and assignment not in self._trials:
            self._trials[assignment] = self._summary(assignment)
        return self._trials.get(assignment)

    def known(self, assignment: Assignment) -> Trial:
        """The same for an assignment that must have been measured. Raises KeyError if it was not."""
        trial = self.trial(assignment)
        if trial is None:
            raise KeyError(f"not measured in this run: {assignment}")
        return trial

    def gain(self, trial: Trial) -> float:
        """ln(Z of stock / Z of ``trial``)."""
        return math.log(self.known(self.stock).z / trial.z)

    def trials(self) -> Iterator[Trial]:
        """Everything measured, stock first: the data to fit a model on."""
        for assignment in dict.fromkeys((*self._levels, *self._evidence)):
            yield self.known(assignment)

    def ranking(self) -> list[Assignment]:
        """What was measured, the fastest first, by its upper bound, so that one lucky pair does not win."""
        trials = sorted(self.trials(), key=lambda trial: trial.z * math.exp(trial.z_se))
        return [trial.assignment for trial in trials]

    def fastest(self) -> Assignment:
        """The first of :meth:`ranking`."""
        return self.ranking()[0]

    def is_gain_in_sight(self, trial: Trial) -> bool:
        """Whether ``trial`` is faster than stock by more than its standard error."""
        return trial.assignment != self.stock and self.gain(trial) > trial.z_se

    @property
    def tried(self) -> int:
        """Different assignments measured, stock not counted."""
        return len(self._evidence)

    # -- writing (the session only)

    def set_baseline(self, pairs: Pairs) -> Trial:
        """Take stock's levels from the A/A window; both arms are stock."""
        keep = _unspoilt(_differences(pairs), self.noise)
        samples = [sample for pair, good in zip(pairs, keep, strict=True) if good for sample in pair]
        z = float(np.median([sample.z for sample in samples]))
        level = Trial(
            self.stock,
            z,
            0.0,
            median_of_known([sample.x for sample in samples]),
            0.0,
            median_of_known([sample.y for sample in samples]),
            _site_medians(self._by_site([sample.x_by_site for sample in samples])),
            None,
            len(pairs),
            len(pairs) - sum(keep),
        )
        self._levels[self.stock] = level
        return level

    def add(self, candidate: Assignment, incumbent: Assignment, pairs: Pairs) -> None:
        """One window's pairs. ``incumbent`` must be stock or have been promoted."""
        level = self._levels[incumbent]
        evidence = self._evidence.setdefault(candidate, _Evidence())
        offset = math.log(level.z / self._levels[self.stock].z)
        differences = _differences(pairs)
        self.noise.add(differences)
        for (beside, sample), difference in zip(pairs, differences, strict=True):
            on_our_clock = sample.scaled(level.z / beside.z)
            evidence.log_z.append(difference + offset)
            evidence.x.append(on_our_clock.x)
            evidence.y.append(on_our_clock.y)
            evidence.sites.append(on_our_clock.x_by_site)
        self._trials.clear()  # the pooled noise changed with it

    def promote(self, assignment: Assignment) -> None:
        """Make a confirmed candidate the incumbent; its level is fixed from here on."""
        self._levels[assignment] = self._summary(assignment)
        self.incumbent = assignment

    def _by_site(self, rows: list[tuple[float, ...] | None]) -> list[tuple[float, ...]]:
        """The rows that name every site."""
        return [row for row in rows if row is not None and len(row) == len(self.stock)]

    def _summary(self, assignment: Assignment) -> Trial:
        evidence = self._evidence[assignment]
        sigma = self.noise.sigma
        found: Estimate = estimate(evidence.log_z, sigma)
        keep = ~outlier_mask(np.asarray(evidence.log_z), sigma)
        x = _kept(evidence.x, keep)
        by_site = self._by_site(_kept(evidence.sites, keep))
        return Trial(
            assignment,
            self._levels[self.stock].z * math.exp(found.value),
            found.se,
            median_of_known(x),
            _relative_error(x, sigma),
            median_of_known(_kept(evidence.y, keep)),
            _site_medians(by_site),
            tuple(_relative_error(list(column), sigma) for column in zip(*by_site, strict=True)) or None,
            len(evidence.log_z),
            found.dropped_slow + found.dropped_fast,
        )


def _differences(pairs: Pairs) -> list[float]:
    return [math.log(candidate.z / incumbent.z) for incumbent, candidate in pairs]


def _unspoilt(differences: list[float], noise: Noise) -> list[bool]:
    noise.add(differences)
    return [not bad for bad in outlier_mask(np.asarray(differences), noise.sigma)]


def _kept(values: list, keep: np.ndarray) -> list:
    return [value for value, good in zip(values, keep, strict=True) if good]


def _relative_error(values: list[float | None], sigma: float) -> float:
    """Relative standard error of a median; never better than Z's pooled noise would allow."""
    seen = np.asarray([value for value in values if value is not None])
    if len(seen) == 0 or np.median(seen) <= 0.0:
        return math.inf
    own = MAD_TO_SIGMA * float(np.median(np.abs(seen / np.median(seen) - 1.0)))
    return 1.2533 * max(own, sigma) / math.sqrt(len(seen))


def _site_medians(rows: list[tuple[float, ...]]) -> tuple[float, ...] | None:
    return tuple(float(value) for value in np.median(np.asarray(rows), axis=0)) if rows else None
