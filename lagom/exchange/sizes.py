"""Intervals of whole numbers, both ends included: message sizes, ranks, nodes."""

from __future__ import annotations

import re
from dataclasses import dataclass

from lagom.wire.plan import NO_LIMIT

_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
INT64 = 1 << 63


@dataclass(frozen=True, slots=True)
class Interval:
    """``smallest`` to ``largest``; ``largest`` is NO_LIMIT where there is none. Empty if they cross."""

    smallest: int = 0
    largest: int = NO_LIMIT

    @property
    def is_empty(self) -> bool:
        """Whether nothing lies in it."""
        return self.smallest > self.largest

    @property
    def is_everything(self) -> bool:
        """Whether it asks for nothing."""
        return self.smallest <= 0 and self.largest == NO_LIMIT

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


ANY = Interval()


def parse_interval(text: str) -> Interval:
    """NCCLX's grammar: ``*``, ``N``, and ``[a,b]`` with ``(`` and ``)`` for a bound that is left out; an empty bound is
    none. Raises ValueError on anything else, and where the lower bound is above the upper.

    Source: the README of NCCLX's built-in tuner (meta-pytorch/torchcomms, comms/ncclx/meta/tuner).
    """
    text = text.strip()
    if text == "*":
        return ANY
    if text[:1] not in ("(", "["):
        number = _integer(text)
        return Interval(number, number)
    if text[-1] not in (")", "]") or text.count(",") != 1:
        raise ValueError(f"'{text}' is no interval; write it like [1048576,2097152) or (,4]")
    low, high = (part.strip() for part in text[1:-1].split(","))
    smallest = _integer(low) if low else None
    largest = _integer(high) if high else None
    if smallest is not None and largest is not None and smallest > largest:
        raise ValueError(f"'{text}' begins above its end")
    return Interval(
        0 if smallest is None else smallest + (text[0] == "("),
        NO_LIMIT if largest is None else largest - (text[-1] == ")"),
    )


def format_interval(interval: Interval) -> str:
    """The same back, in its shortest form; ``1048576`` alone for one value."""
    if interval.is_everything:
        return "*"
    if interval.smallest == interval.largest:
        return str(interval.smallest)
    if interval.largest == NO_LIMIT:
        return f"[{interval.smallest},)"
    return f"[{interval.smallest},{interval.largest}]" if interval.smallest > 0 else f"(,{interval.largest}]"


def _integer(text: str) -> int:
    if _NUMBER.fullmatch(text) is None or not -INT64 <= int(text) < INT64:
        raise ValueError(f"'{text}' is no whole number of 64 bits")
    return int(text)
