# SPDX-License-Identifier: Apache-2.0
"""How the launchers of all nodes find each other before any rank is started: all of them agree, or none goes on.

A *session* is one enrolment and what follows it, with keys of its own: ``<number>/seat/<i>``. A launcher takes the
first free seat; seat 0 coordinates. Once the last seat is taken and every launcher is seen to live, seat 0 writes
``<number>/begin``, once for all; once its time is up, whoever sees that. Each launcher checks by itself that those who
agreed are as many as it waits for, and alike: what is read may be written by anybody. A session that somebody has left,
or whose launchers are silent, is closed, and the others enrol in the next one. One that has ended is passed over: the
same command started again in the same folder reads nothing of the one before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from lagom.errors import LagomError
from lagom.nodes.exchange import (
    Beat,
    Begin,
    Exchange,
    ExchangeError,
    Mark,
    NoAnswer,
    NodeFacts,
    Place,
    Record,
    SessionEnd,
    to_line,
)
from lagom.nodes.heartbeat import Heartbeat, Life, LifeCheck
from lagom.nodes.node_facts import (
    MOST_NAMED,
    differences,
    list_names,
    machine_id,
    names_of,
    reason_against,
    started_twice,
)
from lagom.nodes.worker import DEADLINE, Given

WAIT_SECONDS = 300.0
LOOK_SECONDS = 0.05
#: An earlier session whose launchers do not beat for so many beats is over.
STALE_BEATS = 6.0
#: One that has enrolled and does not beat for so long is dead, unless its life is a shorter one; to ask may take half.
DEAD_SECONDS = 2 * DEADLINE
MOST_SESSIONS = 100_000
Say = Callable[[str], None]
#: The host of a store waits so long until all have read how the session ended.
LEAVE_SECONDS = 10.0


class NotEnrolled(LagomError):
    """The nodes do not agree, or are not all there: nothing was started. ``why`` as in :class:`Begin`, or ``full``;
    ``nodes``: those that are there; ``without``: those of them that have no saved config."""

    def __init__(self, text: str, why: str, nodes: Sequence[str] = (), without: Sequence[str] = ()) -> None:
        super().__init__(text)
        self.why, self.nodes, self.without = why, tuple(nodes), tuple(without)


@dataclass
class Session:
    """Launchers that have agreed. ``nodes``: their names by seat; ``key(...)``: a key of this session. Leaving it as a
    context without :meth:`finish` tells the others that this node was interrupted."""

    exchange: Exchange
    space: str
    seat: int
    token: str
    nodes: tuple[str, ...]
    heartbeat: Heartbeat
    life: Life = field(default_factory=Life)

    @property
    def node(self) -> str:
        """This one's name."""
        return self.nodes[self.seat]

    @property
    def is_coordinator(self) -> bool:
        """Whether this launcher says what is run."""
        return self.seat == 0

    def key(self, *parts: str | int) -> str:
        """Of a record of this session."""
        return "/".join((self.space, *map(str, parts)))

    def end(self, end: SessionEnd) -> SessionEnd:
        """End the session for all; returns how it has ended."""
        return self.exchange.put_once(self.key("end"), end)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, kind: object = None, error: BaseException | None = None, trace: object = None) -> None:
        with suppress(ExchangeError):
            text = to_line(str(error)) if isinstance(error, LagomError) else ""
            self.end(SessionEnd(kind="failed" if text else "interrupted", by=self.seat, of=self.seat, text=text))
            patience = min(LEAVE_SECONDS, self.life.silent)
            _leave(self.exchange, self.space, self.seat, self.token, len(self.nodes), patience)
        self.heartbeat.close()
        self.exchange.close()


def _leave(exchange: Exchange, space: str, seat: int, token: str, count: int, patience: float) -> None:
    """Say that the end was read. Whoever hosts the store waits until all have, ``patience`` seconds."""
    exchange.put_once(f"{space}/left/{seat}", Mark(token=token))
    until, left = time.monotonic() + patience, set(range(count)) - {seat} if exchange.is_host else set()
    while left and time.monotonic() < until:
        left = {one for one in left if exchange.get(f"{space}/left/{one}", Mark) is None}
        time.sleep(LOOK_SECONDS)


def enrol(
    exchange: Exchange, count: int, node: str, facts: NodeFacts, wait: float = WAIT_SECONDS, life: Life | None = None,
    say: Say = lambda text: None,
) -> Session:  # fmt: skip
    """Wait until the launchers of ``count`` nodes are there and have the same facts, ``wait`` seconds at most.

    ``node``: this one's name (:func:`lagom.nodes.node_facts.node_name`); of several that have one name the later ones
    get a number. ``say`` gets a sentence about nodes that have enrolled and no longer answer. Raises
    :class:`NotEnrolled`, on all of them, where not all agree; :class:`ExchangeError` where the exchange does not
    answer: then nobody knows, and nothing may be started.
    """
    return Enrolment(exchange, count, node, facts, wait, life or Life(), say).run()


class Enrolment:
    """One launcher on its way into a session. ``has_voted``: whether others may have counted it, so that all may have
    agreed without its knowing."""

    def __init__(
        self, exchange: Exchange, count: int, node: str, facts: NodeFacts, wait: float, life: Life, say: Say
    ) -> None:
        self.exchange, self.count, self.life, self.wait, self._say = exchange, count, life, wait, say
        self._dead, self._told = min(DEAD_SECONDS, life.silent), set[str]()
        self.place = Place(token=os.urandom(16).hex(), node=node, facts=facts, machine=machine_id(), count=count)
        self.until = time.monotonic() + max(wait - exchange.waited, 0.0)
        self._host_until = min(self.until, time.monotonic() + exchange.patience)
        self.has_voted = False
        self._seat: int | None = None
        self._known: dict[str, list[Place]] = {}

    def run(self) -> Session:
        """As :func:`enrol`."""
        for number in range(self._first(), MOST_SESSIONS):
            try:
                session = self._try(str(number))
            except BaseException:
                if self.has_voted:
                    self._withdraw(str(number))
                raise
            if session is not None:
                return session
        raise self._too_many()

    def _too_many(self) -> ExchangeError:
        return ExchangeError(f"{self.exchange.name} holds too many sessions; use an empty folder with --out.")

    def _first(self) -> int:
        """The newest session that somebody has begun: numbers are taken one after the other."""
        low, step = 0, 1
        while self._is_taken(low + step):
            low, step = low + step, 2 * step
            if low > MOST_SESSIONS:
                raise self._too_many()
        high = low + step
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_taken(middle) else (low, middle)
        return max(low, 1)

    def _is_taken(self, number: int) -> bool:
        return self._get(f"{number}/seat/0", Place) is not None

    def _try(self, space: str) -> Session | None:
        """A session that is ours, or None where the next number is to be tried."""
        if self._is_taken(int(space)) and self._is_over(space):
            return None
        self._seat = seat = self._take_seat(space)
        if seat is None:
            self._wait_for_its_end(space)
            return None
        heartbeat = Heartbeat(self.exchange, space, seat, (), self.life)
        try:
            begin = self._begin(space, seat, heartbeat)
            if begin.agreed:
                self._check_agreed(space, seat)
            places = self._places(space)
            names = names_of(places)
            if begin.agreed:
                heartbeat.watch(range(1, self.count) if seat == 0 else (0,))
                return Session(self.exchange, space, seat, self.place.token, names, heartbeat, self.life)
        except BaseException:
            heartbeat.close()
            raise
        heartbeat.close()
        self.has_voted = False  # it is decided, and not for what was voted
        if begin.why == "closed":
            return None
        _leave(self.exchange, space, seat, self.place.token, len(places), min(LEAVE_SECONDS, self.life.silent))
        raise self._refusal(begin, places, names)

    def _withdraw(self, space: str) -> None:
        """This launcher leaves before it has heard that all agree, so the others must not count it. Asked once, because
        it is ending."""
        with suppress(ExchangeError):
            closed = Begin(agreed=False, why="closed")
            if self.exchange.put_once(f"{space}/begin", closed).agreed and self._seat is not None:
                seat = self._seat
                self.exchange.put_once(f"{space}/end", SessionEnd(kind="interrupted", by=seat, of=seat))

    def _check_agreed(self, space: str, seat: int) -> None:
        """That all agree was written by one of them, or by somebody else. Raises :class:`NotEnrolled` where this
        launcher does not see the same: as many as it waits for, itself among them, and nothing that differs."""
        until = time.monotonic() + DEADLINE  # what another node has written may come late
        while len(places := self._places(space)) < self.count and time.monotonic() < until:
            time.sleep(LOOK_SECONDS)
        is_there = seat < len(places) and places[seat].token == self.place.token
        if len(places) != self.count or not is_there or reason_against(places):
            names, self.has_voted = names_of(places), False
            raise NotEnrolled(
                f"{self.exchange.name} says that {list_names(names) or 'nobody'} agreed, which are not {self.count} "
                f"nodes that have the same, with {self.place.node}; give the same --nnodes on all nodes.",
                "full", names,
            )  # fmt: skip

    def _is_over(self, space: str) -> bool:
        """Whether a session that was there before us has ended, or has no launcher that lives. One that nobody has
        begun and nobody waits in is closed: its seats belong to launchers that are dead."""
        if self._has_ended(space):
            return True
        seat_0 = LifeCheck((0,), self.life.beat, STALE_BEATS * self.life.beat)
        while seat_0.unseen and not seat_0.is_any_silent:
            self._look(seat_0, space)
            time.sleep(LOOK_SECONDS)
        if not seat_0.unseen:
            return False
        begin = self._get(f"{space}/begin", Begin)
        return begin is not None or not self._put_begin(space, agreed=False, why="closed").agreed

    def _has_ended(self, space: str) -> bool:
        """Whether that is written."""
        begin = self._get(f"{space}/begin", Begin)
        return (begin is not None and not begin.agreed) or self._get(f"{space}/end", SessionEnd) is not None

    def _check_of(self, seats: Iterable[int]) -> LifeCheck:
        """Of launchers that have enrolled beside this one."""
        return LifeCheck(seats, self.life.beat, self._dead)

    def _look(self, check: LifeCheck, space: str) -> None:
        check.look(lambda seat: self._get(f"{space}/beat/{seat}", Beat))

    def _tell_silent(self, check: LifeCheck, places: Sequence[Place]) -> None:
        """Each one once: somebody has to start its command again, and need not wait until the time is up."""
        silent = {seat for seat in check.unseen if check.is_any_silent and seat < len(places)}
        if tokens := {places[seat].token for seat in silent} - self._told:
            self._told |= tokens
            names = list_names([name for seat, name in enumerate(names_of(places)) if seat in silent])
            self._say(
                f"enrolled, but silent for {self._dead:.0f} s: {names}; if the command has ended, start it again."
            )

    def _take_seat(self, space: str) -> int | None:
        seat = 0
        while seat < self.count:
            key = f"{space}/seat/{seat}"
            if seat == 0 and not self.exchange.may_coordinate:
                if self._get(key, Place) is None:
                    self._wait_for_host()
                    continue
                seat += 1
                continue
            if self._get(key, Place) is None:
                self.has_voted = True
                if self._put_once(key, self.place).token == self.place.token:
                    return seat
            seat += 1
        self.has_voted = False
        return None

    def _wait_for_host(self) -> None:
        if time.monotonic() > self._host_until:
            raise NotEnrolled(
                f"the launcher that hosts {self.exchange.name} has not enrolled in time; start "
                "the same command on all nodes.", "late",
            )  # fmt: skip
        time.sleep(LOOK_SECONDS)

    def _begin(self, space: str, seat: int, heartbeat: Heartbeat) -> Begin:
        """How the enrolment ends. Seat 0 looks whether every other one lives, and they look at seat 0, again and
        again; once all are there, what is seen from then on counts."""
        key, seen, check = f"{space}/begin", 0, self._check_of(())
        while (begin := self._get(key, Begin)) is None:
            places = self._places(space)
            if seen < self.count and (len(places) == self.count or not check.unseen or check.is_any_silent):
                seen, check = len(places), self._check_of(range(1, len(places)) if seat == 0 else (0,))
            self._look(check, space)
            self._tell_silent(check, places)
            if why := self._outcome(places, check, seat):
                return self._put_begin(space, agreed=why == "agreed", why=why)
            if heartbeat.is_alarmed() and heartbeat.lost:
                raise ExchangeError(heartbeat.lost)
            time.sleep(LOOK_SECONDS)
        return begin

    def _outcome(self, places: Sequence[Place], check: LifeCheck, seat: int) -> str:
        """Of an enrolment; empty = not known yet, or for seat 0 to say."""
        if len(places) == self.count:  # not before: the last one, too, is to hear how it ended
            if check.is_any_silent:
                return "closed"
            if seat == 0 and not check.unseen:
                return reason_against(places) or "agreed"
        return "late" if time.monotonic() > self.until else ""

    def _get(self, key: str, kind: type[Record]) -> Record | None:
        return self._patiently(lambda: self.exchange.get(key, kind))

    def _put_once(self, key: str, record: Record) -> Record:
        return self._patiently(lambda: self.exchange.put_once(key, record))

    def _patiently(self, what: Callable[[], Given]) -> Given:
        """Again where nothing comes back, as long as others are waited for: a file system may hang for half a minute,
        and who has voted and cannot hear the outcome must not start."""
        while True:
            try:
                return what()
            except NoAnswer:
                if time.monotonic() > self.until:
                    raise

    def _put_begin(self, space: str, *, agreed: bool, why: str) -> Begin:
        return self._put_once(f"{space}/begin", Begin.model_validate({"agreed": agreed, "why": why}))

    def _places(self, space: str) -> list[Place]:
        """Those that are taken: seats are taken one after the other, and once."""
        known = self._known.setdefault(space, [])
        while len(known) < self.count:
            if (place := self._get(f"{space}/seat/{len(known)}", Place)) is None:
                break
            known.append(place)
        return known

    def _wait_for_its_end(self, space: str) -> None:
        """All seats are taken. Where one belongs to a launcher that is dead, the others see that too, and the session
        ends. Raises :class:`NotEnrolled` where all of them live, and where it has not ended in time."""
        check = self._check_of(range(self.count))
        while check.unseen and not check.is_any_silent and not self._has_ended(space):
            self._look(check, space)
            time.sleep(LOOK_SECONDS)
        names = names_of(self._places(space))
        if not check.unseen:
            raise NotEnrolled(
                f"{self.count} of {self.count} nodes are enrolled already ({list_names(names)}); give the number of "
                "nodes with --nnodes, and start the command once on each.", "full", names,
            )  # fmt: skip
        while not self._is_over(space):
            if time.monotonic() > self.until:
                raise NotEnrolled(
                    f"the other nodes ({list_names(names)}) still wait for a launcher that is dead; end them, and "
                    "start the same command on all nodes.", "full", names,
                )  # fmt: skip
            time.sleep(LOOK_SECONDS)

    def _refusal(self, begin: Begin, places: Sequence[Place], names: Sequence[str]) -> NotEnrolled:
        if begin.why == "late":
            text = (
                f"{len(places)} of {self.count} nodes after {self.wait:.0f} s: started on {list_names(names)}; start "
                "the same command on all nodes, with the same --out or --rdzv-endpoint."
            )
            return NotEnrolled(text, begin.why, names)
        if begin.why == "twice":
            text = (
                f"the command was started twice on node {started_twice(places)}; start it once on each node, and "
                "give each a NCCL_HOSTID of its own if they are several on one machine."
            )
            return NotEnrolled(text, begin.why, names)
        found = [
            f"{', '.join(clauses[:MOST_NAMED])} of {names[0]} and {names[seat]}"
            for seat, place in enumerate(places)
            if (clauses := differences(places[0], place, (names[0], names[seat])))
        ]
        text = f"not the same on all nodes: {'; '.join(found[:MOST_NAMED])}; make that the same, and start again."
        without = [name for name, place in zip(names, places, strict=True) if not place.facts.config]
        return NotEnrolled(text, begin.why, names, without)
