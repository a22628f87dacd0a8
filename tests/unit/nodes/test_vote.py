# SPDX-License-Identifier: Apache-2.0
"""Start settings: all nodes set them, or none; who cannot know does not start."""

from __future__ import annotations

import re
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from lagom.launch.start_agreement import SPACE
from lagom.nodes import enrolment
from lagom.nodes.exchange import Begin, ExchangeError, NodeFacts, Place
from lagom.nodes.folder_exchange import FolderExchange
from lagom.nodes.node_facts import facts_of
from lagom.nodes.vote import Vote, vote
from tests.unit.nodes.launchers import LIFE, MemoryExchange, at_once
from tests.waiting import wait_until

SAVED = facts_of((), {"NCCL_NSOCKS_PERTHREAD": "4"}, plugin="ab", nccl=23007, gpu="", config=b"saved")
NONE = facts_of((), {}, plugin="ab", nccl=23007, gpu="")


class Beating(MemoryExchange):
    """Every other launcher lives."""

    beats = 0

    def _get(self, key: str) -> bytes | None:
        if "/beat/" in key:
            self.beats += 1
            return b'{"count":%d}' % self.beats
        return super()._get(key)


def place(seat: int, count: int = 2, facts: NodeFacts = SAVED) -> bytes:
    """What a launcher has written."""
    return Place(token=f"{seat:02d}", node=f"n{seat}", facts=facts, count=count).model_dump_json().encode()


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


def test_a_start_leaves_as_many_files_as_the_guide_says_and_all_may_be_removed(tmp_path: Path) -> None:
    guide = (Path(__file__).resolve().parents[3] / "docs" / "guides" / "launchers.md").read_text()
    (counts,) = re.findall(r"Each start leaves (\d) files in the folder and (\d) more for each node", guide)
    assert f"rm -r /shared/tune/nodes/{SPACE}" in guide
    for nodes in (2, 3):
        found = votes(tmp_path / SPACE, *[SAVED] * nodes)
        assert all(one.agreed for one in found)
        files = [one for one in (tmp_path / SPACE).rglob("[!.]*") if one.is_file() and one.parent.name != "beat"]
        assert len(files) + nodes == int(counts[0]) + nodes * int(counts[1]), files  # not each one had to beat
        (tmp_path / SPACE).rename(tmp_path / f"removed-{nodes}")


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

    class DecidedMeanwhile(Beating):
        def _put_once(self, key: str, data: bytes) -> bytes:
            if key == "1/begin":
                why = "agreed" if outcome else "late"
                self.kept.setdefault(key, Begin(agreed=outcome, why=why).model_dump_json().encode())  # type: ignore[arg-type]
            return super()._put_once(key, data)

    exchange = DecidedMeanwhile()
    if outcome:
        exchange.kept["1/seat/1"] = place(1)
        found = vote(exchange, 2, "a", SAVED, 120.0, LIFE)
    else:
        found = vote(exchange, 2, "a", SAVED, 0.0, LIFE)
    assert found.agreed is outcome


def test_one_more_node_than_was_named_does_not_start(tmp_path: Path) -> None:
    """The others may have agreed, and it belongs to their job."""
    kept = {f"1/seat/{at}": place(at) for at in (0, 1)}
    found = vote(Beating(kept), 2, "third", SAVED, 60.0, LIFE)
    assert (found.agreed, found.may_start, found.reason) == (False, False, "full")


@pytest.mark.parametrize(
    "kept",
    [
        {},  # the one that is asked is alone
        {"1/seat/1": place(1, facts=NONE)},
        {"1/seat/1": place(1, count=3)},
    ],
)
def test_that_all_agreed_is_not_taken_from_whoever_wrote_it(
    kept: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A record in the folder or store is no proof: each launcher counts and compares by itself."""
    monkeypatch.setattr(enrolment, "DEADLINE", 0.05)

    class Hostile(Beating):
        def _get(self, key: str) -> bytes | None:
            written = b'{"agreed":true,"why":"agreed"}'
            return written if key == "1/begin" and "1/seat/0" in self.kept else super()._get(key)

    found = vote(Hostile(dict(kept)), 2, "a", SAVED, 60.0, LIFE)
    assert (found.agreed, found.may_start) == (False, False)
    assert "are not 2 nodes that have the same, with a" in found.text


def test_launchers_that_wait_for_another_number_of_nodes_do_not_agree(tmp_path: Path) -> None:
    folder = tmp_path / "x"
    tasks = [
        lambda at=at, count=count: vote(FolderExchange(folder), count, f"n{at}", SAVED, 1.0, LIFE)  # type: ignore[misc]
        for at, count in enumerate([2, 3])
    ]
    for found in (one.result() for one in at_once(tasks)):
        assert not found.agreed, found
        assert found.reason in ("differs", "late", "full")


def test_a_command_that_is_started_twice_on_a_node_is_no_two_nodes(tmp_path: Path) -> None:
    tasks = [lambda: vote(FolderExchange(tmp_path / "x"), 2, "a", SAVED, 120.0, LIFE)] * 2
    for found in (one.result() for one in at_once(tasks)):
        assert (found.agreed, found.may_start, found.reason) == (False, True, "twice")
        assert found.text.startswith("the command was started twice on node a; start it once on each node")


@pytest.mark.parametrize("ends", ["in order", "killed"])
def test_a_launcher_that_has_gone_while_it_waited_is_not_counted(
    tmp_path: Path, ends: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b is started again while a still waits for c: the seat that it had before is no node."""
    monkeypatch.setattr(enrolment, "DEAD_SECONDS", 5.0)  # which a busy machine makes nobody silent for
    folder, gone = tmp_path / "x", threading.Event()

    class Ends(FolderExchange):
        def _get(self, key: str) -> bytes | None:
            if key == "1/seat/1" and (found := super()._get(key)) is not None and b'"b"' in found:
                raise SystemExit(143)
            return super()._get(key)

        def put_once(self, key: str, record: Any) -> Any:
            if ends == "killed" and key.endswith(("/begin", "/end")):
                raise ExchangeError("it is dead")
            return super().put_once(key, record)

    def first_b() -> None:
        with suppress(SystemExit):
            vote(Ends(folder), 3, "b", SAVED, 120.0, LIFE)
        gone.set()

    def later(node: str) -> Vote:
        gone.wait(60.0)
        return vote(FolderExchange(folder), 3, node, SAVED, 120.0, LIFE)

    def all_of_them(node: str) -> Vote | None:
        if node == "a":
            return vote(FolderExchange(folder), 3, "a", SAVED, 120.0, LIFE)
        if node == "b":
            wait_until(lambda: (folder / "1" / "seat" / "0").exists(), "a's seat")
            first_b()
        else:  # before that all three seats are taken, and it would be refused as one too many
            wait_until(lambda: (folder / "1" / "begin").exists(), "the end of the first session")
        return later(node)

    found = [one.result() for one in at_once([lambda n=n: all_of_them(n) for n in "abc"])]  # type: ignore[misc]
    assert all(one is not None and one.agreed and sorted(one.nodes) == ["a", "b", "c"] for one in found), found
