# SPDX-License-Identifier: Apache-2.0
"""Interval arithmetic against a sweep that looks at every nanosecond."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagom.timeline import intervals as iv

MOMENT = st.integers(0, 60)
RANGES = st.lists(st.tuples(MOMENT, MOMENT), max_size=12)


def covered(ranges: list[tuple[int, int]]) -> np.ndarray:
    """Which of the nanoseconds 0 .. 60 lie in any range; a range that ends before it starts covers nothing."""
    return np.array([any(low <= moment < high for low, high in ranges) for moment in range(60)])


def made(ranges: list[tuple[int, int]], gap: int = 0) -> iv.IntervalSet:
    start, end = np.array([r[0] for r in ranges], np.int64), np.array([r[1] for r in ranges], np.int64)
    return iv.merge(start, end, gap)


def sweep(intervals: iv.IntervalSet) -> np.ndarray:
    """The same for a set, which must be in normal form."""
    assert (intervals.end > intervals.start).all()
    assert (intervals.start[1:] > intervals.end[:-1]).all()
    return covered(list(zip(intervals.start.tolist(), intervals.end.tolist(), strict=True)))


@given(RANGES)
def test_merge_is_the_union(ranges: list[tuple[int, int]]) -> None:
    assert (sweep(made(ranges)) == covered(ranges)).all()
    assert made(ranges).length == covered(ranges).sum()


@given(RANGES, st.randoms())
def test_merge_does_not_care_about_order(ranges: list[tuple[int, int]], random: object) -> None:
    mixed = list(ranges)
    random.shuffle(mixed)  # type: ignore[attr-defined]
    assert made(mixed).start.tolist() == made(ranges).start.tolist()
    assert made(mixed).end.tolist() == made(ranges).end.tolist()


@given(RANGES, st.integers(0, 9))
def test_merge_closes_gaps_up_to_the_tolerance_only(ranges: list[tuple[int, int]], gap: int) -> None:
    plain, closed = made(ranges), made(ranges, gap)
    holes = plain.start[1:] - plain.end[:-1]
    assert closed.start.size == (plain.start.size and 1 + (holes > gap).sum())
    assert closed.length == plain.length + holes[holes <= gap].sum()


@given(RANGES, RANGES)
def test_intersect_is_the_set_operation(a: list[tuple[int, int]], b: list[tuple[int, int]]) -> None:
    both = iv.intersect(made(a), made(b))
    assert (covered(list(zip(both.start, both.end, strict=True))) == (covered(a) & covered(b))).all()
    assert both.length == iv.intersect(made(b), made(a)).length


@given(RANGES, st.lists(st.tuples(MOMENT, MOMENT), min_size=1, max_size=6))
def test_within_counts_the_nanoseconds_of_each_window(
    ranges: list[tuple[int, int]], windows: list[tuple[int, int]]
) -> None:
    low, high = np.array([min(w) for w in windows]), np.array([max(w) for w in windows])
    expected = [covered(ranges)[a:b].sum() for a, b in zip(low, high, strict=True)]
    assert iv.within(made(ranges), low, high).tolist() == expected


@given(st.lists(st.tuples(MOMENT, MOMENT, st.integers(1, 24)), max_size=8), st.integers(0, 60))
def test_weight_before_adds_overlapping_weights(ranges: list[tuple[int, int, int]], moment: int) -> None:
    real = [(min(a, b), max(a, b), weight) for a, b, weight in ranges]
    expected = sum(weight * max(0, min(high, moment) - low) for low, high, weight in real)
    columns = (np.array([r[at] for r in real], np.int64) for at in (0, 1))
    found = iv.weight_before(*columns, np.array([r[2] for r in real], float), np.array([moment]))
    assert found[0] == pytest.approx(expected)
