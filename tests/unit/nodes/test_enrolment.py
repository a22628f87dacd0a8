# SPDX-License-Identifier: Apache-2.0
"""All launchers agree before anything is started, or none goes on; and no session reads what an earlier one wrote."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from lagom.nodes import enrolment
from lagom.nodes.enrolment import NotEnrolled, Session, enrol
from lagom.nodes.exchange import ExchangeError, NoAnswer, NodeFacts, Place
from lagom.nodes.folder_exchange import FolderExchange
from lagom.nodes.heartbeat import Life
from lagom.nodes.node_facts import facts_of, node_name
from tests.unit.nodes.launchers import FACTS, LIFE, HangingExchange, MemoryExchange, at_once, join

QUICK = Life(beat=0.01, silent=120.0)
#: A dead one is known soon. A live one that is taken for dead enrols once more.
IMPATIENT = Life(beat=0.01, silent=2.0)


def facts(words: str = "torchrun train.py", variables: Mapping[str, str] | None = None, **other: object) -> NodeFacts:
    given = {"plugin": "ab12", "nccl": 23007, "gpu": "H200", **other}
    return facts_of(words.split(), variables or {"NCCL_ALGO": "Ring"}, **given)  # type: ignore[arg-type]


@pytest.mark.parametrize("names", [("a", "b", "c"), ("a", "a", "a")])
def test_nodes_that_come_at_once_agree_and_have_names_of_their_own(
    tmp_path: Path, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also machines of one name."""
    machines = iter(["1a", "2b", "3c"])
    monkeypatch.setattr(enrolment, "machine_id", lambda: next(machines))
    found = at_once([lambda name=name: join(FolderExchange(tmp_path / "x"), name, 3) for name in names])  # type: ignore[misc]
    sessions = sorted((one.result() for one in found), key=lambda session: session.seat)
    assert [session.seat for session in sessions] == [0, 1, 2]
    assert len({session.nodes for session in sessions}) == 1
    assert sorted(sessions[0].nodes) == (["a", "b", "c"] if names[0] != names[1] else ["a", "a-2", "a-3"])
    assert [session.is_coordinator for session in sessions] == [True, False, False]
    for session in sessions:
        session.__exit__()


def test_a_node_that_never_comes_is_told_by_those_that_wait(tmp_path: Path) -> None:
    with pytest.raises(NotEnrolled, match=r"^1 of 2 nodes after 0 s: started on a; start the same command") as raised:
        join(FolderExchange(tmp_path / "x"), "a", wait=0.0)
    assert (raised.value.why, raised.value.nodes) == ("late", ("a",))
    with pytest.raises(NotEnrolled, match="started on b"):  # and the next one has nothing to do with it
        join(FolderExchange(tmp_path / "x"), "b", wait=0.0)


@pytest.mark.parametrize(
    ("other", "named"),
    [(facts("torchrun other.py"), "the command"), (facts(nccl=22809), "NCCL's version"), (facts(gpu="H100"), "the GPU"),
     (facts(plugin="cd"), "the build of the plugin"), (facts(config=b"x"), "the saved config"),
     (facts(variables={"NCCL_ALGO": "Tree"}), "NCCL_ALGO"),
     (facts(variables={"NCCL_ALGO": "Ring", "NCCL_P2P_LEVEL": "5"}), "NCCL_P2P_LEVEL")],
)  # fmt: skip
def test_a_difference_is_named_by_both_and_ends_both(other: NodeFacts, named: str, tmp_path: Path) -> None:
    ways = (("a", facts()), ("b", other))
    found = at_once([lambda way=way: join(FolderExchange(tmp_path / "x"), way[0], facts=way[1]) for way in ways])  # type: ignore[misc]
    for one in found:
        with pytest.raises(NotEnrolled, match=rf"not the same on all nodes: {named}.* of [ab] and [ab]; ") as raised:
            one.result()
        assert raised.value.why == "differs"


def test_what_belongs_to_a_node_is_not_compared() -> None:
    for name in ("NCCL_HOSTID", "NCCL_SOCKET_IFNAME", "NCCL_IB_HCA"):
        assert facts(variables={"NCCL_ALGO": "Ring", name: "a"}) == facts()
    assert node_name({"NCCL_HOSTID": "node a/7"}) == "node-a-7"
    assert node_name({})


def test_more_nodes_than_were_named_are_refused(tmp_path: Path) -> None:
    sessions = [one.result() for one in at_once([lambda n=n: join(FolderExchange(tmp_path / "x"), n) for n in "ab"])]  # type: ignore[misc]
    for name in ("c", "a"):
        with pytest.raises(NotEnrolled, match=r"2 of 2 nodes are enrolled already \([ab], [ab]\)") as raised:
            join(FolderExchange(tmp_path / "x"), name)
        assert raised.value.why == "full"
    for session in sessions:
        session.__exit__()


def forget(session: Session) -> None:
    """As if the launcher was killed: it says nothing more."""
    session.heartbeat.close()


@pytest.mark.parametrize("dead", ["both", "one, then the other saw it"])
def test_the_same_command_continues_in_a_session_of_its_own(tmp_path: Path, dead: str) -> None:
    def both() -> list[Session]:
        tasks = [lambda n=n: join(FolderExchange(tmp_path / "x"), n, life=QUICK) for n in "ab"]  # type: ignore[misc]
        return sorted((one.result() for one in at_once(tasks)), key=lambda session: session.seat)

    first = both()
    forget(first[0])
    (forget if dead == "both" else Session.__exit__)(first[1])
    second = both()
    assert {session.space for session in first} == {"1"}
    assert len({session.space for session in second}) == 1
    assert second[0].space != "1"
    for session in second:
        session.__exit__()
    third = both()
    assert int(third[0].space) == int(second[0].space) + 1
    for session in third:
        session.__exit__()


def test_who_comes_while_a_dead_launcher_holds_the_last_seat_waits_for_the_next_session() -> None:
    kept: dict[str, bytes] = {}
    dead = Place(token="0" * 32, node="dead", facts=FACTS, count=2)

    def after_it() -> Session:
        exchange = MemoryExchange(kept)
        while exchange.get("1/seat/0", Place) is None:
            time.sleep(0.01)
        exchange.put_once("1/seat/1", dead)
        return join(exchange, "b", life=IMPATIENT)

    found = at_once([lambda: join(MemoryExchange(kept), "a", life=IMPATIENT), after_it])
    first, second = (one.result() for one in found)
    assert first.space == second.space != "1"
    assert {first.node, second.node} == {"a", "b"}
    for session in (first, second):
        session.__exit__()


def test_a_launcher_that_was_killed_while_it_waited_is_not_counted(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    class DiesWhileItWaits(FolderExchange):
        def _get(self, key: str) -> bytes | None:
            if key == "1/begin":
                raise Killed
            return super()._get(key)

    with pytest.raises(Killed):
        join(DiesWhileItWaits(tmp_path / "x"), "a", life=QUICK)
    found = at_once([lambda n=n: join(FolderExchange(tmp_path / "x"), n, life=QUICK) for n in "ab"])  # type: ignore[misc]
    sessions = [one.result() for one in found]
    assert {session.space for session in sessions} != {"1"}
    assert len({session.space for session in sessions}) == 1
    for session in sessions:
        session.__exit__()


@pytest.mark.parametrize(("dead", "count"), [("other", 2), ("other", 3), ("coordinator", 3)])
def test_a_node_that_died_while_it_waited_is_named_once_and_soon(
    dead: str, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not when the time of the others is up. Of two nodes the live one waits for another in the next session."""
    monkeypatch.setattr(enrolment, "DEAD_SECONDS", 0.02)
    seat, said = int(dead == "other"), list[str]()
    looks = itertools.count()

    class Ended(Exception):
        pass

    class Dies(MemoryExchange):
        def _get(self, key: str) -> bytes | None:
            if key.endswith(("/begin", "2/seat/1")) and next(looks) > 20:
                raise Ended
            if key != f"1/beat/{seat}":
                return super()._get(key)
            return b'{"count":%d}' % (0 if f"1/seat/{1 - seat}" in self.kept else next(looks))  # it lives until we come

    place = Place(token="0" * 32, node="dead", facts=FACTS, count=count)
    exchange = Dies({f"1/seat/{seat}": place.model_dump_json().encode()})
    with pytest.raises(Ended):
        enrol(exchange, count, "a", FACTS, 600.0, QUICK, said.append)
    assert said == ["enrolled, but silent for 0 s: dead; if the command has ended, start it again."]


def test_an_exchange_that_does_not_answer_is_no_agreement() -> None:
    class Gone(MemoryExchange):
        def _put_once(self, key: str, data: bytes) -> bytes:
            raise ExchangeError("memory is gone")

    with pytest.raises(ExchangeError, match="memory is gone"):
        enrol(Gone(), 2, "a", FACTS, 1.0, LIFE)


def test_the_host_and_the_other_nodes_are_waited_for_by_one_deadline() -> None:
    exchange = MemoryExchange()
    exchange.may_coordinate, exchange.waited = False, 600.0  # all of it, which is more than a test may take
    with pytest.raises(NotEnrolled, match="has not enrolled in time"):
        join(exchange, "a", wait=600.0)


def test_an_exchange_that_hangs_for_a_while_is_asked_again() -> None:
    """Who has voted could not hear the outcome otherwise, and would not start."""
    exchange = HangingExchange(deadline=0.02)
    threading.Timer(0.2, exchange.release.set).start()
    with join(exchange, "a", count=1) as session:
        assert session.nodes == ("a",)
    hanging = HangingExchange(deadline=0.02)
    with pytest.raises(NoAnswer):
        join(hanging, "a", count=1, wait=0.1)
    hanging.release.set()
