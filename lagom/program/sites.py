# SPDX-License-Identifier: Apache-2.0
"""Sites: which positions of a program share one config.

Calls of one function and size form a site; where the timeline shows how much of each position's communication is hidden
behind compute, exposed and hidden positions are different sites: an exposed call needs every channel, a hidden one does
not. Sites with hardly any bytes are left to NCCL, so that no search time is spent on them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lagom.program.detect import CallProgram
from lagom.records import Assignment, Site

#: A site with less than this share of the iteration's bytes is not searched.
MIN_TRAFFIC_SHARE = 0.02
HIDDEN_FROM = 0.5


@dataclass(frozen=True, slots=True)
class TunedProgram:
    """A program with its sites: the first ``tuned`` of ``sites`` are searched, heaviest first; the rest stay stock."""

    program: CallProgram
    sites: tuple[Site, ...]
    positions: tuple[int, ...]  # position -> site index
    tuned: int

    def widen(self, assignment: Assignment) -> Assignment:
        """An assignment of the tuned sites, with stock for the others: what a plan wants."""
        return Assignment.of(dict(enumerate(assignment.configs)), len(self.sites))


def cut_into_sites(program: CallProgram, hidden_share: Sequence[float] | None = None) -> TunedProgram:
    """Cut ``program`` into sites. ``hidden_share[i]`` is the part of position i's communication time that ran beside
    compute, 0..1, where the timeline knows it."""
    contexts = _contexts(program, hidden_share)
    keys = [(function, size, context) for (function, size), context in zip(program.positions, contexts, strict=True)]
    traffic = {key: sum(size for (_, size, _) in filter(key.__eq__, keys)) for key in dict.fromkeys(keys)}
    heaviest_first = sorted(traffic, key=lambda key: -traffic[key])
    total = sum(traffic.values())
    tuned = max(1, sum(traffic[key] >= MIN_TRAFFIC_SHARE * total for key in heaviest_first))
    sites = tuple(
        Site(index, function, size, keys.count((function, size, context)), context)
        for index, (function, size, context) in enumerate(heaviest_first)
    )
    index_of = {key: index for index, key in enumerate(heaviest_first)}
    return TunedProgram(program, sites, tuple(index_of[key] for key in keys), tuned)


def _contexts(program: CallProgram, hidden_share: Sequence[float] | None) -> list[str]:
    if hidden_share is None:
        return [""] * len(program.positions)
    return ["hidden" if share >= HIDDEN_FROM else "exposed" for share in hidden_share]
