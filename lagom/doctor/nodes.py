# SPDX-License-Identifier: Apache-2.0
"""Whether the launchers of several nodes would find each other: this command runs on each of them, at the same time.

It does what `lagom tune --nnodes` and a start with a cached config do before they start anything, under keys of its
own, and measures how long a record takes.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lagom.doctor import Finding, Level
from lagom.doctor.libraries import find_nccl
from lagom.doctor.nccl_versions import build_id_of
from lagom.environment import find_gpu
from lagom.errors import LagomError
from lagom.nodes.enrolment import LOOK_SECONDS, WAIT_SECONDS, Session, enrol
from lagom.nodes.exchange import Exchanged, ExchangeError, Mark, NodeFacts, Record, Seconds
from lagom.nodes.heartbeat import Life
from lagom.nodes.node_facts import facts_of, node_name
from lagom.nodes.opening import open_exchange
from lagom.wire.library import plugin_path

AREA = "nodes"
SPACE = "doctor"
ROUNDS = 20
#: Between two looks for a record of another node: often, because the time until it is seen is measured.
PAUSE = 0.0005
#: A launcher that takes longer for a record waits more for its exchange than for its nodes.
SLOW = 1.0


class RecordTimes(Exchanged):
    """Of one node, the median of each: to write a record, to read one, and until it has seen those of all nodes that
    were written at the same time."""

    write: Seconds
    read: Seconds
    seen: Seconds


@dataclass(frozen=True, slots=True)
class NodesTrial:
    """What is to be tried: ``count`` nodes at ``where``, a folder or HOST:PORT; ``wait``: for the others, seconds."""

    count: int
    where: str
    wait: float = WAIT_SECONDS
    life: Life = Life()


def facts_of_node(
    words: Sequence[str], variables: Mapping[str, str], environ: Mapping[str, str], config: bytes = b""
) -> NodeFacts:
    """What this node compares with the others: ``words``, ``variables`` and ``config`` as
    :func:`lagom.nodes.node_facts.facts_of` has them, and what is installed here."""
    return facts_of(
        words, variables, plugin=build_id_of(plugin_path()), nccl=find_nccl(environ), gpu=find_gpu(), config=config
    )


def examine(trial: NodesTrial, environ: Mapping[str, str], facts: NodeFacts) -> list[Finding]:
    """One finding: all nodes exchange records, and how fast, or a sentence why not. ``facts``: that nodes compare."""
    try:
        exchange = open_exchange(trial.where, SPACE, trial.wait)
        try:
            with enrol(exchange, trial.count, node_name(environ), facts, trial.wait, trial.life) as session:
                times = measure(session)
        finally:
            exchange.close()
    except LagomError as error:
        clause, _, remedy = str(error).partition(";")
        return [Finding(Level.PROBLEM, AREA, clause.rstrip("."), remedy.strip() or "start it on all nodes.")]
    each = ", ".join(f"{node} {_milliseconds(one)}" for node, one in times.items())
    text = f"{len(times)} nodes exchange records at {trial.where} (write, read, seen by all; ms): {each}"
    if max(one.seen for one in times.values()) > SLOW:
        remedy = "name another folder, or a HOST:PORT: `lagom tune` waits so long several times for each process."
        return [Finding(Level.NOTE, AREA, text, remedy)]
    return [Finding(Level.OK, AREA, text)]


def _milliseconds(times: RecordTimes) -> str:
    return " / ".join(f"{1e3 * seconds:.1f}" for seconds in (times.write, times.read, times.seen))


def measure(session: Session) -> dict[str, RecordTimes]:
    """All nodes write a record at a time and wait for those of the others, again and again; what each of them has
    measured, by its name. Raises :class:`ExchangeError` where a node or the exchange is gone."""
    exchange, mark, seats = session.exchange, Mark(token=session.token), range(len(session.nodes))
    taken: list[tuple[float, float, float]] = []
    for number in range(ROUNDS):
        began = time.monotonic()
        exchange.put_once(session.key("trial", number, session.seat), mark)
        written = time.monotonic()
        exchange.get(session.key("trial", number, session.seat), Mark)
        read = time.monotonic()
        for seat in seats:
            _wait_for(session, session.key("trial", number, seat), Mark, PAUSE)
        taken.append((written - began, read - written, time.monotonic() - began))
    write, read, seen = (statistics.median(column) for column in zip(*taken, strict=True))
    exchange.put_once(session.key("times", session.seat), RecordTimes(write=write, read=read, seen=seen))
    found = (_wait_for(session, session.key("times", seat), RecordTimes, LOOK_SECONDS) for seat in seats)
    return dict(zip(session.nodes, found, strict=True))


def _wait_for(session: Session, key: str, kind: type[Record], pause: float) -> Record:
    while True:
        is_last = session.heartbeat.is_alarmed()  # asked before the look: what was written before the end counts
        if (found := session.exchange.get(key, kind)) is not None:
            return found
        if is_last:
            raise ExchangeError(_gone(session))
        time.sleep(pause)


def _gone(session: Session) -> str:
    heartbeat = session.heartbeat
    seat = heartbeat.silent if heartbeat.end is None else heartbeat.end.of
    if seat is None or seat >= len(session.nodes):
        return heartbeat.lost or "the trial has ended"
    return f"node {session.nodes[seat]} has ended, or does not answer; start it on all nodes"
