# SPDX-License-Identifier: Apache-2.0
"""The whole search over planted start settings: what it finds, what it leaves alone, how often it is wrong.

Ten variables more than the table has on any transport, in a job without known groups; noise between processes has heavy
tails (Student's t with 3 degrees of freedom). The bounds are those of the project's targets, less two standard errors
of so many searches.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import pytest

from lagom.start import StartGroup, Transport, known_groups
from lagom.tune import PLAIN, TunePlan, TuneTrial, find_result, next_trial, plan_for
from lagom.tune.compare import ATTEMPTS
from lagom.tune.screening import broken_settings, of_design
from lagom.tune.stages import Tried
from lagom.tune.trials import most_left
from lagom.tune.tune_result import TuneResult
from tests.tiers import amount, least_share, most_accepted
from tests.unit.tune.simulated import over_sockets, search

RUNS = amount(12, 200)
NAMES = [f"VARIABLE_{number:02d}" for number in range(20)]
MOST = 64
#: Processes that a setting breaks come on top: they end at once, and their rows run again.
MOST_CRASHED = 12
Logs = Callable[[Mapping[str, str]], float]


@dataclass(frozen=True)
class Planted:
    """Where the planted variables are: their effects as ln(time); one value breaks every process that has it."""

    worse: str
    slower: str
    better: str
    first: str
    second: str
    broken: str
    gains: bool = False
    pair: bool = False
    trap: bool = False
    crashes: bool = False

    def log(self, settings: Mapping[str, str]) -> float:
        """ln of the time over that of plain NCCL."""
        both = self.first in settings and self.second in settings
        log = 0.095 * (self.worse in settings) + 0.01 * (self.slower in settings)
        log -= 0.02 * (self.gains and self.better in settings)
        log -= 0.08 * (self.pair and both)
        if self.trap and self.first in settings:
            log += -0.79 if self.second in settings else 0.14
        return log

    def breaks(self, settings: Mapping[str, str]) -> bool:
        """Whether a process ends badly."""
        return self.crashes and self.broken in settings


def planted(seed: int, **kinds: bool) -> Planted:
    """At places that the seed chooses."""
    return Planted(*random.Random(seed).sample(NAMES, 6), **kinds)


def heavy(chance: random.Random, sigma: float) -> float:
    """Student's t with 3 degrees of freedom, of standard deviation ``sigma``."""
    normals = [chance.gauss(0.0, 1.0) for _ in range(4)]
    return sigma * normals[0] / math.sqrt(sum(one * one for one in normals[1:]))


def tuned(plan: TunePlan, where: Planted, sigma: float, seed: int, most: int = MOST) -> tuple[TuneResult, list[Tried]]:
    """A whole search."""
    chance = random.Random(f"noise {seed}")

    def job(trial: TuneTrial) -> float | None:
        settings = trial.group.settings
        return None if where.breaks(settings) else math.exp(where.log(settings) + heavy(chance, sigma))

    done = search(plan, job, most + MOST_CRASHED * where.crashes)
    return find_result(plan, done), done


def plan_of(sigma: float, seed: int) -> TunePlan:
    """What the default budget of 20 minutes is enough for with 19 s a process: whatever the noise, which nobody knows
    beforehand."""
    del sigma
    return plan_for((), 19.0, 1200.0, seed, dict.fromkeys(NAMES, ("1",)))


def plan_that_repeats(seed: int) -> TunePlan:
    """What the same budget is enough for with 16 s a process."""
    return plan_for((), 16.0, 1200.0, seed, dict.fromkeys(NAMES, ("1",)))


def share(found: list[bool]) -> float:
    return sum(found) / len(found)


def winners(sigma: float, wanted: Callable[[Planted], set[str]], **kinds: bool) -> list[bool]:
    """Of so many searches: whether it ended on settings that hold all that is wanted."""
    found = []
    for seed in range(RUNS):
        where = planted(seed, **kinds)
        result, _ = tuned(plan_of(sigma, seed), where, sigma, seed)
        chosen = result.group.settings if result.verdict == "improved" and result.group else {}
        found.append(wanted(where) <= set(chosen) and where.worse not in chosen and where.log(chosen) < 0)
    return found


def both(where: Planted) -> set[str]:
    return {where.first, where.second}


@pytest.mark.parametrize(("sigma", "target"), [(0.01, 0.95), (0.03, 0.90)])
def test_a_pair_that_helps_only_together_is_found(sigma: float, target: float) -> None:
    assert share(winners(sigma, both, pair=True)) >= least_share(target, RUNS)


@pytest.mark.parametrize(("sigma", "target"), [(0.01, 0.95), (0.03, 0.90)])
def test_a_setting_that_loses_alone_and_wins_with_another_is_found(sigma: float, target: float) -> None:
    assert share(winners(sigma, both, trap=True)) >= least_share(target, RUNS)


def test_two_percent_are_found_in_four_of_five_searches() -> None:
    assert share(winners(0.01, lambda where: {where.better}, gains=True)) >= least_share(0.80, RUNS)


@pytest.mark.parametrize("sigma", [0.01, 0.03])
def test_where_nothing_helps_nothing_is_accepted(sigma: float) -> None:
    wrong = []
    for seed in range(RUNS):
        where = planted(seed)
        result, _ = tuned(plan_of(sigma, seed), where, sigma, seed)
        wrong.append(result.verdict == "improved")
        if result.verdict == "nothing_resolved":
            assert result.detectable is not None
            assert f"smallest detectable effect {result.detectable:.1%}" in result.text
    assert sum(wrong) <= most_accepted(0.05, RUNS)


#: Of a job by host memory on four GPUs (benchmarks/results/start_settings_h200x4_202611.md).
VALUES = {
    "NCCL_MIN_CTAS": ("4", "8", "16", "32"),
    "NCCL_MIN_P2P_NCHANNELS": ("8", "16", "32"),
    "NCCL_MAX_P2P_NCHANNELS": ("8", "16"),
    "NCCL_P2P_PCI_CHUNKSIZE": ("262144", "524288"),
    "NCCL_NTHREADS": ("512",),
    "NCCL_BUFFSIZE": ("1048576", "2097152", "8388608"),
}


def step_on_four_gpus(settings: Mapping[str, str]) -> float:
    """Milliseconds, as measured there: any of several settings gives the channels, two of them no more than one, and
    what a chunk size costs depends on the buffer."""
    buffer = settings.get("NCCL_BUFFSIZE")
    if "NCCL_P2P_PCI_CHUNKSIZE" in settings:
        return {"1048576": 17.62, "2097152": 19.86}.get(buffer or "", 22.36)
    if "NCCL_MIN_P2P_NCHANNELS" in settings or settings.get("NCCL_MIN_CTAS") in ("8", "16"):
        return 17.75
    return 19.0 if buffer in ("1048576", "2097152") else 19.38


@pytest.mark.parametrize("sigma", [0.01, 0.03])
def test_what_does_not_add_up_is_found_by_the_process_that_shows_it(sigma: float) -> None:
    """No setting stands out in the fit, half of the design's processes are 9 % faster than plain NCCL. Without the
    stage `repeat` at most six searches in a hundred found it."""
    assert share([found_on_four_gpus(sigma, seed) for seed in range(2 * RUNS)]) >= least_share(0.75, 2 * RUNS)


def found_on_four_gpus(sigma: float, seed: int) -> bool:
    """Whether a search of 20 minutes with 16 s a process ended on one of the fastest settings."""
    chance, plan = random.Random(f"noise {seed}"), plan_for((), 16.0, 1200.0, seed, VALUES)
    done = search(
        plan,
        lambda trial: step_on_four_gpus(trial.group.settings) * math.exp(heavy(chance, sigma)),
        plan.most_processes,
    )
    result = find_result(plan, done)
    chosen = result.group.settings if result.verdict == "improved" and result.group else {}
    return step_on_four_gpus(chosen) < 18.0


@pytest.mark.parametrize("is_row", [True, False])
def test_what_breaks_down_when_it_is_repeated_takes_nothing_from_the_other(*, is_row: bool) -> None:
    """The fastest process, or what the fit chose, takes less time once and then breaks down twice."""
    met = 0
    for seed in range(8):
        chance, plan = random.Random(seed), plan_that_repeats(seed)
        done: list[Tried] = []
        while (trial := next_trial(plan, done)) is not None:
            chosen, row = of_design(plan, done)
            flaky = row if is_row else chosen
            time: float | None = math.exp(-0.08 * ("VARIABLE_03" in trial.group.settings) + chance.gauss(0.0, 0.01))
            if row is not None and chosen is not None and trial.stage == "repeat" and trial.group == flaky:
                met += 1
                time = 0.8 if trial.round == 0 else None
            if row is not None and chosen is not None and trial.stage == "repeat":
                assert trial.group in (row, chosen), "the two decide; nothing reads a process of the base"
            done.append(Tried(trial.group.name, trial.stage, trial.round, time))
        result = find_result(plan, done)
        assert result.verdict == "improved"
        assert result.group is not None
        assert "VARIABLE_03" in result.group.settings
    assert met, "no search had both"


def test_what_breaks_down_while_it_is_confirmed_is_not_the_result() -> None:
    """Whatever its processes before have shown."""
    shown = 0
    for seed in range(12):
        chance = random.Random(seed)

        def job(trial: TuneTrial, chance: random.Random = chance) -> float | None:
            if trial.stage == "confirm" and trial.round > 1 and trial.group is not PLAIN:
                return None
            return math.exp(-0.05 * ("VARIABLE_03" in trial.group.settings) + chance.gauss(0.0, 0.012))

        plan = plan_that_repeats(seed)
        done = search(plan, job, 2 * MOST)
        if [one for one in done if one.stage == "confirm" and one.time is None]:
            shown += 1
            assert find_result(plan, done).verdict == "nothing_resolved"
    assert shown, "no search confirmed in more than two rounds"


@pytest.mark.parametrize("sigma", [0.01, 0.03])
def test_repeating_the_fastest_process_of_nothing_accepts_nothing(sigma: float) -> None:
    found = [of_nothing(sigma, seed) for seed in range(RUNS)]
    assert sum(wrong for wrong, _ in found) <= most_accepted(0.05, RUNS)
    assert max(sum(one.stage == "repeat" for one in done) for _, done in found) == 4, "and it was repeated"


def of_nothing(sigma: float, seed: int) -> tuple[bool, list[Tried]]:
    """Whether such a search accepts something where nothing helps, and its processes."""
    plan = plan_that_repeats(seed)
    result, done = tuned(plan, planted(seed), sigma, seed, plan.most_processes)
    return result.verdict == "improved", done


def test_a_value_that_breaks_the_job_is_named_and_left_out_and_the_rest_is_found() -> None:
    found = []
    for seed in range(RUNS):
        where, plan = planted(seed, pair=True, crashes=True), plan_of(0.01, seed)
        result, done = tuned(plan, where, 0.01, seed)
        assert {one.name for one in broken_settings(plan, done)} == {where.broken}
        crashed = sum(one.time is None for one in done)
        assert 2 <= crashed <= MOST_CRASHED, "those of half of the design at most"
        chosen = result.group.settings if result.verdict == "improved" and result.group else {}
        assert where.broken not in chosen
        found.append(both(where) <= set(chosen))
    assert share(found) >= least_share(0.95, RUNS)


def test_two_values_that_break_the_job_are_both_left_out() -> None:
    for seed in range(amount(5, 20)):
        where, plan = planted(seed), plan_of(0.01, seed)
        wrong = {where.broken, where.second}

        def job(trial: TuneTrial, wrong: set[str] = wrong, where: Planted = where) -> float | None:
            return None if wrong & set(trial.group.settings) else math.exp(where.log(trial.group.settings))

        done = search(plan, job, 2 * MOST)
        assert {one.name for one in broken_settings(plan, done)} >= wrong
        assert find_result(plan, done).verdict != "unfinished"


def test_processes_that_break_down_by_chance_do_not_stop_it() -> None:
    """One in fifteen, whatever it sets."""
    for seed in range(amount(5, 20)):
        chance, where, plan = random.Random(seed), planted(seed, trap=True), plan_of(0.01, seed)

        def job(trial: TuneTrial, chance: random.Random = chance, where: Planted = where) -> float | None:
            return None if chance.random() < 1 / 15 else math.exp(where.log(trial.group.settings))

        assert find_result(plan, search(plan, job, 2 * MOST)).verdict in ("improved", "nothing_resolved")


def test_with_known_groups_the_other_variables_are_screened_on_the_best_of_them() -> None:
    """The trap of sockets without channels, and a variable that gains 4 % only on top of the best group."""
    groups = known_groups(Transport.SOCKET)
    found = []
    for seed in range(RUNS // 2):
        chance = random.Random(seed)

        def job(trial: TuneTrial, chance: random.Random = chance) -> float:
            settings = trial.group.settings
            gain = 0.96 if "VARIABLE_03" in settings and "NCCL_MIN_NCHANNELS" in settings else 1.0
            return over_sockets(StartGroup("", settings)) * gain * math.exp(heavy(chance, 0.01))

        plan = plan_for(groups, 1.0, MOST, seed, dict.fromkeys(NAMES[:5], ("1",)))
        done = search(plan, job, MOST)
        result = find_result(plan, done)
        assert result.verdict == "improved"
        assert result.group is not None
        found.append(result.group.settings.get("VARIABLE_03") == "1")
        assert result.group.settings["NCCL_MIN_NCHANNELS"] in ("8", "16")
    assert share(found) >= 0.8


def test_an_interrupted_search_decides_as_an_uninterrupted_one() -> None:
    """Every prefix of a search asks for the process that the search itself ran next: nothing but results is kept."""
    where, plan = planted(7, pair=True, crashes=True), plan_that_repeats(7)
    _, done = tuned(plan, where, 0.01, 7, plan.most_processes)
    for cut in random.Random(7).sample(range(len(done)), 10):
        rest = iter(done[cut:])

        def job(trial: TuneTrial, rest: object = rest) -> float | None:
            one = next(rest)  # type: ignore[call-overload]
            assert (trial.group.name, trial.stage, trial.round) == (one.group, one.stage, one.round)
            return one.time  # type: ignore[no-any-return]

        again = continued(plan, done[:cut], job)
        assert again == done


@pytest.mark.parametrize("seed", [24, 56, 104, *range(amount(2, 40))])  # of the first, a round undoes what it showed
def test_what_may_be_left_is_never_less_than_what_comes_also_after_an_earlier_plan(seed: int) -> None:
    """A larger budget goes on with a larger plan: processes that confirmed something else are no part of it."""
    chance, variables = random.Random(seed), dict.fromkeys(NAMES, ("1",))

    def job(trial: TuneTrial) -> float:
        return math.exp(-0.05 * ("VARIABLE_03" in trial.group.settings) + chance.gauss(0.0, 0.02))

    smaller, larger = (plan_for((), 16.0, budget, seed, variables) for budget in (700.0, 1200.0))
    earlier = continued(smaller, [], job)
    done = continued(larger, earlier, job)
    said = [most_left(larger, done[:count]) for count in range(len(earlier), len(done) + 1)]
    assert all(most >= len(done) - len(earlier) - place for place, most in enumerate(said))
    assert all(later < most for most, later in itertools.pairwise(said)), "it never rises"
    assert said[-1] == 0
    assert most_left(larger, []) == larger.most_processes


def continued(plan: TunePlan, done: list[Tried], job: Callable[[TuneTrial], float | None]) -> list[Tried]:
    """A search that goes on."""
    more = list(done)
    while (trial := next_trial(plan, more)) is not None:
        more.append(Tried(trial.group.name, trial.stage, trial.round, job(trial)))
    return more


def test_plain_nccl_stands_beside_a_design_without_groups() -> None:
    _, done = tuned(plan_of(0.01, 0), planted(0), 0.01, 0)
    assert [one.group for one in done[:2]] == [PLAIN.name] * 2
    assert ATTEMPTS == 2
