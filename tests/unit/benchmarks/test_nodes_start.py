# SPDX-License-Identifier: Apache-2.0
"""Starts after a search by two launchers: what is compared ran in turns, and what did not is not given an interval."""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
from benchmarks.node_tables import ARMS, table
from benchmarks.nodes_start import NODES, ONE_CACHE, Nodes, Run
from tests.waiting import wait_until

TIMES = {"plain": 400.0, "found": 90.0, "by hand": 100.0}
ENDED, STOPPED = ({"exit": {"a": code, "b": code}} for code in (0, 1))


def processes(*which: tuple[str, int]) -> list[dict[str, Any]]:
    """Of an arm and a round each, in the order in which they ran."""
    return [
        {"arm": arm, "round": number, "failed": "", "steps_ms": [TIMES[arm] + at] * 5}
        for at, (arm, number) in enumerate(which)
    ]


def in_turns(*rounds: int) -> list[tuple[str, int]]:
    return [(arm, number) for number in rounds for arm in ARMS]


def rows(kept: dict[str, Any]) -> dict[str, list[str]]:
    """Of the last table, the cells by arm."""
    lines = [line.strip("|").split("|") for line in table(kept) if line.startswith("| ")]
    return {cells[0].strip(): [cell.strip() for cell in cells[1:]] for cells in lines}


def test_an_arm_that_ran_wholly_after_another_has_no_interval_over_it() -> None:
    late = [("plain", 0), ("by hand", 0), ("by hand", 1), ("plain", 1), ("found", 0), ("found", 1), ("plain", 2)]
    found = rows({"processes": processes(*late)})["found"]
    assert found[3].startswith("4.")
    assert found[4] == ""
    assert rows({"processes": processes(*in_turns(0, 1))})["found"][4].startswith("1.")


class Started:
    """In place of the nodes: nothing is started."""

    def start(self, command: Sequence[str], *environs: object, **limits: object) -> dict[str, Any]:
        return {"seconds": 1.0, "a": '"ms": 5.0\n' * 5, "b": "", **ENDED}


def started_in(folder: Path) -> Run:
    """The driver, begun or continued."""
    run = Run(argparse.Namespace(out=str(folder), gpus=2, own="job", command="nodes_start"), ["job"], 0.0)
    run.nodes = Started()  # type: ignore[assignment]
    return run


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return started_in(tmp_path)


def test_nothing_is_measured_before_a_search_has_ended(run: Run) -> None:
    run.kept["searches"] = [STOPPED]
    assert not list(run.rounds(2, 1))
    run.kept["searches"].append(ENDED)
    left = list(run.rounds(2, 1))
    close = [(arm, number) for number in (0, 1) for arm in ("found", "by hand")]
    assert sorted(left) == sorted([*close, ("plain", 1), ("plain", 1), (ONE_CACHE, 0)])
    assert [number for _, number in left] == [0, 0, 1, 1, 1, 1, 0]


def test_a_round_is_not_completed_once_a_later_one_has_begun(run: Run) -> None:
    run.kept["searches"] = [STOPPED, ENDED]
    run.kept["processes"] = processes(("plain", 0), ("by hand", 0), ("found", 1))
    left = list(run.rounds(3, 1))
    assert sorted(left[:3]) == [("by hand", 1), ("plain", 1), ("plain", 1)]
    assert {number for arm, number in left if arm != ONE_CACHE} == {1, 2}


def test_a_process_records_when_it_began_since_the_first_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [1000.0]
    monkeypatch.setattr("benchmarks.nodes_start.time.time", lambda: now[0])
    first = started_in(tmp_path)
    now[0] += 5
    first.next_start("found", 0)
    now[0] += 700
    continued = started_in(tmp_path)
    continued.next_start("plain", 0)
    assert [process["began"] for process in continued.kept["processes"]] == [5.0, 705.0]


WAITS = """
import pathlib, signal, sys, time
signal.signal(signal.SIGTERM, lambda *_: (print("kept"), sys.exit(0)))
pathlib.Path("begun").touch()
time.sleep(600)
"""


def test_launchers_whose_time_is_up_are_interrupted_and_end_by_themselves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Timer(threading.Thread):
        """Its time is up when both have begun, however long a busy machine takes for that."""

        def __init__(self, seconds: float, then: Callable[..., None], arguments: list[Any]) -> None:
            super().__init__(
                target=lambda: (wait_until(self.have_begun, "both launchers have begun"), then(*arguments))
            )

        @staticmethod
        def have_begun() -> bool:
            return all((tmp_path / node / "begun").exists() for node in NODES)

        def cancel(self) -> None:
            self.join()

    monkeypatch.setattr("benchmarks.nodes_start.threading.Timer", Timer)
    done = Nodes(tmp_path, 2).start([sys.executable, "-c", WAITS], {}, most_seconds=600.0)
    assert done["exit"] == {"a": 0, "b": 0}
    assert (done["a"], done["b"]) == ("kept\n", "kept\n")
