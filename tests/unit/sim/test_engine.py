# SPDX-License-Identifier: Apache-2.0
"""The two queues, on schedules small enough to be worked out by hand. Times in ns; a head's burden and stretch are 2
and 1.5 where nothing else is said."""

from __future__ import annotations

import itertools
import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lagom.records import Function
from lagom.sim.engine import Head, KernelRow, play, play_spans, write_out
from lagom.sim.operations import Collective, CommOp, ComputeKernel, ComputeOp, GroupTimes, OverlapGroup, Segment

CALL = Collective(0, Function.ALL_GATHER, 1 << 20, 8)
OTHER = Collective(1, Function.REDUCE_SCATTER, 1 << 20, 8)


def kernel(name: str = "k") -> ComputeKernel:
    return ComputeKernel(name, 100, 1.0)


def simulate(
    *segments: Segment,
    lengths: dict[str, float] | None = None,
    calls: dict[int, float] | None = None,
    arrival: float = 0.0,
    burden: float = 2.0,
    stretch: float = 1.5,
    skip: bool = False,
) -> GroupTimes:
    group = OverlapGroup("test", segments)
    kernels = list(dict.fromkeys(op.kernel for s in segments for op in s.compute))
    script = write_out(group, {k: n for n, k in enumerate(kernels)})
    rows = [KernelRow((lengths or {}).get(k.name, 10.0), arrival, k) for k in kernels]
    sides = (stretch,) * len(kernels), (burden,) * len(kernels)
    heads = [Head((calls or {}).get(c.site, 10.0), *sides, "nccl", 4, 544) for c in group.collectives]
    return play(script, rows, heads, skip=skip)


def test_compute_alone_adds_up() -> None:
    times = simulate(Segment((ComputeOp(kernel("a")), ComputeOp(kernel("b"))), ()), lengths={"a": 3.0, "b": 4.0})
    assert (times.z, times.y, times.x) == (7.0, 7.0, 0.0)


def test_both_slow_each_other_while_both_run() -> None:
    """Compute 10 at half speed beside communication of 4 at 1/1.5: communication ends at 6, compute has 7 left."""
    times = simulate(Segment((ComputeOp(kernel()),), (CommOp(CALL),)), calls={0: 4.0})
    assert times.x == pytest.approx(6.0)
    assert times.z == pytest.approx(6.0 + 7.0)
    assert times.y == times.z


def test_compute_waits_for_what_it_needs() -> None:
    times = simulate(Segment((ComputeOp(kernel(), after_comm=0),), (CommOp(CALL),)))
    assert times.z == 20.0
    assert (times.x, times.y) == (10.0, 10.0)


def test_communication_waits_for_what_it_sends() -> None:
    times = simulate(Segment((ComputeOp(kernel()),), (CommOp(CALL, after_compute=0),)))
    assert times.z == 20.0


def test_a_collective_waits_until_a_persistent_kernel_ends() -> None:
    """Issued 10 into the second kernel's queue, it finds no room before that kernel ends at 20, undisturbed."""
    segment = Segment((ComputeOp(kernel("a")), ComputeOp(kernel("b"))), (CommOp(CALL, after_compute=0),))
    free = simulate(segment, arrival=0.0)
    late = simulate(segment, arrival=math.inf)
    assert free.z == pytest.approx(10.0 + 15.0 + 10.0 - 7.5)  # beside each other from 10 on
    assert late.z == free.z  # it starts together with b: the GPU is empty in between

    longer = Segment((ComputeOp(kernel("a")), ComputeOp(kernel("b"))), (CommOp(CALL), CommOp(OTHER)))
    times = simulate(longer, calls={0: 2.0}, arrival=math.inf)
    assert times.x_by_site[0] == (0, pytest.approx(3.0))
    assert times.z == pytest.approx(11.5 + 15.0 + 2.5)  # OTHER starts when a ends at 11.5, beside b


def test_a_short_wait_for_room_counts_for_nobody() -> None:
    times = simulate(
        Segment((ComputeOp(kernel("a")),), (CommOp(CALL), CommOp(OTHER))), calls={0: 2.0, 1: 2.0}, arrival=4.0
    )
    # CALL starts beside a at 0: 3 long, a has 8.5 left; OTHER waits 4 (a: 4.5 left), then runs 3 (a: 3 left)
    assert times.x == pytest.approx(6.0)
    assert times.z == pytest.approx(3.0 + 4.0 + 3.0 + 3.0)


def test_queues_that_wait_for_each_other_are_refused() -> None:
    with pytest.raises(ValueError, match="cycle"):
        simulate(Segment((ComputeOp(kernel(), after_comm=0),), (CommOp(CALL, after_compute=0),)))


def layered(repeats: int) -> tuple[Segment, ...]:
    """FSDP's pattern: each layer starts with what the layer before it gathered; the next gather runs beside it."""
    layer = (ComputeOp(kernel("copy"), -1), ComputeOp(kernel("gemm")))
    return (
        Segment((), (CommOp(CALL),)),
        Segment(layer, (CommOp(CALL, 0), CommOp(OTHER, 1)), repeats),
        Segment((ComputeOp(kernel("end"), -1),), ()),
    )


@pytest.mark.parametrize("gather", [1.0, 7.0, 12.0, 40.0])
@pytest.mark.parametrize("scatter", [1.0, 9.0, 33.0])
@pytest.mark.parametrize("arrival", [0.0, 3.0, math.inf])
def test_skipping_equal_layers_changes_nothing(gather: float, scatter: float, arrival: float) -> None:
    options = {"lengths": {"gemm": 21.0}, "calls": {0: gather, 1: scatter}, "arrival": arrival}
    slow = simulate(*layered(40), skip=False, **options)  # type: ignore[arg-type]
    fast = simulate(*layered(40), skip=True, **options)  # type: ignore[arg-type]
    for one, other in ((slow.z, fast.z), (slow.x, fast.x), (slow.y, fast.y)):
        assert other == pytest.approx(one, rel=1e-9)
    assert dict(fast.x_by_site) == pytest.approx(dict(slow.x_by_site), rel=1e-9)


def _segment(stride: int, comms: int) -> st.SearchStrategy[Segment]:
    names = st.sampled_from(["a", "b", "c"])
    waits = st.one_of(st.none(), st.integers(-2, comms - 1))
    compute = st.lists(st.builds(lambda n, w: ComputeOp(kernel(n), w), names, waits), min_size=stride, max_size=stride)
    calls = st.builds(CommOp, st.sampled_from([CALL, OTHER]), st.one_of(st.none(), st.integers(-2, stride - 1)))
    comm = st.lists(calls, min_size=comms, max_size=comms)
    return st.builds(Segment, compute.map(tuple), comm.map(tuple), st.integers(1, 30))


SEGMENTS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(0, 3)).flatmap(lambda sizes: _segment(*sizes)), min_size=1, max_size=4
)


@settings(max_examples=200)
@given(SEGMENTS, st.tuples(*[st.sampled_from([1.0, 7.0, 20.0])] * 3), st.sampled_from([0.0, 3.0, math.inf]))
def test_skipping_changes_nothing_whatever_the_schedule(
    segments: list[Segment], lengths: tuple[float, float, float], arrival: float
) -> None:
    """Any segments with any dependencies; schedules whose queues wait for each other are none."""
    options = {"lengths": dict(zip("abc", lengths, strict=True)), "calls": {0: 5.0, 1: 13.0}, "arrival": arrival}
    try:
        slow = simulate(*segments, skip=False, **options)  # type: ignore[arg-type]
    except ValueError:
        return
    fast = simulate(*segments, skip=True, **options)  # type: ignore[arg-type]
    assert (fast.z, fast.x, fast.y) == pytest.approx((slow.z, slow.x, slow.y), rel=1e-9)
    assert dict(fast.x_by_site) == pytest.approx(dict(slow.x_by_site), rel=1e-9)


def test_spans_tell_the_same_times() -> None:
    group = OverlapGroup("test", layered(5))
    kernels = list(dict.fromkeys(op.kernel for s in group.segments for op in s.compute))
    script = write_out(group, {k: n for n, k in enumerate(kernels)})
    rows = [KernelRow(10.0, 0.0, k) for k in kernels]
    heads = [Head(12.0, (1.5,) * 3, (2.0,) * 3, "nccl", 4, 544) for _ in group.collectives]
    times = play_spans(script, rows, heads)
    assert max(span.end for span in times.spans) == pytest.approx(times.z)
    for queue, total in (("compute", times.y), ("comm", times.x)):
        mine = [span for span in times.spans if span.queue == queue]
        assert sum(span.end - span.start for span in mine) == pytest.approx(total)
        assert [span.op for span in mine] == list(range(len(mine)))
        assert all(a.end <= b.start + 1e-9 for a, b in itertools.pairwise(mine))
