# SPDX-License-Identifier: Apache-2.0
"""The meter: what counts as a sample, and to whom it is credited."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from lagom.controller.measure import Pacing, Tier, WindowMeter, busy_ns
from lagom.wire.layout import (
    CALL_CANDIDATE,
    CALL_PROGRAM,
    CALL_RECORD,
    CALL_TRANSPARENT,
    KERNEL_SPAN,
    NO_CALL,
    SPAN_COLLECTIVE,
    SPAN_COMPUTE,
    SPAN_P2P,
)
from tests.tiers import amount

EPOCH = 7
CALLS = 3  # positions an iteration


def window(blocks: int, tier: Tier) -> tuple[list[bool], int]:
    """ABBA labels of the iterations of a window and of two after it, and the block length."""
    block = Pacing.of(tier).block
    return [(b % 4) in (1, 2) for b in range(blocks) for _ in range(block)] + [False, False], block


def call_records(labels: list[bool], times: NDArray[np.int64]) -> NDArray[np.void]:
    rows = np.zeros(len(labels) * CALLS, CALL_RECORD)
    rows["call"] = np.arange(len(rows)) + 100
    rows["epoch"] = EPOCH
    rows["position"] = np.tile(np.arange(CALLS), len(labels))
    rows["iteration"] = np.repeat(np.arange(len(labels)), CALLS)
    rows["flags"] = CALL_PROGRAM | np.where(np.repeat(labels, CALLS), CALL_CANDIDATE, 0)
    rows["time_ns"] = np.repeat(times, CALLS)
    rows["site"] = rows["position"] % 2
    return rows


def kernel_spans(slot: int, starts: NDArray[np.int64]) -> NDArray[np.void]:
    """Three collectives of 100 ns an iteration, and one compute kernel of 500 ns."""
    rows = np.zeros(len(starts) * 4, KERNEL_SPAN)
    offsets = np.tile([0, 200, 400, 50], len(starts))
    rows["start_ns"] = np.repeat(starts, 4) + offsets
    rows["kind"] = np.tile([SPAN_COLLECTIVE] * 3 + [SPAN_COMPUTE], len(starts))
    rows["end_ns"] = rows["start_ns"] + np.where(rows["kind"] == SPAN_COMPUTE, 500, 100)
    calls = np.arange(len(starts) * CALLS, dtype=np.uint64).reshape(-1, CALLS) + np.uint64(100)
    rows["call"] = np.hstack([calls, np.full((len(starts), 1), NO_CALL, np.uint64)]).ravel()
    rows["slot"] = slot
    rows["source"] = 4
    return rows


def starts_of(labels: list[bool], incumbent: int = 1000, candidate: int = 800) -> NDArray[np.int64]:
    lengths = [candidate if label else incumbent for label in labels]
    return np.concatenate([[5000], 5000 + np.cumsum(lengths)[:-1]])


def test_copies_between_gpus_count_for_x_and_for_no_site() -> None:
    labels, _ = window(8, Tier.TIMELINE)
    starts = starts_of(labels)
    spans = kernel_spans(0, starts)
    copies = spans[spans["kind"] == SPAN_COMPUTE].copy()  # over the second and third collective, and 50 ns longer
    copies["kind"], copies["start_ns"], copies["end_ns"] = SPAN_P2P, starts + 150, starts + 550
    waiting = copies.copy()  # a receive, which waits for another stage
    waiting["blocks"], waiting["end_ns"] = 8, starts + 790
    meter = WindowMeter(EPOCH, {0: 0}, 2, Tier.TIMELINE)
    meter.add_calls(0, call_records(labels, np.zeros(len(labels), np.int64)))
    meter.add_spans(0, np.concatenate([spans, copies, waiting]))
    for incumbent, _candidate in meter.pairs():
        assert (incumbent.x, incumbent.y) == (500, 500)
        assert incumbent.x_by_site == (200, 100)


@pytest.mark.parametrize("tier", [Tier.TIMELINE, Tier.KERNELS])
def test_kernels_decide_and_the_iteration_after_a_change_is_dropped(tier: Tier) -> None:
    labels, _ = window(8, tier)
    starts = starts_of(labels)
    meter = WindowMeter(EPOCH, {0: 0, 1: 1}, 2, tier)
    for slot in (0, 1):
        meter.add_calls(slot, call_records(labels, np.zeros(len(labels), np.int64)))
        meter.add_spans(slot, kernel_spans(slot, starts))
    pairs = meter.pairs()
    assert len(pairs) == 4
    for incumbent, candidate in pairs:
        assert (incumbent.z, candidate.z) == (1000, 800)
        assert incumbent.x == 300
        assert incumbent.y == (500 if tier is Tier.TIMELINE else None)
        assert incumbent.x_by_site == (200, 100)


def test_kernels_are_forgotten_once_their_iteration_is_a_sample() -> None:
    labels, _ = window(40, Tier.KERNELS)
    records, spans = call_records(labels, np.zeros(len(labels), np.int64)), kernel_spans(0, starts_of(labels))
    meter = WindowMeter(EPOCH, {0: 0}, 2, Tier.KERNELS)
    for iteration in range(len(labels)):
        meter.add_calls(0, records[iteration * CALLS : (iteration + 1) * CALLS])
        meter.add_spans(0, spans[iteration * 4 : (iteration + 1) * 4])
        meter.pairs()
        assert sum(map(len, meter._ranks[0].spans)) <= 3 * 4
    assert [(a.z, b.z) for a, b in meter.pairs()] == [(1000, 800)] * 20


def test_where_only_starts_are_recorded_communication_is_not_known() -> None:
    """A small call before position 0 may be recorded with it: these two are not the iteration's communication."""
    labels, _ = window(4, Tier.KERNELS)
    spans = kernel_spans(0, starts_of(labels))
    spans = spans[np.arange(len(spans)) % 4 < 2]
    meter = WindowMeter(EPOCH, {0: 0}, 2, Tier.KERNELS, starts_only=True)
    meter.add_calls(0, call_records(labels, np.zeros(len(labels), np.int64)))
    meter.add_spans(0, spans)
    assert [(a.z, b.z) for a, b in meter.pairs()] == [(1000, 800)] * 2
    assert all(one.x is None and one.x_by_site is None for pair in meter.pairs() for one in pair)


def test_over_ranks_communication_is_the_least_and_the_rest_the_most() -> None:
    labels, _ = window(4, Tier.TIMELINE)
    meter = WindowMeter(EPOCH, {0: 0, 1: 1}, 2, Tier.TIMELINE)
    for slot, stretch in ((0, 0), (1, 60)):
        meter.add_calls(slot, call_records(labels, np.zeros(len(labels), np.int64)))
        spans = kernel_spans(slot, starts_of(labels))
        spans["end_ns"] += np.uint64(stretch)
        meter.add_spans(slot, spans)
    incumbent, _ = meter.pairs()[0]
    assert incumbent.x == 300
    assert incumbent.y == 560


def test_host_times_count_only_inside_long_blocks() -> None:
    labels, block = window(4, Tier.HOST)
    starts = starts_of(labels)
    meter = WindowMeter(EPOCH, {0: 0}, 2, Tier.HOST)
    meter.add_calls(0, call_records(labels, starts))
    pairs = meter.pairs()
    assert block >= 20
    assert [(a.z, b.z) for a, b in pairs] == [(1000, 800), (1000, 800)]
    assert pairs[0][0].x is None


def test_what_a_ranks_call_is_late_by_does_not_lengthen_its_block() -> None:
    """Each of four ranks calls up to 200 late, at random. The slowest of them in each iteration by itself is 10 % too
    long; over a block a late call counts once at most, as it begins or as it ends, and half of the ranks' cancels."""
    labels, block = window(4, Tier.HOST)
    late = np.random.default_rng(3).integers(0, 200, (4, len(labels)))
    meter = WindowMeter(EPOCH, {0: 0, 1: 1, 2: 2, 3: 3}, 2, Tier.HOST)
    for slot in range(4):
        meter.add_calls(slot, call_records(labels, starts_of(labels) + late[slot]))
    least = block - meter.pacing.before - meter.pacing.after
    pairs = meter.pairs()
    assert len(pairs) == 2
    for incumbent, candidate in pairs:
        assert abs(incumbent.z - 1000) <= 100 / least
        assert abs(candidate.z - 800) <= 100 / least


@pytest.mark.parametrize("tier", [Tier.TIMELINE, Tier.KERNELS, Tier.HOST])
def test_equal_arms_come_out_equal_however_late_the_ranks_are(tier: Tier) -> None:
    """Blocks differ in how many of their iterations count: a block of the arm after another one has no change before
    it. What ranks are late by must not make the longer of them look faster."""
    draw, logs = np.random.default_rng(5), []
    labels, _ = window(4, tier)
    for _ in range(amount(200, 400) if tier is not Tier.HOST else 60):
        meter = WindowMeter(EPOCH, {slot: slot for slot in range(8)}, 2, tier)
        for slot in range(8):
            times = starts_of(labels, 100_000, 100_000) + draw.integers(0, 3000, len(labels))
            meter.add_calls(slot, call_records(labels, times))
            meter.add_spans(slot, kernel_spans(slot, times))
        logs += [math.log(candidate.z / incumbent.z) for incumbent, candidate in meter.pairs()]
    error = float(np.std(logs)) / math.sqrt(len(logs))
    assert len(logs) >= 120
    assert abs(float(np.mean(logs))) < 3.5 * error < 0.0015


def test_a_block_is_judged_by_all_its_iterations_not_by_the_first_that_counts() -> None:
    """Seen on GPUs: the last block of every window was the one iteration that had come by then."""
    labels, block = window(4, Tier.HOST)
    records = call_records(labels, starts_of(labels))
    meter, seen = WindowMeter(EPOCH, {0: 0}, 2, Tier.HOST), []
    for number in range(len(labels)):
        meter.add_calls(0, records[records["iteration"] == number])
        seen.append(len(meter.pairs()))
    assert seen == [sum(number >= last * block for last in (2, 4)) for number in range(len(labels))]


def test_a_block_whose_first_record_was_dropped_is_still_known_as_the_candidates() -> None:
    """The record of the block's first call did not fit into the ring: the next ones say whose turn it was."""
    labels, block = window(4, Tier.HOST)
    records = call_records(labels, starts_of(labels))
    meter = WindowMeter(EPOCH, {0: 0}, 2, Tier.HOST)
    meter.add_calls(0, records[records["iteration"] != 2 * block])
    assert [(incumbent.z, candidate.z) for incumbent, candidate in meter.pairs()] == [(1000, 800), (1000, 800)]


@pytest.mark.parametrize("drained_at_once", [True, False])
def test_an_iteration_with_other_calls_in_it_does_not_count_nor_does_the_next(drained_at_once: bool) -> None:
    """An evaluation between iterations 4 and 5 of eight blocks; the times say nothing of it, only the calls do."""
    labels, _ = window(8, Tier.KERNELS)
    records = call_records(labels, np.zeros(len(labels), np.int64))
    later = records["iteration"] >= 5
    records["call"][later] += 2
    odd = np.zeros(2, CALL_RECORD)
    odd["call"], odd["epoch"] = records["call"][later][0] - 2 + np.arange(2), EPOCH
    spans = kernel_spans(0, starts_of(labels))
    own = spans["call"] != NO_CALL
    spans["call"][own & (spans["call"] >= 100 + 5 * CALLS)] += np.uint64(2)
    meter = WindowMeter(EPOCH, {0: 0}, 2, Tier.KERNELS)
    whole = np.concatenate([records[~later], odd, records[later]])
    for part in [whole] if drained_at_once else np.split(whole, [5 * CALLS - 1, 5 * CALLS + 1, 5 * CALLS + 4]):
        meter.add_calls(0, part)
    meter.add_spans(0, spans)
    assert len(meter.pairs()) == 3, "of four"
    assert meter.discarded == 1
    assert meter.candidate_iterations == sum(labels)
    assert not {4, 5} & {i for i in range(len(labels)) if meter._counts(labels_of(meter), i)}


@pytest.mark.parametrize("blocks", [4, 6])
def test_iterations_behind_the_leases_end_are_nobodys_pairs(blocks: int) -> None:
    """An irregular call has spoilt the second block. Behind the lease the plan stays in force, with the incumbent: such
    iterations must not stand in for what is missing."""
    labels, _ = window(blocks, Tier.KERNELS)
    labels += [False] * 20
    records = call_records(labels, np.zeros(len(labels), np.int64))
    records["flags"][records["call"] == 100 + 2 * CALLS + 1] = 0
    meter = WindowMeter(EPOCH, {0: 0}, 2, Tier.KERNELS)
    meter.add_calls(0, records)
    meter.add_spans(0, kernel_spans(0, starts_of(labels)))
    assert [(a.z, b.z) for a, b in meter.pairs()] == [(1000, 800)] * (blocks // 2 - 1)


def test_an_iteration_in_which_the_lease_ends_does_not_count() -> None:
    """Irregular calls have moved the iterations: the last call of iteration 3 runs with the incumbent again."""
    labels, _ = window(2, Tier.KERNELS)
    records = call_records(labels, np.zeros(len(labels), np.int64))
    records["flags"][records["call"] == 100 + 4 * CALLS - 1] &= ~np.uint8(CALL_CANDIDATE)
    meter = WindowMeter(EPOCH, {0: 0}, 2, Tier.KERNELS)
    for part in np.split(records, [4 * CALLS - 1]):
        meter.add_calls(0, part)
    meter.add_spans(0, kernel_spans(0, starts_of(labels)))
    assert meter.pairs() == ()


def test_a_window_is_measured_once_every_rank_has_told_the_iterations_of_its_lease() -> None:
    labels, _ = window(4, Tier.KERNELS)
    records, spans = call_records(labels, np.zeros(len(labels), np.int64)), kernel_spans(0, starts_of(labels))
    end = 100 + 8 * CALLS
    meter = WindowMeter(EPOCH, {0: 0, 1: 1}, 2, Tier.KERNELS)
    for slot in (0, 1):
        assert not meter.has_measured(end)
        spans["slot"] = slot
        meter.add_calls(slot, records)
        meter.add_spans(slot, spans)
        meter.pairs()
    assert meter.has_measured(end)
    assert not meter.has_measured(end + CALLS + 1)


def test_transparent_calls_break_nothing() -> None:
    labels, _ = window(8, Tier.KERNELS)
    records = call_records(labels, np.zeros(len(labels), np.int64))
    small = np.zeros(1, CALL_RECORD)
    small["call"], small["epoch"], small["flags"] = 100 + 5 * CALLS, EPOCH, CALL_TRANSPARENT
    meter = WindowMeter(EPOCH, {0: 0}, 2, Tier.KERNELS)
    meter.add_calls(0, records[records["iteration"] < 5])
    meter.add_calls(0, small)
    assert meter.discarded == 0


def labels_of(meter: WindowMeter) -> dict[int, bool]:
    return meter._first.labels


def test_a_rank_that_said_nothing_yields_nothing() -> None:
    labels, _ = window(4, Tier.HOST)
    meter = WindowMeter(EPOCH, {0: 0, 1: 1}, 2, Tier.HOST)
    meter.add_calls(0, call_records(labels, starts_of(labels)))
    assert meter.pairs() == ()


def test_records_of_another_plan_do_not_count() -> None:
    labels, _ = window(4, Tier.HOST)
    rows = call_records(labels, starts_of(labels))
    rows["epoch"] = EPOCH + 1
    meter = WindowMeter(EPOCH, {0: 0}, 2, Tier.HOST)
    meter.add_calls(0, rows)
    assert meter.pairs() == ()


def test_a_lost_iteration_costs_its_block_not_the_window() -> None:
    labels, _ = window(8, Tier.KERNELS)
    spans = kernel_spans(0, starts_of(labels))
    lost = spans[spans["call"] != 100 + 5 * CALLS]
    meter = WindowMeter(EPOCH, {0: 0}, 2, Tier.KERNELS)
    meter.add_calls(0, call_records(labels, np.zeros(len(labels), np.int64)))
    meter.add_spans(0, lost)
    assert 2 <= len(meter.pairs()) < 4
    assert all((a.z, b.z) == (1000, 800) for a, b in meter.pairs())


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 40)), max_size=30))
def test_busy_time_is_the_measure_of_the_union(pieces: list[tuple[int, int]]) -> None:
    rows = np.zeros(len(pieces), KERNEL_SPAN)
    for row, (start, length) in zip(rows, pieces, strict=True):
        row["start_ns"], row["end_ns"] = start, start + length
    covered = {tick for start, length in pieces for tick in range(start, start + length)}
    assert busy_ns(rows) == len(covered)
