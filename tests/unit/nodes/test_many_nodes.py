# SPDX-License-Identifier: Apache-2.0
"""What a round costs beside the job's own processes, with up to 128 launchers: threads of this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lagom.nodes.exchange import Done, Exchange
from lagom.nodes.folder_exchange import FolderExchange
from lagom.nodes.heartbeat import Life
from lagom.nodes.rounds import Rounds
from lagom.nodes.store_exchange import StoreExchange
from lagom.nodes.worker import Given, Worker
from tests.ports import free_port
from tests.tiers import FULL, amount
from tests.unit.nodes.launchers import SETTINGS, Processes, at_once, join
from tests.unit.nodes.test_store_exchange import HOST
from tests.waiting import PATIENCE

ROUNDS = 5
MOST_SECONDS = 1.0
LIFE = Life(beat=1.0, silent=120.0)


class Inline(Worker):
    """Does it in the thread that asks. Each launcher has an interpreter of its own; here 128 share one, and a second
    and a third thread of each of them would measure the interpreter's lock."""

    def do(self, what: Callable[[], Given], deadline: float) -> Given:
        return what()


@pytest.mark.parametrize("kind", ["folder", "store"])
@pytest.mark.parametrize("count", amount([2, 16], [2, 16, 64, 128]))
def test_bookkeeping_of_a_round(kind: str, count: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    port = free_port()
    host = StoreExchange(HOST, port, PATIENCE, PATIENCE) if kind == "store" else None
    seconds: list[float] = []

    def launch(at: int) -> int:
        exchange: Exchange = FolderExchange(tmp_path / "x")
        exchange._worker = Inline()
        if kind == "store":
            exchange = host if at == 0 and host is not None else StoreExchange(HOST, port, PATIENCE, PATIENCE)
        process = Processes(Done(exit=0, ended="us", value=1.0))
        with join(exchange, f"n{at}", count, life=LIFE) as session:
            running = Rounds(session, process)
            if not session.is_coordinator:
                return sum(1 for _ in running.follow())
            running.run(SETTINGS, 1, None)  # until all are there
            for number in range(ROUNDS):
                began = time.monotonic()
                assert len(running.run(SETTINGS, number + 2, None).done) == count
                seconds.append(time.monotonic() - began)
            running.finish()
            return ROUNDS + 1

    def task(at: int) -> Callable[[], int]:
        return lambda: launch(at)

    found = [one.result() for one in at_once([task(at) for at in range(count)])]
    assert found == [ROUNDS + 1] * count
    with capsys.disabled():
        if FULL:
            took = f"{1e3 * min(seconds):.0f} to {1e3 * max(seconds):.0f} ms"
            print(f"\n{count} launchers, {kind}: {took} of bookkeeping a round")
    if FULL and count == 128:
        assert min(seconds) <= MOST_SECONDS, "in no round, whatever else this machine did"
