# SPDX-License-Identifier: Apache-2.0
"""Processes of a search on two nodes: who ends them, whose value counts, what speaks against one."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lagom.config_file import load_config, save_config
from lagom.experiment.arm import Kind, Task, arm_with
from lagom.experiment.metric import Metric
from lagom.experiment.process import Ended, ProcessStart, Seen
from lagom.experiment.request import Request
from lagom.experiment.store import RunRecord, Store
from lagom.nodes.enrolment import Session, enrol
from lagom.nodes.exchange import Done
from lagom.nodes.folder_exchange import FolderExchange
from lagom.nodes.heartbeat import Life
from lagom.nodes.node_facts import facts_of
from lagom.nodes.rounds import RoundResult
from lagom.tune import on_nodes
from lagom.tune.on_nodes import Coordinator, done_of, follow, found_of, joined, saved_of
from lagom.tune.stages import TuneRecord

METRIC = r"iteration \d+: ([0-9.]+) ms"
SETTINGS = {"NCCL_NSOCKS_PERTHREAD": "4", "NCCL_SOCKET_NTHREADS": "4"}
#: Long enough that a busy machine makes nobody silent.
LIFE = Life(beat=0.05, silent=120.0)


def sessions(folder: Path) -> tuple[Session, Session]:
    """Of the coordinator and of the other node."""
    facts = facts_of(["train.py"], {}, plugin="ab", nccl=22809, gpu="H200")
    with ThreadPoolExecutor(2) as pool:
        tasks = [
            pool.submit(enrol, FolderExchange(folder / "exchange"), 2, name, facts, 120.0, LIFE) for name in ("a", "b")
        ]
        one, two = sorted((task.result() for task in tasks), key=lambda session: session.seat)
    return one, two


def request_in(folder: Path) -> Request:
    folder.mkdir()
    return Request(command=("train",), folder=folder, samples=3, metric=METRIC, nnodes=2)


def store_in(request: Request) -> Store[TuneRecord]:
    return Store(request, TuneRecord)


class Job:
    """Instead of a process: prints a line each time it is looked at, until it is ended; the rank that prints is on
    one node."""

    def __init__(self, printing: str) -> None:
        self.printing = printing
        self.started: list[tuple[str, dict[str, str]]] = []

    def run(self, start: ProcessStart) -> Ended:
        node = start.folder.name
        self.started.append((node, {name: start.environ[name] for name in SETTINGS if name in start.environ}))
        seen, count = Seen(metric=Metric(start.metric, unit=start.unit)), 0
        while not start.enough(seen):
            count += 1
            if node == self.printing:
                seen.take(f"iteration {count}: 5.0 ms")
            time.sleep(0.002)
        return Ended(-15, 1.0, time.time(), "us", seen)


@pytest.mark.parametrize("printing", ["here", "there"])
def test_the_value_comes_from_the_node_that_has_it_and_both_run_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printing: str
) -> None:
    job = Job(printing)
    monkeypatch.setattr(on_nodes, "run_process", job.run)
    one, two = sessions(tmp_path)
    here, there = request_in(tmp_path / "here"), request_in(tmp_path / "there")
    said: list[str] = []

    def search() -> list[RunRecord]:
        with one:
            coordinator, store, found = Coordinator(one), store_in(here), []
            for number, settings in enumerate(({}, SETTINGS), 1):
                task = Task(Kind.PROCESS, arm_with("x", settings))
                found.append(coordinator.run_task(here.numbered(number), task, store, None, said.append))
                store.add(found[-1])
            coordinator.finish("plain_is_best")
            return found

    def take_part() -> object:
        with two:
            return follow(two, there, store_in(there), said.append)

    with ThreadPoolExecutor(2) as pool:
        searched, followed = pool.submit(search), pool.submit(take_part)
    assert [run.value for run in searched.result()] == [5.0, 5.0]
    assert {run.node for run in searched.result()} == {one.node if printing == "here" else two.node}
    assert followed.result() == ("plain_is_best", None)
    assert sorted(job.started, key=lambda one: (one[0], len(one[1]))) == [
        ("here", {}), ("here", SETTINGS), ("there", {}), ("there", SETTINGS)
    ]  # fmt: skip


def record(**values: object) -> RunRecord:
    return RunRecord.model_validate({"kind": "process", "arm": "own:stock", "exit": -15, "ended": "us", **values})


def result(own: dict[str, object], other: dict[str, object], by: str = "b", why: str = "enough") -> RoundResult:
    done = {"a": {"exit": 0, "ended": "us", **own}, "b": {"exit": 0, "ended": "us", **other}}
    return RoundResult(by, why, {name: Done.model_validate(one) for name, one in done.items()})


def test_the_coordinators_own_value_comes_first() -> None:
    run = joined(record(value=2.0, ranks=4, ranks_seen=2), result({}, {"value": 3.0, "ranks": 4, "ranks_seen": 2}), "a")
    assert (run.value, run.node, run.ranks_seen, run.counted) == (2.0, "a", 4, 2.0)


def test_ranks_with_other_settings_on_another_node_speak_against_a_value() -> None:
    run = joined(record(value=2.0), result({}, {"unlike": "rank 3 has NCCL_ALGO=Ring"}), "a")
    assert (run.counted, run.reason) == (None, "b: rank 3 has NCCL_ALGO=Ring")


def test_a_process_that_failed_on_another_node_gives_nothing() -> None:
    failed = {"exit": 1, "ended": "itself", "reason": "out of memory"}
    run = joined(record(value=2.0), result({}, failed, why="exit"), "a")
    assert (run.failed, run.counted, run.exit) == (True, None, 1)
    assert run.reason == "node b failed with 1: out of memory"


def test_a_launcher_that_failed_because_another_ended_the_round_has_not_failed() -> None:
    run = joined(record(exit=1, ended="itself", reason="no output"), result({}, {"value": 3.0, "unit": "ms"}), "a")
    assert (run.failed, run.counted, run.unit, run.reason) == (False, 3.0, "ms", "")


def test_what_is_told_of_a_process_can_be_exchanged_whatever_it_was() -> None:
    run = record(
        exit=-999999, ended="budget", seconds=3.5, value=1.0, samples=[1.0] * 5000, unit="µ\x1b[2J" * 40,
        unlike="\n" + "x" * 1000, reason="y" * 1000,
    )  # fmt: skip
    done = done_of(run)
    assert Done.model_validate_json(done.model_dump_json()) == done
    assert (done.exit, done.ended, len(done.samples), done.reason) == (-256, "limit", 2000, "")


def test_every_node_writes_the_same_saved_config(tmp_path: Path) -> None:
    text = """lagom-config 1
# 4x4 sockets: 2.10x [1.95, 2.26] over plain NCCL
fingerprint nccl 22809
fingerprint ranks 4
fingerprint nodes 2
fingerprint gpu "NVIDIA H200"
fingerprint p2p 1
environment NCCL_NSOCKS_PERTHREAD "4"
#: {"lagom":"0.1.0","start":{"NCCL_NSOCKS_PERTHREAD":"4"},"speedup":2.1,"low":1.95,"high":2.26,"processes":[6,6],"measure":"calls","ranks":4,"ordinal":null}
"""  # noqa: E501
    (tmp_path / "own").write_text(text)
    found = found_of(load_config(tmp_path / "own"), "4x4 sockets: 2.10x [1.95, 2.26] over plain NCCL")
    told = type(found).model_validate_json(found.model_dump_json())
    save_config(saved_of(told), tmp_path / "other", remark=told.text)
    assert (tmp_path / "other").read_text() == text
