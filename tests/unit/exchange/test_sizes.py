"""Intervals of sizes, against counting."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lagom.exchange.sizes import Interval
from lagom.wire.plan import NO_LIMIT

SMALL = st.integers(0, 70)
INTERVALS = st.builds(Interval, SMALL, st.one_of(SMALL, st.just(NO_LIMIT)))


@given(INTERVALS, INTERVALS)
def test_what_is_left_without_another(one: Interval, other: Interval) -> None:
    left = one.without(other)
    for value in range(80):
        assert any(value in part for part in left) == (value in one and value not in other)
