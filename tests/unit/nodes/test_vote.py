# SPDX-License-Identifier: Apache-2.0
"""Start settings: all nodes set them, or none; who cannot know does not start."""

from __future__ import annotations

from pathlib import Path

import pytest

from lagom.nodes.enrolment import facts_of
from lagom.nodes.exchange import Begin, ExchangeError, NodeFacts
from lagom.nodes.folder_exchange import FolderExchange
from lagom.nodes.vote import Vote, vote
from tests.unit.nodes.launchers import LIFE, MemoryExchange, at_once

SAVED = facts_of((), {"NCCL_NSOCKS_PERTHREAD": "4"}, plugin="ab", nccl=23007, gpu="", config=b"saved")
NONE = facts_of((), {}, plugin="ab", nccl=23007, gpu="")


def votes(folder: Path, *facts: NodeFacts, count: int | None = None, wait: float = 120.0) -> list[Vote]:
    tasks = [
        lambda at=at, one=one: vote(FolderExchange(folder), count or len(facts), f"n{at}", one, wait, LIFE)  # type: ignore[misc]
        for at, one in enumerate(facts)
    ]
    return [one.result() for one in at_once(tasks)]


def test_all_that_voted_the_same_set_them_at_every_start(tmp_path: Path) -> None:
    for _ in range(3):  # the same folder: a start reads nothing of the one before
        found = votes(tmp_path / "x", SAVED, SAVED, SAVED)
        assert {(one.agreed, one.may_start, one.reason) for one in found} == {(True, True, "agreed")}
        assert {tuple(sorted(one.nodes)) for one in found} == {("n0", "n1", "n2")}


def test_where_one_has_another_config_nobody_sets_it(tmp_path: Path) -> None:
    found = votes(tmp_path / "x", SAVED, NONE)
    assert {(one.agreed, one.may_start, one.reason) for one in found} == {(False, True, "differs")}
    assert all("the saved config" in one.text for one in found)


def test_a_late_node_means_nobody_sets_it(tmp_path: Path) -> None:
    for _ in range(2):
        (found,) = votes(tmp_path / "x", SAVED, count=2, wait=0.0)
        assert (found.agreed, found.may_start, found.reason, found.nodes) == (False, True, "late", ("n0",))


@pytest.mark.parametrize("when", ["before", "after"])
def test_who_may_have_been_counted_and_cannot_know_does_not_start(when: str) -> None:
    """The exchange goes when this node's vote is written, or before."""

    class Goes(MemoryExchange):
        is_gone = when == "before"

        def _put_once(self, key: str, data: bytes) -> bytes:
            if self.is_gone:
                raise ExchangeError("memory is gone")
            self.is_gone = True
            return super()._put_once(key, data)

        def _get(self, key: str) -> bytes | None:
            if self.is_gone:
                raise ExchangeError("memory is gone")
            return super()._get(key)

    found = vote(Goes(), 2, "a", SAVED, 60.0, LIFE)
    assert (found.agreed, found.reason) == (False, "unreachable")
    assert found.may_start == (when == "before")  # nothing was asked of it: nobody can have counted this node


@pytest.mark.parametrize("outcome", [True, False])
def test_what_another_node_has_decided_is_in_force(outcome: bool) -> None:
    """Of the two outcomes at once, that which was written first: each node wants to write its own."""

    class DecidedMeanwhile(MemoryExchange):
        def _put_once(self, key: str, data: bytes) -> bytes:
            if key == "1/begin":
                why = "agreed" if outcome else "late"
                self.kept.setdefault(key, Begin(agreed=outcome, why=why).model_dump_json().encode())  # type: ignore[arg-type]
            return super()._put_once(key, data)

    exchange = DecidedMeanwhile()
    if outcome:
        exchange.kept["1/seat/1"] = b'{"token":"bb","node":"b","facts":' + SAVED.model_dump_json().encode() + b"}"
        found = vote(exchange, 2, "a", SAVED, 120.0, LIFE)
    else:
        found = vote(exchange, 2, "a", SAVED, 0.0, LIFE)
    assert found.agreed is outcome


def test_one_more_node_than_was_named_does_not_start(tmp_path: Path) -> None:
    """The others may have agreed, and it belongs to their job."""

    class StaysThere(MemoryExchange):
        beats = 0

        def _get(self, key: str) -> bytes | None:
            if "/beat/" in key:
                self.beats += 1
                return b'{"count":%d}' % self.beats
            return super()._get(key)

    facts = SAVED.model_dump_json().encode()
    kept = {f"1/seat/{at}": b'{"token":"%d","node":"n%d","facts":%s}' % (at, at, facts) for at in (0, 1)}
    found = vote(StaysThere(kept), 2, "third", SAVED, 60.0, LIFE)
    assert (found.agreed, found.may_start, found.reason) == (False, False, "full")
