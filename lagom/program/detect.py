# SPDX-License-Identifier: Apache-2.0
"""From call records to a program: the calls of one communicator's iteration, and where it begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.program.period import (
    MIN_REPEATS,
    PACED_CALLS,
    inner_loop,
    is_layer_like,
    is_typical,
    pause_spacing,
    smallest_period,
    stationary_multiple,
    unbroken_run,
)
from lagom.records import Function
from lagom.wire.layout import MAX_POSITIONS, TRANSPARENT_BELOW_BYTES

#: Calls remembered. Three of the longest programs a plan can hold, and a little.
HISTORY_CALLS = 3 * MAX_POSITIONS + 1024
#: A run after an irregular phase must be this long to be used.
FEWEST_CALLS, RUN_ITERATIONS = 128, 12
#: Shares of an iteration's bytes below this are nothing to tune.
LEFT_OUT = 0.02
#: Iterations by which it is decided after which call the host's longest pause comes.
NEWEST = 8
#: What repeats within a longer period is an iteration only if it takes so long (ns), and always about as long.
SHORTEST_NS, STEADY = 10e6, 0.15


@dataclass(frozen=True, slots=True)
class CallProgram:
    """One iteration of one communicator.

    ``positions`` are the (function, bytes) of the calls that count, in order from position 0, which follows the longest
    pause of the host. ``calls_per_iteration`` also counts the transparent calls between them.
    """

    positions: tuple[tuple[Function, int], ...]
    first_call: int  # call number of a position 0
    calls_per_iteration: int
    iterations_seen: int  # in the calls it was found in; of a run after something irregular, in all
    iteration_ns: float  # median, by the host's clock
    calls_seen: int = 0  # that it was found in
    spread: float = 0.0  # of the iterations' lengths: median deviation over median

    def next_start(self, a_start: int, after_call: int) -> int:
        """The first position 0 at or after ``after_call`` if the job goes on so; ``a_start`` is any position 0."""
        ahead = max(0, after_call - a_start)
        return a_start + -(-ahead // self.calls_per_iteration) * self.calls_per_iteration


@dataclass(slots=True)
class CallHistory:
    """The last calls of one communicator, as one rank recorded them. A gap (dropped records) starts it afresh."""

    numbers: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    shapes: list[tuple[int, int]] = field(default_factory=list)  # (function, bytes)

    def extend(self, records: NDArray[Any]) -> None:
        """Append drained call records (dtype ``CALL_RECORD``), oldest first."""
        for number, time, function, size in zip(
            records["call"].tolist(),
            records["time_ns"].tolist(),
            records["function"].tolist(),
            records["bytes"].tolist(),
            strict=True,
        ):
            if self.numbers and number != self.numbers[-1] + 1:
                self.clear()
            self.numbers.append(number)
            self.times.append(time)
            self.shapes.append((function, size))
        excess = len(self.numbers) - HISTORY_CALLS
        if excess > 0:
            del self.numbers[:excess], self.times[:excess], self.shapes[:excess]

    def newest(self, calls: int) -> CallHistory:
        """The last so many calls."""
        return CallHistory(self.numbers[-calls:], self.times[-calls:], self.shapes[-calls:])

    def oldest(self, calls: int) -> CallHistory:
        """The first so many of the calls that are remembered."""
        return CallHistory(self.numbers[:calls], self.times[:calls], self.shapes[:calls])

    def counted(self) -> list[int]:
        """Indices of the calls that count."""
        counting = {shape for shape in set(self.shapes) if not is_transparent(*shape)}
        return [i for i, shape in enumerate(self.shapes) if shape in counting]

    def clear(self) -> None:
        """Forget everything."""
        self.numbers.clear()
        self.times.clear()
        self.shapes.clear()


def find_latest_start(history: CallHistory, program: CallProgram) -> int | None:
    """Call number of the latest position 0 with a whole period behind it, or ``None`` in an irregular phase.

    Where all calls look alike every rotation fits; then the one in step with ``program.first_call`` is taken.
    """
    counting = history.counted()
    begin = _latest_begin(history, counting, program)
    return None if begin is None else history.numbers[counting[begin]]


def find_positions(history: CallHistory, program: CallProgram) -> dict[int, int]:
    """Call number -> position, for the calls of the latest whole periods that follow each other without a gap."""
    counting, period = history.counted(), len(program.positions)
    begin = _latest_begin(history, counting, program)
    if begin is None:
        return {}
    end, shapes = begin + period, [history.shapes[i] for i in counting]
    while begin >= period and shapes[begin - period : begin] == list(program.positions):
        begin -= period
    return {history.numbers[counting[at]]: (at - begin) % period for at in range(begin, end)}


def _latest_begin(history: CallHistory, counting: list[int], program: CallProgram) -> int | None:
    """Index in ``counting`` of the latest position 0 with a whole period behind it."""
    shapes = [history.shapes[i] for i in counting]
    period = list(program.positions)
    fitting = [
        begin
        for begin in range(len(shapes) - len(period), max(-1, len(shapes) - 2 * len(period)), -1)
        if shapes[begin : begin + len(period)] == period
    ]
    ahead = program.calls_per_iteration
    in_step = [at for at in fitting if (history.numbers[counting[at]] - program.first_call) % ahead == 0]
    return next(iter(in_step or fitting), None)


def is_transparent(function: int, size: int) -> bool:
    """Calls that do not advance a program: small ones, Broadcast and Reduce."""
    return size < TRANSPARENT_BELOW_BYTES or function in (Function.BROADCAST, Function.REDUCE)


def find_program(history: CallHistory) -> CallProgram | None:
    """The program behind a history, or ``None`` if no period explains enough of it.

    Where something irregular lies in the history, the program of the unbroken run after it, if that is long. The same
    where the period found holds many iterations and an evaluation; but layers within an iteration are no iterations:
    they are short, and those of the backward pass take longer.
    """
    program = _program_of_all(history)
    inner = None if program is None else _inner_period(program)
    if (program is not None and inner is None) or len(history.numbers) < FEWEST_CALLS:
        return program
    return _program_of_run(history, inner or MAX_POSITIONS) or program


def _program_of_run(history: CallHistory, limit: int) -> CallProgram | None:
    """The program of the newest unbroken run of a period of at most ``limit`` calls, if the run is long and typical and
    what repeats in it can be an iteration."""
    counting = history.counted()
    shapes = [history.shapes[i] for i in counting]
    run = unbroken_run(shapes, limit)
    if not run or not is_typical(shapes[-run:], shapes):
        return None
    recent = _program_of_all(history.newest(len(history.numbers) - counting[-run]))
    if recent is None or recent.iterations_seen < RUN_ITERATIONS:
        return None
    if recent.iteration_ns < SHORTEST_NS or recent.spread > STEADY:
        return None
    return replace(recent, iterations_seen=max(recent.iterations_seen, _seen_between(shapes, recent.positions)))


def _seen_between(shapes: Sequence[tuple[int, int]], positions: Sequence[tuple[int, int]]) -> int:
    """How many whole iterations the calls hold, other ones between them; 0 unless those came :data:`MIN_REPEATS` times:
    by then it has shown that they do not come with each iteration, of which ``positions`` are a micro-batch."""
    wanted, found, breaks, at = list(positions), 0, 0, 0
    was_one = False
    while at + len(wanted) <= len(shapes):
        is_one = shapes[at] == wanted[0] and shapes[at : at + len(wanted)] == wanted
        breaks += was_one and not is_one
        found += is_one
        at += len(wanted) if is_one else 1
        was_one = is_one
    return found if breaks >= MIN_REPEATS else 0


def _inner_period(program: CallProgram) -> int | None:
    """Calls of the iteration that a much longer program repeats, unless that leaves calls out that move much."""
    loop = inner_loop(program.positions)
    if loop is None:
        return None
    left_out = sum(call[1] for call in program.positions if call not in loop)
    return len(loop) if left_out < LEFT_OUT * sum(size for _, size in program.positions) else None


def _program_of_all(history: CallHistory) -> CallProgram | None:
    counting = history.counted()
    period = smallest_period([history.shapes[i] for i in counting], MAX_POSITIONS)
    if period is None:
        return None
    tail = counting[-(len(counting) // period) * period :]
    repeated = [history.shapes[i] for i in tail[:period]]
    calls = _step_calls(history, tail, period) if is_layer_like(repeated) else None
    if calls is not None:
        starts = _phase_with_longest_pause(history, tail, calls)
    else:
        starts = _iteration_starts(history, tail, period)
        paced = period <= PACED_CALLS and not is_layer_like(repeated)  # those were asked just now, call by call
        multiple = stationary_multiple(np.diff([history.times[i] for i in starts]), paced=paced)
        starts, calls = _phase_with_longest_pause(history, starts, multiple), period * multiple
    if len(starts) < 3 or calls > MAX_POSITIONS:
        return None
    return _program(history, starts, set(counting))


def _step_calls(history: CallHistory, tail: list[int], period: int) -> int | None:
    """Calls from one of the host's pauses to the next, where a step repeats the period, a layer of it, many times. Only
    the pause shows at which call of the period a step begins. A period that takes as long as an iteration is one, and
    its pauses are checkpoints."""
    gaps = np.diff([history.times[i] for i in tail]).astype(float)
    if len(gaps) == 0 or np.median(gaps) * period >= SHORTEST_NS:
        return None
    spacing = pause_spacing(gaps)
    return spacing if spacing is not None and spacing > period and spacing % period == 0 else None


def _iteration_starts(history: CallHistory, tail: list[int], period: int) -> list[int]:
    """Indices where periods begin, at the phase that follows the host's longest median pause."""
    times = np.array([history.times[i] for i in tail], float)
    pauses = np.diff(times, prepend=times[0])
    by_phase = np.median(pauses.reshape(-1, period)[1:], axis=0)
    return tail[int(np.argmax(by_phase)) :: period]


def _phase_with_longest_pause(history: CallHistory, starts: list[int], multiple: int) -> list[int]:
    """By the newest iterations alone: a first step with more calls than the others had its pauses elsewhere."""
    if multiple == 1:
        return starts
    durations = np.diff([history.times[i] for i in starts])
    older = max(0, len(durations) // multiple - NEWEST) * multiple
    longest = int(np.argmax([np.median(durations[older + phase :: multiple]) for phase in range(multiple)]))
    return starts[(longest + 1) % multiple :: multiple]


def _program(history: CallHistory, starts: list[int], counting: set[int]) -> CallProgram:
    lengths = np.diff([history.numbers[i] for i in starts])
    durations = np.diff([history.times[i] for i in starts]).astype(float)
    typical = float(np.median(durations))
    inside = range(starts[-2], starts[-1])
    positions = tuple((Function(history.shapes[i][0]), history.shapes[i][1]) for i in inside if i in counting)
    return CallProgram(
        positions=positions,
        first_call=history.numbers[starts[-1]],
        calls_per_iteration=int(np.median(lengths)),
        iterations_seen=len(starts) - 1,
        iteration_ns=typical,
        calls_seen=len(history.numbers),
        spread=float(np.median(np.abs(durations - typical))) / typical if typical > 0 else 0.0,
    )
