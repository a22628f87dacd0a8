# SPDX-License-Identifier: Apache-2.0
"""Waiting in tests: for what must come, however busy the machine is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

import pytest

#: Seconds; below pytest's limit of a test (pyproject.toml), so that what never came is named.
PATIENCE = 600.0
PROC_STAT = Path("/proc/stat")
#: On two processors, one loop beside the eleven processes of a storm gets as much.
OTHERS_SHARE = 0.08
Found = TypeVar("Found")


def busy_seconds() -> float:
    """Processor time that this machine has spent on anything, or that another one on the same hardware has taken, s."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, PROC_STAT.read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


class OthersWatch:
    """Whether other processes computed since this was made: whoever is not this one or a child that it has waited for.
    Unlike the load average, that leaves out what the test itself has cost."""

    def __init__(self) -> None:
        self._began, self._busy, self._own = time.monotonic(), busy_seconds(), sum(os.times()[:4])

    def share(self) -> float:
        """Of all processors, 0 to 1, on average."""
        others = busy_seconds() - self._busy - (sum(os.times()[:4]) - self._own)
        return others / max(1e-3, time.monotonic() - self._began) / (os.cpu_count() or 1)


def skip_if_others_computed(others: OthersWatch, done: str) -> NoReturn:
    """The end of a test that got too little ``done``: skipped if other processes have computed meanwhile, else failed.
    The only way to skip for a busy machine; a judgement by counts or the simulated clock needs none."""
    share = others.share()
    if share <= OTHERS_SHARE:
        pytest.fail(f"{done}, and nobody else computed: others had {share:.0%} of the processors")
    pytest.skip(f"too busy here: {done}; others had {share:.0%} of the processors")


def wait_until(condition: Callable[[], Found], what: str | Callable[[], str], pause: float = 0.02) -> Found:
    """The first true value of ``condition``; fails with ``what`` was waited for."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE:.0f} s in vain for {what if isinstance(what, str) else what()}")
        time.sleep(pause)
    return found
