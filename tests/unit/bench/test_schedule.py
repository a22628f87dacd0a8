"""Which processes are run, in which order, and what is not run again."""

from __future__ import annotations

from pathlib import Path

from lagom.bench import Kind, Request, RunRecord, parse_arms
from lagom.bench.schedule import ATTEMPTS, left, tasks
from lagom.bench.store import BenchRecord, Window


def request(*words: str, **numbers: int) -> Request:
    return Request(("train",), parse_arms(list(words)), Path("nowhere"), **numbers)  # type: ignore[arg-type]


def record(asked: Request, *runs: RunRecord) -> BenchRecord:
    return BenchRecord.model_validate({**asked.key(), "runs": runs})


def test_tuning_comes_before_the_comparison_that_needs_it_and_processes_last() -> None:
    kinds = [task.kind for task in tasks(request("lagom,guided,static,off", rounds=2, jobs=2))]
    assert kinds == [Kind.TUNING] * 2 + [Kind.IN_JOB] * 2 + [Kind.PROCESS] * 6


def test_a_round_runs_every_arm_once_and_stock_twice_in_an_order_of_its_own() -> None:
    arms = "off,env=A=1,env=B=1,env=C=1"
    rounds: dict[int, list[str]] = {}
    for task in tasks(request(arms, rounds=6)):
        if task.kind is Kind.PROCESS and task.arm is not None:
            rounds.setdefault(task.round, []).append(task.arm.name)
    every = sorted(["own:stock", "own:stock", *arms.split(",")])
    assert all(sorted(names) == every for names in rounds.values())
    assert len({tuple(names) for names in rounds.values()}) > 1, "shuffled"
    again = [task for task in tasks(request(arms, rounds=6)) if task.kind is Kind.PROCESS]
    assert again == [task for task in tasks(request(arms, rounds=6)) if task.kind is Kind.PROCESS], "by the seed"


def test_what_was_done_is_not_done_again_and_what_was_cut_off_is() -> None:
    asked = request("lagom,off", rounds=1)
    first = record(asked, RunRecord(kind="tuning", arm="lagom", outcome={"verdict": "improved"}, ended="us"))
    assert [task.kind for task in left(asked, first)] == [Kind.IN_JOB] + [Kind.PROCESS] * 3
    window = Window(arm="stock", z=[(1.0, 1.0)])
    cut = RunRecord(kind="in job", windows=[window], ended="limit")
    assert Kind.IN_JOB in {task.kind for task in left(asked, record(asked, *first.runs, cut))}
    whole = RunRecord(kind="in job", windows=[window], ended="us", exit=143)
    one_stock = RunRecord(kind="process", arm="own:stock", value=1.0, measure="wall")
    waiting = left(asked, record(asked, *first.runs, whole, one_stock))
    assert sorted(task.arm.name for task in waiting if task.arm) == ["off", "own:stock"], "stock once more"


def test_what_keeps_failing_is_given_up() -> None:
    asked = request("lagom,static=2")
    broken = RunRecord(kind="tuning", arm="lagom", exit=1)
    assert left(asked, record(asked, broken))[0].kind is Kind.TUNING
    assert left(asked, record(asked, *[broken] * ATTEMPTS))[0].kind is Kind.IN_JOB


def test_one_measure_for_all_process_arms() -> None:
    assert request("env=A=1").measure == "calls"
    assert request("env=A=1,off").measure == "wall"
    assert Request(("train",), parse_arms(["off"]), Path(), metric="t=(.*)").measure == "metric"
