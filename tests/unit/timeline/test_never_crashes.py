# SPDX-License-Identifier: Apache-2.0
"""Any set of spans, however broken, goes through the whole path; what comes out obeys arithmetic."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timeline_helpers import dump, spans, training

from lagom.timeline import KernelTable, TraceError, build, from_ring, profile
from lagom.timeline.join import join

NAMES = (
    "gemm", "norm", "adam", "ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL",
    "ncclDevKernel_SendRecv", "Memcpy DtoD (Device -> Device)",
)  # fmt: skip
SPAN = st.tuples(st.integers(-5, 400), st.integers(-5, 400), st.integers(0, 3), st.integers(0, len(NAMES) - 1))


def made(rows: list[tuple[int, int, int, int]], scale: int = 1) -> KernelTable:
    start, end = (np.array([row[at] for row in rows], np.int64) * scale for at in (0, 1))
    return build(start, end, [row[2] for row in rows], NAMES, [row[3] for row in rows], sms=132, channels=24, grid=132)


def obeys_arithmetic(table: KernelTable) -> None:
    found = profile([table])
    for sample in found.combined.samples:
        assert sample.x is not None
        assert sample.y is not None
        assert 0 <= sample.x <= sample.z_max
        assert 0 <= sample.y <= sample.z_max
    rank = found.rank
    steps = rank.step_times()
    assert (steps.overlap <= np.minimum(steps.x, steps.y)).all()
    assert (steps.idle >= 0).all()
    if rank.groups.count:
        groups = rank.group_times()
        assert groups.z.sum(axis=1) == pytest.approx(steps.z)
        assert groups.x.sum(axis=1) == pytest.approx(steps.x)
        assert groups.y.sum(axis=1) == pytest.approx(steps.y)
    assert math.isfinite(found.overhead.share) == found.sees_compute
    if found.sees_compute:
        assert found.overhead.low <= found.overhead.share <= found.overhead.high
        assert 0 <= found.overhead.unmatched <= 1
    used = np.sort(rank.steps.index.ravel())
    assert (np.diff(used) > 0).all(), "a kernel is in at most one step, at one place"
    join(table, {})


@settings(max_examples=150)
@given(st.lists(SPAN, max_size=60), st.sampled_from([1, 1000, 10**6]))
def test_any_spans(rows: list[tuple[int, int, int, int]], scale: int) -> None:
    table = made(rows, scale)
    assert len(table) + table.faults.dropped == len(rows)
    if len(table):
        obeys_arithmetic(table)
    else:
        with pytest.raises(TraceError, match="no usable kernel record"):
            profile([table])


@settings(max_examples=60)
@given(st.lists(SPAN, min_size=1, max_size=8), st.integers(3, 8), st.lists(SPAN, max_size=5), st.randoms())
def test_any_word_repeated_with_some_dirt(
    word: list[tuple[int, int, int, int]], repeats: int, dirt: list[tuple[int, int, int, int]], random: object
) -> None:
    rows = [(500 * k + 10 + a, 500 * k + 10 + b, stream, name) for k in range(repeats) for a, b, stream, name in word]
    rows += dirt
    random.shuffle(rows)  # type: ignore[attr-defined]
    table = made(rows, 1000)
    if len(table):
        obeys_arithmetic(table)


@settings(max_examples=40)
@given(st.binary(min_size=64 * 3, max_size=64 * 30))
def test_any_bytes_of_a_ring(noise: bytes) -> None:
    records = np.frombuffer(noise[: len(noise) // 64 * 64], spans().dtype)
    table = from_ring(records)
    assert len(table) <= records.size
    if len(table):
        obeys_arithmetic(table)


@settings(max_examples=30)
@given(st.integers(0, 2**32), st.floats(0.0, 0.3), st.floats(0.0, 0.2))
def test_a_job_with_records_lost_and_doubled(seed: int, lost: float, doubled: float) -> None:
    """The ring overflowed here, a buffer came twice there: what is left is still counted right."""
    rng = np.random.default_rng(seed)
    job = training(8)
    keep = np.flatnonzero(rng.random(len(job)) >= lost)
    again = keep[rng.random(keep.size) < doubled]
    rows = rng.permutation(np.concatenate([keep, again]))
    table = build(job.start[rows], job.end[rows], job.stream[rows], job.names, job.name[rows])
    assert table.faults.duplicated == again.size
    if len(table):
        obeys_arithmetic(table)
        assert profile([table]).steps >= 1


def test_a_real_trace_cut_anywhere() -> None:
    whole = dump(2048)
    for first, last in ((0, 100), (0, 700), (331, 1200), (1000, 2656), (2600, 2656)):
        table = whole.only(np.arange(first, last))
        obeys_arithmetic(table)
        steps = profile([table]).rank.steps
        if len(table) >= 3 * 332:
            assert (steps.periodic, steps.places) == (True, 332)
        elif len(table) > 332:
            assert not steps.periodic  # less than three repeats prove nothing
