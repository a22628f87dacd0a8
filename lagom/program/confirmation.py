# SPDX-License-Identifier: Apache-2.0
"""When a sequence that repeats is confirmed as an iteration: after enough repetitions. They are counted over more calls
than the history holds, since some iterations are so long that only three of them fit into it."""

from __future__ import annotations

from dataclasses import dataclass

from lagom.program.detect import HISTORY_CALLS, STEADY, CallHistory, CallProgram, find_program
from lagom.program.period import explained_by, is_layer_like, is_rotation
from lagom.records import Function

#: A program that changed so often while it was learnt is given up.
CHANGES = 12
#: What looks like a layer may be one until it was seen in so many calls, or for so long (ns), per iteration asked for:
#: large models make 300 to 600 calls a step, and few steps take 20 s. A first step may, but its layers differ in
#: length;
#: such a sequence must repeat for five times as long.
LAYER_CALLS, LAYER_NS, UNEVEN = 200, 1e9, 5


@dataclass(slots=True)
class ProgramConfirmation:
    """Called with one communicator's history again and again; ``asked``: iterations that must have been seen.

    A program is confirmed when it was already found with half of its calls: a run of equal gathers inside the first
    forward pass also repeats for a while. One that explains only part of the history (the rest is irregular) needs no
    such check. What may be a layer must repeat for longer: a whole first step may consist of it.
    """

    asked: int
    _suspected: tuple[tuple[Function, int], ...] = ()  # positions
    _suspected_at: int = 0  # calls seen when it was first found
    _repeated: int = 0  # counted calls that it explains without a break, up to the newest call
    _newest: int = -1  # number of the newest call of that look
    _changes: int = 0
    _found: bool = True

    @property
    def is_lost(self) -> bool:
        """Whether no program was found that may be confirmed later, or a different one each time."""
        return not self._found or self._changes > CHANGES

    def look(self, history: CallHistory) -> CallProgram | None:
        """The program of the history, once it is confirmed."""
        program = find_program(history)
        self._found = program is not None
        if program is None:
            return None
        self._suspect(program, history)
        self._count(program, history)
        stands_for_more = program.calls_seen < len(history.numbers)
        is_settled = stands_for_more or program.calls_seen >= min(2 * self._suspected_at, HISTORY_CALLS)
        if not is_settled or _may_be_layer(program, self.asked):
            return None
        seen = max(program.iterations_seen, self._repeated // len(program.positions))
        return program if seen >= self.asked else None

    def _suspect(self, program: CallProgram, history: CallHistory) -> None:
        """A program that only begins at another position 0 is the same one: where the host sets the pace, its longest
        pause comes after another call now and then.

        Half of the calls may show it already: the first look comes late where other communicators had their turn
        before, or were waited for.
        """
        if is_rotation(program.positions, self._suspected):
            return
        earlier = find_program(history.oldest(len(history.numbers) // 2))
        known = earlier if earlier is not None and is_rotation(earlier.positions, program.positions) else program
        self._suspected, self._suspected_at = program.positions, known.calls_seen
        self._repeated = 0
        self._changes += 1

    def _count(self, program: CallProgram, history: CallHistory) -> None:
        """Add to the calls explained before if these share a whole iteration with them; else count anew."""
        counted, period = history.counted(), len(program.positions)
        explained = explained_by([history.shapes[i] for i in counted], period)
        fresh = sum(history.numbers[i] > self._newest for i in counted)
        goes_on = self._repeated > 0 and explained >= fresh + period
        self._repeated = self._repeated + fresh if goes_on else explained
        self._newest = history.numbers[-1]


def _may_be_layer(program: CallProgram, iterations: int) -> bool:
    """Whether the program is so short that it may be a layer of the first step. ``iterations``: how often it must
    repeat.

    In the first step of tensor parallelism, which is slow and irregular, each layer looks like an iteration.
    """
    if not is_layer_like(program.positions):
        return False
    seen_calls = max(program.calls_seen, program.iterations_seen * program.calls_per_iteration)
    seen_ns = program.iterations_seen * program.iteration_ns
    enough_ns = LAYER_NS * iterations * (1 if program.spread <= STEADY else UNEVEN)
    return seen_calls < min(LAYER_CALLS * iterations, HISTORY_CALLS) and seen_ns < enough_ns
