# SPDX-License-Identifier: Apache-2.0
"""Learning: what is believed to be an iteration, and when; whoever watches a job is told why nothing happens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from lagom.controller.learning import LATE_SECONDS, LOOK_SECONDS, Learning
from lagom.controller.record_feed import RecordFeed
from lagom.controller.stock_observations import StockObservations
from lagom.controller.tuner import CommunicatorTuner
from lagom.controller.tuner_state import EVERYTHING, TunerState
from lagom.program import CallHistory, find_program
from lagom.records import Function
from lagom.wire.layout import CALL_RECORD, KERNEL_SPAN, SPAN_COLLECTIVE, SPAN_NCCL_KERNEL
from lagom.wire.region import Capture
from lagom.wire.views import CommunicatorView


def state_after(sizes: list[int], said: list[str]) -> Any:
    """What learning stands on when a communicator has made AllReduces of these sizes, 10 ms apart."""
    history = CallHistory()
    history.extend(all_reduces(sizes, np.full(len(sizes), 10_000_000)))
    return state_on(history, said)


def all_reduces(sizes: list[int], gaps_ns: NDArray[Any]) -> NDArray[Any]:
    """Their records; each call comes so long after the one before."""
    rows = np.zeros(len(sizes), CALL_RECORD)
    rows["call"], rows["time_ns"] = np.arange(len(rows)), np.cumsum(gaps_ns)
    rows["function"], rows["bytes"] = int(Function.ALL_REDUCE), sizes
    return rows


def state_on(history: CallHistory, said: list[str], stable_iterations: int = 20) -> Any:
    """The state on these calls. A graph capture makes learning stand aside as soon as it believes an iteration."""
    return SimpleNamespace(
        history=history,
        may_tune=True,
        slots={0: 0},
        view=SimpleNamespace(index=3),
        options=SimpleNamespace(stable_iterations=stable_iterations, record=False),
        events=SimpleNamespace(warn=said.append, passthrough=lambda *_: None),
        captured=lambda: True,
        record=lambda _: None,
        record_calls=lambda: None,
        records=RecordFeed(),
        findings_refuted=lambda: False,
    )


def looks(sizes: list[int], seconds: list[float]) -> list[str]:
    """What is said by the looks at these times."""
    said: list[str] = []
    learning = Learning(state_after(sizes, said))
    for now in seconds:
        assert learning.step(now) is None
    return said


def test_a_job_whose_calls_do_not_repeat_is_told_once_that_nothing_is_tried() -> None:
    primes = [(1 << 20) + 4096 * (n * n % 1009) for n in range(400)]
    assert looks(primes, [1.0, LATE_SECONDS]) == []
    (sentence,) = looks(primes, [1.0, 1.0 + LATE_SECONDS, 2.0 + LATE_SECONDS, 9.0 * LATE_SECONDS])
    assert sentence.startswith(
        "communicator 3: nothing can be tried yet: its last 400 calls do not show an iteration 20 "
    )


def test_a_job_of_long_iterations_is_being_counted() -> None:
    """One of 3 s has not been seen 20 times after half a minute: it will be."""
    iteration = [(1 << 20) + 4096 * n for n in range(45)]
    assert looks(iteration * 10, [1.0, 1.0 + LATE_SECONDS, 9.0 * LATE_SECONDS]) == []


def test_a_job_of_iterations_of_many_calls_is_being_counted_too() -> None:
    """Of 1,000 calls 13 iterations are remembered; the others are counted as they go by."""
    iteration = [(1 << 20) + 4096 * n for n in range(1000)]
    assert looks(iteration * 16, [1.0, 1.0 + LATE_SECONDS, 9.0 * LATE_SECONDS]) == []


def test_a_job_that_has_hardly_begun_is_no_mystery() -> None:
    assert looks([1 << 20] * 5, [1.0, 1.0 + LATE_SECONDS]) == []


def believed(
    rows: NDArray[Any], stable_iterations: int = 20, every: int = 13, said: list[str] | None = None
) -> tuple[int, int, float]:
    """Calls of the iteration that is believed first, and the call and second at which it is; looked at so often."""
    history = CallHistory()
    learning = Learning(state_on(history, [] if said is None else said, stable_iterations))
    for look, at in enumerate(range(0, len(rows), every), 1):
        history.extend(rows[at : at + every])
        if learning.step(look * LOOK_SECONDS) is not None:
            program = find_program(history)
            assert program is not None
            return len(program.positions), history.numbers[-1], history.times[-1] * 1e-9
    return 0, len(rows), 0.0


def tensor_parallel(first: int, calls: int, steps: int, seed: int) -> NDArray[Any]:
    """One size for ever: a slow first step that pauses at ten odd places, then steps at whose end the host waits."""
    rng = np.random.default_rng(seed)
    slow, step = np.full(first, 1.5e6), np.full(calls, 0.2e6)
    slow[rng.choice(first, 10, replace=False)] = rng.uniform(20e6, 400e6, 10)
    step[0] = 40e6
    gaps = np.r_[slow, np.tile(step, steps)] * rng.lognormal(0, 0.1, first + steps * calls)
    return all_reduces([32 << 20] * len(gaps), gaps)


@pytest.mark.parametrize("stable_iterations", [5, 20])
@pytest.mark.parametrize(("first", "calls"), [(64, 64), (70, 64), (200, 64), (320, 320)])
def test_a_layer_of_the_first_step_is_never_believed(first: int, calls: int, stable_iterations: int) -> None:
    """No prefix of a tensor-parallel job is one call an iteration: the first that is believed is the step. Where only
    five iterations are asked for, that holds for steps of a quarter as many calls."""
    calls, first = calls * stable_iterations // 20, first * stable_iterations // 20
    for seed in range(3):
        rows = tensor_parallel(first, calls, 40, seed)
        found, call, _ = believed(rows, stable_iterations, every=13 if calls < 100 else 61)
        assert found == calls
        assert call < first + 32 * calls


def data_parallel(calls: int, seconds: float, iterations: int, hiccups: float = 0.0) -> NDArray[Any]:
    """Buckets of an iteration of so many seconds, half of them before the first; and a first iteration of 2 s."""
    rng = np.random.default_rng(calls)
    one = np.full(calls, 0.5 * seconds / max(1, calls - 1))
    one[0] = 0.5 * seconds if calls > 1 else seconds
    gaps = np.tile(one, iterations) * rng.normal(1, 0.02, calls * iterations)
    gaps[0] = 2.0
    gaps[::calls][rng.random(iterations) < hiccups] += 4 * seconds
    return all_reduces([(25 << 20) + 4096 * bucket for bucket in range(calls)] * iterations, gaps * 1e9)


@pytest.mark.parametrize(("calls", "after_s"), [(1, 20), (2, 20), (4, 0.6), (8, 0.6)])
def test_a_job_of_few_buckets_is_believed_in_good_time(calls: int, after_s: float) -> None:
    """Of 30 ms an iteration: of one size or two, which may be a layer, after 20 s, of more after 20 iterations."""
    found, _, second = believed(data_parallel(calls, 0.030, 1500))
    assert found == calls
    assert after_s <= second - 2.0 < after_s + 1.0


@pytest.mark.parametrize("calls", [1, 2, 4, 8])
@pytest.mark.parametrize(("every", "pause_s"), [(20, 2.0), (100, 3.0)])
def test_a_pause_every_so_many_iterations_is_no_part_of_them(calls: int, every: int, pause_s: float) -> None:
    """Silent evaluations and checkpoints, of a job of few buckets: they are not what repeats."""
    rows = data_parallel(calls, 0.060, 12_000 // calls)
    gaps = np.diff(rows["time_ns"], prepend=0).astype(float)
    gaps[:: calls * every] += pause_s * 1e9
    found, _, second = believed(all_reduces(rows["bytes"].tolist(), gaps))
    assert found == calls
    assert second < 60.0


@pytest.mark.parametrize("calls", [2, 3, 4, 8])
@pytest.mark.parametrize("ratio", [3.2, 3.5, 10.0])
def test_a_pause_that_hardly_stands_out_makes_no_multiple(calls: int, ratio: float) -> None:
    """About three times the other gaps: it is seen in some iterations, by chance."""
    for seed in range(4):
        rng = np.random.default_rng(seed)
        one = np.r_[10e6 * ratio, np.full(calls - 1, 10e6)]
        gaps = np.tile(one, 6000 // calls) * rng.lognormal(0, 0.1, 6000 // calls * calls)
        sizes = [(25 << 20) + 4096 * bucket for bucket in range(calls)] * (6000 // calls)
        assert believed(all_reduces(sizes, gaps))[0] == calls


def test_a_short_iteration_is_being_counted() -> None:
    """One call each 10 ms may be a layer; that it is not believed for a while is no mystery."""
    said: list[str] = []
    looks = int(2 * LATE_SECONDS / LOOK_SECONDS)
    assert believed(data_parallel(1, 0.010, 4 * looks), every=4, said=said)[0] == 0
    assert said == []


def test_a_job_of_one_slow_call_waits_for_no_thousand() -> None:
    found, call, _ = believed(data_parallel(1, 1.0, 100), every=1)
    assert found == 1
    assert call < 25


def test_less_is_seen_of_a_layer_where_fewer_iterations_are_asked_for() -> None:
    found, _, second = believed(data_parallel(2, 0.030, 1500), stable_iterations=5)
    assert found == 2
    assert 5.0 <= second - 2.0 < 6.0


@pytest.mark.parametrize("calls", [1, 2, 4, 8])
def test_hiccups_of_the_host_cost_little(calls: int) -> None:
    """Every twentieth iteration takes five times as long, at odd times."""
    found, _, second = believed(data_parallel(calls, 0.030, 5000 // calls + 100, hiccups=0.05), every=31)
    assert found == calls
    assert second < 35.0


def test_an_uneven_first_step_of_minutes_is_no_iteration() -> None:
    """Tensor parallelism that compiles: 64 calls in a minute, and after it steps of 55 ms."""
    rng = np.random.default_rng(2)
    step = np.full(64, 0.2e6)
    step[0] = 40e6
    rows = all_reduces([32 << 20] * (64 * 61), np.r_[rng.exponential(1e9, 64), np.tile(step, 60)])
    assert believed(rows)[0] == 64


def test_iterations_between_evaluations_count_together() -> None:
    """Two buckets, and every hundred iterations or so another size: no run is ever 20 s long."""
    buckets, other = [(25 << 20) + 4096 * bucket for bucket in range(2)], 1 << 20
    sizes = [size for run in (90, 110, 70, 100, 80, 120, 90, 100) for size in (*[other] * 3, *buckets * run)]
    found, _, second = believed(all_reduces(sizes, np.full(len(sizes), 30_000_000)))
    assert found == 2
    assert 20.0 <= second < 30.0


def test_a_job_of_many_calls_a_second_is_looked_at_before_they_are_forgotten() -> None:
    """Two thousand calls an iteration and sixty thousand a second: only looks that overlap show twenty in a row."""
    iteration = [(1 << 20) + 4096 * number for number in range(2000)]
    rows = all_reduces(iteration * 24, np.full(24 * 2000, 16_000))
    history = CallHistory()
    learning = Learning(state_on(history, []))
    phases = []
    for at in range(0, len(rows), 320):
        history.extend(rows[at : at + 320])
        phases.append(learning.step(LOOK_SECONDS + at / 60_000) is not None)
    believed = phases.index(True) * 320
    assert 20 * 2000 <= believed < 22 * 2000


def spans_of(rows: NDArray[Any], slots: dict[int, int], channels: int = 24) -> dict[int, NDArray[Any]]:
    """The kernel of each call as NCCL reports it, of every process."""
    spans = {}
    for slot, process in slots.items():
        spans[process] = np.zeros(len(rows), KERNEL_SPAN)
        spans[process]["call"], spans[process]["bytes"], spans[process]["slot"] = rows["call"], rows["bytes"], slot
        spans[process]["source"], spans[process]["kind"] = SPAN_NCCL_KERNEL, SPAN_COLLECTIVE
        spans[process]["channels"] = channels
    return spans


@pytest.mark.parametrize(
    ("options", "waiting"),
    [({}, Capture.CALLS), ({"record": True}, EVERYTHING), ({"profile_iterations": 3}, EVERYTHING)],
)
def test_kernels_are_timed_only_in_its_turn(options: dict[str, Any], waiting: int) -> None:
    """Others may search for minutes, and a timed kernel costs the host of every rank. But raw records have all."""
    asked: list[int] = []
    state = state_after([1 << 20] * 5, [])
    state.record, state.record_calls = asked.append, lambda: TunerState.record_calls(state)
    state.options = SimpleNamespace(**{"stable_iterations": 20, "record": False, "profile_iterations": 0, **options})
    state.may_tune = False
    learning = Learning(state)
    for turn in (False, False, True, True, False):
        state.may_tune = turn
        learning.step(0.0)
    assert asked == [waiting] * 3 + [EVERYTHING] * 2 + [waiting]


@pytest.mark.parametrize("shown", ["all", "of one rank", "of one call", "none", "no profiler"])
def test_a_late_turn_waits_for_a_kernel_of_each_call(monkeypatch: pytest.MonkeyPatch, shown: str) -> None:
    """Its iteration has long been known, its kernels not yet: without them it would be measured on the host, for
    another number of channels. One that never comes is waited for during a second and three iterations."""
    rows = data_parallel(4, 0.030, 200)
    history = CallHistory()
    history.extend(rows[:600])
    state = state_on(history, [])
    state.slots, state.captured = {0: 0, 1: 7}, lambda: False
    state.observations, state.can_show_kernels = StockObservations(), lambda: shown != "no profiler"
    state.options.profile_iterations = 0
    concluded: list[float] = []
    monkeypatch.setattr(Learning, "_conclude", lambda _, program, now: concluded.append(now))
    learning = Learning(state)
    for look in range(1, 13):  # an iteration each
        now, fresh = look * LOOK_SECONDS, rows[596 + 4 * look : 600 + 4 * look]
        history.extend(fresh)
        state.records.add_calls(0, fresh)
        seen = spans_of(fresh[:1] if shown == "of one call" else fresh, state.slots)
        for process, spans in seen.items() if shown in ("all", "of one rank", "of one call") else ():
            if process == 0 or shown != "of one rank":
                state.records.add_spans(process, spans)
        learning.step(now)
    at_once, patience = LOOK_SECONDS, 1.0 + LOOK_SECONDS
    assert concluded[0] == (at_once if shown in ("all", "no profiler") else patience)


def test_when_the_profile_is_made_nothing_is_recorded_of_other_communicators_either() -> None:
    told: list[tuple[int, int]] = []
    region: Any = SimpleNamespace(set_capture=lambda index, capture: told.append((index, capture)))
    options: Any = SimpleNamespace(stable_iterations=2, record=False, profile_iterations=3)
    events: Any = SimpleNamespace(phase=lambda *_: None)
    tuner = CommunicatorTuner(region, CommunicatorView(5, 42, 2, 1, 0, ""), options, events)
    tuner.state.record_calls()
    for _ in range(2):
        tuner.end_profile()
    assert told == [(5, EVERYTHING), (5, Capture.NOTHING)]
    assert tuner.is_profiled
    assert tuner.is_over
