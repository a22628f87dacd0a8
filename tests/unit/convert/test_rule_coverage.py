# SPDX-License-Identifier: Apache-2.0
"""Which calls are spoken for: held against looking at every rule, and fast where a file is long."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagom.convert import Topology, convert_csv
from lagom.convert.entries import RuleEntry
from lagom.convert.rule_coverage import Interval, RuleCoverage
from lagom.convert.rule_order import cut, fallbacks
from lagom.records import Algorithm, CommConfig, Function, Protocol
from lagom.wire.plan import NO_LIMIT, Rule

LARGEST = 24
RULES = st.builds(
    lambda function, low, length, algorithm: Rule(
        function, low, min(low + length, NO_LIMIT), CommConfig(algorithm, Protocol.LL)
    ),
    st.sampled_from([None, Function.REDUCE, Function.ALL_GATHER]),
    st.integers(0, LARGEST),
    st.sampled_from([0, 1, 2, 5, LARGEST, NO_LIMIT]),
    st.sampled_from([Algorithm.RING, Algorithm.TREE]),
)
CALLS = [(function, size) for function in Function for size in range(LARGEST * 2 + 3)]


@given(st.lists(RULES, max_size=12), RULES)
def test_a_rule_is_cut_to_the_calls_that_no_rule_before_it_takes(before: list[Rule], rule: Rule) -> None:
    coverage = RuleCoverage(before)
    parts = cut(rule, coverage)
    for call in CALLS:
        free = rule.matches(*call) and not any(other.matches(*call) for other in before)
        assert sum(part.matches(*call) for part in parts) == free
    taken = any(rule.matches(*call) and other.matches(*call) for other in before for call in CALLS)
    assert coverage.meet(rule) == taken
    assert taken or parts == [rule]


@given(st.lists(RULES, max_size=12))
def test_sizes_stay_apart_and_in_order(before: list[Rule]) -> None:
    coverage, everything = RuleCoverage(before), Rule(None, 0, NO_LIMIT, CommConfig())
    for function in Function:
        taken = coverage.within(everything, function)
        assert all(one.largest < next_one.smallest for one, next_one in pairwise(taken))


@given(st.lists(st.tuples(RULES, st.sampled_from([None, Topology(8, 1), Topology(4, 1)])), max_size=10))
def test_the_second_choice_that_is_remarked_is_the_first_there_is(rules: list[tuple[Rule, Topology | None]]) -> None:
    entries = [RuleEntry(f"line {number}", rule, only=only) for number, (rule, only) in enumerate(rules)]
    pairs = ((one, two) for index, two in enumerate(entries) for one in entries[:index] if second(one, two))
    first = next(pairs, None)
    said = fallbacks(entries)
    assert bool(said) == (first is not None)
    if first is not None:
        assert said[0].startswith(f"{first[1].where} begins where {first[0].where} also matches")


def second(one: RuleEntry, two: RuleEntry) -> bool:
    """Whether the other tuner may go on from the one to the two for some call."""
    assert one.rule is not None
    assert two.rule is not None
    place = one.only is None or two.only is None or one.only == two.only
    both = any(one.rule.matches(*call) and two.rule.matches(*call) for call in CALLS)
    return place and both and one.rule.config != two.rule.config


LINES: dict[str, Callable[[int], str]] = {
    "no second choice": lambda i: f"allgather,{2 * i},{2 * i},ring,ll,{1 + i % 9},-1,-1",
    "refused": lambda i: f"allgather,{2 * i},{2 * i},ring,ll,2,-1,-1,-1,1",
    "wide over refused": lambda i: f"reduce,{i},{10**6 - i},ring,ll,2,-1,-1,-1,{1 if i % 2 else -1}",
}


@pytest.mark.parametrize("kind", LINES)
def test_twenty_thousand_lines_are_read_in_a_moment(kind: str) -> None:
    """About a second; looking at every line for every line took minutes."""
    began = time.process_time()
    taken = convert_csv("\n".join(map(LINES[kind], range(20_000))), Topology(8, 1))
    assert time.process_time() - began < 15
    assert len(taken.rules) <= 32
    assert len(taken.refused) > 9_000


SMALL = st.integers(0, 70)
INTERVALS = st.builds(Interval, SMALL, st.one_of(SMALL, st.just(NO_LIMIT)))


@given(INTERVALS, INTERVALS)
def test_what_is_left_without_another(one: Interval, other: Interval) -> None:
    left = one.without(other)
    for value in range(80):
        assert any(value in part for part in left) == (value in one and value not in other)
