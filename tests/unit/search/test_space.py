# SPDX-License-Identifier: Apache-2.0
"""Legality and ladders, for every problem that can come up."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagom.records import STOCK, Algorithm, Assignment, CommConfig, Function, Knobs, Problem, Protocol, Site
from lagom.search import Space

RING, SIMPLE = Algorithm.RING, Protocol.SIMPLE


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    count = draw(st.integers(1, 4))
    ceiling = draw(st.sampled_from([1, 2, 4, 5, 8, 20, 24, 64]))
    stocks = [
        CommConfig(
            draw(st.sampled_from([None, RING, Algorithm.TREE])),
            draw(st.sampled_from([None, SIMPLE])),
            draw(st.one_of(st.none(), st.integers(1, ceiling))),
            draw(st.sampled_from([None, 512, 640])),
            draw(st.sampled_from([None, 2 << 20, 512 << 10, 40 << 10])),
        )
        for _ in range(count)
    ]
    knobs = Knobs(*(draw(st.booleans()) for _ in range(4)))
    usable = draw(st.sampled_from([(), ((1, 2),), ((0, 2), (1, 1), (1, 2))]))
    sites = tuple(Site(i, Function.ALL_GATHER, 1 << 26) for i in range(count))
    return Problem(sites, tuple(stocks), ceiling, knobs, (usable,) * count if usable else ())


@given(problems(), st.booleans())
def test_whatever_the_space_makes_is_legal(problem: Problem, shared: bool) -> None:
    space = Space(problem, shared=shared)
    assert space.why_illegal(space.stock) is None
    assert space.why_illegal(space.floor(space.stock)) is None
    for site in range(len(problem.sites)):
        for config in list(space.configs(site))[:200]:
            assert space.why_illegal(space.stock.with_config(site, config)) is None


@given(problems(), st.integers(-12, 12), st.booleans())
def test_a_move_changes_a_rung_or_is_none(problem: Problem, rungs: int, shared: bool) -> None:
    space = Space(problem, shared=shared)
    for unit in space.units:
        for dim in space.dims:
            moved = space.moved(space.stock, unit, dim, rungs)
            if moved is None:
                continue
            steps = [space.rung(moved, site, dim) - space.rung(space.stock, site, dim) for site in unit]
            assert any(steps)
            assert all(step * rungs >= 0 and abs(step) <= abs(rungs) for step in steps)
            grown = [space.magnitude(moved, s, dim) - space.magnitude(space.stock, s, dim) for s in unit]
            assert all(growth * rungs >= 0 for growth in grown)


@given(problems())
def test_ladders_rise_and_hold_nccls_own_rung_once(problem: Problem) -> None:
    space = Space(problem)
    for site in range(len(problem.sites)):
        for dim in space.dims:
            ladder = space.ladder(site, dim)
            assert ladder.count(None) == 1
            magnitudes = [space.magnitude(space.at(space.stock, site, dim, r), site, dim) for r in range(len(ladder))]
            assert magnitudes == sorted(set(magnitudes))
            if dim == "channels":
                assert magnitudes[-1] <= problem.channels_ceiling


def problem_of(**changes: object) -> Problem:
    sites = (Site(0, Function.ALL_GATHER, 1 << 26), Site(1, Function.REDUCE_SCATTER, 1 << 26))
    stock = CommConfig(RING, SIMPLE, 24, 512, 2 << 20)
    return Problem(sites, (stock, stock), 24, **changes)  # type: ignore[arg-type]


def test_the_top_of_a_ladder_is_stock_itself() -> None:
    """So that a search which climbs all the way back ends where it began, and is not measured twice."""
    space = Space(problem_of())
    top = space.floor(space.stock)
    for unit in space.units:
        for dim in space.dims:
            top = space.moved(top, unit, dim, 99) or top
    assert top == Assignment.stock(2)


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (CommConfig(channels=32), "channels=32"),
        (CommConfig(channels=5), "channels=5"),
        (CommConfig(chunk_bytes=4 << 20), "chunk_bytes=4194304"),
        (CommConfig(threads=256), "threads=256"),
        (CommConfig(Algorithm.TREE, SIMPLE), "no algorithm and protocol"),
    ],
)
def test_what_is_not_legal_is_named(config: CommConfig, sentence: str) -> None:
    wrong = Space(problem_of()).why_illegal(Assignment((config, STOCK)))
    assert wrong is not None
    assert "site 0 (allgather 64M)" in wrong
    assert sentence in wrong
    assert "2 sites" in (Space(problem_of()).why_illegal(Assignment((STOCK,))) or "")


def test_threads_are_for_ring_only() -> None:
    space = Space(problem_of(knobs=Knobs(threads=True), usable=(((0, 2), (1, 2)),) * 2))
    tree = CommConfig(Algorithm.TREE, SIMPLE, threads=256)
    assert "RING only" in (space.why_illegal(Assignment((tree, STOCK))) or "")
    assert space.why_illegal(Assignment((CommConfig(threads=256), STOCK))) is None
    assert space.subspaces((0,)) == ((Algorithm.TREE, SIMPLE),)


def test_floor_is_gentle_on_many_channels_and_one_where_there_are_few() -> None:
    assert Space(problem_of()).floor(Assignment.stock(2))[0] == CommConfig(channels=2, chunk_bytes=128 << 10)
    few = problem_of()
    few = Problem(few.sites, (CommConfig(RING, SIMPLE, 4, 512, 2 << 20),) * 2, 4)
    assert Space(few).floor(Assignment.stock(2))[0] == CommConfig(channels=1, chunk_bytes=128 << 10)
