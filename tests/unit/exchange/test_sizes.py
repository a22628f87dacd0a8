"""Intervals and what bytes a rank mean, against counting."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagom.exchange.sizes import ANY, Interval, format_interval, parse_interval
from lagom.exchange.topology import Topology
from lagom.records import Function
from lagom.wire.plan import NO_LIMIT
from tests.unit.exchange.readers import within

SMALL = st.integers(0, 70)
INTERVALS = st.builds(Interval, SMALL, st.one_of(SMALL, st.just(NO_LIMIT)))
TOPOLOGIES = st.tuples(st.integers(1, 12), st.integers(1, 4)).filter(lambda t: t[0] >= t[1])


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("*", ANY),
        ("5", Interval(5, 5)),
        (" [2,4] ", Interval(2, 4)),
        ("(2,4)", Interval(3, 3)),
        ("(2,4]", Interval(3, 4)),
        ("[2,4)", Interval(2, 3)),
        ("(1,)", Interval(2, NO_LIMIT)),
        ("[2,)", Interval(2, NO_LIMIT)),
        ("(,4]", Interval(0, 4)),
        ("(,4)", Interval(0, 3)),
        ("[,]", ANY),
        ("( 1 , 9 ]", Interval(2, 9)),
    ],
)
def test_the_grammar_of_ncclx(text: str, interval: Interval) -> None:
    assert parse_interval(text) == interval
    assert all((value in interval) == within(text, value) for value in range(12))


@pytest.mark.parametrize(
    "text", ["", "x", "[1", "1]", "(2,1]", "[1,2,3]", "[1]", "[a,b]", "1.5", "[1;2]", str(1 << 63)]
)
def test_what_is_no_interval_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"interval|number|begins"):
        parse_interval(text)


@given(INTERVALS.filter(lambda interval: not interval.is_empty))
def test_an_interval_written_is_read_back(interval: Interval) -> None:
    assert parse_interval(format_interval(interval)) == interval


@given(INTERVALS, INTERVALS)
def test_what_is_left_without_another(one: Interval, other: Interval) -> None:
    left = one.without(other)
    for value in range(80):
        assert any(value in part for part in left) == (value in one and value not in other)


@given(TOPOLOGIES, INTERVALS)
def test_bytes_a_rank_become_the_bytes_they_come_from(size: tuple[int, int], per_rank: Interval) -> None:
    topology = Topology(*size)
    total = topology.total(per_rank)
    for count in range(0, 900, 7):
        assert (count in total) == (count // topology.divisor in per_rank)


@given(TOPOLOGIES, INTERVALS, st.sampled_from(list(Function)))
def test_and_back_only_where_they_mean_the_same_calls(
    size: tuple[int, int], total: Interval, function: Function
) -> None:
    topology = Topology(*size)
    step = topology.ranks if function in (Function.ALL_GATHER, Function.REDUCE_SCATTER) else 1
    calls = range(0, 40 * topology.ranks, step)
    found = topology.per_rank(function, total)
    if found is not None:
        assert all((count in total) == (count // topology.divisor in found) for count in calls)
    elif not total.is_empty and topology.divisor == topology.ranks:
        # None is right only if no interval of shards holds exactly these calls.
        inside = {count // topology.divisor for count in calls if count in total}
        outside = {count // topology.divisor for count in calls if count not in total}
        assert not inside or inside & outside


def test_an_uneven_job_is_divided_by_what_ncclx_divides_by() -> None:
    assert Topology(9, 2).divisor == 8
    assert Topology(8, 1).total(Interval(10, 10)) == Interval(80, 87)
