"""What the fitted model says of configs nobody has run: Z with its uncertainty.

Ratios are predicted better than times, since most of what is uncertain cancels: :func:`compare` is what a search uses.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lagom.cost.fit import MODEL_FLOOR_Z, STEP, Fit, Observation
from lagom.cost.parameters import Array
from lagom.records import Assignment

UNKNOWN_MISS = 0.05  # taken for the equations' own error before anything was left out


@dataclass(frozen=True, slots=True)
class Prediction:
    """Predicted Z in ns with ``sigma``, the standard deviation of its logarithm (about the relative error)."""

    z: float
    sigma: float


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


def predict(fit: Fit, assignment: Assignment) -> Prediction:
    """Z of ``assignment``, as the fit sees it."""
    log_z, gradient = _log_z(fit, [assignment])
    nearest = min(_distances(fit, assignment, [seen.assignment for seen in fit.observations]))
    variance = _parameter_variance(fit, gradient[:, 0]) + _model_variance(fit, nearest)
    return Prediction(math.exp(log_z[0]), math.sqrt(variance))


def compare(fit: Fit, candidates: Sequence[Assignment], base: Assignment) -> list[Change]:
    """Z of each candidate over Z of ``base``. What the equations miss is taken to grow with the distance of the two."""
    log_z, gradient = _log_z(fit, [base, *candidates])
    changes = []
    for at, distance in enumerate(_distances(fit, base, candidates), start=1):
        variance = _parameter_variance(fit, gradient[:, at] - gradient[:, 0]) + _model_variance(fit, distance)
        changes.append(Change(math.exp(log_z[at] - log_z[0]), math.sqrt(variance)))
    return changes


def shrunk(fit: Fit) -> dict[Assignment, float]:
    """Z of every fitted window in ns, measurement and model weighed by what each is sure of.

    The better measured, the closer to the measurement; the better the left-out errors, the closer to the model.
    """
    resources = fit.model.resources([seen.assignment for seen in fit.observations])
    modelled = np.log(fit.model.times(fit.theta[None], resources).z[0])
    return {
        seen.assignment: _weigh(fit, seen, float(guess)) for seen, guess in zip(fit.observations, modelled, strict=True)
    }


def _weigh(fit: Fit, seen: Observation, guess: float) -> float:
    missed = _missed(fit) ** 2
    trust = missed / (missed + seen.error**2)
    return math.exp(guess if seen.z is None else guess + trust * (math.log(seen.z) - guess))


def _log_z(fit: Fit, assignments: Sequence[Assignment]) -> tuple[Array, Array]:
    """log Z of each assignment and its gradient in the fit's coordinates, shape (coordinates, assignments)."""
    size = len(fit.theta)
    theta = fit.theta + np.concatenate([np.zeros((1, size)), np.eye(size) * STEP])
    logs = np.log(fit.model.times(theta, fit.model.resources(assignments)).z)
    return logs[0], (logs[1:] - logs[0]) / STEP


def _parameter_variance(fit: Fit, gradient: Array) -> float:
    return float(gradient @ fit.covariance @ gradient)


def _model_variance(fit: Fit, distance: float) -> float:
    """What the equations miss between configs ``distance`` doublings apart."""
    return _missed(fit) ** 2 * (1.0 - math.exp(-0.5 * distance**2))


def _missed(fit: Fit) -> float:
    """Standard deviation of what the equations miss, from the left-out errors."""
    if len(fit.left_out) < 2:
        return UNKNOWN_MISS
    return max(MODEL_FLOOR_Z, 1.4826 * float(np.median(np.abs(fit.left_out[1:]))))


def _distances(fit: Fit, base: Assignment, others: Sequence[Assignment]) -> list[float]:
    """Doublings of NC and C between ``base`` and each other assignment, root mean square over the sites. Another
    algorithm or protocol counts as one doubling."""
    all_ = fit.model.resources([base, *others])
    squares = np.log2(all_.nc[1:] / all_.nc[0]) ** 2 + np.log2(all_.chunk[1:] / all_.chunk[0]) ** 2
    squares = squares + (all_.pair[1:] != all_.pair[0])
    return [float(distance) for distance in np.sqrt(squares.mean(-1))]


def draws(fit: Fit, count: int, seed: int) -> Array:
    """``count`` parameter sets that the windows leave plausible, shape (count, coordinates); the same for a seed."""
    random = np.random.default_rng(seed)
    return fit.bounded(random.multivariate_normal(fit.theta, fit.covariance, size=count, method="eigh"))
