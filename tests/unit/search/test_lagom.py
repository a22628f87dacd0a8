# SPDX-License-Identifier: Apache-2.0
"""The paper's search as we run it: its three ways to end, its invariants, and that Z has the last word."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from lagom.records import Algorithm, Assignment, Knobs, Problem, Protocol, Site
from lagom.search import Policy, Strategy, TuningSession, make_strategy
from lagom.search.base import Comparison
from lagom.search.landscape import Communication, Landscape, LandscapeDriver, comm_bound, compute_bound, flat
from lagom.search.measurements import Trial
from lagom.search.site_groups import GrowthState
from lagom.search.strategies.lagom import Lagom

MS = 1e6
NO_LIMIT = Policy(max_iterations=None, max_configs=10_000)


def run(
    landscape: Landscape, noise: float = 0.0, seed: int = 0, **options: object
) -> tuple[TuningSession, LandscapeDriver]:
    problem = landscape.problem()
    driver = LandscapeDriver(landscape, seed=seed, noise=noise)
    return driver.drive(TuningSession(make_strategy("lagom", problem, seed, **options), problem, NO_LIMIT)), driver


def reason_of(session: TuningSession) -> str:
    assert session.outcome is not None
    return session.outcome.reason


# -- the boundary conditions of section 3.4


def test_condition_1_ends_at_the_floor() -> None:
    """Light communication under much compute: hidden with the least resources, nothing is grown."""
    session, _ = run(Landscape((Communication(0.5 * MS, 4.0), Communication(0.6 * MS, 4.0)), 80 * MS, ceiling=8))
    assert "hidden behind compute with the fewest resources" in reason_of(session)
    assert session.moves[1].reason.startswith("all communications at their fewest resources")


def test_condition_2_ends_with_every_knob_closed() -> None:
    session, driver = run(comm_bound())
    assert "no increase of resources lowers Z any more" in reason_of(session)
    assert session.outcome is not None
    assert driver.gain(session.outcome.assignment) > 1.35


def test_condition_3_ends_at_the_crossing() -> None:
    session, driver = run(compute_bound())
    assert "hidden behind compute after resources were increased" in reason_of(session)
    assert "X " in reason_of(session)
    assert session.outcome is not None
    assert driver.gain(session.outcome.assignment) > 1.05


def test_exposed_communication_is_no_reason_to_stop() -> None:
    """X < Y at the floor, but one call is exposed and Z is far above both: it must be grown all the same."""
    exposed = Landscape((Communication(2 * MS, 2.0), Communication(3 * MS, 2.0, exposed=1.0)), 90 * MS, ceiling=8)
    session, driver = run(exposed)
    floor = session.moves[1]
    assert floor.x is not None
    assert floor.y is not None
    assert floor.x < floor.y
    assert session.outcome is not None
    assert driver.gain(session.outcome.assignment) >= 0.999
    ended = driver.truth(session.outcome.assignment)
    assert ended.x_by_site is not None
    assert floor.z is not None
    assert ended.z < 0.95 * floor.z


def test_where_no_context_is_known_z_says_that_something_is_exposed() -> None:
    """X < Y at the floor, but Z is far above both: growth goes on until Z is near them, and needs no rescue."""
    landscape = Landscape((Communication(2 * MS, 2.0), Communication(3 * MS, 2.0, exposed=1.0)), 90 * MS, ceiling=8)
    assert not any(site.context for site in landscape.problem().sites)
    session, driver = run(landscape)
    assert "with the fewest resources" not in reason_of(session)
    floor = next(
        move for move in session.moves if move.reason.startswith("all communications at their fewest resources")
    )
    first = session.moves[session.moves.index(floor) + 1]
    assert "kept" in first.reason
    assert driver.truth(first.candidate).z < driver.truth(floor.candidate).z


@pytest.mark.parametrize(
    ("x", "y", "z", "hidden"),
    [(50, 90, 92, True), (50, 90, 105, False), (89.9, 90, 92, False), (95, 90, 96, False)],
)
def test_hidden_needs_x_below_y_and_z_near_them(x: float, y: float, z: float, hidden: bool) -> None:
    assert Lagom(flat(1).problem())._acceptance.hidden(trial(x, y, z)) == hidden


# -- invariants of facts 7.1


LANDSCAPES = st.builds(
    Landscape,
    st.lists(
        st.builds(
            Communication,
            st.floats(0.5 * MS, 40 * MS),
            st.floats(1.0, 12.0),
            st.sampled_from([0.0, 0.0, 0.3, 1.0]),
        ),
        min_size=1,
        max_size=4,
    ).map(tuple),
    st.floats(1 * MS, 80 * MS),
    sms=st.sampled_from([32, 84, 132]),
    tax=st.floats(0.0, 0.6),
    late_chunk=st.floats(0.0, 0.8),
    ceiling=st.sampled_from([4, 8, 24]),
    see_kernels=st.booleans(),
)


@settings(max_examples=60)
@given(LANDSCAPES, st.sampled_from(["floor", "stock"]), st.booleans())
def test_never_behind_stock_and_never_more_than_linear(landscape: Landscape, start: str, shared: bool) -> None:
    session, driver = run(landscape, start=start, shared=shared)
    assert session.outcome is not None
    assert driver.gain(session.outcome.assignment) >= 1.0 - 1e-9
    rungs = sum(len(session.strategy.space.ladder(0, dim)) for dim in session.strategy.space.dims)
    sites = len(landscape.communications)
    assert session.outcome.configs <= 3 * rungs * (sites + 1)


RAISED_BEFORE_GROWTH = Landscape((Communication(1551516.0, 3.0),), 1 * MS, sms=32, tax=0.0, late_chunk=0.5, ceiling=24)


@example(RAISED_BEFORE_GROWTH)
@settings(max_examples=30)
@given(LANDSCAPES)
def test_each_growth_moves_one_knob_of_one_communication_up(landscape: Landscape) -> None:
    """Never two knobs with one rate, never a move of nothing."""
    session, _ = run(landscape)
    space, current = session.strategy.space, None
    for move in session.moves:
        if move.purpose != "trial":
            continue
        if current is not None and move.phase == "grow" and move.kept and "sites together" not in move.reason:
            knobs = [(site, dim) for site in range(len(current)) for dim in space.dims]
            steps = [space.rung(move.candidate, *knob) - space.rung(current, *knob) for knob in knobs]
            assert [step for step in steps if step] in ([1], [2]), move.reason
        if move.kept or move.phase == "floor":
            current = move.candidate


SLOPES = {"chunk pays": comm_bound(), "channels pay": comm_bound(late_chunk=0.0, tax=0.0, ceiling=24)}
GROWTH_ROLLED_BACK = ("a smaller change next", " tried")  # only growth's reasons end so


@pytest.mark.parametrize("slope", SLOPES)
def test_what_is_rolled_back_is_not_built_upon(slope: str) -> None:
    """Printed Alg. 2 keeps a config that made Z worse. Ours goes on from the last that was kept: after each rollback
    the next move, too, is one knob of one communication, one rung or two above it."""
    session, _ = run(SLOPES[slope])  # without noise each trial is one window
    trials = [move for move in session.moves if move.purpose == "trial"]
    last = max(number for number, move in enumerate(trials) if move.reason.endswith(GROWTH_ROLLED_BACK))
    space, kept, after_rollback = session.strategy.space, session.measurements.stock, 0
    for before, move in zip([None, *trials], trials[: last + 1], strict=False):
        if " together, " not in move.reason and not move.reason.startswith(
            "all communications at their fewest resources"
        ):
            knobs = [(site, dim) for site in range(len(kept)) for dim in space.dims]
            steps = [space.rung(move.candidate, *knob) - space.rung(kept, *knob) for knob in knobs]
            assert [step for step in steps if step] in ([1], [2]), move.reason
            after_rollback += before is not None and "rolled back" in before.reason
        if before is None or move.verdict == "better":  # the floor, and what growth kept (a tie that is kept counts)
            kept = move.candidate
    assert after_rollback >= 3


def test_a_flat_landscape_ends_soon() -> None:
    """Ties count as no gain, so nothing goes on for ever."""
    session, _ = run(flat(3), noise=0.02)
    assert session.outcome is not None
    assert session.outcome.verdict == "stock_is_best"
    assert session.outcome.iterations < 600


def test_regret_is_bounded_by_raising_the_floor_together() -> None:
    """24 channels to climb for four communications: raised together while far too slow."""
    deep = Landscape(tuple(Communication(8 * MS, 8.0) for _ in range(4)), 10 * MS, ceiling=24)
    session, driver = run(deep, noise=0.01)
    assert any("together, because this is much slower" in move.reason for move in session.moves)
    assert session.outcome is not None
    assert session.outcome.regret_iterations < 40
    assert driver.gain(session.outcome.assignment) >= 0.995


# -- what is logged


def test_every_trial_is_logged_with_h_x_y_z() -> None:
    session, _ = run(compute_bound(), noise=0.01)
    grown = [move for move in session.moves if move.purpose == "trial" and move.site is not None]
    assert grown
    for move in grown:
        assert move.x is not None
        assert move.y is not None
        assert move.z is not None
    assert any(move.h is not None for move in grown)


def test_where_only_z_is_known_the_log_says_so() -> None:
    session, driver = run(comm_bound(see_kernels=False), noise=0.01)
    assert "X not seen, Y not seen" in reason_of(session)
    assert all(move.h is None and move.x is None for move in session.moves)
    assert session.outcome is not None
    assert driver.gain(session.outcome.assignment) > 1.3


@pytest.mark.parametrize(
    ("z", "rungs", "asked"),
    [(92, 2, True), (92, 1, False), (105, 2, False), (105, 1, False)],
)
def test_the_intermediate_value_is_tried_where_two_rungs_at_once_hid_it(z: float, rungs: int, asked: bool) -> None:
    strategy = Lagom(comm_bound(ceiling=24).problem())
    unit = (0,)
    grown = strategy.space.moved(strategy.space.floor(strategy.space.stock), unit, "channels", 3)
    assert grown is not None
    strategy._last_growth = (GrowthState(unit, steps={"channels": rungs}), "channels", rungs)
    x_by_site = tuple(50.0 / len(grown) for _ in grown)
    course = strategy._try_intermediate(Trial(grown, z, 0.001, 50.0, 0.001, 90.0, x_by_site, pairs=8))
    proposed = next(course, None)
    assert (proposed is not None) == asked
    strategy._last_growth = None
    assert next(strategy._try_intermediate(Trial(grown, z, 0.001, 50.0, 0.001, 90.0, x_by_site)), None) is None


# -- H


def trial(x: float, y: float, z: float, se: float = 0.001) -> Trial:
    return Trial(Assignment.stock(1), z, se, x, se, y, (x,), 8)


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ((100, 50), (80, 55), 5 / 20),  # 20 ns won for 5 ns of compute
        ((100, 50), (80, 45), -5 / 20),  # both better: first of all
        ((100, 50), (100.01, 60), math.inf),  # no faster beyond noise: "already optimal"
        ((100, 50), (120, 50), math.inf),  # slower
    ],
)
def test_metric_h(old: tuple[float, float], new: tuple[float, float], expected: float) -> None:
    strategy = Lagom(flat(1).problem())
    before, after = trial(*old, 100.0), trial(*new, 100.0)
    assert strategy._acceptance.metric_h(Comparison(before, after), (0,)) == pytest.approx(expected)


@pytest.mark.parametrize(("won", "finite"), [(0.25, False), (0.35, True), (20.0, True)])
def test_the_noise_of_h_is_that_of_the_tuned_communication_in_ns(won: float, finite: bool) -> None:
    """Site 0 takes 100 of 1000 ns, each side with a relative error of 0.1 %: what it won counts above 2 √2 0.1 ns. As a
    share it would be 0.003, and of all sites 2.8 ns."""
    before = Trial(Assignment.stock(2), 2000.0, 0.001, 1000.0, 0.001, 50.0, (100.0, 900.0), pairs=8)
    after = replace(before, x=1000.0 - won, y=60.0, x_by_site=(100.0 - won, 900.0))
    h = Lagom(flat(2).problem())._acceptance.metric_h(Comparison(before, after), (0,))
    assert h == pytest.approx(10.0 / won if finite else math.inf)


def test_the_communication_that_costs_least_compute_goes_first() -> None:
    """After both were probed, argmin H decides, not the order of the sites."""
    costly, cheap = Communication(20 * MS, 16.0), Communication(30 * MS, 16.0)
    landscape = Landscape((costly, cheap), 20 * MS, ceiling=24)
    session, _ = run(landscape)
    probes = [
        move for move in session.moves if move.purpose == "trial" and move.verdict == "better" and move.h is not None
    ]
    assert {move.site for move in probes[:2]} == {0, 1} or len(probes) < 2


# -- algorithm and protocol, threads


def test_another_protocol_is_taken_only_if_faster_at_the_resources_found() -> None:
    usable = ((int(Algorithm.RING), int(Protocol.SIMPLE)), (int(Algorithm.RING), int(Protocol.LL128)))
    for factor, taken in ((0.8, True), (1.2, False)):
        session, _ = run(comm_bound(usable=usable, protocol_factor=factor), noise=0.005)
        assert session.outcome is not None
        assert all((config.protocol == Protocol.LL128) == taken for config in session.outcome.assignment.configs)


def test_threads_are_only_given_back_at_the_end() -> None:
    session, _ = run(compute_bound(knobs=Knobs(threads=True)), noise=0.01)
    touched = [any(config.threads for config in move.candidate.configs) for move in session.moves]
    assert any(touched)
    assert all(
        " threads " in move.reason for move in session.moves if "threads" in move.reason and move.purpose == "trial"
    )
    without, _ = run(compute_bound(), noise=0.01)
    assert not any(config.threads for move in without.moves for config in move.candidate.configs)


# -- what is left alone


def test_a_communication_too_short_to_matter_is_left_to_nccl() -> None:
    short = Landscape((Communication(0.05 * MS), Communication(30 * MS)), 20 * MS, ceiling=8)
    session, _ = run(short, noise=0.01)
    assert all(move.candidate[0].is_stock for move in session.moves)


def test_contexts_are_moved_together_but_never_mixed() -> None:
    """Hidden and exposed communications want different things (measured on 8xH200)."""
    landscape = Landscape(tuple(Communication(6 * MS) for _ in range(4)), 60 * MS, ceiling=8)
    plain = landscape.problem()
    contexts = ("hidden", "hidden", "exposed", "exposed")
    sites = tuple(Site(s.index, s.function, s.bytes, 1, c) for s, c in zip(plain.sites, contexts, strict=True))
    problem = Problem(sites, plain.stock, plain.channels_ceiling)
    strategy: Strategy = Lagom(problem)
    session = LandscapeDriver(landscape, noise=0.01).drive(TuningSession(strategy, problem, NO_LIMIT))
    together = [move for move in session.moves if " sites together" in move.reason]
    assert together
    assert {move.site for move in together} == {0, 2}


def test_options_are_checked() -> None:
    with pytest.raises(ValueError, match="start is floor or stock"):
        Lagom(flat(1).problem(), start="middle")


SMALL = (Communication(5e5, 4.0), Communication(5e5, 1.0), Communication(5e5, 7.0, 1.0))
LARGE = Communication(27717456.0, 11.0, 1.0)
SETTLED_THEN_POLISHED = Landscape((*SMALL, LARGE), 11365094.0, sms=32, tax=0.0, ceiling=8, see_kernels=False)


def behind_the_best_seen(landscape: Landscape, start: str) -> float:
    """Z of what is proposed, or of stock where that is faster, as a multiple of the least Z of any move."""
    session, driver = run(landscape, start=start)
    assert session.outcome is not None
    answer = session.outcome.proposed
    assert answer is not None
    fastest = min(driver.truth(move.candidate).z for move in session.moves)
    return min(driver.truth(answer).z, driver.truth(session.measurements.stock).z) / fastest


@settings(max_examples=40)
@given(LANDSCAPES, st.sampled_from(["floor", "stock"]))
def test_small_losses_do_not_add_up(landscape: Landscape, start: str) -> None:
    """Ten ties of half a percent each must not cost five percent: the end is within two tolerances of the best seen,
    one lost by settling, one by polishing. Without noise; 1.0056 at most here, 1.0095 in 1,200 other draws."""
    assert behind_the_best_seen(landscape, start) <= 1.0051**2


def test_a_gain_below_the_tolerance_is_the_third_that_can_be_lost() -> None:
    """It does not become the point that ties are held to. The one landscape known on which settling, polishing and
    that meet; without noise, so what is lost is known to the last digits: 1.01153."""
    assert 1.0051**2 < behind_the_best_seen(SETTLED_THEN_POLISHED, "floor") <= 1.0116
