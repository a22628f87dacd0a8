# SPDX-License-Identifier: Apache-2.0
"""Processes of a job that runs on several nodes, one round after the other in lock-step.

The coordinator writes ``go``: every node starts its process with the same settings. Whoever sees that it is enough
writes ``stop``: every node ends its process, and writes ``done``. No round begins before all have. A node that dies,
stops or stays silent ends the session on all of them; the same command then continues in a new one.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass

from lagom.errors import LagomError
from lagom.nodes.enrolment import LOOK_SECONDS, Session
from lagom.nodes.exchange import Done, ExchangeError, FoundStart, Go, Record, SessionEnd, Stop, UnreadableRecord
from lagom.nodes.worker import Given

#: Given whether this node has seen enough: whether its process is to be ended. To be asked about ten times a second.
IsOver = Callable[[bool], bool]
#: What every node runs: given settings, number and limit in seconds (None = none). It returns when no process of the
#: job is left.
Start = Callable[[Mapping[str, str], int, float | None, IsOver], Done]
#: How a process ended, as a reason to end the round.
WHY = {"itself": "exit", "us": "enough", "limit": "limit"}
EXIT_CODE = 3


class NodesEnded(LagomError):
    """The session ended before its search did; the command ends with EXIT_CODE on every node. ``node``: because of
    which, empty where it is the exchange; ``what_to_do``: an imperative or a clause, empty where ``text`` has it."""

    def __init__(self, text: str, node: str = "", what_to_do: str = "the same command on all nodes continues") -> None:
        super().__init__(f"{text}; {what_to_do}." if what_to_do else f"{text}.")
        self.node = node


@dataclass(frozen=True, slots=True)
class RoundResult:
    """What a round gave on all nodes. ``stopped_by`` saw first that it was enough, and ``why``; ``done``: by node, the
    coordinator first."""

    stopped_by: str
    why: str
    done: Mapping[str, Done]

    @property
    def failed(self) -> tuple[str, ...]:
        """Nodes whose process ended badly by itself."""
        return tuple(node for node, one in self.done.items() if one.ended == "itself" and one.exit != 0)


class Rounds:
    """The rounds of a session; ``start`` runs this node's process."""

    def __init__(self, session: Session, start: Start) -> None:
        self._session, self._start, self._count = session, start, 0

    def run(self, settings: Mapping[str, str], number: int, limit: float | None) -> RoundResult:
        """A round on all nodes; the coordinator's. Raises :class:`NodesEnded` where it gave nothing that counts."""
        self._check()
        go = Go(settings=dict(settings), number=number, limit=limit or 0.0)
        self._patiently(lambda: self._session.exchange.put_once(self._key("go"), go))
        stop, _ = self._take_part(go)
        done = {node: self._wait_for(self._key("done", seat), Done) for seat, node in enumerate(self._session.nodes)}
        self._count += 1
        return RoundResult(self._session.nodes[stop.by], stop.why, done)

    def finish(self, verdict: str = "", found: FoundStart | None = None) -> None:
        """The coordinator's last word: what was found is in force for all nodes. Raises :class:`NodesEnded` where the
        session has ended otherwise meanwhile."""
        seat = self._session.seat
        wanted = SessionEnd(kind="finished", by=seat, of=seat, verdict=verdict, found=found)
        end = self._patiently(lambda: self._session.end(wanted))
        if end.kind != "finished":
            raise self._ended(end)

    def follow(self) -> Iterator[tuple[Go, Stop, Done]]:
        """Take part in every round until the coordinator ends the session; yields each one that is over with what this
        node's process gave. :attr:`verdict` is there afterwards."""
        while (go := self._wait_for_go()) is not None:
            stop, mine = self._take_part(go)
            self._count += 1
            yield go, stop, mine

    @property
    def verdict(self) -> SessionEnd | None:
        """How the coordinator has ended the session; None before."""
        return self._session.heartbeat.end

    # -- one round

    def _take_part(self, go: Go) -> tuple[Stop, Done]:
        """Run this node's process; returns who ended the round, and what the process gave."""
        session, heartbeat, key = self._session, self._session.heartbeat, self._key("stop")
        heartbeat.look_for_stop(key)

        is_told = False

        def is_over(is_enough: bool) -> bool:
            nonlocal is_told
            if is_enough and not is_told:  # at once: until this node's process has ended, the others' go on
                is_told = True
                with suppress(ExchangeError):
                    session.exchange.put_once(key, Stop(by=session.seat, why="enough"))
            return is_enough or heartbeat.is_alarmed() or heartbeat.stop is not None

        try:
            mine = self._start(go.settings, go.number, go.limit or None, is_over)
        finally:
            heartbeat.look_for_stop("")
        self._check()
        wanted = Stop.model_validate({"by": session.seat, "why": WHY[mine.ended]})
        stop = self._patiently(lambda: session.exchange.put_once(key, wanted))
        if stop.by >= len(session.nodes):
            raise UnreadableRecord(
                f"{key} of {session.exchange.name} names no node of the session; use an empty folder."
            )
        if stop.by != session.seat and mine.ended == "itself" and mine.exit != 0:
            # A torchrun fails when the one that hosts its rendezvous has been ended before it.
            mine = mine.model_copy(update={"ended": "us"})
        self._patiently(lambda: session.exchange.put_once(self._key("done", session.seat), mine))
        return stop, mine

    def _wait_for_go(self) -> Go | None:
        """The next round; None where the coordinator has ended the session."""
        try:
            return self._wait_for(self._key("go"), Go)
        except NodesEnded:
            if self.verdict is not None and self.verdict.kind == "finished":
                return None
            raise

    def _wait_for(self, key: str, kind: type[Record]) -> Record:
        while (found := self._patiently(lambda: self._session.exchange.get(key, kind))) is None:
            self._check()
            time.sleep(LOOK_SECONDS)
        return found

    def _patiently(self, what: Callable[[], Given]) -> Given:
        """Again and again where the exchange does not answer, until that counts as its end."""
        while True:
            try:
                return what()
            except UnreadableRecord:
                raise
            except ExchangeError:
                self._check()
                time.sleep(LOOK_SECONDS)

    def _key(self, *parts: str | int) -> str:
        return self._session.key("round", self._count, *parts)

    # -- the end of all

    def _check(self) -> None:
        """Raise :class:`NodesEnded` where the session has ended, or a node or the exchange is gone: then it is ended
        for all."""
        session, heartbeat = self._session, self._session.heartbeat
        if not heartbeat.is_alarmed():
            return
        if heartbeat.lost and heartbeat.end is None:
            raise NodesEnded(heartbeat.lost.partition(";")[0].rstrip("."))  # the place was right: it has answered
        gone = heartbeat.silent if heartbeat.silent is not None else session.seat
        raise self._ended(heartbeat.end or session.end(SessionEnd(kind="gone", by=session.seat, of=gone)))

    def _ended(self, end: SessionEnd) -> NodesEnded:
        names, seconds = self._session.nodes, self._session.life.silent
        node = names[end.of] if end.of < len(names) else "another node"
        if end.kind == "gone":
            return NodesEnded(f"node {node} has not answered for {seconds:.0f} s", node)
        if end.kind == "failed":  # its sentence says what to do: the same command may fail again, without --fresh
            return NodesEnded(f"node {node} has failed: {end.text.rstrip('.')}", node, "")
        what = "was interrupted" if end.kind == "interrupted" else "has ended the search"
        return NodesEnded(f"node {node} {what}", node)
