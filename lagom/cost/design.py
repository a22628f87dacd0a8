"""Which windows to measure so that a fit can tell NC from C and one site from another, at little cost to the job.

Few (three serve any number of sites), near NCCL's own pick (at the floor a link-bound job would crawl), and all sites
at once: window w gives site j the level (w + j) mod windows, a Latin square, so every site sees every level, and within
a window the sites differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from lagom.records import Assignment, CommConfig

Levels = Sequence[CommConfig]


def latin_square(levels: Sequence[Levels]) -> list[Assignment]:
    """One window for each level. ``levels[site]`` are that site's configs, as many for each site."""
    count = len(levels[0])
    if any(len(of_site) != count for of_site in levels):
        raise ValueError("every site needs the same number of levels")
    return [
        Assignment(tuple(of_site[(window + site) % count] for site, of_site in enumerate(levels)))
        for window in range(count)
    ]


def nearby(base: CommConfig, channels: Sequence[int], chunks: Sequence[int]) -> list[CommConfig]:
    """Three levels around ``base`` (its NC and C known): fewer channels, smaller chunks, both by less.

    ``channels`` and ``chunks`` are the legal ladders, ascending; an empty one means the knob cannot be set. Fewer is
    about half of NC, smaller about a quarter of C.
    """
    less_nc, bit_less_nc = (_below(channels, base.channels, share) for share in (0.5, 0.7))
    less_c, bit_less_c = (_below(chunks, base.chunk_bytes, share) for share in (0.25, 0.5))
    return [
        CommConfig(base.algorithm, base.protocol, less_nc, base.threads, base.chunk_bytes),
        CommConfig(base.algorithm, base.protocol, base.channels, base.threads, less_c),
        CommConfig(base.algorithm, base.protocol, bit_less_nc, base.threads, bit_less_c),
    ]


def _below(ladder: Sequence[int], value: int | None, share: float) -> int | None:
    """The rung nearest to ``share`` of ``value``, but below it where there is one; ``value`` if the knob is shut."""
    if value is None or not ladder:
        return value
    lower = [rung for rung in ladder if rung < value]
    return min(lower, key=lambda rung: abs(rung - share * value)) if lower else value
