# SPDX-License-Identifier: Apache-2.0
"""The second part of ``auto``: left out only where nothing can be gained, and what its designed windows tell apart."""

from __future__ import annotations

import contextlib
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.search_table import run_one
from benchmarks.second_family import BLOCKS, block_of, draw_landscape, draw_mixed
from lagom.cost import FittedModel, model_of
from lagom.records import Algorithm, Assignment, CommConfig, Problem, Protocol, Sample
from lagom.search import Answer, Measurements, TuningSession, make_strategy
from lagom.search.base import Comparison, Moves
from lagom.search.landscape import LandscapeDriver, comm_bound, flat
from lagom.search.measurements import Trial
from lagom.search.strategies.auto import Auto, _nothing_to_gain, outward, two_level_design
from tests.unit.search.test_session import GOOD, OTHER, Scripted

STOCK = Assignment.stock(2)


def measured(z: float, noise: float, y: float = 5e7) -> Measurements:
    """GOOD takes ``z`` of stock's Z, OTHER 3 % more than stock: four pairs each, and so for the baseline."""
    measurements = Measurements(STOCK)
    wobble = [1.0 + noise * step for step in (1.0, -1.0, 0.4, -0.4)]
    measurements.set_baseline(tuple((Sample(1e8, 2e7, 5e7), Sample(1e8 * each, 2e7, 5e7)) for each in wobble))
    for assignment, level, compute in ((GOOD, z, y), (OTHER, 1.03, 5e7)):
        pairs = tuple((Sample(1e8, 2e7, 5e7), Sample(1e8 * level * each, 2e7, compute)) for each in wobble)
        measurements.add(assignment, STOCK, pairs)
    return measurements


def test_nothing_is_to_be_gained_where_every_config_is_surely_no_faster() -> None:
    assert _nothing_to_gain(measured(1.01, 0.003), Answer(STOCK, ""))


@pytest.mark.parametrize(
    ("measurements", "leader"),
    [
        (measured(0.98, 0.05), GOOD),  # 2 % faster, which five percent of noise hide
        (measured(0.96, 0.05), STOCK),  # stock leads by the model, and 4 % are not excluded
        (measured(1.01, 0.003, y=4.5e7), STOCK),  # contention to win back
    ],
)
def test_a_lack_of_power_is_no_proof_that_nothing_can_be_gained(measurements: Measurements, leader: Assignment) -> None:
    assert not _nothing_to_gain(measurements, Answer(leader, ""))


@pytest.mark.parametrize("factors", range(2, 9))
def test_every_run_of_the_design_says_something_of_every_factor(factors: int) -> None:
    """Each factor is on the other level in half of the runs (the known one counted), and all effects can be told."""
    runs = two_level_design(factors)
    moved = np.array([[factor in run for factor in range(factors)] for run in runs], dtype=float)
    assert (moved.sum(axis=0) == (len(runs) + 1) / 2).all()
    assert np.linalg.matrix_rank(moved) == factors


def test_sites_that_need_their_channels_are_told_from_those_that_waste_them() -> None:
    """Two sites are hidden and gain from fewer channels, two are exposed and lose: together nothing is gained.

    One search finds .71 to .91 of it, by its noise and the last digits of the processor's arithmetic (36 seeds: .78 on
    average, a deviation of .08, so .03 of eight); without the design .46 on average.
    """
    landscape, noise = draw_landscape(3)
    assert [valley.exposed for valley in landscape.valleys] == [False, False, True, True]
    runs = [run_one("auto", "XYZ", "no limit", seed, landscape, noise) for seed in range(8)]
    assert np.mean([run.gained / run.possible for run in runs]) > 0.65


def test_one_communication_has_most_of_its_gain() -> None:
    """The designed windows use up the first part's budget, and one of them is 3 % faster."""
    landscape, noise = draw_landscape(1, sites=1)
    runs = [run_one("auto", "XYZ", "no limit", seed, landscape, noise) for seed in range(4)]
    assert all(run.gained > 0.5 * run.possible > 0.02 for run in runs)


def test_protocols_are_tried_outward() -> None:
    offered = [(a, p) for a in (Algorithm.TREE, Algorithm.RING) for p in (Protocol.LL128, Protocol.SIMPLE)]
    ring, tree = outward(offered)
    assert ring == [(Algorithm.RING, Protocol.SIMPLE), (Algorithm.RING, Protocol.LL128)]
    assert tree == [(Algorithm.TREE, Protocol.SIMPLE), (Algorithm.TREE, Protocol.LL128)]


def test_a_protocol_that_is_faster_is_found_where_chunks_can_be_set() -> None:
    landscape, noise = draw_mixed(72)
    assert BLOCKS[block_of(72)] == "protocols that may gain"
    runs = [run_one("auto", "XYZ", "no limit", seed, landscape, noise) for seed in range(4)]
    assert np.mean([run.gained / run.possible for run in runs]) > 0.6


def test_one_config_for_all_stays_one_in_every_part() -> None:
    landscape = comm_bound()
    problem = landscape.problem()
    session = TuningSession(make_strategy("auto", problem, shared=True, model=FittedModel), problem)
    LandscapeDriver(landscape).drive(session)
    assert all(len(set(move.candidate.configs)) == 1 for move in session.moves)


def with_protocols(*own: Protocol) -> Problem:
    """A communication of each context, hidden and exposed; NCCL's own protocols are given."""
    problem = replace(comm_bound(), usable=tuple((Algorithm.RING, protocol) for protocol in Protocol)).problem()
    sites = [replace(problem.sites[n], context=context) for n, context in enumerate(("hidden", "exposed"))]
    stock = [replace(problem.stock[n], protocol=protocol) for n, protocol in enumerate(own)]
    return replace(problem, sites=tuple(sites), stock=tuple(stock), usable=problem.usable[:2])


def test_a_protocol_is_judged_by_each_context_and_at_sites_of_which_it_is_not_nccl_s_own() -> None:
    """Long messages take no LL128, however much the short ones gain by it."""
    problem = with_protocols(Protocol.SIMPLE, Protocol.LL128)
    auto = Auto(problem, model=FittedModel)
    moves = auto._try_protocols(auto.space.stock)
    trial = Trial(auto.space.stock, 1.0, 0.01)
    tried = [next(moves).candidate]
    tried.append(moves.send(Comparison(trial, trial, 0.05, 0.01, "worse")).candidate)
    with pytest.raises(StopIteration) as ended:
        moves.send(Comparison(trial, trial, -0.05, 0.01, "better"))
    hidden, exposed = (Assignment((auto.space.stock[0], auto.space.stock[1])),) * 2
    hidden = hidden.with_config(0, CommConfig(Algorithm.RING, Protocol.LL128))
    exposed = exposed.with_config(1, CommConfig(Algorithm.RING, Protocol.SIMPLE))
    assert tried == [hidden, exposed]
    assert ended.value.value == exposed


def test_the_model_knows_each_protocol_that_some_communication_does_not_have_already() -> None:
    pairs = model_of(with_protocols(Protocol.SIMPLE, Protocol.LL128)).pairs
    assert {protocol for _, protocol in pairs} == set(Protocol)
    pairs = model_of(with_protocols(Protocol.SIMPLE, Protocol.SIMPLE)).pairs
    assert {protocol for _, protocol in pairs} == {Protocol.LL, Protocol.LL128}


def test_what_a_strategy_explained_last_is_kept_for_its_move_where_another_goes_on() -> None:
    """It ends without a further proposal, and the next one begins before the session has written that move."""
    problem = flat(2, ceiling=4).problem()

    class Two(Scripted):
        def moves(self, measurements: Measurements) -> Moves:
            for candidate in (GOOD, OTHER):
                script = Scripted(problem).script(candidate, answer=STOCK)
                yield from self.follow(script, measurements)
            return Answer(STOCK, "both are over")

    session = TuningSession(Two(problem), problem)
    LandscapeDriver(flat(2, ceiling=4)).drive(session)
    said = [move.reason for move in session.moves if move.purpose == "trial" and "looked at it" in move.reason]
    assert len(said) == 2


def test_without_the_time_of_compute_it_is_not_known_that_nothing_can_be_gained() -> None:
    measurements = Measurements(STOCK)
    measurements.set_baseline(((Sample(1e8, 2e7), Sample(1e8, 2e7)),) * 4)
    measurements.add(GOOD, STOCK, ((Sample(1e8, 2e7), Sample(1.03e8, 2e7)),) * 4)
    assert not _nothing_to_gain(measurements, Answer(STOCK, ""))


def auto_of(measurements: Measurements, sites: int = 2) -> list[str]:
    """The phases of what is proposed after the first part found nothing."""
    problem = flat(sites, ceiling=4).problem()
    auto = Auto(problem, model=FittedModel)

    def together(*_: object) -> Moves:
        return Answer(auto.space.stock, "nothing")
        yield

    auto.follow = together  # type: ignore[method-assign]
    moves = auto.moves(measurements)
    found = []
    with contextlib.suppress(StopIteration):
        found.append(next(moves).why)
    return found


def test_the_third_part_is_left_out_where_nothing_can_be_gained_and_only_there() -> None:
    assert auto_of(measured(1.01, 0.003)) == []
    (begun,) = auto_of(measured(1.01, 0.003, y=4.5e7))
    assert begun.startswith("designed window: half the channels at")
