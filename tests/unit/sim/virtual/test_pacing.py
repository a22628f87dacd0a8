# SPDX-License-Identifier: Apache-2.0
"""The two clocks of a virtual rank."""

from __future__ import annotations

import multiprocessing
import os
import random
import time
from itertools import pairwise

import pytest

from lagom.sim.virtual.pacing import LAUNCH_NS, START_NS, HostAndGpu, Rendezvous
from tests.waiting import PATIENCE

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


RANKS, RUN_AHEAD = 3, 2


def rank(descriptor: int, number: int, seed: int, said: multiprocessing.Queue[tuple[int, int]]) -> None:
    """Iterates until it is told to end; says how far it came, and how far it was ahead at most."""
    meeting, dice, count, ahead = Rendezvous(descriptor, RANKS), random.Random(seed), 0, 0
    while (end := meeting.end(lambda: True)) is None or count < end:
        assert meeting.wait_for(count - RUN_AHEAD, lambda: True)
        if dice.random() < 0.02:
            time.sleep(dice.random() * 2e-3)
        count += 1
        ahead = max(ahead, count - min(meeting.counts()))
        meeting.arrive(number, count)
    said.put((count, ahead))


@pytest.mark.parametrize("seed", range(8))
def test_ranks_that_are_stopped_at_any_moment_have_made_as_many_iterations(seed: int) -> None:
    fork, meeting = multiprocessing.get_context("fork"), Rendezvous.make(RANKS)
    said: multiprocessing.Queue[tuple[int, int]] = fork.Queue()
    ranks = [fork.Process(target=rank, args=(meeting.fd, number, 10 * seed + number, said)) for number in range(RANKS)]
    for process in ranks:
        process.start()
    while min(meeting.counts()) < 20 + seed:
        time.sleep(1e-4)
    meeting.stop_soon()
    meeting.stop_soon()  # said already
    counts, ahead = zip(*(said.get(timeout=PATIENCE) for _ in ranks), strict=True)
    for process in ranks:
        process.join()
    os.close(meeting.fd)
    assert len(set(counts)) == 1
    assert counts[0] >= 20 + seed
    assert max(ahead) <= RUN_AHEAD + 1


def test_ranks_that_are_held_end_with_their_parent() -> None:
    meeting = Rendezvous.make(1)
    meeting._words[0] = (1 << 64) - 1
    assert meeting.end(lambda: False) == 0
