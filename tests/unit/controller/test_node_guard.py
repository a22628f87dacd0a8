# SPDX-License-Identifier: Apache-2.0
"""Whether a job spans nodes, by its communicators and by its ranks' environment, and what becomes of its searches."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lagom.controller.node_guard import leave_to_nccl
from lagom.controller.phase import Stopped
from lagom.controller.record_feed import RecordFeed
from lagom.controller.tuner import CommunicatorTuner
from lagom.wire.views import CommunicatorView

TWO_NODES = {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}


class EventLog:
    """Remembers what was passed through."""

    def __init__(self) -> None:
        self.passed: list[tuple[int, str, str]] = []

    def passthrough(self, reason: str, view: CommunicatorView, cause: str) -> None:
        """One more."""
        self.passed.append((view.index, reason, cause))

    def phase(self, *_: object) -> None:
        """Not looked at."""


def tuner(events: EventLog, index: int, ranks: int, nodes: int = 1) -> CommunicatorTuner:
    view = CommunicatorView(index, 42 + index, ranks, nodes, 0, "")
    region: Any = SimpleNamespace(slots=lambda *_: [], has_double=lambda _: False, set_capture=lambda *_: None)
    options: Any = SimpleNamespace(stable_iterations=20, record=False)
    made = CommunicatorTuner(region, view, options, events)  # type: ignore[arg-type]
    assert isinstance(made.state.records, RecordFeed)
    return made


@pytest.mark.parametrize(
    ("sizes", "environ", "passed"),
    [
        ([(8, 1)], {}, []),
        ([(8, 1), (16, 2)], {}, [0]),  # the other one says so itself, when all its ranks are there
        ([(8, 1), (2, 1), (16, 2)], {}, [0, 1]),
        ([(8, 1)], TWO_NODES, [0]),  # no communicator over nodes was made yet
        ([(8, 1), (16, 1)], TWO_NODES, []),  # two launchers of one node
        ([(8, 1)], {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "SLURM_NNODES": "2"}, []),
        ([(8, 1)], {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "16"}, [0]),
        ([(8, 1)], {"SLURM_STEP_NUM_NODES": "2"}, [0]),
    ],
)
def test_a_job_that_spans_nodes_is_not_searched(
    sizes: list[tuple[int, int]], environ: dict[str, str], passed: list[int]
) -> None:
    events = EventLog()
    tuners = [tuner(events, index, ranks, nodes) for index, (ranks, nodes) in enumerate(sizes)]
    for _ in range(2):  # it is told once
        leave_to_nccl(tuners, environ)
    assert [index for index, *_ in events.passed] == passed
    assert all(tuners[index].phase == "stopped" for index in passed)
    for _, reason, cause in events.passed:
        assert reason == "the job spans 2 nodes; use `lagom tune`, or set LAGOM_NODES=alone"
        assert cause == "several_nodes"


def test_rules_by_hand_are_pinned_all_the_same() -> None:
    events = EventLog()
    pinned, late = tuner(events, 0, 8), tuner(events, 1, 8)
    rules: Any = ("rule",)
    pinned.pin(rules)
    leave_to_nccl([pinned, late], TWO_NODES)
    assert [index for index, *_ in events.passed] == [1]
    late.pin(rules)
    assert (pinned.phase, late.phase) == ("joining", "joining")
    late.pin(())
    leave_to_nccl([late], TWO_NODES)
    assert late.phase == "stopped"


def test_what_cannot_be_tuned_for_another_reason_is_not_pinned() -> None:
    one = tuner(EventLog(), 0, 8)
    one._enter(Stopped(one.state, "passthrough"))
    rules: Any = ("rule",)
    one.pin(rules)
    assert one.phase == "stopped"
