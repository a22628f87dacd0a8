# SPDX-License-Identifier: Apache-2.0
"""References: medians by group, whether group and value fit into one sorted number or not; slowdowns, and from
which share of communication beside a kernel on."""

from __future__ import annotations

import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from timeline_helpers import table

from lagom.timeline import Profile, profile, reference_kernels

#: One communication kernel or two a step: were they alike, one would pass for a step.
COLLECTIVES = ("ncclDevKernel_AllGather_RING_LL", "ncclDevKernel_Broadcast_RING_LL")
Values = list[tuple[int, int]]  # (group, ns)


@pytest.mark.parametrize("longest", [3, 10**6, 2**52])
@given(data=st.data())
def test_medians_of_groups_are_those_of_sorting_each(longest: int, data: st.DataObject) -> None:
    pairs: Values = data.draw(st.lists(st.tuples(st.integers(0, 9), st.integers(0, longest)), max_size=40))
    count = data.draw(st.sampled_from([10, 2**15]))  # with the longest values too many bits for one number
    group, values = np.array([g for g, _ in pairs], np.int64), np.array([float(v) for _, v in pairs])
    found = reference_kernels._medians(values, group, count)
    for number in range(10):
        mine = [float(value) for owner, value in pairs if owner == number]
        assert found[number] == statistics.median(mine) if mine else np.isnan(found[number])
    assert np.isnan(found[10:]).all()


def gemms(*kernels: tuple[float, float]) -> Profile:
    """Four whole steps of one GEMM again and again, of so many µs, with a collective beside so many of them."""
    rows = []
    for step in range(5):
        names = iter(COLLECTIVES)
        for place, (length, beside) in enumerate(kernels):
            now = 1000.0 * (len(kernels) * step + place)
            rows.append((now, now + length, 1, "gemm"))
            if beside:
                rows.append((now, now + beside, 2, next(names)))
    found = profile([table(*rows)])
    assert found.steps == 4
    return found


@pytest.mark.parametrize("share", [0.6, 0.98])
def test_only_kernels_that_are_covered_all_along_tell_the_slowdown(share: float) -> None:
    """100 µs alone, 140 under communication, 110 under it for a part: 1.4x. The one in between would make it 250 / 200,
    1.25x; but what it lost is in the overhead."""
    found = gemms((140, 140), (100, 0), (110, 110 * share))
    (one,), (sort,) = found.slowdowns, found.families
    assert (one.calls, one.reference_ns, one.overlapped_ns) == (3, 100_000, 140_000)
    assert one.slowdown == sort.slowdown == pytest.approx(1.4)
    assert one.extra_ns == sort.extra_ns == 50_000
    assert sort.ns == 350_000
    assert sort.overlapped_ns == pytest.approx(140_000 + 110_000 * share)


def test_a_kernel_never_covered_all_along_is_told_by_what_there_is() -> None:
    """Its slowdown is then one under less communication; a whole sort of work has none that can be compared."""
    found = gemms((100, 0), (110, 55))
    (one,), (sort,) = found.slowdowns, found.families
    assert (one.reference_ns, one.overlapped_ns, one.slowdown) == (100_000, 110_000, pytest.approx(1.1))
    assert np.isnan(sort.slowdown)
    assert sort.extra_ns == 10_000


def test_a_hundredth_beside_communication_still_runs_alone() -> None:
    """The reference is the median of 100 and 104 µs; what little the 104 lost is not counted."""
    found = gemms((140, 140), (100, 0), (104, 1))
    assert found.slowdowns[0].reference_ns == 102_000
    assert found.overhead.ns == 38_000
    found = gemms((140, 140), (100, 0), (104, 2))
    assert found.slowdowns[0].reference_ns == 100_000
    assert found.overhead.ns == 44_000
