"""Where virtual ranks meet: none gets far ahead, and all end before the same iteration."""

from __future__ import annotations

import multiprocessing
import os
import random
import time

import pytest

from lagom.sim.virtual.rendezvous import Rendezvous
from tests.waiting import PATIENCE

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
