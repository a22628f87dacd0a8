# SPDX-License-Identifier: Apache-2.0
"""What each test costs in processor time, with the processes that it started and their children.

A run ends with its ten most expensive tests, and all above ``WARN_S``. With LAGOM_TEST_LIMIT=1 (`make test-times`, on a
quiet machine) one above ``LIMIT_S`` fails unless ``tiers.EXPENSIVE`` gives the reason, it is the long version
(LAGOM_TEST_FULL=1), or it is in a folder that `make test` skips. Elsewhere it is only marked: what a test costs that
waits for others depends on what runs beside it, and a change is not wrong because the machine was busy. Seconds are
those of the machine that the limits were chosen on: a test above its limit is judged by how long this processor takes
at that moment for a fixed loop.
``LAGOM_TEST_TIMES=file.json`` keeps the seconds of every test.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.tiers import EXPENSIVE, FULL

WARN_S, LIMIT_S, SHOWN = 3.0, 8.0, 10
#: A loop of so many rounds, and its processor time where the limits were chosen.
LOOP, LOOP_S, LOOPS = 3_000_000, 0.042, 5
#: Whether a test above its limit fails.
ENFORCED = os.environ.get("LAGOM_TEST_LIMIT", "") == "1"
#: What `make test` skips: it needs GPUs, or hundreds of megabytes from the network.
UNLIMITED = ("tests/gpu/", "tests/abi/", "tests/wheel/")
TICKS = os.sysconf("SC_CLK_TCK")
#: Seconds that tests share, by what they were spent on: no single test is charged for them.
shared_s: Counter[str] = Counter()


def processor_seconds() -> float:
    """Of this process, of the children that it has waited for, and of those alive with all that they waited for."""
    usages = resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN)
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + sum(map(_ticks_of, _children())) / TICKS


def _children() -> list[str]:
    found: list[str] = []
    for children in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # of a thread that has just ended
            found += children.read_text().split()
    return found


def _ticks_of(process: str) -> int:
    """0 for one that has ended meanwhile."""
    try:
        # After the name, which may hold anything: utime, stime, cutime and cstime are the 12th to the 15th.
        fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[11:15]))


@contextmanager
def shared(what: str) -> Iterator[None]:
    """What is done once for many tests, as compiling: its time is reported by itself."""
    began = processor_seconds()
    try:
        yield
    finally:
        shared_s[what] += processor_seconds() - began


def slowness() -> float:
    """How many times as long this processor takes as the one that the limits were chosen on: the longest of some loops,
    since who was beside the test may pause at this moment."""
    took = []
    for _ in range(LOOPS):
        began = time.process_time()
        for _ in range(LOOP):
            pass
        took.append(time.process_time() - began)
        time.sleep(0.05)
    return max(took) / LOOP_S


def has_a_limit(name: str) -> bool:
    """Whether a test fails that is expensive."""
    return ENFORCED and not FULL and not name.startswith(UNLIMITED)


def is_named(name: str) -> bool:
    """Whether ``EXPENSIVE`` has the test."""
    short = name.rpartition("/")[2]
    return short in EXPENSIVE or short.partition("[")[0] in EXPENSIVE


def too_expensive(name: str, seconds: float, slower: float) -> str:
    """What is wrong with a test that takes ``seconds`` on a processor ``slower`` times as slow; empty = nothing."""
    if seconds <= LIMIT_S * max(1.0, slower) or is_named(name):
        return ""
    return (
        f"{name} took {seconds:.1f} s of processor time on a processor {slower:.1f} times as slow as the limit is for; "
        f"{LIMIT_S:.0f} s are allowed: make it cheaper, or give the reason in tests/tiers.py"
    )


def _mark(name: str, seconds: float) -> str:
    if seconds > LIMIT_S and not is_named(name) and not name.startswith(UNLIMITED):
        return f"  (above {LIMIT_S:.0f} s and not in tests/tiers.py: make it cheaper)"
    return f"  (above {WARN_S:.0f} s)" if seconds > WARN_S else ""


class ProcessorTime:
    """A pytest plugin: measures in each worker, and sums up in the process that reports."""

    def __init__(self) -> None:
        self._began = 0.0
        self._seconds: dict[str, float] = {}
        self._shared: Counter[str] = Counter()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self) -> Iterator[None]:
        self._began = processor_seconds()
        shared_s.clear()
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[Any]:
        report = yield
        if call.when == "teardown":
            report.shared_s = dict(shared_s)
            report.processor_s = processor_seconds() - self._began - shared_s.total()
            if report.passed and report.processor_s > LIMIT_S and has_a_limit(item.nodeid):
                report.longrepr = too_expensive(item.nodeid, report.processor_s, slowness()) or None
                report.outcome = "failed" if report.longrepr else "passed"
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self._seconds[report.nodeid] = report.processor_s
            self._shared.update(report.shared_s)

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        slowest = sorted(self._seconds.items(), key=lambda one: -one[1])
        terminalreporter.section(f"processor time of {len(slowest)} tests: {sum(self._seconds.values()):.0f} s")
        for what, seconds in self._shared.items():
            terminalreporter.write_line(f"{seconds:7.1f} s  {what}")
        above = sum(seconds > WARN_S for seconds in self._seconds.values())
        for name, seconds in slowest[: max(SHOWN, above)]:
            terminalreporter.write_line(f"{seconds:7.1f} s  {name}{_mark(name, seconds)}")
        if kept := os.environ.get("LAGOM_TEST_TIMES"):
            Path(kept).write_text(json.dumps(dict(slowest) | dict(self._shared), indent=0) + "\n")
