"""Learning: whoever watches a job is told why nothing happens."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np

from lagom.controller.learning import LATE_SECONDS, Learning
from lagom.program import CallHistory
from lagom.records import Function
from lagom.wire.layout import CALL_RECORD


def ground_after(sizes: list[int], said: list[str]) -> Any:
    """What learning stands on when a communicator has made AllReduces of these sizes, 10 ms apart."""
    rows = np.zeros(len(sizes), CALL_RECORD)
    rows["call"], rows["time_ns"] = np.arange(len(rows)), np.arange(len(rows)) * 10_000_000
    rows["function"], rows["bytes"] = int(Function.ALL_REDUCE), sizes
    history = CallHistory()
    history.extend(rows)
    return SimpleNamespace(
        history=history,
        may_tune=True,
        slots={0: 0},
        view=SimpleNamespace(index=3),
        options=SimpleNamespace(stable_iterations=20),
        story=SimpleNamespace(warn=said.append),
        record_everything=lambda: None,
    )


def looks(sizes: list[int], seconds: list[float]) -> list[str]:
    """What is said by the looks at these times."""
    said: list[str] = []
    learning = Learning(ground_after(sizes, said))
    for now in seconds:
        assert learning.step(now) == "learning"
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


def test_a_job_that_has_hardly_begun_is_no_mystery() -> None:
    assert looks([1 << 20] * 5, [1.0, 1.0 + LATE_SECONDS]) == []
