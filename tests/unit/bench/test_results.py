# SPDX-License-Identifier: Apache-2.0
"""From samples to what is said: known speed-ups come out, and what cannot be known is not claimed."""

from __future__ import annotations

import math
import random
from collections.abc import Callable

import pytest

from lagom import journal
from lagom.bench.results import OWN_STOCK, BenchRecord, Result, ratio_between, results_of
from lagom.bench.table import as_json, cells, remarks
from lagom.experiment.estimate import estimate_from_pairs
from lagom.experiment.log_extract import fill_record
from lagom.experiment.store import ArmWindow, RunRecord
from lagom.journal.schema import ConfigRecord, SampleRecord

NOISE = 0.02


def windows(arm: str, speedup: float, count: int, draw: random.Random) -> list[ArmWindow]:
    """Two pairs a window, on a machine that drifts by a third meanwhile."""
    found = []
    for number in range(count):
        drift = 1e8 * (1 + number / count / 3)
        pairs = [(drift * draw.gauss(1, NOISE), drift / speedup * draw.gauss(1, NOISE)) for _ in range(2)]
        found.append(ArmWindow(arm=arm, z=pairs))
    return found


def record(arms: str, *runs: RunRecord, **fields: object) -> BenchRecord:
    return BenchRecord.model_validate({"command": ["train"], "arms": arms.split(","), "runs": runs, **fields})


def by_name(results: list[Result]) -> dict[str, Result]:
    return {result.arm: result for result in results}


def test_a_known_speed_up_comes_out_within_its_interval_and_stock_is_one() -> None:
    draw = random.Random(1)
    made = [*windows("stock", 1.0, 12, draw), *windows("static=2", 1.25, 12, draw), *windows("set=x", 0.8, 12, draw)]
    found = by_name(results_of(record("stock,static=2,set=x", RunRecord(kind="in job", windows=made))))
    for arm, truth in {"stock": 1.0, "static=2": 1.25, "set=x": 0.8}.items():
        ratio = found[arm].ratio
        assert ratio is not None
        assert ratio.pairs == 24
        assert ratio.low <= truth <= ratio.high
        assert ratio.value == pytest.approx(truth, rel=0.03)
        assert 0.003 < ratio.detectable < 0.05
    assert list(found) == ["stock", "static=2", "set=x"]


def test_intervals_hold_what_they_promise() -> None:
    draw, missed = random.Random(2), 0
    for _ in range(300):
        logs = [math.log(draw.gauss(1, NOISE) / draw.gauss(1, NOISE)) for _ in range(12)]
        ratio = estimate_from_pairs(logs)
        assert ratio is not None
        missed += not ratio.low <= 1.0 <= ratio.high
    assert missed <= 25, "about 15 of 300 at 95 %"


def test_too_few_pairs_are_said_to_be_too_few() -> None:
    found = results_of(record("stock", RunRecord(kind="in job", windows=windows("stock", 1.0, 2, random.Random(3)))))
    assert "too few pairs" in cells(found[0])
    assert as_json(record("stock"), found)["results"][0]["low"] is None


def test_the_best_of_a_sweep_is_chosen_by_one_half_and_measured_by_the_other() -> None:
    draw = random.Random(4)
    made = [window for cap in range(1, 13) for window in windows(f"static={cap}", 1.0, 6, draw)]
    found = by_name(results_of(record("stock,static", RunRecord(kind="in job", windows=made))))
    best, ratio = found["static"], found["static"].ratio
    assert ratio is not None
    assert ratio.low < 1.0 < ratio.high, "the best of twelve that are all stock is stock"
    luckiest = max(result.ratio.value for name, result in found.items() if name.startswith("static=") and result.ratio)
    assert ratio.value < luckiest
    assert "best of 12" in best.note


def test_an_arm_that_was_left_out_early_says_so_and_a_sweep_that_nobody_asked_for_has_no_best() -> None:
    draw = random.Random(4)
    rows = [*windows("stock", 1.0, 8, draw), *windows("static=1", 0.5, 3, draw), *windows("static=4", 1.0, 8, draw)]
    rows = [rows[at] for at in sorted(range(len(rows)), key=lambda at: (at % 8, at))]
    told = record("stock,static=1,static=4", RunRecord(kind="in job", windows=rows))
    found = by_name(results_of(told))
    assert "static" not in found
    assert ratio_between(told, "stock", "static") is None
    assert found["static=4"].note == ""
    assert found["static=1"].note.startswith("measured in 3 of ")


def test_processes_are_paired_by_round_and_speeds_are_not_times() -> None:
    def run(arm: str, number: int, value: float) -> RunRecord:
        return RunRecord(kind="process", arm=arm, round=number, value=value, measure="metric")

    runs = []
    for number, level in enumerate((100.0, 200.0, 150.0, 120.0, 180.0, 90.0)):  # rounds differ, arms of one round less
        runs += [run(OWN_STOCK, number, level), run("off", number, level * 0.5), run(OWN_STOCK, number, level * 1.01)]
    times = by_name(results_of(record(f"stock,{OWN_STOCK},off", *runs)))
    speeds = by_name(results_of(record(f"stock,{OWN_STOCK},off", *runs, higher_is_better=True)))
    assert times["off"].ratio is not None
    assert speeds["off"].ratio is not None
    assert times["off"].ratio.value == pytest.approx(2.01, abs=0.015)
    assert speeds["off"].ratio.value == pytest.approx(1 / 2.01, abs=0.015)
    assert times[OWN_STOCK].ratio is not None
    assert times[OWN_STOCK].ratio.value == pytest.approx(1.0, abs=0.001), "the second is slower: no fault of stock's"
    assert "larger than within one job" in " ".join(remarks(record("stock"), list(times.values())))


def test_a_process_that_failed_counts_for_nothing_and_one_that_was_ended_does() -> None:
    def run(arm: str, value: float, number: int = 0, **fields: object) -> RunRecord:
        usual = {"kind": "process", "arm": arm, "round": number, "value": value, "measure": "metric"}
        return RunRecord.model_validate({**usual, **fields})

    asked = f"stock,{OWN_STOCK},off"
    broken = [run(arm, 7.0, exit=3) for arm in (OWN_STOCK, "off", OWN_STOCK, "off")]
    assert results_of(record(asked, *broken)) == []
    assert ratio_between(record(asked, *broken), "off", OWN_STOCK) is None
    assert "ended with 3" in " ".join(remarks(record(asked, *broken), []))
    whole = [run(OWN_STOCK, 100.0, exit=143, ended="us"), run("off", 50.0, exit=143, ended="budget")]
    found = by_name(results_of(record(asked, *broken, *whole)))
    assert found["off"].ratio is not None
    assert (found["off"].ratio.value, found["off"].ratio.pairs) == (pytest.approx(2.0), 1)
    assert found["off"].typical == 50.0
    assert found["off"].pairing.startswith("1 process ")
    assert found[OWN_STOCK].ratio is None, "one stock that ran well is no pair"


def test_the_best_of_many_that_are_all_stock_is_stock_on_as_many_machines_as_promised() -> None:
    missed, faster, machines = 0, 0, 150
    for seed in range(machines):
        draw = random.Random(seed)
        made = [window for cap in range(1, 11) for window in windows(f"static={cap}", 1.0, 8, draw)]
        found = by_name(results_of(record("stock,static", RunRecord(kind="in job", windows=made))))
        ratio = found["static"].ratio
        assert ratio is not None
        assert ratio.pairs == 8, "of the half that had no say"
        missed, faster = missed + (not ratio.low <= 1.0 <= ratio.high), faster + (ratio.value > 1.0)
    assert missed <= 16, "7.5 at 95 %"
    assert 55 <= faster <= 95, "75; were the half measured that chose it, nearly all"


def processes(draw: Callable[[], float], rounds: int, *arms: str) -> list[RunRecord]:
    """Every arm once a round, stock twice, all drawn alike."""
    return [
        RunRecord(kind="process", arm=arm, round=number, value=draw(), measure="metric")
        for number in range(rounds)
        for arm in (OWN_STOCK, *arms, OWN_STOCK)
    ]


def test_an_arm_that_is_stock_is_not_faster_however_skewed_the_noise_of_processes_is() -> None:
    draw, faster, slower, machines = random.Random(7), 0, 0, 400
    for _ in range(machines):
        held = record(f"stock,{OWN_STOCK},off", *processes(lambda: draw.paretovariate(3.0), 24, "off"))
        ratio = by_name(results_of(held))["off"].ratio
        assert ratio is not None
        faster, slower = faster + (ratio.low > 1.0), slower + (ratio.high < 1.0)
    assert faster <= 20, "10 of 400 are promised; against the mean of two stocks it is about 35"
    assert slower <= 20


def test_stock_against_stock_in_processes_takes_no_side() -> None:
    draw, missed = random.Random(8), 0
    for _ in range(200):
        runs = processes(lambda: draw.gauss(100.0, 2.0), 10)
        ratio = by_name(results_of(record(f"stock,{OWN_STOCK}", *runs)))[OWN_STOCK].ratio
        turned = [run for first, second in zip(runs[::2], runs[1::2], strict=True) for run in (second, first)]
        other = by_name(results_of(record(f"stock,{OWN_STOCK}", *turned)))[OWN_STOCK].ratio
        assert ratio is not None
        assert other is not None
        assert other.value == pytest.approx(1.0 / ratio.value), (
            "the order of the two says which is which, not their size"
        )
        missed += not ratio.low <= 1.0 <= ratio.high
    assert missed <= 20, "about 10 of 200"


def test_two_arms_are_compared_with_each_other_cycle_by_cycle() -> None:
    draw = random.Random(5)
    speeds = {"stock": 1.0, "lagom": 1.30, "autoccl": 1.20, "static=2": 1.10, "static=1": 0.9}
    made = {arm: windows(arm, speed, 8, draw) for arm, speed in speeds.items()}
    mixed = [made[arm][cycle] for cycle in range(8) for arm in draw.sample(list(made), len(made))]
    held = record("stock,lagom,autoccl,static", RunRecord(kind="in job", windows=mixed))
    for other, truth in {"autoccl": 1.30 / 1.20, "static=2": 1.30 / 1.10, "stock": 1.30, "static": 1.30 / 1.10}.items():
        ratio = ratio_between(held, "lagom", other)
        assert ratio is not None
        assert ratio.pairs == (8 if other == "static" else 16), "the best cap's windows that did not choose it"
        assert ratio.low <= truth <= ratio.high
        assert ratio.value == pytest.approx(truth, rel=0.03)
        swapped = ratio_between(held, other, "lagom")
        assert swapped is not None
        assert swapped.value * ratio.value == pytest.approx(1.0)
    assert ratio_between(held, "lagom", "guided") is None


def test_two_arms_in_processes_are_compared_round_by_round() -> None:
    runs = [
        RunRecord(kind="process", arm=arm, round=number, value=level * speed, measure="metric")
        for number, level in enumerate((100.0, 200.0, 150.0, 120.0, 180.0, 90.0))
        for arm, speed in ((OWN_STOCK, 1.0), ("own:replay=p", 0.75), ("own:lagom", 0.5), (OWN_STOCK, 1.0))
        if not (number == 0 and arm == "own:lagom")
    ]
    asked = f"stock,{OWN_STOCK},own:replay=p,own:lagom"
    times = ratio_between(record(asked, *runs), "own:lagom", "own:replay=p")
    speeds = ratio_between(record(asked, *runs, higher_is_better=True), "own:lagom", "own:replay=p")
    assert times is not None
    assert speeds is not None
    assert (times.value, times.pairs) == (pytest.approx(1.5), 5), "the first round lacks one of them"
    assert speeds.value == pytest.approx(1 / 1.5)
    assert ratio_between(record(asked, *runs), "own:lagom", "lagom") is None, "nothing pairs a process with a window"


def test_a_search_that_kept_stock_is_stock_to_the_others() -> None:
    draw = random.Random(6)
    pairs = zip(windows("stock", 1.0, 8, draw), windows("lagom", 1.25, 8, draw), strict=True)
    inside = RunRecord(kind="in job", windows=[window for pair in pairs for window in pair])
    assert ratio_between(record("stock,lagom,autoccl", inside), "lagom", "autoccl") is None, "it never ended"
    kept = RunRecord(kind="tuning", arm="autoccl", outcome=outcome("stock_is_best", None))
    ratio = ratio_between(record("stock,lagom,autoccl", kept, inside), "lagom", "autoccl")
    assert ratio is not None
    assert ratio.low <= 1.25 <= ratio.high
    changed = RunRecord(kind="tuning", arm="autoccl", outcome=outcome("improved", 2))
    assert ratio_between(record("stock,lagom,autoccl", changed, inside), "lagom", "autoccl") is None


def outcome(verdict: str, channels: int | None) -> dict[str, object]:
    """As a log tells it."""
    chosen = (ConfigRecord(channels=channels),)
    told = journal.Outcome(communicator=0, verdict=verdict, reason="", configs_chosen=chosen)
    return told.model_dump(mode="json")


def test_a_search_that_left_stock_in_place_is_told() -> None:
    cost = {"configs": 9, "iterations": 90, "regret_iterations": 1.5, "speedup": 0.99}
    told = {**outcome("stock_is_best", None), **cost}
    run = RunRecord(kind="tuning", arm="autoccl", outcome=told)
    found = by_name(results_of(record("stock,autoccl", run)))
    assert found["autoccl"].ratio is None
    text = " ".join(remarks(record("stock"), list(found.values())))
    assert "stock is best" in text
    assert "9 configs, 90 iterations, 1.5 lost" in text


def test_what_was_measured_before_a_job_was_learnt_anew_counts_for_nothing() -> None:
    """Another iteration, or times that were other kernels'. What a search that ended has shown stands."""

    def move(communicator: int, arm: str) -> journal.Move:
        return journal.Move(
            communicator=communicator,
            number=1,
            purpose="trial",
            candidate=(),
            verdict="compared",
            reason="",
            arm=arm,
            samples=((SampleRecord(z=2.0), SampleRecord(z=1.0)),),
        )

    def program(communicator: int, tier: str) -> journal.Program:
        return journal.Program(communicator=communicator, period=3, sites=(), tier=tier)

    def measured(*events: journal.schema.Base) -> tuple[list[str], str]:
        run = RunRecord(kind="in job")
        fill_record(run, events)
        return sorted(window.arm for window in run.windows), "" if run.outcome is None else run.outcome["verdict"]

    other = [program(1, "nccl kernels"), move(1, "other")]
    events = [
        program(0, "nccl kernels"),
        move(0, "stale"),
        *other,
        move(0, "stale"),
        program(0, "host"),
        move(0, "new"),
    ]
    assert measured(*events) == (["new", "other"], "")
    ended = journal.Outcome(communicator=0, verdict="stock_is_best", reason="")
    again = [program(0, "host"), move(0, "after drift")]
    assert measured(*events, ended, *again) == (["new", "other"], "stock_is_best")
