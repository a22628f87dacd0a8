# SPDX-License-Identifier: Apache-2.0
"""Fitting the model to a few measured windows: least squares on log times, with priors and physical bounds.

The priors enter as residuals of their own (a maximum a posteriori estimate), so two windows are enough to start and
every further one sharpens it. scipy is imported only when something is fitted: the controller starts without it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lagom.cost.cost_model import CostModel
from lagom.cost.parameters import SCALARS, Array, Priors, decode, priors, recentre
from lagom.errors import LagomError
from lagom.records import Observation

MODEL_FLOOR_Z = 0.008  # what the equations themselves cannot say, as a fraction: added to the measurement's own error
MODEL_FLOOR_Y = 0.015
MODEL_FLOOR_X = 0.04
COLD_STEPS, WARM_STEPS = 40, 8  # of the solver: from the priors, and from an earlier fit
STEP = 1e-5  # of a finite difference, in log units


class FitError(LagomError):
    """Windows that cannot be fitted: none at all, or times that are not positive."""


@dataclass(frozen=True, slots=True)
class ModelFit:
    """A fitted model. ``theta`` and ``covariance`` are in the fit's own coordinates (logs, and logits for exposure).

    ``errors`` and ``left_out`` are log(predicted/measured) for each window, fitted with it and without it; of Z, or of
    the first x_j where a window has no Z (a communication measured alone). ``doubt`` is the standard deviation that the
    fit without the window gave itself there, noise of the window included.
    """

    model: CostModel
    theta: Array
    covariance: Array
    observations: tuple[Observation, ...]
    errors: Array
    left_out: Array
    doubt: Array
    misfit: float  # chi-squared for each measured number; 1 = the stated errors are right

    def value(self, name: str) -> tuple[float, float]:
        """A scalar parameter in its unit, and its relative standard error."""
        at = next(position for position, prior in enumerate(SCALARS) if prior.name == name)
        return math.exp(self.theta[at]), math.sqrt(self.covariance[at, at])

    def bounded(self, theta: Array) -> Array:
        """``theta`` cut to the physical bounds of the parameters."""
        limits = priors(self.model.contexts, self.model.pairs)
        return np.clip(theta, limits.low, limits.high)

    @property
    def exposed(self) -> tuple[float, ...]:
        """e_j: the fitted exposed share of each site (lumped program only)."""
        return tuple(float(share) for share in decode(self.theta, self.model.sites).exposed[0, 0])


def fit(model: CostModel, observations: Sequence[Observation], start: Array | None = None) -> ModelFit:
    """Fit ``model`` to ``observations``; the first should be stock. ``start``: coordinates of an earlier fit."""
    from scipy.optimize import least_squares  # 0.3 s and 40 MB that only a search pays

    problem = _LeastSquares(model, observations)
    begin = problem.prior.mean if start is None else start
    begin = np.clip(begin, problem.prior.low + 1e-9, problem.prior.high - 1e-9)
    solved = least_squares(
        problem.residuals,
        begin,
        jac=problem.jacobian,
        bounds=(problem.prior.low, problem.prior.high),
        x_scale=problem.prior.spread,
        ftol=1e-4,
        xtol=1e-4,
        gtol=1e-6,
        max_nfev=COLD_STEPS if start is None else WARM_STEPS,
    )
    return _conclude(problem, solved.x)


class _LeastSquares:
    """The residuals of one fit: measured log times first (in units of their error), the priors behind them."""

    def __init__(self, model: CostModel, observations: Sequence[Observation]) -> None:
        _refuse_nonsense(observations)
        self.model = model
        self.observations = tuple(observations)
        self.resources = model.resources([seen.assignment for seen in observations])
        self.measured, self.weight = _table(model, observations)
        self.seen = self.weight > 0
        self.prior = starting_point(model, observations)

    def residuals(self, theta: Array) -> Array:
        return self._many(theta[None])[0]

    def jacobian(self, theta: Array) -> Array:
        steps = np.concatenate([np.zeros((1, len(theta))), np.eye(len(theta)) * STEP])
        rows = self._many(theta + steps)
        return ((rows[1:] - rows[0]) / STEP).T

    def _many(self, theta: Array) -> Array:
        logs = self.model.times(theta, self.resources).logs
        data = ((logs - self.measured) * self.weight)[:, self.seen]
        return np.concatenate([data, (theta - self.prior.mean) / self.prior.spread], axis=1)


def _refuse_nonsense(observations: Sequence[Observation]) -> None:
    if not observations:
        raise FitError("nothing to fit: measure at least the stock window first.")
    for seen in observations:
        times = [time for time in (seen.z, seen.y, *(seen.x_by_site or ())) if time is not None]
        if not times or not all(math.isfinite(time) and time > 0 for time in times):
            raise FitError(
                f"window {seen.assignment} has no time, or one that is not positive; leave it out of the fit."
            )


def _table(model: CostModel, observations: Sequence[Observation]) -> tuple[Array, Array]:
    """Measured log times and their weights (1/error; 0 = unseen), shape (windows, 2 + sites): z, y, x_1 ... x_n."""
    measured = np.zeros((len(observations), 2 + model.sites))
    weight = np.zeros_like(measured)
    for row, seen in enumerate(observations):
        if seen.z is not None:
            measured[row, 0], weight[row, 0] = math.log(seen.z), 1.0 / math.hypot(seen.error, MODEL_FLOOR_Z)
        if seen.y is not None:
            measured[row, 1], weight[row, 1] = math.log(seen.y), 1.0 / math.hypot(seen.error, MODEL_FLOOR_Y)
        if seen.x_by_site is not None:
            measured[row, 2:], weight[row, 2:] = np.log(seen.x_by_site), 1.0 / math.hypot(seen.error, MODEL_FLOOR_X)
    return measured, weight


def starting_point(model: CostModel, observations: Sequence[Observation]) -> Priors:
    """The priors, with everything that has a scale re-centred on the first window."""
    first = observations[0]
    prior = priors(model.contexts, model.pairs)
    x = np.array(first.x_by_site or (0.5 * (first.z or 0.0) / model.sites,) * model.sites)
    z = first.z or float(x.sum())
    per_call = x / model.calls
    link = float((model.wire * model.calls).sum() / x.sum())
    return recentre(
        prior,
        link=link * 1.1,
        channel=link / float(np.median(model.stock.nc)) * 2.0,
        t0=min(15e3, 0.1 * float(per_call.min())),
        footprint=float(np.median(model.stock.nc * model.stock.chunk)) * 0.5,
        compute=0.9 * first.y if first.y is not None else 0.8 * z,
        memory=0.1 / link,
    )


def _conclude(problem: _LeastSquares, theta: Array) -> ModelFit:
    residuals, jacobian = problem.residuals(theta), problem.jacobian(theta)
    count = int(problem.seen.sum())
    misfit = float((residuals[:count] ** 2).sum() / max(1, count))
    normal = np.linalg.inv(jacobian.T @ jacobian)
    windows = [_leave_out(problem, residuals, jacobian, normal, window) for window in range(len(problem.observations))]
    errors, left_out, doubt = np.array(windows).T
    covariance = normal * max(1.0, misfit)
    return ModelFit(problem.model, theta, covariance, problem.observations, errors, left_out, doubt, misfit)


def _leave_out(
    problem: _LeastSquares, residuals: Array, jacobian: Array, normal: Array, window: int
) -> tuple[float, float, float]:
    """log(predicted/measured) of a window's first number with the window in the fit and left out, and the standard
    deviation that the fit without it gives itself there.

    By linearisation: without the rows of window w, residuals grow by (1 - H_ww)^-1, H the hat matrix. A refit for each
    window says the same (tests) and takes as many times longer as there are windows.
    """
    seen = problem.seen
    first = int(seen[:window].sum())
    rows = slice(first, first + int(seen[window].sum()))
    hat = jacobian[rows] @ normal @ jacobian[rows].T
    grow = np.linalg.inv((1.0 + 1e-9) * np.eye(len(hat)) - hat)
    weight = problem.weight[window][seen[window]][0]
    without = grow @ residuals[rows]
    return residuals[rows][0] / weight, without[0] / weight, math.sqrt(grow[0, 0]) / weight
