# SPDX-License-Identifier: Apache-2.0
"""What is proven of the incumbent: the tests that it and those before it have passed, from stock on.

A config that passed a test against stock is proven. One that passed a test against a proven incumbent is proven too:
the levels of all tests of a run add up to alpha. Nothing that is proven is tested again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lagom.records import Assignment
from lagom.search.sequential_test import SequentialTest


@dataclass(frozen=True, slots=True)
class Proof:
    """``tests`` all passed: the first against stock, each other one against the candidate of the one before."""

    tests: tuple[SequentialTest, ...]

    @property
    def assignment(self) -> Assignment:
        """What is proven to be faster than stock."""
        return self.tests[-1].candidate

    @property
    def speedup(self) -> float:
        """Z of stock over Z of the assignment."""
        return math.exp(-sum(test.found.value for test in self.tests if test.found is not None))

    @property
    def interval(self) -> tuple[float, float]:
        """95 % interval of :attr:`speedup`: of several tests the product of their bounds, which covers at least as
        often as the bounds of one."""
        bounds = [test.interval or (0.0, math.inf) for test in self.tests]
        low, high = math.prod(low for low, _ in bounds), math.prod(high for _, high in bounds)
        return 1.0 / high, 1.0 / low if low > 0.0 else math.inf

    @property
    def sentence(self) -> str:
        """Of one test its own; of several the product and each of them."""
        if len(self.tests) == 1:
            return self.tests[0].sentence
        low, high = self.interval
        steps = "; then ".join(test.sentence for test in self.tests)
        return f"{self.speedup:.3f}x plain NCCL [{low:.3f}, {high:.3f}] in {len(self.tests)} tests: {steps}"

    def followed_by(self, test: SequentialTest) -> Proof:
        """The proof of the next incumbent. A test against stock stands alone."""
        return Proof((test,)) if test.against.is_stock else Proof((*self.tests, test))


NOTHING_PROVEN = Proof(())
