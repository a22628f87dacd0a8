"""What the fitted model says of configs nobody has run: Z with its uncertainty, and the best of a ladder.

Ratios are predicted better than times, since most of what is uncertain cancels: :func:`compare` is what a search uses.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lagom.cost.fit import MODEL_FLOOR_Z, STEP, Fit
from lagom.cost.parameters import Array
from lagom.records import Assignment, CommConfig

JOINT_LIMIT = 6000  # assignments that a joint search may evaluate at once
EVEN = 5e-4  # predicted Z closer than this is a tie, and ties go to the config that takes less from compute


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


def predict(fit: Fit, assignment: Assignment) -> Prediction:
    """Z of ``assignment``, as the fit sees it."""
    log_z, gradient = _log_z(fit, [assignment])
    nearest = min(_distance(fit, assignment, seen.assignment) for seen in fit.observations)
    variance = _parameter_variance(fit, gradient[:, 0]) + _model_variance(fit, nearest)
    return Prediction(math.exp(log_z[0]), math.sqrt(variance))


def compare(fit: Fit, candidate: Assignment, base: Assignment) -> Change:
    """Z of ``candidate`` over Z of ``base``. What the equations miss is taken to grow with the distance of the two."""
    log_z, gradient = _log_z(fit, [candidate, base])
    variance = _parameter_variance(fit, gradient[:, 0] - gradient[:, 1])
    variance += _model_variance(fit, _distance(fit, candidate, base))
    return Change(math.exp(log_z[0] - log_z[1]), math.sqrt(variance))


def _log_z(fit: Fit, assignments: Sequence[Assignment]) -> tuple[Array, Array]:
    """log Z of each assignment and its gradient in the fit's coordinates, shape (coordinates, assignments)."""
    size = len(fit.theta)
    theta = fit.theta + np.concatenate([np.zeros((1, size)), np.eye(size) * STEP])
    nc, chunk = fit.model.resources(assignments)
    logs = np.log(fit.model.times(theta, nc, chunk).z)
    return logs[0], (logs[1:] - logs[0]) / STEP


def _parameter_variance(fit: Fit, gradient: Array) -> float:
    return float(gradient @ fit.covariance @ gradient)


def _model_variance(fit: Fit, distance: float) -> float:
    """What the left-out errors say the equations miss, for configs ``distance`` doublings apart."""
    missed = float(np.median(np.abs(fit.left_out[1:]))) * 1.4826 if len(fit.left_out) > 1 else 0.05
    return max(missed, MODEL_FLOOR_Z) ** 2 * (1.0 - math.exp(-0.5 * distance**2))


def _distance(fit: Fit, one: Assignment, other: Assignment) -> float:
    """Doublings of NC and C between two assignments, root mean square over the sites."""
    nc, chunk = fit.model.resources([one, other])
    steps = np.log2(nc[0] / nc[1]) ** 2 + np.log2(chunk[0] / chunk[1]) ** 2
    return math.sqrt(float(steps.mean()))


def best(fit: Fit, ladders: Sequence[Sequence[CommConfig]], starts: Sequence[Assignment]) -> Assignment:
    """The assignment with the least predicted Z, each site choosing from its own ``ladders[site]``.

    All combinations where they are few; else coordinate descent from every start. Near-ties (``EVEN``) go to the one
    that takes less from compute: fewer channels, then smaller chunks.
    """
    if math.prod(len(ladder) for ladder in ladders) <= JOINT_LIMIT:
        return _least(fit, [Assignment(configs) for configs in itertools.product(*ladders)])
    return _least(fit, [_descend(fit, ladders, start) for start in starts])


def _descend(fit: Fit, ladders: Sequence[Sequence[CommConfig]], start: Assignment) -> Assignment:
    """Change one site at a time to its best config until a whole round changes nothing."""
    current = start
    for _ in range(6):
        before = current
        for site, ladder in enumerate(ladders):
            current = _least(fit, [current, *(current.with_config(site, config) for config in ladder)])
        if current == before:
            break
    return current


def _least(fit: Fit, assignments: Sequence[Assignment]) -> Assignment:
    nc, chunk = fit.model.resources(assignments)
    z = fit.model.times(fit.theta[None], nc, chunk).z[0]
    near = np.flatnonzero(z <= z.min() * (1.0 + EVEN))
    taken = nc[near].sum(-1) + 1e-9 * chunk[near].sum(-1)
    return assignments[int(near[np.argmin(taken)])]
