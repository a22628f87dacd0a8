# SPDX-License-Identifier: Apache-2.0
"""Which process comes next, as a pure function of what the earlier ones gave."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagom.start import StartGroup
from lagom.tune import PLAIN, TunePlan, TuneTrial, find_result, next_trial, plan_for
from lagom.tune.compare import ATTEMPTS, LEAST_CONFIRM, is_lost, is_settled
from lagom.tune.stages import STAGES, Stage, Tried
from lagom.tune.trials import best_so_far, entrants, left
from tests.tiers import amount, most_accepted
from tests.unit.tune.simulated import (
    SOCKET_GROUPS,
    Job,
    constant,
    group,
    noisy,
    over_sockets,
    plain_count,
    rounds_of,
    search,
    tried,
)

A, B, C = group("A"), group("B"), group("C")
TRAP = "4x4 sockets"  # loses to plain NCCL, though it wins with channels


def test_every_round_has_plain_nccl_twice_and_every_group_once() -> None:
    plan, times = TunePlan((A, B, C)), constant({"A": 0.9, "B": 0.95})
    done = search(plan, lambda trial: 1.0 if trial.stage == "confirm" else times(trial))
    screen, best_two, design, repeat, confirm = (rounds_of(done, stage) for stage in STAGES)
    assert design == repeat == [], "it has no variables"
    assert [sorted(names) for names in screen] == [["A", "B", "C", PLAIN.name, PLAIN.name]] * plan.screen
    assert [sorted(names) for names in best_two] == [["A", "B", PLAIN.name, PLAIN.name]] * plan.best_two
    assert [sorted(names) for names in confirm] == [["A", PLAIN.name, PLAIN.name]] * plan.confirm
    assert len(done) == plan.most_processes, "nothing was left out"


def test_the_order_within_a_round_is_shuffled_by_the_seed() -> None:
    def orders(seed: int) -> list[list[str]]:
        done = search(TunePlan(SOCKET_GROUPS, seed=seed), constant({}))
        return [names for stage in STAGES for names in rounds_of(done, stage)]

    assert orders(1) == orders(1)
    assert len({str(orders(seed)[0]) for seed in range(8)}) > 4
    first, second = orders(1)[:2]
    assert first != second, "each round has an order of its own"


def test_a_clearly_slower_group_is_left_out_after_a_round_and_stays_out() -> None:
    """Whatever noise later processes show: what was left out does not come back into a stage that is over."""
    calm = constant({"A": 0.5, "B": 0.52, "C": 0.6})
    restless = iter([1.0, 3.0] * 50)

    def job(trial: TuneTrial) -> float | None:
        if trial.group is PLAIN and trial.stage != "screen":
            return next(restless)
        return calm(trial)

    done = search(TunePlan((A, B, C)), job)
    assert [names.count("C") for names in rounds_of(done, "screen")] == [1, 0]
    assert {one.group for one in done if one.stage == "best two"} == {"A", "B", PLAIN.name}
    assert [one.stage for one in done] == sorted((one.stage for one in done), key=STAGES.index), "one after the other"


def test_the_noise_of_a_round_does_not_change_who_runs_in_it() -> None:
    """Who runs in a round is decided before it, or a group could be left out when half of the others had their turn."""
    done = [Tried(name, "screen", 0, time) for name, time in (("A", 0.5), ("B", 0.6), (PLAIN.name, 1.0))]
    done.append(Tried(PLAIN.name, "screen", 0, 1.0))
    plan = TunePlan((A, B))
    before = {trial.group.name for trial in left(plan, done) if (trial.stage, trial.round) == ("screen", 1)}
    assert before == {"A", PLAIN.name}
    noise = [Tried(PLAIN.name, "screen", 1, 1.0), Tried(PLAIN.name, "screen", 1, 3.0)]
    after = {trial.group.name for trial in left(plan, [*done, *noise]) if (trial.stage, trial.round) == ("screen", 1)}
    assert after == {"A"}


def test_a_group_that_gives_nothing_twice_is_given_up_and_the_search_goes_on() -> None:
    done = search(TunePlan((A, B, C)), noisy(lambda one: 0.5 if one is B else 0.9, 0.01, 1, broken=("A",)))
    assert sum(one.group == "A" for one in done) == ATTEMPTS
    result = find_result(TunePlan((A, B, C)), done)
    assert (result.verdict, result.group) == ("improved", B)


def test_one_failure_in_each_of_two_stages_takes_nothing_back() -> None:
    """It led the screen, and was compared: nothing that was decided by that is run again for another group."""
    failed = set[Stage]()

    def job(trial: TuneTrial) -> float | None:
        if trial.group is A and trial.round == 1 and trial.stage not in failed:
            failed.add(trial.stage)
            return None
        return {"A": 0.5, "B": 0.55}.get(trial.group.name, 1.0)

    plan = TunePlan((A, B, C))
    done = search(plan, job)
    assert failed == {"screen", "best two", "confirm"}
    assert {one.group for one in done if one.stage == "best two"} == {"A", "B", PLAIN.name}
    assert find_result(plan, done).group == A


@pytest.mark.parametrize("stage", ["best two", "confirm"])
def test_the_fastest_group_that_breaks_down_later_leaves_its_place_to_the_next(stage: Stage) -> None:
    """It ran well in the screen, so it stands first; but a config of settings that break down helps nobody."""

    def job(trial: TuneTrial) -> float | None:
        if trial.group is A and STAGES.index(trial.stage) >= STAGES.index(stage):
            return None
        return {"A": 0.5, "B": 0.55}.get(trial.group.name, 1.0)

    plan = TunePlan((A, B, C))
    done = search(plan, job)
    assert sum(one.group == "A" and one.time is None for one in done) == ATTEMPTS
    result = find_result(plan, done)
    assert (result.verdict, result.group) == ("improved", B)


def test_plain_nccl_is_not_run_where_no_group_is_left_to_compare_it_with() -> None:
    slow = search(TunePlan((A, B)), constant({"A": 2.0, "B": 3.0}))
    assert len(slow) == 4, "both are left out after the first round of the screen"
    broken = search(TunePlan((A, B)), noisy(lambda one: 1.0, 0.01, 1, broken=("A", "B")))
    assert plain_count([one.group for one in broken]) <= 2
    assert find_result(TunePlan((A, B)), broken).verdict == "plain_is_best"


def test_a_process_of_plain_nccl_that_gave_nothing_is_run_again() -> None:
    plan = TunePlan((A,))
    failures = iter([None, None, None])

    def job(trial: TuneTrial) -> float | None:
        return next(failures, 1.0) if trial.group is PLAIN else 0.5

    done = search(plan, job)
    assert all(
        plain_count([one.group for one in done if (one.stage, one.round) == ("confirm", number) and one.time]) == 2
        for number in range(LEAST_CONFIRM)
    )


def test_confirming_ends_when_it_has_shown_which_is_faster() -> None:
    """A gain of 2.2x needs no six rounds; one of 1 % at 1 % noise does. A second entrant has to be told apart, too."""
    large = search(TunePlan((A,)), noisy(lambda one: 0.45 if one is A else 1.0, 0.02, 1))
    small = search(TunePlan((A,)), noisy(lambda one: 0.99 if one is A else 1.0, 0.01, 1))
    assert (len(rounds_of(large, "confirm")), len(rounds_of(small, "confirm"))) == (LEAST_CONFIRM, 6)
    worse = [one for one in large if one.stage == "confirm"]
    assert is_settled(worse, [A], 2)
    assert not is_settled(worse, [A], 1), "one round has no noise of its own"
    alike = [*worse, *(Tried("B", one.stage, one.round, one.time) for one in worse if one.group == "A")]
    assert not is_settled(alike, [A, B], 2)


def test_looking_after_each_round_accepts_no_more_groups_that_gain_nothing() -> None:
    """At most the 2.5 % of one look at the end and 1 % for the earlier ones."""
    runs = amount(40, 400)
    found = [
        find_result(TunePlan((A,)), search(TunePlan((A,)), noisy(lambda one: 1.0, 0.03, seed))) for seed in range(runs)
    ]
    assert sum(result.verdict == "improved" for result in found) <= most_accepted(0.035, runs)


@given(
    budget=st.floats(1, 1e5), seconds=st.floats(0.1, 1e3), count=st.integers(1, len(SOCKET_GROUPS)), seed=st.integers()
)
def test_a_plan_fits_into_the_budget_where_one_can(budget: float, seconds: float, count: int, seed: int) -> None:
    groups = SOCKET_GROUPS[:count]
    plan, smallest = (plan_for(groups, seconds, time, seed) for time in (budget, 0.0))
    assert plan.most_processes * seconds <= budget or plan == smallest
    assert plan.groups == groups[: len(plan.groups)], "most promising first"
    assert plan.groups
    assert plan.most_processes <= plan_for(groups, seconds, 2 * budget, seed).most_processes
    assert plan_for(groups, seconds, None, seed).groups == groups


@pytest.mark.parametrize("seed", range(amount(4, 20)))
def test_a_search_that_was_interrupted_goes_on_as_if_it_had_not_been(seed: int) -> None:
    """The same record means the same next process, whoever asks: nothing else is remembered. One in twenty gives
    nothing."""

    def run(done: list[Tried], trial: TuneTrial) -> Tried:
        chance = random.Random(f"{seed} {len(done)}")
        broken = chance.random() < 0.05
        return tried(trial, None if broken else over_sockets(trial.group) * (1 + chance.gauss(0, 0.03)))

    whole: list[Tried] = []
    while (trial := next_trial(TunePlan(SOCKET_GROUPS, seed=seed), whole)) is not None:
        whole.append(run(whole, trial))
    for kept in range(0, len(whole), 5):
        again = whole[:kept]
        trial = next_trial(TunePlan(SOCKET_GROUPS, seed=seed), again)
        assert trial is not None
        assert run(again, trial) == whole[kept]
    assert find_result(TunePlan(SOCKET_GROUPS, seed=seed), whole).verdict == "improved"


# -- searches on the model of sockets


def winners(noise: float, seeds: int) -> list[StartGroup]:
    """Where searches end, one a seed."""
    found = []
    for seed in range(seeds):
        plan = TunePlan(SOCKET_GROUPS, seed=seed)
        done = search(plan, noisy(over_sockets, noise, seed))
        result = find_result(plan, done)
        assert result.verdict == "improved", "plain NCCL is slower by more than a factor of two here"
        assert result.group is not None
        found.append(result.group)
    return found


@pytest.mark.parametrize("noise", [0.01, 0.03, 0.10])
def test_a_search_over_sockets_ends_at_a_group_that_is_as_good_as_the_best(noise: float) -> None:
    best = min(map(over_sockets, SOCKET_GROUPS))
    seeds = amount(20, 100)
    found = winners(noise, seeds)
    assert TRAP not in {one.name for one in found}, "sockets alone are slower than plain NCCL"
    behind = [over_sockets(one) / best for one in found]
    assert sum(one <= 1 + max(2 * noise, 0.05) for one in behind) >= 0.95 * seeds
    assert max(behind) < 1.5
    oftener_than_one_in_three = {0.01: 0.90, 0.03: 0.60, 0.10: 0.34}[noise]
    assert sum(one == 1.0 for one in behind) >= oftener_than_one_in_three * seeds


def test_the_trap_is_left_out_after_a_round() -> None:
    for seed in range(amount(10, 50)):
        done = search(TunePlan(SOCKET_GROUPS, seed=seed), noisy(over_sockets, 0.03, seed))
        assert sum(one.group == TRAP for one in done) == 1


def test_where_every_group_is_as_fast_as_plain_nccl_hardly_any_search_says_improved() -> None:
    """A verdict is wrong in one of twenty at most, as its interval says."""
    seeds, verdicts = amount(40, 400), []
    for seed in range(seeds):
        plan = TunePlan(SOCKET_GROUPS, seed=seed)
        verdicts.append(find_result(plan, search(plan, noisy(lambda one: 1.0, 0.03, seed))).verdict)
    assert verdicts.count("improved") <= most_accepted(0.05, seeds)
    assert verdicts.count("plain_is_best") <= most_accepted(0.05, seeds)
    assert set(verdicts) <= {"improved", "plain_is_best", "nothing_resolved"}


@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_smallest_plan_finds_a_large_effect(count: int) -> None:
    plan = plan_for(SOCKET_GROUPS[:count], 10.0, 0.0)
    job: Job = noisy(over_sockets, 0.03, 1)
    done = search(plan, job)
    assert len(done) <= plan.most_processes
    assert find_result(plan, done).verdict == "improved"
    assert entrants(plan, done, "confirm")[0] in SOCKET_GROUPS[:2]


@pytest.mark.parametrize(
    ("samples", "lost"),
    [
        ([3.1, 3.1, 3.1], True),
        ([2.9, 2.9, 2.9], False),
        ([3.1, 3.1], False),  # too few
        ([1.0, 3.1, 3.1], True),  # their median
        ([99.0, 2.9, 2.9], False),
    ],
)
def test_a_process_is_ended_early_at_twice_the_mean_of_plain_nccl(samples: list[float], lost: bool) -> None:
    """Plain NCCL took 1 and 2, so 1.5 on average; what failed and other groups do not count."""
    done = [Tried(PLAIN.name, "screen", 0, 1.0), Tried(PLAIN.name, "screen", 1, 2.0)]
    done += [Tried(PLAIN.name, "screen", 1, None), Tried("A", "screen", 0, 9.0)]
    assert is_lost(done, samples) == lost
    assert not is_lost(done[2:], samples), "nothing is known of plain NCCL"


def test_no_group_that_is_slower_than_plain_nccl_is_the_best_so_far() -> None:
    screened = [Tried(PLAIN.name, "screen", 0, 1.0), Tried("A", "screen", 0, 1.1)]
    assert best_so_far(TunePlan((A, B)), screened) is None
    assert best_so_far(TunePlan((A, B)), [*screened, Tried("B", "screen", 0, 0.9)]) == B


NOTHING_ADDS_UP = TunePlan(
    (), design=1, factors=tuple((f"V{number}", ("1",)) for number in range(6)), confirm=2, repeat=2
)


def repeated(later: float) -> tuple[list[Tried], list[str]]:
    """A search in which one process of the design is the fastest by far; with its settings a process takes ``later``
    from then on. The groups that were repeated, in order."""
    fastest = NOTHING_ADDS_UP.rows(1)[5]

    def job(trial: TuneTrial) -> float:
        if trial.group.settings != fastest:
            return 1.0 + 0.001 * (trial.round % 2)
        return 0.5 if trial.stage == "design" else later

    done = search(NOTHING_ADDS_UP, job)
    return done, [one.group for one in done if one.stage == "repeat"]


def test_the_fastest_process_of_a_design_is_repeated_and_confirmed_if_it_is_the_faster_one_again() -> None:
    done, again = repeated(0.6)
    name = " and ".join(f"{name}={value}" for name, value in NOTHING_ADDS_UP.rows(1)[5].items())
    assert sorted(again) == sorted([name, PLAIN.name] * 2)
    result = find_result(NOTHING_ADDS_UP, done)
    assert (result.verdict, result.group and result.group.settings) == ("improved", NOTHING_ADDS_UP.rows(1)[5])


def test_a_process_that_was_fast_by_chance_is_not_confirmed() -> None:
    done, again = repeated(1.02)
    assert len(again) == 4
    assert not any(one.stage == "confirm" for one in done)
    assert find_result(NOTHING_ADDS_UP, done).verdict == "nothing_resolved"
