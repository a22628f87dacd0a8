# SPDX-License-Identifier: Apache-2.0
"""Which processes are run, in which order, and what is not run again."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from lagom.bench.arm_words import parse_arms
from lagom.bench.results import BenchRecord
from lagom.bench.schedule import ATTEMPTS, BenchSchedule, left, preview, tasks
from lagom.experiment.arm import Kind
from lagom.experiment.request import Request
from lagom.experiment.results_folder import discard
from lagom.experiment.store import ArmWindow, BadRecord, RunRecord


def schedule(*words: str, folder: Path = Path("nowhere"), metric: str = "", **numbers: int) -> BenchSchedule:
    return BenchSchedule(Request(("train",), folder, metric=metric), parse_arms(list(words)), **numbers)


def record(asked: BenchSchedule, *runs: RunRecord) -> BenchRecord:
    return asked.open_store().record.model_copy(update={"runs": list(runs)})


def test_tuning_comes_before_the_comparison_that_needs_it_and_processes_last() -> None:
    kinds = [task.kind for task in tasks(schedule("lagom,guided,static,off", rounds=2, jobs=2))]
    assert kinds == [Kind.TUNING] * 2 + [Kind.IN_JOB] * 2 + [Kind.PROCESS] * 6


def test_a_round_runs_every_arm_once_and_stock_twice_in_an_order_of_its_own() -> None:
    arms = "off,env=A=1,env=B=1,env=C=1"
    rounds: dict[int, list[str]] = {}
    for task in tasks(schedule(arms, rounds=6)):
        if task.kind is Kind.PROCESS and task.arm is not None:
            rounds.setdefault(task.round, []).append(task.arm.name)
    every = sorted(["own:stock", "own:stock", *arms.split(",")])
    assert all(sorted(names) == every for names in rounds.values())
    assert len({tuple(names) for names in rounds.values()}) > 1, "shuffled"
    again = [task for task in tasks(schedule(arms, rounds=6)) if task.kind is Kind.PROCESS]
    assert again == [task for task in tasks(schedule(arms, rounds=6)) if task.kind is Kind.PROCESS], "by the seed"


def test_what_was_done_is_not_done_again_and_what_was_cut_off_is() -> None:
    asked = schedule("lagom,off", rounds=1)
    first = record(asked, RunRecord(kind="tuning", arm="lagom", outcome={"verdict": "improved"}, ended="us"))
    assert [task.kind for task in left(asked, first)] == [Kind.IN_JOB] + [Kind.PROCESS] * 3
    window = ArmWindow(arm="stock", z=[(1.0, 1.0)])
    cut = RunRecord(kind="in job", windows=[window], ended="limit")
    assert Kind.IN_JOB in {task.kind for task in left(asked, record(asked, *first.runs, cut))}
    whole = RunRecord(kind="in job", windows=[window], ended="us", exit=143)
    one_stock = RunRecord(kind="process", arm="own:stock", value=1.0, measure="wall")
    waiting = left(asked, record(asked, *first.runs, whole, one_stock))
    assert sorted(task.arm.name for task in waiting if task.arm) == ["off", "own:stock"], "stock once more"


def test_what_keeps_failing_is_given_up() -> None:
    asked = schedule("lagom,static=2")
    broken = RunRecord(kind="tuning", arm="lagom", exit=1)
    assert left(asked, record(asked, broken))[0].kind is Kind.TUNING
    assert left(asked, record(asked, *[broken] * ATTEMPTS))[0].kind is Kind.IN_JOB


def comparison(windows: int, ended: str, **fields: object) -> RunRecord:
    """A process that compared stock and one arm in so many cycles."""
    pair = [ArmWindow(arm=arm, z=[(1.0, 1.0)]) for arm in ("stock", "static=2")]
    return RunRecord.model_validate({"kind": "in job", "windows": pair * windows, "ended": ended, **fields})


def cycles_left(asked: BenchSchedule, *runs: RunRecord) -> list[int]:
    return [task.cycles for task in left(asked, record(asked, *runs)) if task.kind is Kind.IN_JOB]


def test_a_comparison_is_asked_for_the_cycles_it_still_lacks_however_often_it_was_cut_off() -> None:
    asked = schedule("static=2", cycles=40)
    cut = [comparison(10, "budget", cycles=40), comparison(9, "limit", cycles=30), comparison(6, "budget", cycles=21)]
    assert [cycles_left(asked, *cut[:parts]) for parts in range(4)] == [[40], [30], [21], [15]]
    assert cycles_left(asked, *cut, comparison(15, "us", cycles=15)) == []
    crashed = comparison(15, "itself", cycles=15, exit=1)
    assert cycles_left(asked, comparison(20, "budget", cycles=40), crashed) == [5], "what it measured counts"
    short = comparison(3, "itself", cycles=40)
    assert cycles_left(asked, short) == [], "a job that is over sooner would be so again"
    assert cycles_left(schedule("static=2", cycles=50), *cut, comparison(15, "us", cycles=15)) == [10]
    assert cycles_left(schedule("static=2", cycles=8, jobs=2), comparison(3, "budget", cycles=8)) == [5, 8]


def test_what_the_budget_cut_off_has_not_failed() -> None:
    asked = schedule("lagom,off", rounds=1)
    cut = [RunRecord(kind=kind, arm=arm, ended="budget") for kind, arm in (("tuning", "lagom"), ("process", "off"))]
    waiting = left(asked, record(asked, *cut * 5))
    assert [task.kind for task in waiting] == [Kind.TUNING, Kind.IN_JOB, *[Kind.PROCESS] * 3]
    too_slow = [RunRecord(kind="process", arm="off", ended="limit")] * ATTEMPTS
    assert "off" not in {task.arm.name for task in left(asked, record(asked, *too_slow)) if task.arm}


def test_samples_of_another_environment_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("NCCL_P2P_DISABLE", "LD_PRELOAD", "LAGOM_NT"):
        monkeypatch.delenv(name, raising=False)
    asked = schedule("static=2", folder=tmp_path)
    asked.open_store().add(comparison(8, "us", cycles=8))
    for name in ("LAGOM_SHM_DIR", "LAGOM_JOB_ID", "NCCL_DEBUG_FILE", "NCCL_VERSION", "EDITOR"):
        monkeypatch.setenv(name, "elsewhere")
    assert asked.open_store().record.runs, "no other job for that"
    for name in ("NCCL_P2P_DISABLE", "LD_PRELOAD", "LAGOM_NT"):
        monkeypatch.setenv(name, "1")
        with pytest.raises(BadRecord, match=f"{name} was not set and is 1") as refused:
            asked.open_store()
        monkeypatch.delenv(name)
        assert "--out" in str(refused.value)
        assert "--fresh" in str(refused.value)
    with pytest.raises(BadRecord, match="LAGOM_NT was not set and is 1"):
        replace(asked, request=replace(asked.request, environ={"LAGOM_NT": "1"})).open_store()


@pytest.mark.parametrize("number", [1, 2, 4])
def test_a_record_of_another_format_is_refused_by_its_number(tmp_path: Path, number: int) -> None:
    """Even if the rest of it could not be read."""
    (tmp_path / "bench.json").write_text(f'{{"format": {number}}}')
    with pytest.raises(BadRecord, match=rf"json has format {number} and this lagom reads format 3; use the version of"):
        schedule("off", folder=tmp_path).open_store()


def test_samples_of_another_nccl_or_gpu_are_refused(tmp_path: Path) -> None:
    arm = "env=LD_PRELOAD=libnccl.so"
    store = schedule(f"static=2,{arm}", folder=tmp_path).open_store()
    store.add(comparison(8, "us", nccl="2.28.9", gpu="H200"))
    store.add(RunRecord(kind="process", arm="off"))
    store.add(RunRecord(kind="process", arm="own:stock", nccl="2.28.9"))
    store.add(RunRecord(kind="process", arm=arm, settings={"LD_PRELOAD": "libnccl.so"}, nccl="2.30.1", gpu="H200"))
    for other in ({"nccl": "2.28.9", "gpu": "A40"}, {"nccl": "2.27.3", "gpu": "H200"}):
        with pytest.raises(BadRecord, match=r"was measured on NCCL 2\.28\.9, H200"):
            store.add(comparison(8, "us", **other))
    assert len(schedule(f"static=2,{arm}", folder=tmp_path).open_store().record.runs) == 4


def test_samples_that_cannot_be_kept_are_refused_with_a_sentence_and_leave_nothing_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = schedule("off", folder=tmp_path).open_store()
    store.check_room()
    assert list(tmp_path.iterdir()) == []
    store.add(RunRecord(kind="process", arm="off", value=1.0))
    before = store.path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("lagom.experiment.store.os.fsync", full)
    for attempt in (store.check_room, lambda: store.add(RunRecord(kind="process", arm="off", value=2.0))):
        with pytest.raises(BadRecord, match=r"cannot be written \(No space left on device\).*the same command"):
            attempt()
    assert [path.name for path in tmp_path.iterdir()] == ["bench.json"]
    assert store.path.read_bytes() == before


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"\xff\xfe",
        b"[]",
        b'{"command": ["train"], "arms": [], "runs": [{}]}',
        b'{"format": 3, "schedule": "\\u001b[2J"}',
    ],
)
def test_a_damaged_file_of_results_is_refused_with_what_to_do(tmp_path: Path, damage: bytes) -> None:
    (tmp_path / "bench.json").write_bytes(damage)
    with pytest.raises(BadRecord, match=r"bench.json is not a benchmark .* --fresh\.$"):
        schedule("off", folder=tmp_path).open_store()
    assert (tmp_path / "bench.json").read_bytes() == damage


@pytest.mark.parametrize(
    "theirs", [b"", b"[]", b'{"mine": 1}', b'{"format": 3}', b'{"lagom": "1.0", "format": "x"}', b"\xff"]
)
def test_a_file_that_is_not_ours_is_kept_when_the_folder_is_begun_anew(tmp_path: Path, theirs: bytes) -> None:
    record = tmp_path / "bench.json"
    (tmp_path / "bench.json.1").write_bytes(b"an earlier one")
    record.write_bytes(theirs)
    assert discard(tmp_path) == f"{record} is not a benchmark file of lagom, or is damaged; it is kept as bench.json.2."
    assert not record.exists()
    assert (tmp_path / "bench.json.2").read_bytes() == theirs
    for version in (1, 3):
        record.write_text(json.dumps({"lagom": "1.0", "format": version}))
        assert discard(tmp_path) == ""
        assert not record.exists()


def test_what_cannot_be_thrown_away_is_refused_with_what_to_do(tmp_path: Path) -> None:
    discard(tmp_path)
    (tmp_path / "bench.json").mkdir()
    with pytest.raises(BadRecord, match=r"cannot be removed .* --out"):
        discard(tmp_path)


def test_one_measure_for_all_process_arms() -> None:
    assert schedule("env=A=1").measure == "calls"
    assert schedule("env=A=1,off").measure == "wall"
    assert schedule("off", metric="t=(.*)").measure == "metric"


@pytest.mark.parametrize(
    ("words", "few", "enough", "sentences"),
    [
        ("off", {"rounds": 2}, {"rounds": 6}, ["--rounds 2 gives an arm in processes of its own 2 pairs with"]),
        ("auto", {"cycles": 2}, {"cycles": 3}, ["--cycles 2 gives an arm within one job 4 pairs with stock, and 6"]),
        ("set=any:any:nc=2", {"cycles": 1, "jobs": 2}, {"cycles": 2, "jobs": 2}, ["--cycles 1 gives an arm"]),
        ("static", {"cycles": 5}, {"cycles": 6}, ["--cycles 5 gives the best of static 4 pairs with stock, and 6"]),
        ("set=any:any:nc=2,off", {"cycles": 2, "rounds": 5}, {}, ["--cycles 2 gives", "--rounds 5 gives"]),
    ],
)
def test_too_few_pairs_are_said_before_the_first_process(
    words: str, few: dict[str, int], enough: dict[str, int], sentences: list[str]
) -> None:
    def warnings(numbers: dict[str, int]) -> list[str]:
        found = preview(schedule(words, **numbers))
        return [one.removeprefix("warning: ") for one in found if one.startswith("warning: ")]

    found = warnings(few)
    assert len(found) == len(sentences)
    assert all(one.startswith(sentence) for one, sentence in zip(found, sentences, strict=True)), found
    assert warnings(enough) == []
    for name, number in enough.items():
        assert name == "jobs" or f"use --{name} {number} or more." in found[0]


def said(words: str, metric: str = "") -> list[str]:
    return list(preview(schedule(words, metric=metric, rounds=6)))


def test_the_number_of_processes_and_when_each_ends_is_said() -> None:
    (wall,) = said("stock,lagom,static,off")
    assert wall.startswith("18 processes of the job for own:stock, off (6 rounds, stock twice in each): ")
    assert "runs to its own end" in wall
    assert "--metric" in wall
    (metric,) = said("stock,lagom,static,off", metric="t=(.*)")
    assert metric.startswith("18 processes")
    assert "ended after 30 steady samples of the metric" in metric
    (calls,) = said("env=A=1,env=B=1")
    assert calls.startswith("24 processes")
    assert "its NCCL call rate" in calls


def test_nothing_is_said_where_one_job_is_enough() -> None:
    assert said("stock,lagom,static") == []


def test_an_arm_that_would_come_to_nothing_is_named() -> None:
    assert "own:lagom tunes" in said("own:lagom,off")[1]
    assert len(said("own:lagom,off", metric="t=(.*)")) == 1
    assert len(said("own:lagom")) == 1, "its calls are counted"
