"""Numbers as people read them."""

from __future__ import annotations

import math


def time(ns: float) -> str:
    """``75.9 ms``, ``12.3 µs``: three significant digits."""
    if math.isnan(ns):
        return "-"
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            return f"{_three(ns / size)} {unit}"
    return f"{ns:.0f} ns" if ns else "0"


def percent(share: float, digits: int = 1) -> str:
    """``11.4 %``; ``-`` for NaN."""
    return "-" if math.isnan(share) else f"{100 * share:.{digits}f} %"


def times(factor: float) -> str:
    """``1.38×``; ``-`` for NaN."""
    return "-" if math.isnan(factor) else f"{factor:.2f}×"


def plain(value: float, digits: int = 2) -> str:
    """A bare number; ``-`` for NaN."""
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def _three(value: float) -> str:
    size = abs(value)
    return f"{value:.2f}" if size < 9.995 else f"{value:.1f}" if size < 99.95 else f"{value:.0f}"
