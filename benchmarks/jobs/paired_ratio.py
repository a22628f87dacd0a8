# SPDX-License-Identifier: Apache-2.0
"""How many times as fast as another one an arm is, of arms that come once a cycle. Needs no torch: pages are made with
it."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np


def gain(samples: Mapping[str, list[float]], arm: str, base: str = "") -> tuple[float, float, float]:
    """Time of `base` over that of `arm`, paired by cycle: median and 95 % bootstrap. Default base: both plain arms."""
    bases = [base] if base else ["plain", "plain_again"]
    ratios = np.mean([samples[one] for one in bases], axis=0) / np.array(samples[arm])
    draws = np.random.default_rng(1).choice(ratios, (1000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return float(np.median(ratios)), float(low), float(high)


def told(found: tuple[float, float, float]) -> str:
    """A ratio with its interval."""
    return "{:.3f} [{:.3f}, {:.3f}]".format(*found)
