"""Which part of a process counts."""

from __future__ import annotations

import pytest

from lagom import journal
from lagom.bench.measure import is_enough, steady, value_of
from lagom.bench.process import Ended, Seen

#: A process that begins slowly: (wall clock, ms), thirty samples of which the first ten settle.
WARMING = [(float(at), 500.0 if at < 10 else 100.0 + at % 3) for at in range(30)]


def ended(seen: Seen, exit_code: int = 0, by: str = "itself") -> Ended:
    return Ended(exit_code, 42.0, 0.0, by, seen)


def settled(at: float) -> journal.Outcome:
    return journal.Outcome(communicator=0, verdict="improved", reason="", t=at)


def test_the_first_third_of_a_process_does_not_count() -> None:
    assert steady(WARMING, None) == [value for _, value in WARMING[10:]]
    value, samples = value_of("metric", ended(Seen(metric=WARMING)), None, tunes=False)
    assert value == pytest.approx(101.0)
    assert len(samples) == 20
    assert 500.0 not in samples


def test_of_a_process_that_tunes_only_what_comes_after_its_last_search_counts() -> None:
    seen = Seen(metric=WARMING, events=[settled(12.0), settled(24.0)])
    value, samples = value_of("metric", ended(seen), None, tunes=True)
    assert samples == [value for at, value in WARMING if at > 24.0]
    assert value is not None
    assert value_of("metric", ended(Seen(metric=WARMING)), None, tunes=True) == (None, []), "it never came to an end"


def test_enough_are_samples_that_count_not_samples() -> None:
    assert not is_enough("metric", Seen(metric=WARMING), None, 21, tunes=False)
    assert is_enough("metric", Seen(metric=WARMING), None, 20, tunes=False)
    searched = Seen(metric=WARMING, events=[settled(24.0)])
    assert is_enough("metric", searched, None, 5, tunes=True)
    assert not is_enough("metric", searched, None, 6, tunes=True)
    assert not is_enough("metric", Seen(metric=WARMING), None, 1, tunes=True)


def test_wall_time_is_that_of_a_whole_process_that_ended_well_by_itself() -> None:
    assert value_of("wall", ended(Seen()), None, tunes=False) == (42.0, [42.0])
    assert not is_enough("wall", Seen(metric=WARMING), None, 1, tunes=False)
    for bad in (ended(Seen(), 3), ended(Seen(), by="limit"), ended(Seen(), by="budget")):
        assert value_of("wall", bad, None, tunes=False) == (None, [])
    assert value_of("wall", ended(Seen(events=[settled(1.0)])), None, tunes=True) == (None, []), "the search is in it"
