# SPDX-License-Identifier: Apache-2.0
"""Every strategy passes the one conformance suite."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

import lagom
from lagom.cost import FittedModel
from lagom.records import Assignment, CommConfig, Knobs, Problem
from lagom.search import (
    STRATEGIES,
    Answer,
    IllegalProposal,
    Measurements,
    Moves,
    Proposal,
    Strategy,
    UnknownStrategy,
    conformance,
    make_strategy,
)
from lagom.search.conformance import NonConforming, check_conformance
from lagom.search.landscape import compute_bound
from lagom.search.space import Space
from tests.tiers import amount

VARIANTS: dict[str, tuple[str, dict[str, object]]] = {
    **{name: (name, {}) for name in STRATEGIES if name != "exhaustive"},
    "exhaustive": ("exhaustive", {"shared": True, "every": 2}),
    "lagom from stock": ("lagom", {"start": "stock"}),
    "lagom random order": ("lagom", {"order": "random"}),
    "lagom reversed order": ("lagom", {"order": "reversed"}),
    "lagom shared": ("lagom", {"shared": True}),
    "given by hand": ("given", {}),
}


def by_hand(problem: Problem) -> tuple[Assignment, ...]:
    """What somebody might want compared: the floor, each knob at its least, and every other (A, P)."""
    space = Space(problem)
    everywhere = tuple(range(len(problem.sites)))
    least = (space.moved(space.stock, everywhere, dim, -rungs) for dim in space.dims for rungs in (1, 100))
    others = (space.in_subspace(space.stock, everywhere, pair) for pair in space.subspaces(everywhere))
    return (space.floor(space.stock), *(assignment for assignment in least if assignment), *others)


@pytest.mark.parametrize("check", conformance.CHECKS, ids=lambda check: check.__name__.removeprefix("check_"))
@pytest.mark.parametrize("variant", VARIANTS)
def test_strategy_conforms(
    variant: str, check: Callable[[conformance.Make], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conformance, "SEEDS", amount(2, conformance.SEEDS))
    name, options = VARIANTS[variant]

    def make(problem: Problem, seed: int) -> Strategy:
        extra = {"assignments": by_hand(problem)} if variant == "given by hand" else {}
        return make_strategy(name, problem, seed, model=FittedModel, **options, **extra)

    check(make)


def test_given_measures_everything_it_was_given_and_ends_on_the_fastest() -> None:
    for landscape in conformance.landscapes().values():
        assignments = by_hand(landscape.problem())
        session, driver = conformance.run(
            lambda problem, seed: make_strategy("given", problem, seed, assignments=by_hand(problem)), landscape
        )
        tried = {move.candidate for move in session.moves if move.purpose == "trial"}
        assert len(assignments) >= 4
        assert tried >= set(assignments)
        assert session.outcome is not None
        best = max(1.0, *(driver.gain(assignment) for assignment in assignments))
        assert driver.gain(session.outcome.assignment) >= best - conformance.EPSILON


@pytest.mark.parametrize("name", STRATEGIES)
def test_strategy_obeys_missing_knobs(name: str) -> None:
    """Without chunk (NCCL 2.22-2.29), without channels, without anything: nothing else is touched."""
    options = {"shared": True} if name == "exhaustive" else {}
    for knobs in (Knobs(chunk=False), Knobs(channels=False), Knobs(channels=False, chunk=False)):
        landscape = compute_bound(ceiling=8, knobs=knobs)
        session, _ = conformance.run(
            lambda problem, seed: make_strategy(name, problem, seed, model=FittedModel, **options),
            landscape,
            noise=0.01,
        )
        configs = [config for move in session.moves for config in move.candidate.configs]
        assert knobs.channels or all(config.channels is None for config in configs)
        assert knobs.chunk or all(config.chunk_bytes is None for config in configs)
        assert all(config.threads is None for config in configs)
        assert all(config.algorithm is None for config in configs)


def test_unknown_strategy_is_refused_with_the_names() -> None:
    with pytest.raises(UnknownStrategy, match="lagom, guided"):
        make_strategy("gradient", compute_bound().problem())


class OffTheLadders(Strategy):
    """Proposes what is off the ladders."""

    name = "off_the_ladders"

    def moves(self, measurements: Measurements) -> Moves:
        illegal = CommConfig(channels=10_000)
        yield Proposal(Assignment((illegal,) * len(self.problem.sites)), "more channels than there are")
        return Answer(self.space.stock, "no reason")


class Undetermined(Strategy):
    """Draws that its seed does not decide."""

    name = "undetermined"
    numbers = itertools.count()

    def moves(self, measurements: Measurements) -> Moves:
        candidate = self.space.moved(self.space.stock, (0,), "channels", -1 - next(self.numbers) % 2)
        assert candidate is not None
        answer = yield Proposal(candidate, "another one in each run")
        self.explain("another one in each run was measured")
        return Answer(candidate if answer.better else self.space.stock, "one config was tried")


def test_a_strategy_that_breaks_the_contract_is_told_what_it_broke() -> None:
    with pytest.raises(NonConforming, match="two runs with the same measurements differ in their moves"):
        check_conformance(Undetermined)
    with pytest.raises(IllegalProposal, match="channels=10000 is not among"):
        check_conformance(OffTheLadders)


def test_the_strategy_of_the_public_api_is_the_one_that_is_checked() -> None:
    assert lagom.Strategy is Strategy
    assert "Strategy" in lagom.__all__
