"""When what repeats is believed to be an iteration: once it has repeated often enough, counted over more calls than
are remembered, for some iterations are so long that only three of them fit there."""

from __future__ import annotations

from dataclasses import dataclass

from lagom.program.detect import HISTORY_CALLS, STEADY, CallHistory, Program, find_program
from lagom.program.period import explained_by, is_layer_like, is_rotation
from lagom.records import Function

#: A program that has changed so often while it was learnt does not settle.
CHANGES = 12
#: What looks like a layer may be one until it was seen in so many calls, or for so long (ns), for each iteration that
#: is asked for: large models make 300 to 600 calls a step, and few steps take 20 s. A first step may, but not evenly;
#: what is uneven is watched five times as long.
LAYER_CALLS, LAYER_NS, UNEVEN = 200, 1e9, 5


@dataclass(slots=True)
class ProgramConfirmation:
    """Asked at each look at one communicator's history; ``asked`` is how many iterations must have been seen.

    A program was found already when half of the calls that show it had been seen: a run of equal gathers inside the
    first forward pass also repeats for a while. One that stands for more than the run it was found in needs no such
    proof. What may be a layer must go on for longer: a whole first step may hold nothing else.
    """

    asked: int
    _suspected: tuple[tuple[Function, int], ...] = ()  # positions
    _suspected_at: int = 0  # calls seen when it was first found
    _repeated: int = 0  # counted calls that it explains, up to the newest look, without a break
    _newest: int = -1  # number of the newest call of that look
    _changes: int = 0
    _in_sight: bool = True

    @property
    def is_lost(self) -> bool:
        """Whether nothing is in sight that may come to be believed, or ever another program."""
        return not self._in_sight or self._changes > CHANGES

    def look(self, history: CallHistory) -> Program | None:
        """The program of the history, once it is believed."""
        program = find_program(history)
        self._in_sight = program is not None
        if program is None:
            return None
        self._suspect(program)
        self._count(program, history)
        stands_for_more = program.calls_seen < len(history.numbers)
        is_settled = stands_for_more or program.calls_seen >= min(2 * self._suspected_at, HISTORY_CALLS)
        if not is_settled or _may_be_layer(program, self.asked):
            return None
        seen = max(program.iterations_seen, self._repeated // len(program.positions))
        return program if seen >= self.asked else None

    def _suspect(self, program: Program) -> None:
        """Where position 0 comes to lie elsewhere, little was seen of it yet; but it is no other program."""
        if not is_rotation(program.positions, self._suspected):
            self._repeated = 0
            self._changes += 1
        if program.positions != self._suspected:
            self._suspected, self._suspected_at = program.positions, program.calls_seen

    def _count(self, program: Program, history: CallHistory) -> None:
        """What the program explains now goes on from what it did at the last look if both share an iteration."""
        counted, period = history.counted(), len(program.positions)
        explained = explained_by([history.shapes[i] for i in counted], period)
        fresh = sum(history.numbers[i] > self._newest for i in counted)
        goes_on = self._repeated > 0 and explained >= fresh + period
        self._repeated = self._repeated + fresh if goes_on else explained
        self._newest = history.numbers[-1]


def _may_be_layer(program: Program, iterations: int) -> bool:
    """Whether the program is so short that it may be a layer of a pass, the step's pause still to come. ``iterations``
    is how often it is asked to repeat, were it none.

    In the first step of tensor parallelism, slow and irregular, one layer after the other looks like an iteration.
    """
    if not is_layer_like(program.positions):
        return False
    seen_calls = max(program.calls_seen, program.iterations_seen * program.calls_per_iteration)
    seen_ns = program.iterations_seen * program.iteration_ns
    enough_ns = LAYER_NS * iterations * (1 if program.spread <= STEADY else UNEVEN)
    return seen_calls < min(LAYER_CALLS * iterations, HISTORY_CALLS) and seen_ns < enough_ns
