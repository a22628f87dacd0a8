# SPDX-License-Identifier: Apache-2.0
"""Hidden shares while learning: right where records are whole, None where anything is missing, bounded."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lagom.controller.contexts import PATIENCE_ITERATIONS, SPANS_KEPT, Contexts, Newest
from lagom.program import CallHistory, CallProgram, cut_into_sites, find_program
from lagom.records import Function
from lagom.wire.layout import CALL_RECORD, KERNEL_SPAN, NO_CALL, SPAN_COLLECTIVE, SPAN_COMPUTE, SPAN_NCCL_EVENT

GATHER, BIG, TINY = int(Function.ALL_GATHER), 400 << 20, 8
HIDDEN = (0.0, 1.0, 0.8)  # of an iteration's three gathers
SLOTS = {4: 0, 9: 3}  # slot -> process


def call_records(iterations: int, tiny_at: int | None = None) -> NDArray[np.void]:
    """Three big gathers an iteration, 1 ms; in iteration ``tiny_at`` also a transparent call."""
    shapes = [(i, k, BIG) for i in range(iterations) for k in range(len(HIDDEN))]
    if tiny_at is not None:
        shapes.insert(len(HIDDEN) * tiny_at + 1, (tiny_at, 0, TINY))
    rows = np.zeros(len(shapes), CALL_RECORD)
    rows["call"] = np.arange(len(rows))
    rows["function"], rows["bytes"] = GATHER, [size for _, _, size in shapes]
    rows["time_ns"] = [1 + 1_000_000 * i + 1_000 * k for i, k, _ in shapes]
    return rows


def kernel_spans(records: NDArray[np.void], slot: int) -> NDArray[np.void]:
    """A gather of 100 µs for each big call, and beside it a GEMM over its hidden share."""
    big = records[records["bytes"] == BIG]
    place = np.arange(len(big)) % len(HIDDEN)
    rows = np.zeros(2 * len(big), KERNEL_SPAN)
    start = (big["time_ns"] + 10_000 + 200_000 * place.astype(np.uint64)).astype(np.int64)
    rows["start_ns"] = np.concatenate([start, start + (100_000 * (1 - np.array(HIDDEN)[place])).astype(np.int64)])
    rows["end_ns"] = np.concatenate([start + 100_000, start + 130_000])
    rows["kind"] = np.repeat([SPAN_COLLECTIVE, SPAN_COMPUTE], len(big))
    rows["call"] = np.concatenate([big["call"], np.full(len(big), NO_CALL, np.uint64)])
    rows["slot"] = np.repeat([slot, 0xFFFFFFFF], len(big))
    rows["function"], rows["stream"], rows["source"] = GATHER, np.repeat([28, 7], len(big)), 3
    rows["bytes"] = np.repeat([BIG, 0], len(big))
    return rows


def learnt(
    iterations: int = 8, tiny_at: int | None = None
) -> tuple[Contexts, CallHistory, CallProgram, NDArray[np.void]]:
    records, history = call_records(iterations, tiny_at), CallHistory()
    history.extend(records)
    program = find_program(history)
    assert program is not None
    contexts = Contexts(SLOTS, began=0.0)
    for slot in SLOTS:
        contexts.add_calls(slot, records)
    return contexts, history, program, records


@pytest.mark.parametrize("tiny_at", [None, 2, 6])
def test_the_shares_of_whole_records(tiny_at: int | None) -> None:
    contexts, history, program, records = learnt(tiny_at=tiny_at)
    for slot, process in SLOTS.items():
        contexts.add_spans(process, kernel_spans(records, slot))
    shares = contexts.hidden_shares(history, program)
    assert shares is not None
    turn = program.first_call - sum(records["bytes"][: program.first_call] == TINY)  # where position 0 fell
    assert shares == pytest.approx(np.roll(HIDDEN, -turn).tolist(), abs=1e-3)
    sites = cut_into_sites(program, shares).sites
    assert sorted((site.context, site.calls_per_iteration) for site in sites) == [("exposed", 1), ("hidden", 2)]


def test_nothing_is_said_where_a_rank_or_a_position_is_missing() -> None:
    contexts, history, program, records = learnt()
    assert contexts.hidden_shares(history, program) is None
    contexts.add_spans(0, kernel_spans(records, 4))
    assert contexts.hidden_shares(history, program) is None  # the other rank's kernels
    spans = kernel_spans(records, 9)
    contexts.add_spans(3, spans[spans["kind"] == SPAN_COMPUTE])
    assert contexts.hidden_shares(history, program) is not None  # one rank knows every position
    other, history, program, records = learnt()
    for slot, process in SLOTS.items():
        spans = kernel_spans(records, slot)
        other.add_spans(process, spans[(spans["call"] == NO_CALL) | (spans["call"] % 3 != 1)])
    assert other.hidden_shares(history, program) is None  # one position on both ranks


def test_ranks_of_one_process_cannot_be_told_apart() -> None:
    _, history, program, records = learnt()
    contexts = Contexts({4: 0, 9: 0}, began=0.0)
    for slot in (4, 9):
        contexts.add_calls(slot, records)
        contexts.add_spans(0, kernel_spans(records, slot))
    assert contexts.hidden_shares(history, program) is None


def test_announcements_and_strangers_are_not_kept() -> None:
    contexts, history, program, records = learnt()
    for slot, process in SLOTS.items():
        spans = kernel_spans(records, slot)
        contexts.add_spans(process + 1, spans)
        spans["source"] = SPAN_NCCL_EVENT
        contexts.add_spans(process, spans)
    assert contexts.hidden_shares(history, program) is None


def test_garbage_is_no_answer_and_no_crash() -> None:
    dice = np.random.default_rng(5)
    contexts, history, program, _ = learnt()
    for process in SLOTS.values():
        noise = dice.integers(0, 256, 500 * KERNEL_SPAN.itemsize, np.uint8)
        contexts.add_spans(process, noise.view(KERNEL_SPAN))
    assert contexts.hidden_shares(history, program) is None


def test_the_wait_is_short() -> None:
    contexts, _, program, _ = learnt()  # 1 ms an iteration
    enough = PATIENCE_ITERATIONS * program.calls_per_iteration
    assert contexts.worth_waiting(program, 100.0, call=500)
    assert contexts.worth_waiting(program, 100.9, call=500 + enough)
    assert not contexts.worth_waiting(program, 101.1, call=500 + enough)


def test_ranks_that_do_not_get_on_are_waited_for() -> None:
    """Beside other work a rank may not run for seconds; what it has not run it cannot have shown."""
    contexts, _, program, _ = learnt()
    assert contexts.worth_waiting(program, 100.0, call=500)
    assert contexts.worth_waiting(program, 130.0, call=501)
    assert not contexts.worth_waiting(program, 130.1, call=500 + PATIENCE_ITERATIONS * program.calls_per_iteration)


def test_a_long_job_costs_a_bounded_buffer_and_little_time() -> None:
    contexts, history, program, records = learnt(iterations=1000)
    spans = {slot: kernel_spans(records, slot) for slot in SLOTS}
    for _ in range(20):
        for slot, process in SLOTS.items():
            contexts.add_spans(process, spans[slot])
    began = time.process_time()
    assert contexts.hidden_shares(history, program) is not None
    assert time.process_time() - began < 3.0
    assert sum(one._rows.size for one in contexts._spans.values()) <= SPANS_KEPT


@given(st.lists(st.integers(0, 12), max_size=12), st.integers(1, 8))
def test_newest_keeps_the_last_rows_in_order(batches: list[int], capacity: int) -> None:
    kept, everything = Newest(np.dtype("i8"), capacity), np.arange(sum(batches))
    for batch in np.split(everything, np.cumsum(batches)[:-1]) if batches else []:
        kept.add(batch)
    assert kept.rows().tolist() == everything[-capacity:].tolist()
