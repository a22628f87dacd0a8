"""What a real measurement adds to an iteration: jitter of the whole, of the parts, and now and then a straggler."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from lagom.records import Sample

#: One iteration in this many has a straggler, which adds up to :data:`_STRAGGLER` of Z.
_STRAGGLER_EVERY = 100
_STRAGGLER = 0.3


class HasTimes(Protocol):
    """Anything with an iteration's times, ns."""

    z: float
    x: float
    y: float
    x_by_site: tuple[float, ...]


def noisy(times: HasTimes, rng: np.random.Generator, noise: float) -> Sample:
    """``noise``: one standard deviation as a share of Z; X, Y and x by site jitter half as much again around it."""
    if noise <= 0.0:
        return Sample(times.z, times.x, times.y, times.x_by_site)
    count = len(times.x_by_site)
    jitter = rng.standard_normal(3 + count).tolist()
    whole = 1.0 + noise * jitter[0]
    late = rng.random()
    if late * _STRAGGLER_EVERY < 1.0:
        whole += _STRAGGLER * late * _STRAGGLER_EVERY
    part = 0.5 * noise
    by_site = tuple(x * whole * (1.0 + part * j) for x, j in zip(times.x_by_site, jitter[3:], strict=True))
    return Sample(
        times.z * whole, times.x * whole * (1.0 + part * jitter[1]), times.y * whole * (1.0 + part * jitter[2]), by_site
    )
