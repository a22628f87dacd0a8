# SPDX-License-Identifier: Apache-2.0
"""The H200 traces, against values worked out here in a few independent lines (no function of ours but the loader's).

Expected values are written as the fraction or difference they came from; times in ns.
"""

from __future__ import annotations

import gzip
from dataclasses import replace
from itertools import pairwise
from statistics import mean, median

import numpy as np
import pytest
from role_slowdowns import role_slowdowns
from timeline_helpers import DATA, DUMP, dump

from lagom.timeline import profile
from lagom.timeline.busy_times import Busy
from lagom.timeline.groups import find_groups
from lagom.timeline.reference_kernels import measure_contention
from lagom.timeline.slowdowns import measure_overhead
from lagom.timeline.steps import find_steps

TOKENS = (2048, 4096)
Row = tuple[int, int, int, str]


def rows_of(tokens: int) -> list[Row]:
    """(start, end, stream, name) in order of start."""
    text = gzip.decompress((DATA / DUMP.format(tokens)).read_bytes()).decode()
    lines = [line.split(None, 6) for line in text.splitlines() if line[0] != "#"]
    return sorted((int(line[0]), int(line[1]), int(line[2]), line[6].strip()) for line in lines)


def union(ranges: list[tuple[int, int]], low: int, high: int) -> int:
    """Length of the union of ranges within low .. high, by walking along."""
    total, reach = 0, low
    for start, end in sorted(ranges):
        start, end = max(start, reach), min(end, high)
        if end > start:
            total, reach = total + end - start, end
    return total


@pytest.fixture(scope="module", params=TOKENS)
def tokens(request: pytest.FixtureRequest) -> int:
    return int(request.param)


def test_kernels_a_step_and_z(tokens: int) -> None:
    rows = rows_of(tokens)
    gathers = [row for row in rows if "AllGather" in row[3]]
    first_of_step = [row[0] for row in gathers[::12]]  # 12 AllGather a step; the trace begins with a step's first
    steps = find_steps(dump(tokens))
    assert steps.places == len(rows) // 8 == 2656 // 8
    assert (steps.count, steps.irregular, steps.periodic) == (7, 0, True)  # the eighth step has no end in the trace
    assert (steps.end - steps.begin).tolist() == [after - before for before, after in pairwise(first_of_step)]


def test_x_y_and_overlap_of_every_step(tokens: int) -> None:
    rows, table = rows_of(tokens), dump(tokens)
    steps, busy = find_steps(table), Busy.of(table)
    found = busy.between(steps.begin, steps.end)
    comm = [row[:2] for row in rows if "nccl" in row[3]]
    compute = [row[:2] for row in rows if "nccl" not in row[3]]
    for step, (low, high) in enumerate(zip(steps.begin.tolist(), steps.end.tolist(), strict=True)):
        x, y, either = (union(part, low, high) for part in (comm, compute, comm + compute))
        assert (found.x[step], found.y[step], found.overlap[step]) == (x, y, x + y - either)
        assert found.overlap_ratio[step] == pytest.approx((x + y - either) / x)
        assert found.exposed[step] == either - y
        assert found.idle[step] == high - low - either


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(2048, [144, 144, 125, 122, 120, 116, 64]), (4096, [144, 144, 137, 134, 134, 130, 86])],
)
def test_runs_by_tolerance(tokens: int, expected: list[int]) -> None:
    """Runs of communication at 0, 1, 5, 10, 50, 100, 1000 us: why there is a tolerance at all."""
    comm = [row[:2] for row in rows_of(tokens) if "nccl" in row[3]]
    reach = np.maximum.accumulate([end for _, end in comm])
    gaps = np.array([start for start, _ in comm])[1:] - reach[:-1]
    counted = [1 + int((gaps > us * 1000).sum()) for us in (0, 1, 5, 10, 50, 100, 1000)]
    assert counted == expected


def test_groups_and_patterns(tokens: int) -> None:
    """Groups from the medians of the gaps; their X and Y of every step by walking along."""
    rows, table = rows_of(tokens), dump(tokens)
    steps, busy = find_steps(table), Busy.of(table)
    groups = find_groups(table, steps, busy)
    comm = [row for row in rows if "nccl" in row[3]][: 7 * 18]
    gaps = [[comm[18 * k + j][0] - comm[18 * k + j - 1][1] for k in range(7)] for j in range(1, 18)]
    expected_first = [0] + [j for j, gap in enumerate(gaps, start=1) if median(gap) > 10_000]
    assert groups.first.tolist() == expected_first
    assert groups.count == {2048: 15, 4096: 17}[tokens]
    word = "".join("A" if "AllGather" in row[3] else "R" for row in comm[:18])
    spelled = [word[low:high] for low, high in pairwise(expected_first + [18])]
    assert word == "AAAAAAAARARARARARR"
    assert [len(groups.sequence(group)) for group in range(groups.count)] == [len(part) for part in spelled]
    bounds = groups.bounds(table, steps)
    expected = [[comm[18 * k + j][0] for j in expected_first] + [int(steps.end[k])] for k in range(7)]
    assert bounds.tolist() == expected
    found = busy.between(bounds[:, :-1], bounds[:, 1:])
    low, high = expected[3][1:3]
    assert found.x[3, 1] == union([row[:2] for row in comm], low, high)
    assert found.y[3, 1] == union([row[:2] for row in rows if "nccl" not in row[3]], low, high)
    contexts = {(site.function, site.context.split()[0]) for site in groups.sites}
    assert len(contexts) == 4  # both collectives occur exposed and hidden
    assert groups.sites[groups.site_of[0]].context == "exposed"  # nothing can hide a step's first AllGather
    assert len(groups.patterns) < groups.count


def alone_and_overlapped(rows: list[Row], name: str, beside: str, steps: int = 7) -> tuple[list, list]:
    """Per place of stream 7 (260 kernels a step): durations of ``name`` with no communication beside it, and with
    ``beside`` alone all along."""
    main = [row for row in rows if row[2] == 7]
    comm = [row for row in rows if "nccl" in row[3]]
    alone, overlapped = [], []
    for place in range(260):
        here = [main[260 * step + place] for step in range(steps)]
        if name not in here[0][3]:
            continue
        near = [[c for c in comm if c[0] < row[1] and c[1] > row[0]] for row in here]
        free = [row[1] - row[0] for row, others in zip(here, near, strict=True) if not others]
        full = [
            row[1] - row[0]
            for row, others in zip(here, near, strict=True)
            if others and all(beside in c[3] for c in others)
            and union([c[:2] for c in others], row[0], row[1]) >= 0.99 * (row[1] - row[0])
        ]  # fmt: skip
        alone.append(free)
        overlapped.append(full)
    return alone, overlapped


def test_nvjet_320x128_is_slowed_by_1_39_to_1_40_under_all_gather_at_4096() -> None:
    """The first of the two 320x128 GEMMs of each layer's forward pass: alone in layer 5 (place 59), under AllGather in
    the others. Ratio = mean over those places of their median over steps / median of those alone = 1.396."""
    rows = rows_of(4096)
    alone, overlapped = alone_and_overlapped(rows, "320x128_64x3_1x2_h_bz_coopB_TNT", "AllGather")
    alone, overlapped = (
        alone[::2],
        overlapped[::2],
    )  # every other: each layer runs two of them, and each is compared with itself
    assert [len(part) for part in alone] == [0, 0, 0, 0, 7, 0]
    expected = mean(median(part) for part in overlapped if part) / median(alone[4])
    assert 1.39 <= expected <= 1.40
    table = dump(4096)
    steps = find_steps(table)
    contention = measure_contention(table, steps, Busy.of(table))
    slow = [one for one in role_slowdowns(table, steps, contention) if "320x128_64x3_1x2_h_bz_coopB_TNT" in one.name]
    assert len(slow) == 2
    assert slow[0].by_place == pytest.approx(expected, rel=1e-12)
    assert (slow[0].overlapped, slow[0].alone) == (sum(map(len, overlapped)), 7)


def test_the_same_family_in_the_backward_pass_under_reduce_scatter() -> None:
    """NTT: alone in the last layer only, all others under ReduceScatter; each against the one alone of its own step,
    because the clock drifts by 8 % from step to step. Mean of 35 ratios = 1.390."""
    rows = rows_of(4096)
    main = [row for row in rows if row[2] == 7]
    places = [place for place in range(260) if "320x128_64x3_1x2_h_bz_coopB_NTT" in main[place][3]]
    length = [[main[260 * step + place][1] - main[260 * step + place][0] for place in places] for step in range(7)]
    expected = mean(overlapped / step[0] for step in length for overlapped in step[1:])
    assert 1.385 <= expected <= 1.40
    table = dump(4096)
    steps = find_steps(table)
    contention = measure_contention(table, steps, Busy.of(table))
    slow = role_slowdowns(table, steps, contention)
    (found,) = [one for one in slow if one.name == "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT"]
    assert found.paired == pytest.approx(expected, rel=1e-12)
    assert (found.overlapped, found.alone) == (35, 7)


def test_overhead_of_the_backward_wgrad_by_hand() -> None:
    """One role's overhead from the trace with pencil and paper: sum of (overlapped - alone of the same step) /
    steps."""
    rows = rows_of(4096)
    main = [row for row in rows if row[2] == 7]
    places = [place for place in range(260) if "320x128_64x3_1x2_h_bz_coopB_NTT" in main[place][3]]
    length = [[main[260 * step + place][1] - main[260 * step + place][0] for place in places] for step in range(7)]
    expected = sum(overlapped - step[0] for step in length for overlapped in step[1:]) / 7
    found = profile([dump(4096)])
    (kernel,) = [one for one in found.slowdowns if one.name == "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT"]
    assert kernel.extra_ns == pytest.approx(expected)
    assert kernel.calls == 6


def test_overhead_is_matched_bounded_and_split(tokens: int) -> None:
    table = replace(dump(tokens), sms=132)
    steps = find_steps(table)
    overhead = measure_overhead(table, steps, measure_contention(table, steps, Busy.of(table)))
    assert overhead.unmatched < 0.001  # every kernel of these traces has a reference kernel in some layer
    assert overhead.low < overhead.share < overhead.high
    assert overhead.sm is not None
    assert overhead.bandwidth is not None
    assert overhead.sm + overhead.bandwidth == pytest.approx(overhead.share)
    assert (
        overhead.sm > overhead.bandwidth
    )  # persistent GEMMs: 132 clusters' worth of blocks cannot all fit beside 24 channels
    expected = {2048: (0.19, 0.21), 4096: (0.10, 0.13)}[tokens]
    assert expected[0] < overhead.share < expected[1]
