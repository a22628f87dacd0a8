# SPDX-License-Identifier: Apache-2.0
"""Ranks that have made different calls are told of, and a look at the wrong moment is not."""

from __future__ import annotations

from dataclasses import replace

from lagom.controller.call_history_check import STILL_SECONDS, CallHistoryCheck
from lagom.wire.views import SlotView

RANK = SlotView(0, 0, 3, 0, 0, 0, 0, 0, 0, False, 0, 0, 0, 0, 0, 0)


def ranks(*places: tuple[int, int]) -> list[SlotView]:
    """(calls, hash) of each rank."""
    return [replace(RANK, index=i, process=i, calls=calls, history_hash=h) for i, (calls, h) in enumerate(places)]


def test_only_ranks_at_the_same_call_are_compared() -> None:
    histories = CallHistoryCheck()
    for calls in range(4, 10):
        assert histories.look(ranks((calls, 40), (calls + 1, 50), (calls, 40)), calls) == []
    assert histories.look([], 10.0) == []


def test_told_once_after_a_second_sighting_at_a_later_call() -> None:
    histories = CallHistoryCheck()
    assert histories.look(ranks((4, 40), (4, 41)), 0.0) == []
    assert histories.look(ranks((5, 50), (6, 61)), 0.1) == []
    (sentence,) = histories.look(ranks((7, 70), (7, 71)), 0.2)
    assert sentence.startswith("communicator 3: its ranks have made different calls (noticed at call 7)")
    assert histories.look(ranks((8, 80), (8, 81)), 0.3) == []


def test_told_when_it_stands_still_as_in_a_hang() -> None:
    histories = CallHistoryCheck()
    assert histories.look(ranks((4, 40), (4, 41)), 10.0) == []
    assert histories.look(ranks((4, 40), (4, 41)), 10.0 + STILL_SECONDS / 2) == []
    assert len(histories.look(ranks((4, 40), (4, 41)), 10.0 + STILL_SECONDS)) == 1


def test_a_look_between_hash_and_counter_is_forgiven() -> None:
    histories = CallHistoryCheck()
    assert histories.look(ranks((4, 40), (4, 50)), 0.0) == []  # the second rank is about to publish call 5
    for calls in range(5, 50):
        assert histories.look(ranks((calls, 10 * calls), (calls, 10 * calls)), calls) == []


def test_two_such_looks_an_hour_apart_are_forgiven_too() -> None:
    histories = CallHistoryCheck()
    for calls in (100, 200, 300):
        assert histories.look(ranks((calls, 1), (calls, 2)), calls) == []
        assert histories.look(ranks((calls + 1, 3), (calls + 1, 3)), calls + 0.1) == []


def test_one_of_three_that_has_parted_is_seen_though_the_others_agree() -> None:
    histories = CallHistoryCheck()
    assert histories.look(ranks((4, 40), (4, 40), (4, 41)), 0.0) == []
    assert len(histories.look(ranks((5, 50), (5, 50), (5, 51)), 0.1)) == 1


def test_another_communicator_in_the_entry_starts_anew() -> None:
    histories = CallHistoryCheck()
    histories.look(ranks((4, 40), (4, 41)), 0.0)
    assert histories.look(ranks((5, 50), (5, 51)), 0.1)
    histories.forget(3)
    assert histories.look(ranks((1, 10), (1, 11)), 0.2) == []
