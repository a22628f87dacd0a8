# SPDX-License-Identifier: Apache-2.0
"""When a program is believed: counted over more calls than are remembered, and only while nothing breaks it."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from lagom.program import CallHistory, ProgramConfirmation, find_program
from lagom.program.confirmation import LAYER_CALLS
from lagom.program.detect import HISTORY_CALLS
from lagom.records import Function
from lagom.wire.layout import CALL_RECORD, MAX_POSITIONS
from tests.tiers import amount

ASKED = 20
REDUCE = int(Function.ALL_REDUCE)
SMALL = 256  # bytes: does not count
LOOK = amount(1402, 701)  # calls between two looks


def distinct(calls: int) -> list[int]:
    """Sizes of an iteration none of whose calls looks like another."""
    return [(1 << 20) + 4096 * number for number in range(calls)]


def records(sizes: list[int], pauses: dict[int, int] | None = None) -> NDArray[np.void]:
    """AllReduces 1 ms apart, small ones do not count; ``pauses`` (ms) come before the calls of these numbers."""
    rows = np.zeros(len(sizes), CALL_RECORD)
    gaps = np.full(len(sizes), 1_000_000)
    for call, pause in (pauses or {}).items():
        gaps[call] = pause * 1_000_000
    rows["call"], rows["time_ns"] = np.arange(len(rows)), np.cumsum(gaps)
    rows["function"], rows["bytes"] = REDUCE, sizes
    return rows


def believed_at(rows: NDArray[np.void], every: int = LOOK) -> tuple[int, int] | None:
    """After how many calls a program is believed, and of how many calls it is; ``None`` if none is."""
    history, confirmation = CallHistory(), ProgramConfirmation(ASKED)
    for at in range(0, len(rows), every):
        history.extend(rows[at : at + every])
        program = confirmation.look(history)
        if program is not None:
            return at + every, program.calls_per_iteration
    return None


@pytest.mark.parametrize("calls", [HISTORY_CALLS // ASKED + 1, *amount([], [1000, 2000]), MAX_POSITIONS])
def test_an_iteration_may_fill_a_third_of_the_memory(calls: int) -> None:
    """It is believed when it was seen 20 times, as any other, though three to nineteen of them are remembered."""
    assert ASKED * calls > HISTORY_CALLS
    after, period = believed_at(records(distinct(calls) * (ASKED + 3))) or (0, 0)
    assert period == calls
    assert ASKED * calls <= after < ASKED * calls + LOOK


def test_what_breaks_a_long_iteration_makes_the_count_begin_anew() -> None:
    """One call too many in the thirteenth: twenty whole ones are awaited after it."""
    one = distinct(2000)
    sizes = [*one * 12, 1 << 30, *one * (ASKED + 2)]
    after, period = believed_at(records(sizes)) or (0, 0)
    assert period == len(one)
    assert 12 * 2000 + ASKED * 2000 <= after < 12 * 2000 + ASKED * 2000 + 2 * LOOK
    assert believed_at(records([*one * 12, 1 << 30] * amount(3, 6))) is None, "never twenty in a row"


def test_dropped_records_make_the_count_begin_anew() -> None:
    rows = records(distinct(2000) * (12 + ASKED + 2))
    lost = np.delete(rows, slice(24_100, 24_200))
    after, _ = believed_at(lost) or (0, 0)
    assert 24_100 + ASKED * 2000 <= after < 24_100 + ASKED * 2000 + 2 * LOOK


def test_looks_that_are_far_apart_prove_nothing_of_the_calls_between() -> None:
    """Eleven iterations go by unseen between two looks: what they held is not known."""
    history, confirmation = CallHistory(), ProgramConfirmation(ASKED)
    rows = records(distinct(2000) * 200)
    for at in range(0, 150 * 2000, 11 * 2000):
        history.extend(rows[at + 11 * 2000 - HISTORY_CALLS : at + 11 * 2000])  # the ones before were dropped
        assert confirmation.look(history) is None


def test_a_pause_elsewhere_turns_a_long_iteration_but_does_not_break_it() -> None:
    """The collector of the host's garbage comes after another call each time, so position 0 comes to lie there."""
    calls, odd = 4000, [17, 2900, 1203, 3555, 640]
    pauses = {number * calls: 5 for number in range(1, ASKED + 2)}
    pauses |= {number * calls + odd[number % len(odd)]: 400 for number in range(1, ASKED + 2)}
    after, period = believed_at(records(distinct(calls) * (ASKED + 2), pauses)) or (0, 0)
    assert period == calls
    assert after < ASKED * calls + LOOK


def iterations_at_belief(parts: list[list[int]], calls: int) -> float:
    """How many iterations' calls had been made when one of so many calls was believed."""
    sizes = [size for part in parts for size in part]
    optimizer = {number: 5 for number, size in enumerate(sizes) if size == distinct(1)[0]}
    after, period = believed_at(records(sizes, optimizer), every=min(LOOK, 4 * calls)) or (0, 0)
    assert period == calls
    return sum(size > SMALL for size in sizes[:after]) / calls


@pytest.mark.parametrize("calls", [30, 300, 1000])
@pytest.mark.parametrize("at", [0, 4, 7])
def test_calls_that_do_not_count_are_no_iterations(calls: int, at: int) -> None:
    """Parameters are broadcast one by one, losses are logged: before, or between two iterations."""
    one = distinct(calls)
    seen = iterations_at_belief([one * at, [SMALL] * 3 * calls, one * (ASKED + 20)], calls)
    assert seen >= ASKED
    seen = iterations_at_belief([one * at, [SMALL] * ASKED * calls, one * (ASKED + 30)], calls)
    assert seen >= ASKED


def test_a_short_iteration_between_evaluations_is_no_layer() -> None:
    """Eight calls of two sizes may be a layer until 200 calls an iteration asked for were seen: those before the newest
    evaluation count too, though the program is found in the calls after it."""
    one, odd = [1 << 20] * 7 + [2 << 20], [3 << 20, 4 << 20]
    sizes = [size for iterations in (37, 43, 41, 47, 39) * 10 for size in (*odd, *one * iterations)]
    optimizer = {number: 5 for number, size in enumerate(sizes) if number and sizes[number - 1] == one[-1]}
    after, period = believed_at(records(sizes, optimizer), every=100) or (0, 0)
    assert period == len(one)
    assert LAYER_CALLS * ASKED <= after < 1.5 * LAYER_CALLS * ASKED


def test_a_late_first_look_needs_no_second_one() -> None:
    """A communicator that waited for its turn has shown its iteration 60 times: half of these calls show it, too."""
    rows = records(distinct(14) * 60, {14 * number: 5 for number in range(1, 60)})
    assert believed_at(rows, every=len(rows)) == (len(rows), 14)


def test_a_late_first_look_needs_no_second_one_where_the_longest_pause_moves() -> None:
    """By all calls an iteration begins after the third one, by the older half of them after the ninth."""
    pauses = {14 * number + (9 if number < 20 else 3): 5 for number in range(60)}
    rows = records(distinct(14) * 60, pauses)
    assert believed_at(rows, every=len(rows)) == (len(rows), 14)


def test_a_pause_that_moves_between_two_looks_needs_no_third_one() -> None:
    """Five iterations, of which two and a half show none, begin after the ninth call; after ten they begin after the
    third."""
    pauses = {14 * number + (9 if number < 5 else 3): 5 for number in range(12)}
    rows = records(distinct(14) * 12, pauses)
    history, confirmation = CallHistory(), ProgramConfirmation(asked=4)
    believed, begin = [], set()
    for part in (rows[: 5 * 14], rows[5 * 14 :]):
        history.extend(part)
        believed.append(confirmation.look(history) is not None)
        program = find_program(history)
        assert program is not None
        begin.add(program.positions[0])
    assert len(begin) == 2
    assert believed == [False, True]


def test_a_first_look_waits_where_half_of_the_calls_do_not_show_the_iteration() -> None:
    """Five iterations are enough where four are asked for, but two and a half show none: it must be found again."""
    rows = records(distinct(14) * 10, {14 * number: 5 for number in range(1, 10)})
    history, confirmation = CallHistory(), ProgramConfirmation(asked=4)
    believed = []
    for half in (rows[: 5 * 14], rows[5 * 14 :]):
        history.extend(half)
        believed.append(confirmation.look(history) is not None)
    assert believed == [False, True]


def test_looks_must_share_a_whole_iteration() -> None:
    """What the newest look explains begins within what the one before did, but by less than an iteration of it."""
    one = distinct(3000)
    history, confirmation = CallHistory(), ProgramConfirmation(ASKED)
    rows = records(one * 60)
    for at in range(0, 59 * 3000, 11_000):
        history.extend(rows[max(0, at + 11_000 - HISTORY_CALLS) : at + 11_000])
        if (program := confirmation.look(history)) is not None:
            raise AssertionError(f"believed {program.calls_per_iteration} calls at {at}")


def test_iterations_between_evaluations_count_together() -> None:
    """A job that is interrupted every thirteen to nineteen iterations never makes twenty in a row."""
    one, odd = distinct(30), [2 << 20, 3 << 20]
    sizes = [size for iterations in (13, 19, 14, 17, 15) for size in (*odd, *one * iterations)]
    assert iterations_at_belief([sizes], 30) >= 13 + 19 + 14
