# SPDX-License-Identifier: Apache-2.0
"""What the fitted model says of configs nobody has run: Z with its uncertainty.

Ratios are predicted better than times, since most of what is uncertain cancels: :func:`compare` is what a search uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lagom.cost.fit import MODEL_FLOOR_Z, STEP, ModelFit
from lagom.cost.parameters import Array
from lagom.records import Assignment

UNKNOWN_MISS = 0.05  # taken for the equations' own error before anything was left out


@dataclass(frozen=True, slots=True)
class Change:
    """Predicted Z of one assignment over another: ``ratio`` < 1 is faster; ``sigma`` is that of log(ratio)."""

    ratio: float
    sigma: float

    @property
    def surely_worse(self) -> bool:
        """Predicted loss beyond three standard deviations: not worth a window."""
        return math.log(self.ratio) > 3.0 * self.sigma

    @property
    def hope(self) -> float:
        """Expected improvement: the mean gain in log Z, losses counted as 0 (nobody has to take them)."""
        gain, sigma = -math.log(self.ratio), max(self.sigma, 1e-9)
        u = gain / sigma
        density = math.exp(-0.5 * u * u) / math.sqrt(2.0 * math.pi)
        return gain * 0.5 * math.erfc(-u / math.sqrt(2.0)) + sigma * density


def compare(fit: ModelFit, candidates: Sequence[Assignment], base: Assignment) -> list[Change]:
    """Z of each candidate over Z of ``base``: what is uncertain for both alike cancels."""
    belief = _believe(fit, [base, *candidates])
    spread = np.diag(belief.covariance) + belief.covariance[0, 0] - 2.0 * belief.covariance[0]
    ratios, sigmas = np.exp(belief.log_z - belief.log_z[0]), np.sqrt(np.maximum(0.0, spread))
    return [Change(float(ratio), float(sigma)) for ratio, sigma in zip(ratios[1:], sigmas[1:], strict=True)]


def shrunk(fit: ModelFit) -> dict[Assignment, float]:
    """Z of every fitted window in ns, measurement and model weighed by what each is sure of.

    The better measured, the closer to the measurement; the better the left-out errors, the closer to the model.
    """
    seen = [window.assignment for window in fit.observations]
    return dict(zip(seen, np.exp(_believe(fit, seen).log_z).tolist(), strict=True))


@dataclass(frozen=True, slots=True)
class _Belief:
    """What is thought of log Z of some assignments, with the covariance of what is not known."""

    log_z: Array
    covariance: Array


def _believe(fit: ModelFit, assignments: Sequence[Assignment]) -> _Belief:
    """Equations and parameters, plus what the equations miss.

    What they miss is taken to be alike for configs that are alike (correlation exp(-d^2/2), d in doublings of NC and
    C), so the windows' residuals correct the equations nearby, each for as much as it is sure of (kriging).
    """
    log_z, gradient = _equations(fit, assignments)
    covariance = gradient.T @ fit.covariance @ gradient
    measured = [(window.assignment, math.log(window.z), window.error) for window in fit.observations if window.z]
    seen = [assignment for assignment, _, _ in measured]
    residuals = np.array([log_z for _, log_z, _ in measured]) - _equations(fit, seen)[0]
    alike = _likeness(fit, [*seen, *assignments])
    count = len(seen)
    known, known_new, new = alike[:count, :count], alike[:count, count:], alike[count:, count:]
    noise = np.array([error for _, _, error in measured]) ** 2 + 1e-10
    weights = np.linalg.solve(known + np.diag(noise), known_new)
    return _Belief(log_z + residuals @ weights, covariance + new - known_new.T @ weights)


def _equations(fit: ModelFit, assignments: Sequence[Assignment]) -> tuple[Array, Array]:
    """log Z of each assignment by the equations, and its gradient in the fit's coordinates, shape (coordinates,
    assignments)."""
    size = len(fit.theta)
    theta = fit.theta + np.concatenate([np.zeros((1, size)), np.eye(size) * STEP])
    logs = np.log(fit.model.times(theta, fit.model.resources(assignments)).z)
    return logs[0], (logs[1:] - logs[0]) / STEP


def _likeness(fit: ModelFit, assignments: Sequence[Assignment]) -> Array:
    """Covariance of what the equations miss at each pair of assignments: its variance for the same one.

    A doubling counts by the site's share of the bytes moved; another algorithm or protocol counts as one doubling.
    """
    runs = fit.model.resources(assignments)
    weight = fit.model.wire * fit.model.calls
    steps = np.stack([np.log2(runs.nc), np.log2(runs.chunk)])
    squares = ((steps[:, :, None] - steps[:, None, :]) ** 2).sum(0) + (runs.pair[:, None] != runs.pair[None, :])
    return _missed(fit) ** 2 * np.exp(-0.5 * (squares * weight).sum(-1) / weight.sum())


def _missed(fit: ModelFit) -> float:
    """Standard deviation of what the equations miss, from the left-out errors (each cut at three of their scale)."""
    if len(fit.left_out) < 2:
        return UNKNOWN_MISS
    size = np.abs(fit.left_out[1:])
    scale = 1.4826 * float(np.median(size))
    return max(MODEL_FLOOR_Z, math.sqrt(float(np.mean(np.minimum(size, 3.0 * scale) ** 2))))


def draws(fit: ModelFit, count: int, seed: int) -> Array:
    """``count`` parameter sets that the windows leave plausible, shape (count, coordinates); the same for a seed."""
    random = np.random.default_rng(seed)
    return fit.bounded(
        random.multivariate_normal(fit.theta, fit.covariance, size=count, method="eigh", check_valid="ignore")
    )
