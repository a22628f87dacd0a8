# SPDX-License-Identifier: Apache-2.0
"""The fitted numbers of the cost model: one table with symbol, unit, prior and physical bounds.

Every parameter is positive and lives in the fit as its logarithm; the exposed share of a site lives as its logit. The
priors are wide and say only what physics says (a channel cannot cost more than one SM, a chunk of 64 KiB is about where
a pipeline starts to starve); the scale-bearing ones are re-centred on the stock measurement by :func:`starting_point`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from lagom.records import Algorithm, Protocol

Array = npt.NDArray[np.float64]
Pair = tuple[Algorithm, Protocol]


@dataclass(frozen=True, slots=True)
class Prior:
    """A parameter before any measurement: log-normal around ``median`` with ``spread`` = standard deviation of the log.

    ``low`` and ``high`` are physical bounds in ``unit``.
    """

    name: str
    unit: str
    median: float
    spread: float
    low: float
    high: float
    meaning: str


SCALARS: tuple[Prior, ...] = (
    Prior("t0", "ns", 15e3, 0.8, 1e2, 1e6, "fixed cost of one call"),
    Prior("link", "B/ns", 20.0, 0.7, 0.05, 2e3, "BW_link: what the wires carry, whatever NC"),
    Prior("channel", "B/ns", 5.0, 0.8, 0.02, 200.0, "b: what one channel carries with large chunks"),
    Prior("half_chunk", "B", 64 << 10, 0.8, 1 << 10, 2 << 20, "C_h: chunk at which a channel reaches half of b"),
    Prior("knee", "1", 8.0, 0.4, 1.5, 40.0, "sharpness of the step from channel-bound to link-bound"),
    Prior("fill", "1", 2.0, 0.9, 0.01, 64.0, "phi: chunks a channel moves to fill and drain its pipeline"),
    Prior("spill", "1", 0.03, 1.2, 1e-4, 2.0, "gamma: slow-down for each doubling of NC*C beyond F"),
    Prior("footprint", "B", 4 << 20, 0.8, 128 << 10, 256 << 20, "F: bytes in flight the path holds without spilling"),
    Prior("compute", "ns", 1e8, 0.5, 1e3, 1e13, "Y0: compute of one iteration without communication"),
    Prior("sm", "1", 0.01, 1.0, 1e-4, 0.05, "a/lambda: share of all SMs that one channel takes away (Eq. 5)"),
    Prior("step", "1", 0.02, 1.2, 1e-4, 1.0, "sigma: loss of persistent kernels from NC 0 to 1"),
    Prior("memory", "ns/B", 4e-4, 0.7, 1e-6, 2e-2, "1/B-bar: time of one byte at peak memory bandwidth (Eq. 6)"),
    Prior("cache", "1", 0.2, 0.8, 1e-3, 1.5, "zeta: HBM bytes a wire byte costs grow as C^zeta (chunks outgrow L2)"),
    Prior("bound", "1", 0.2, 0.9, 1e-3, 3.0, "beta: share of compute that waits for memory (Eq. 6)"),
    Prior("unlike", "1", 0.15, 0.9, 1e-3, 1.0, "spread of the balance of X and Y over the overlap groups"),
)
"""Parameters shared by all sites of one communicator."""

INDEX = {prior.name: position for position, prior in enumerate(SCALARS)}
ETA_SPREAD = 0.25  # log sd of a site's own efficiency around the shared link curve
PAIR_SPEED = {Protocol.LL: 0.45, Protocol.LL128: 0.92, Protocol.SIMPLE: 1.0}  # payload share of what is on the wire
PAIR_CHUNK = {Protocol.LL: 0.03, Protocol.LL128: 0.1, Protocol.SIMPLE: 1.0}  # their buffers are smaller than Simple's
PAIR_SPREAD = (0.25, 1.0)  # log sd of the two, for an algorithm and protocol other than NCCL's own pick
EXPOSED_LOGIT = {"exposed": (2.0, 1.5), "hidden": (-2.5, 1.5), "": (-1.5, 1.5)}  # mean, sd


@dataclass(frozen=True, slots=True)
class Parameters:
    """One or many parameter sets, decoded. Scalars have shape ``(q, 1)``, per-site arrays ``(q, 1, sites)``.

    ``q`` counts the sets (one for a prediction, all the perturbed ones for a Jacobian), the second axis is left for
    windows and the third for sites. Units are those of :data:`SCALARS`.
    """

    scalars: dict[str, Array]
    eta: Array
    exposed: Array
    pair_speed: Array  # (q, 1 + pairs): bandwidth of each algorithm and protocol over that of NCCL's own pick (1)
    pair_chunk: Array  # the same for the chunk it really moves

    def __getitem__(self, name: str) -> Array:
        return self.scalars[name]

    def per_site(self, name: str) -> Array:
        """A scalar with a third axis, to meet arrays of shape ``(q, windows, sites)``."""
        return self.scalars[name][:, :, None]


def decode(theta: Array, sites: int) -> Parameters:
    """Physical values from the fit's coordinates ``theta``, shape ``(q, len(SCALARS) + 2 * sites + 2 * pairs)``."""
    theta = np.atleast_2d(theta)
    scalars, eta, exposed, pairs = np.split(theta, np.cumsum([len(SCALARS), sites, sites]), axis=1)
    own = np.zeros((len(theta), 1))
    speed, chunk = np.split(pairs, 2, axis=1)
    return Parameters(
        {prior.name: np.exp(scalars[:, at])[:, None] for at, prior in enumerate(SCALARS)},
        np.exp(eta)[:, None, :],
        1.0 / (1.0 + np.exp(-exposed))[:, None, :],
        np.exp(np.concatenate([own, speed], axis=1)),
        np.exp(np.concatenate([own, chunk], axis=1)),
    )


@dataclass(frozen=True, slots=True)
class Priors:
    """Prior mean and standard deviation, and the bounds, of every coordinate of the fit."""

    mean: Array
    spread: Array
    low: Array
    high: Array


def priors(contexts: tuple[str, ...], pairs: tuple[Pair, ...] = ()) -> Priors:
    """The prior for sites with the given contexts (``exposed``, ``hidden`` or unknown ``""``), and for each algorithm
    and protocol that may be tried besides NCCL's own pick."""
    rows = [(math.log(p.median), p.spread, math.log(p.low), math.log(p.high)) for p in SCALARS]
    rows += [(0.0, ETA_SPREAD, -2.0, 2.0)] * len(contexts)
    rows += [(*EXPOSED_LOGIT.get(context, EXPOSED_LOGIT[""]), -7.0, 7.0) for context in contexts]
    for table, spread in zip((PAIR_SPEED, PAIR_CHUNK), PAIR_SPREAD, strict=True):
        rows += [(math.log(table[Protocol(protocol)]), spread, -5.0, 2.0) for _, protocol in pairs]
    mean, deviation, low, high = np.array(rows).T
    return Priors(mean, deviation, low, high)


def recentre(prior: Priors, **values: float) -> Priors:
    """The prior with some medians replaced (clipped into their bounds), e.g. ``recentre(prior, link=300.0)``."""
    mean = prior.mean.copy()
    for name, value in values.items():
        at = INDEX[name]
        mean[at] = min(max(math.log(value), prior.low[at] + 1e-6), prior.high[at] - 1e-6)
    return Priors(mean, prior.spread, prior.low, prior.high)
