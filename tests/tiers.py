# SPDX-License-Identifier: Apache-2.0
"""What `make test` leaves to `make test-full`, and which tests may cost more than others.

`make test` has every property with a small fixed set of seeds, so it sees what is plainly wrong. `make test-full`
(LAGOM_TEST_FULL=1) repeats the same tests with so many seeds that a wrong level or a lost percent of power is seen too.
"""

from __future__ import annotations

import math
import os
from typing import TypeVar

from scipy import stats

FULL = os.environ.get("LAGOM_TEST_FULL", "") == "1"
Amount = TypeVar("Amount")

#: Tests that may take more than `LIMIT_S` of tests/processor_time.py, with the reason; by their ids without folders.
EXPENSIVE = {
    "test_native.py::test_program[none-agreement_interleavings]": "every interleaving: fewer would prove less",
    "test_examples.py::test_an_example_runs_under_torchrun[ddp-lagom run]": "torchrun and both ranks import torch",
    "test_soak.py::test_short_soak": "goes on until enough faults were injected",
}


def amount(quick: Amount, full: Amount) -> Amount:
    """Of seeds, runs or plans: for `make test`, and for `make test-full`."""
    return full if FULL else quick


def least_share(target: float, runs: int) -> float:
    """The share that so many runs show at least where ``target`` is met: less two standard errors."""
    return target - 2 * math.sqrt(target * (1 - target) / runs)


def most_accepted(level: float, runs: int) -> int:
    """So many wrong verdicts in so many runs are passed once in a thousand times where their rate is ``level``."""
    return int(stats.binom.ppf(0.999, runs, level))
