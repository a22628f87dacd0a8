"""Which windows to measure so that a fit can tell NC from C and one site from another, at little cost to the job.

Few (three serve any number of sites), near NCCL's own pick (at the floor a link-bound job would crawl), and all sites
at once: window w gives site j the level (w + j) mod levels, a Latin square, so every site sees every level, and within
a window neighbouring sites differ.
"""

from __future__ import annotations

from collections.abc import Sequence

LEVELS = ((0.5, 1.0), (1.0, 1 / 16), (0.5, 0.25))
"""(share of NC, share of C) of the base: fewer channels; smaller chunks; both, by less."""
LEVELS_WITHOUT_CHUNK = ((0.5, 1.0), (0.25, 1.0), (0.75, 1.0))


def latin_square(levels: int, sites: int) -> list[list[int]]:
    """The level of each site in each of ``levels`` windows."""
    return [[(window + site) % levels for site in range(sites)] for window in range(levels)]


def nearest_rung(ladder: Sequence[int], base: int, share: float) -> int:
    """Position on the ascending ``ladder`` nearest to ``share`` of its entry ``base``; below it for a share below 1.

    Where nothing lies below, the base itself.
    """
    wanted = share * ladder[base]
    allowed = range(base) if share < 1.0 and base > 0 else range(base, base + 1)
    return min(allowed, key=lambda rung: abs(ladder[rung] - wanted))
