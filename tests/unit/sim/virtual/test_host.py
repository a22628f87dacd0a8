"""The two clocks of a virtual rank."""

from __future__ import annotations

from itertools import pairwise

from lagom.sim.virtual.host import LAUNCH_NS, START_NS, HostAndGpu

LENGTH = 10_000_000


def enqueue(host: HostAndGpu, iterations: int, calls: int = 4) -> list[list[int]]:
    """Call stamps of each iteration."""
    stamps = []
    for _ in range(iterations):
        host.begin()
        stamps.append([host.stamp(call, calls) for call in range(calls)])
        host.end(LENGTH)
    return stamps


def test_gpu_runs_back_to_back_behind_a_fast_host() -> None:
    host = HostAndGpu(run_ahead=2, host_share=0.3)
    enqueue(host, 6)
    done = host.finished(all_of_them=True)
    assert done[0].gpu_start == START_NS + LAUNCH_NS
    assert [b.gpu_start - a.gpu_start for a, b in pairwise(done)] == [LENGTH] * 5


def test_stamps_only_grow_and_the_host_stays_within_its_run_ahead() -> None:
    host = HostAndGpu(run_ahead=2, host_share=0.3)
    stamps = enqueue(host, 8)
    flat = [stamp for iteration in stamps for stamp in iteration]
    assert flat == sorted(set(flat))
    starts = [iteration.gpu_start for iteration in host.finished(all_of_them=True)]
    for number in range(2, 8):
        assert stamps[number][0] >= starts[number - 2]


def test_slow_host_makes_the_gpu_wait() -> None:
    host = HostAndGpu(run_ahead=2, host_share=1.5)
    enqueue(host, 12)
    done = host.finished(all_of_them=True)
    assert done[-1].gpu_start - done[-2].gpu_start > LENGTH


def test_iterations_become_visible_only_when_the_gpu_has_ended_them_and_once() -> None:
    host = HostAndGpu(run_ahead=2, host_share=0.3)
    seen = []
    for number in range(6):
        host.begin()
        host.stamp(0, 1)
        host.end(LENGTH)
        for iteration in host.finished():
            assert iteration.gpu_end <= host.now
            assert iteration.number < number
            seen.append(iteration.number)
    assert seen == sorted(set(seen))
    assert seen
