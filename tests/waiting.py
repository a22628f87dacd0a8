"""Waiting in tests: for what must come, however busy the machine is."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import TypeVar

#: Seconds; below pytest's limit of a test (pyproject.toml), so that what never came is named.
PATIENCE = 600.0
Found = TypeVar("Found")


def others_compute() -> bool:
    """Whether this machine does other things too, so that what it costs in time says little."""
    return os.getloadavg()[0] > 1.5


def wait_until(condition: Callable[[], Found], what: str | Callable[[], str], pause: float = 0.02) -> Found:
    """The first true value of ``condition``; fails with ``what`` was waited for."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {PATIENCE:.0f} s in vain for {what if isinstance(what, str) else what()}")
        time.sleep(pause)
    return found
