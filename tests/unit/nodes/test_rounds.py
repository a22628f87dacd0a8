# SPDX-License-Identifier: Apache-2.0
"""Rounds in lock-step: all nodes run the same, none begins before all have ended, and nobody waits for the dead."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from lagom import files
from lagom.experiment.store import BadRecord
from lagom.nodes import folder_exchange
from lagom.nodes.exchange import Done, FoundStart, SessionEnd
from lagom.nodes.heartbeat import Heartbeat, Life, Silence
from lagom.nodes.rounds import IsOver, NodesEnded, RoundResult, Rounds
from tests.unit.nodes.launchers import SETTINGS, HangingExchange, Processes, at_once, pair
from tests.waiting import wait_until

VALUE = Done(exit=0, ended="us", value=3.5, samples=[3.5, 3.6, 3.4], unit="ms", ranks=4, ranks_seen=2)
FOUND = FoundStart(
    settings=SETTINGS, speedup=1.2, low=1.1, high=1.3, processes=[6, 6], measure="ms", text="4 sockets: 1.20x"
)
NOTHING = Done(exit=0, ended="us", ranks=4, ranks_seen=2)


def test_all_nodes_run_the_same_rounds_and_learn_the_verdict(tmp_path: Path) -> None:
    one, two = pair(tmp_path / "x")
    here, there = Processes(NOTHING, until_stopped=True), Processes(VALUE)
    rounds = [({}, 1, None), (SETTINGS, 2, 60.0), ({}, 3, None)]

    def coordinate() -> list[RoundResult]:
        with one:
            running = Rounds(one, here)
            found = [running.run(*each) for each in rounds]
            running.finish("improved", FOUND)
            return found

    def follow() -> SessionEnd | None:
        with two:
            running = Rounds(two, there)
            assert [(go.number, stop.why, mine) for go, stop, mine in running.follow()] == [
                (number, "enough", VALUE) for number in (1, 2, 3)
            ]
            return running.verdict

    coordinated, followed = at_once([coordinate, follow])  # type: ignore[list-item]
    for result in coordinated.result():  # type: ignore[union-attr]
        assert result.done == {one.node: NOTHING, two.node: VALUE}
        assert (result.stopped_by, result.failed) == (two.node, ())
    end = followed.result()
    assert (end.kind, end.verdict, end.found) == ("finished", "improved", FOUND)  # type: ignore[union-attr]
    assert here.begun == there.begun == rounds


def test_a_process_that_fails_on_one_node_ends_the_round_on_all(tmp_path: Path) -> None:
    one, two = pair(tmp_path / "x")
    broken = Done(exit=1, ended="itself", unlike="rank 3 has NCCL_ALGO=Ring", reason="out of memory")

    def coordinate() -> RoundResult:
        with one:
            running = Rounds(one, Processes(VALUE, until_stopped=True))
            result = running.run({}, 1, None)
            running.finish()
            return result

    def follow() -> None:
        with two:
            list(Rounds(two, Processes(broken)).follow())

    result = at_once([coordinate, follow])[0].result()  # type: ignore[list-item]
    assert (result.failed, result.why, result.stopped_by) == ((two.node,), "exit", two.node)  # type: ignore[union-attr]
    assert result.done[two.node].unlike == broken.unlike  # type: ignore[union-attr]


def test_a_launcher_that_fails_because_the_round_is_over_has_not_failed(tmp_path: Path) -> None:
    """A torchrun does when the one that hosts its rendezvous has been ended before it."""
    one, two = pair(tmp_path / "x")

    def coordinate() -> RoundResult:
        with one:
            running = Rounds(one, Processes(VALUE))
            result = running.run({}, 1, None)
            running.finish()
            return result

    def follow() -> None:
        with two:
            list(Rounds(two, Processes(Done(exit=1, ended="itself"), until_stopped=True)).follow())

    result = at_once([coordinate, follow])[0].result()  # type: ignore[list-item]
    assert (result.failed, result.why, result.stopped_by) == ((), "enough", one.node)  # type: ignore[union-attr]


@pytest.mark.parametrize("interrupted", [0, 1])
def test_an_interruption_on_one_node_ends_all(tmp_path: Path, interrupted: int) -> None:
    sessions = pair(tmp_path / "x")
    begun = [Processes(NOTHING, until_stopped=True) for _ in sessions]

    def run(seat: int) -> None:
        def interrupt(*given: object) -> Done:
            begun[1 - seat].is_running.wait(120)
            raise KeyboardInterrupt

        with sessions[seat] as session:
            running = Rounds(session, interrupt if seat == interrupted else begun[seat])
            if session.is_coordinator:
                running.run({}, 1, None)
            else:
                list(running.follow())

    found = at_once([lambda: run(0), lambda: run(1)])
    with pytest.raises(KeyboardInterrupt):
        found[interrupted].result()
    name = sessions[interrupted].node
    with pytest.raises(NodesEnded, match=f"^node {name} was interrupted; the same command on all nodes continues"):
        found[1 - interrupted].result()


@pytest.mark.parametrize("failed", [0, 1])
def test_a_failure_on_one_node_says_on_the_other_what_its_sentence_says_is_to_be_done(
    tmp_path: Path, failed: int
) -> None:
    sessions = pair(tmp_path / "x")
    other = sessions[1 - failed]

    def fail() -> None:
        with sessions[failed]:
            raise BadRecord("bench.json has format 2; measure anew with --fresh.")

    def take_part() -> None:
        with other:
            running = Rounds(other, Processes(NOTHING, until_stopped=True))
            running.run({}, 1, None) if other.is_coordinator else list(running.follow())

    found = at_once([fail, take_part])
    with pytest.raises(NodesEnded) as raised:
        found[1].result()
    node = sessions[failed].node
    assert str(raised.value) == f"node {node} has failed: bench.json has format 2; measure anew with --fresh."


@pytest.mark.parametrize("silent", [0, 1])
def test_a_silent_node_ends_the_round_of_the_other(tmp_path: Path, silent: int) -> None:
    sessions = pair(tmp_path / "x")
    other = sessions[1 - silent]
    sessions[silent].heartbeat.close()
    other.life = Life(0.02, 0.2)
    other.heartbeat.close()
    other.heartbeat = Heartbeat(other.exchange, other.space, other.seat, (silent,), other.life)
    process = Processes(NOTHING, until_stopped=True)
    running = Rounds(other, process)

    def take_part() -> None:
        with other:
            running.run({}, 1, None) if silent == 1 else list(running.follow())

    with pytest.raises(NodesEnded, match=f"^node {sessions[silent].node} has not answered for 0 s") as raised:
        take_part()
    assert raised.value.node == sessions[silent].node
    assert other.exchange.get(other.key("end"), SessionEnd) == SessionEnd(kind="gone", by=1 - silent, of=silent)
    with pytest.raises(NodesEnded, match=f"^node {sessions[silent].node} has not answered"):  # it wakes up later
        Rounds(sessions[silent], process).finish() if silent == 0 else _woken(sessions[silent], process)


def _woken(session: object, process: Processes) -> None:
    session.heartbeat = Heartbeat(session.exchange, session.space, session.seat, (), session.life)  # type: ignore[attr-defined]
    list(Rounds(session, process).follow())  # type: ignore[arg-type]


def test_a_reader_that_was_stopped_accuses_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("lagom.nodes.heartbeat.time.monotonic", lambda: now[0])
    silence = Silence(60.0)
    assert not silence.is_too_long(1)
    now[0] += 3600.0  # of this process: the other one's counter may be read late, too
    assert not silence.is_too_long(1)
    assert not silence.is_too_long(2)
    looks = 0
    while not silence.is_too_long(2):
        now[0] += 1.0
        looks += 1
    assert looks == 61


def test_an_exchange_that_hangs_is_noticed_without_waiting_for_it() -> None:
    exchange = HangingExchange(deadline=0.02)
    heartbeat = Heartbeat(exchange, "1", 0, (1,), Life(0.01, 0.1))
    try:
        wait_until(heartbeat.is_alarmed, "an alarm")
        assert heartbeat.lost == "memory has not answered for 0 s: memory cannot be used (no answer within 0.02 s)."
    finally:
        exchange.release.set()
        heartbeat.close()


def test_a_process_is_held_to_its_limit_while_the_folder_hangs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The thread that does that writes who has ended the round, and that costs it a deadline and no more. A folder that
    comes back in time costs nothing."""
    one, two = pair(tmp_path / "x")
    hangs, released, answers = threading.Event(), threading.Event(), []
    for session in (one, two):
        session.exchange._deadline = 0.05

    def open_own(path: Path) -> int:
        if hangs.is_set():
            released.wait(600.0)
        return files.open_own(path)

    def limited(settings: object, number: int, limit: object, is_over: IsOver) -> Done:
        hangs.set()
        answers.append(is_over(True))
        hangs.clear()
        released.set()
        return VALUE

    monkeypatch.setattr(folder_exchange, "open_own", open_own)

    def coordinate() -> RoundResult:
        with one:
            running = Rounds(one, limited)
            result = running.run({}, 1, 60.0)
            running.finish()
            return result

    def follow() -> None:
        with two:
            list(Rounds(two, Processes(NOTHING, until_stopped=True)).follow())

    result = at_once([coordinate, follow])[0].result()  # type: ignore[list-item]
    assert answers == [True]
    assert result.done == {one.node: VALUE, two.node: NOTHING}  # type: ignore[union-attr]
