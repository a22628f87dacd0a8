# SPDX-License-Identifier: Apache-2.0
"""The calls that rules so far cover: for each collective a sorted list of disjoint intervals of sizes, so that a file
of many thousand lines is read in about a second."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from lagom.records import Algorithm, Function, Protocol
from lagom.wire.plan import NO_LIMIT, Rule

Pair = tuple[Algorithm | None, Protocol | None]


@dataclass(frozen=True, slots=True)
class Interval:
    """``smallest`` to ``largest``; ``largest`` is NO_LIMIT where there is none. Empty if they cross."""

    smallest: int = 0
    largest: int = NO_LIMIT

    @property
    def is_empty(self) -> bool:
        """Whether nothing lies in it."""
        return self.smallest > self.largest

    def __contains__(self, value: int) -> bool:
        return self.smallest <= value <= self.largest

    def meets(self, other: Interval) -> bool:
        """Whether they have a value in common."""
        return max(self.smallest, other.smallest) <= min(self.largest, other.largest)

    def without(self, other: Interval) -> list[Interval]:
        """What is left of this one: none, one or two intervals."""
        if not self.meets(other):
            return [self]
        below = Interval(self.smallest, min(self.largest, other.smallest - 1))
        above = Interval(max(self.smallest, other.largest + 1), self.largest)
        return [part for part in (below, above) if not part.is_empty]


class RuleCoverage:
    """Which sizes of a rule are covered by the rules added so far."""

    def __init__(self, rules: Iterable[Rule] = ()) -> None:
        self._taken: dict[Function, list[Interval]] = {function: [] for function in Function}
        for rule in rules:
            self.add(rule)

    def add(self, rule: Rule) -> None:
        """Cover the calls of one more rule."""
        sizes = Interval(rule.bytes_min, rule.bytes_max)
        if not sizes.is_empty:
            for function in functions_of(rule):
                _unite(self._taken[function], sizes)

    def meet(self, rule: Rule) -> bool:
        """Whether any call of it is covered."""
        return any(self.within(rule, function) for function in functions_of(rule))

    def within(self, rule: Rule, function: Function) -> list[Interval]:
        """The covered intervals of one collective that overlap the rule's sizes, in order; they may be larger."""
        taken = self._taken[function]
        return taken[_met(taken, Interval(rule.bytes_min, rule.bytes_max))]


def pair_of(rule: Rule) -> Pair:
    """The algorithm and protocol it sets."""
    return rule.config.algorithm, rule.config.protocol


def functions_of(rule: Rule) -> list[Function]:
    """The collectives it is for."""
    return list(Function) if rule.function is None else [rule.function]


def _met(taken: list[Interval], sizes: Interval) -> slice:
    first = bisect_left(taken, sizes.smallest, key=lambda one: one.largest)
    return slice(first, max(first, bisect_right(taken, sizes.largest, key=lambda one: one.smallest)))


def _unite(taken: list[Interval], sizes: Interval) -> None:
    where = _met(taken, sizes)
    united = [sizes, *taken[where]]
    taken[where] = [Interval(min(one.smallest for one in united), max(one.largest for one in united))]
