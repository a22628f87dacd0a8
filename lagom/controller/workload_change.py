# SPDX-License-Identifier: Apache-2.0
"""The job does something else than its iteration: an evaluation, which passes, or another iteration, which stays.

From calls alone the two differ in nothing but how long they last. So the new calls are watched on their own, apart from
the old ones; what has repeated often and for long is what the job does now.
"""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from lagom.program import CallHistory, find_program
from lagom.records import Function

#: Both must be reached. An evaluation of so many batches is taken for a new job; learning that costs nothing but time.
ITERATIONS, SECONDS = 200, 60.0
#: A look costs as much as the calls it looks at: every so many new ones, and when the history has grown by a share.
LOOK_EVERY_CALLS, LOOK_EVERY_SHARE = 64, 1 / 16


class WorkloadChange:
    """Begun at the first irregular call; ``positions`` are those of the program that was left, ``slot`` is
    the rank that is watched."""

    def __init__(self, positions: tuple[tuple[Function, int], ...], slot: int) -> None:
        self.history = CallHistory()
        self.sentence = ""
        self._slot = slot
        self._left = sorted(positions)
        self._suspect: list[tuple[Function, int]] = []
        self._since = (0, 0)  # call, ns: when the suspect was first found
        self._looked_at = 0

    def add_calls(self, slot: int, records: NDArray[Any]) -> None:
        """Call records of one rank; those of others are the same."""
        if slot == self._slot:
            self.history.extend(records)

    def has_replaced_it(self) -> bool:
        """Whether one other iteration has been there for long. The times are those of the records."""
        fresh = next(reversed(self.history.numbers), 0) - self._looked_at
        if fresh < max(LOOK_EVERY_CALLS, LOOK_EVERY_SHARE * len(self.history.numbers)):
            return False
        now = (self.history.numbers[-1], self.history.times[-1])
        self._looked_at = now[0]
        program = find_program(self.history)
        found = sorted(program.positions) if program is not None else []
        if found != self._suspect:
            self._suspect, self._since = found, now
        if program is None or found == self._left:
            return False
        iterations = (now[0] - self._since[0]) // program.calls_per_iteration
        seconds = (now[1] - self._since[1]) * 1e-9
        self.sentence = (
            f"for {iterations} iterations and {seconds:.0f} s the calls have been others than before: "
            f"{len(found)} an iteration instead of {len(self._left)}"
        )
        return iterations >= ITERATIONS and seconds >= SECONDS
