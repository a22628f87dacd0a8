# SPDX-License-Identifier: Apache-2.0
"""torch's store: one listener on one address as long as it is needed; a store that is cut, slow, foreign or gone costs
a caller a deadline and says one sentence."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lagom.errors import UsageError
from lagom.nodes import store_exchange
from lagom.nodes.exchange import ExchangeError, Mark
from lagom.nodes.rounds import RoundResult, Rounds
from lagom.nodes.store_exchange import StoreExchange, read_endpoint
from lagom.nodes.vote import vote
from tests.ports import free_port
from tests.unit.nodes.launchers import FACTS, LIFE, SETTINGS, Processes, at_once, join
from tests.unit.nodes.test_rounds import VALUE
from tests.waiting import PATIENCE, wait_until

HOST = "127.0.0.1"


class Proxy:
    """In front of a store: it can cut what is open, and take nothing more for a while."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._open: list[socket.socket] = []
        self.is_silent = False  # takes bytes, and passes none on
        self._listener = socket.create_server((HOST, 0))
        self.port = int(self._listener.getsockname()[1])
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                near, _ = self._listener.accept()
                self.connections += 1
                far = socket.create_connection((HOST, self._target))
                self._open += [near, far]
                threading.Thread(target=self._pass, args=(near, far), daemon=True).start()

    def _pass(self, near: socket.socket, far: socket.socket) -> None:
        with contextlib.suppress(OSError, ValueError):
            while True:
                for one in select.select([near, far], [], [], 0.5)[0]:
                    data = one.recv(65536)
                    if not data:
                        raise OSError
                    if not self.is_silent:
                        (far if one is near else near).sendall(data)
        self._close(near, far)

    def _close(self, *sockets: socket.socket) -> None:
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def cut(self) -> None:
        self._close(*self._open)
        self._open.clear()

    def end(self) -> None:
        self._close(self._listener)
        self.cut()


@pytest.fixture
def host() -> Iterator[StoreExchange]:
    found = StoreExchange(HOST, free_port(), PATIENCE, PATIENCE)
    yield found
    found.close()


@pytest.fixture
def proxy(host: StoreExchange) -> Iterator[Proxy]:
    found = Proxy(int(host.name.rpartition(":")[2]))
    yield found
    found.end()


def beside(host: StoreExchange) -> StoreExchange:
    address, port = read_endpoint(host.name)
    return StoreExchange(address, port, PATIENCE, PATIENCE)


def is_listening(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex((HOST, port)) == 0


def test_one_hosts_and_all_read_what_was_written_first(host: StoreExchange) -> None:
    other = beside(host)
    assert (host.may_coordinate, other.may_coordinate) == (True, False)
    assert other.get("1/key", Mark) is None
    assert host.put_once("1/key", Mark(token="aa")) == other.put_once("1/key", Mark(token="bb")) == Mark(token="aa")
    other.put("1/beat", Mark(token="cc"))
    assert host.get("1/beat", Mark) == Mark(token="cc")
    other.close()


def test_it_listens_on_the_named_address_alone_and_until_it_is_closed() -> None:
    port = free_port()
    host = StoreExchange(HOST, port, PATIENCE, PATIENCE)
    assert is_listening(port)
    with socket.socket() as one:
        assert one.connect_ex(("127.0.0.2", port)) != 0
    host.close()
    assert not is_listening(port)


def test_the_rounds_of_two_launchers_survive_a_proxy_that_cuts(host: StoreExchange, proxy: Proxy) -> None:
    other = StoreExchange(HOST, proxy.port, PATIENCE, PATIENCE)
    other.may_coordinate = other.is_host = False  # this machine has the proxy's address too, but not its port
    one, two = (each.result() for each in at_once([lambda: join(host, "a"), lambda: join(other, "b")]))

    def coordinate() -> list[RoundResult]:
        with one:
            running = Rounds(one, Processes(VALUE, until_stopped=True))
            found = [running.run(SETTINGS, number, None) for number in range(1, 6)]
            running.finish("improved")
            return found

    def follow() -> int:
        with two:
            count = 0
            for _ in Rounds(two, Processes(VALUE)).follow():
                proxy.cut()
                count += 1
            return count

    coordinated, followed = at_once([coordinate, follow])  # type: ignore[list-item]
    assert len(coordinated.result()) == followed.result() == 5  # type: ignore[arg-type]
    assert proxy.connections > 5


def test_a_store_that_answers_nothing_costs_a_deadline(host: StoreExchange, proxy: Proxy) -> None:
    other = StoreExchange(HOST, proxy.port, PATIENCE, PATIENCE)
    proxy.is_silent = True
    other._deadline = 0.3  # of this alone: a busy machine takes longer than that to connect
    with pytest.raises(
        ExchangeError, match=r"^the store at .* cannot be used \(no answer within 0.3 s\); name an address"
    ):
        other.get("1/key", Mark)
    other._deadline = PATIENCE
    proxy.is_silent = False
    proxy.cut()
    assert other.put_once("1/key", Mark(token="aa")) == Mark(token="aa")
    other.close()


def test_another_store_at_the_same_address_is_not_written_to(host: StoreExchange, proxy: Proxy) -> None:
    other = StoreExchange(HOST, proxy.port, PATIENCE, PATIENCE)
    another = StoreExchange(HOST, free_port(), PATIENCE, PATIENCE)
    proxy._target = int(another.name.rpartition(":")[2])
    proxy.cut()
    with pytest.raises(ExchangeError, match="not the store that this launcher has written to"):
        other.put_once("1/key", Mark(token="aa"))
    assert another.get("1/key", Mark) is None
    another.close()


def test_nobody_there_is_one_sentence() -> None:
    with pytest.raises(
        ExchangeError, match=r"^the store at 192.0.2.1:9 cannot be used \(.*\); name an address"
    ) as raised:
        StoreExchange("192.0.2.1", 9, 0.0, deadline=0.2)
    assert str(raised.value).isprintable()


def test_who_waits_for_a_host_has_waited_so_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The nodes are waited for by the same deadline."""
    listen, tried, port = store_exchange._listen, [0], free_port()

    def is_another_machines(host: str, port: int) -> socket.socket | None:
        tried[0] += 1
        return None if tried[0] == 1 else listen(host, port)

    def knock(exchange: StoreExchange) -> None:
        try:
            asked(exchange)
        finally:
            knocked.set()

    asked, knocked = StoreExchange._knock, threading.Event()
    monkeypatch.setattr(store_exchange, "_listen", is_another_machines)
    monkeypatch.setattr(StoreExchange, "_knock", knock)

    def host_later() -> StoreExchange:
        knocked.wait(PATIENCE)
        return StoreExchange(HOST, port, PATIENCE, PATIENCE)

    other, host = (one.result() for one in at_once([lambda: StoreExchange(HOST, port, PATIENCE, PATIENCE), host_later]))
    assert (host.is_host, other.is_host) == (True, False)
    assert host.waited > 0.0
    assert other.waited >= store_exchange.RETRY_SECONDS, "nobody was there when it knocked first"
    for one in (other, host):
        one.close()


def test_the_name_of_a_machine_that_is_loopback_on_it_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Debian writes it into /etc/hosts: no other node would reach the store."""
    known = {"node0": ["127.0.1.1"], "node1": ["127.0.1.1", "192.0.2.7"], "localhost": ["127.0.0.1"]}
    resolve = socket.getaddrinfo

    def getaddrinfo(host: str, port: int, **more: int) -> list[object]:
        return [one for address in known.get(host, [host]) for one in resolve(address, port, **more)]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    with pytest.raises(ExchangeError, match=r"^node0 is 127.0.1.1 on this machine, .*; name an address"):
        StoreExchange("node0", free_port(), 0.0)
    assert store_exchange._listen("node1", free_port()) is None, "its other address, which is not this machine's"
    for host in ("localhost", "127.0.1.1"):
        listener = store_exchange._listen(host, free_port())
        assert listener is not None, "meant for launchers of one machine"
        listener.close()


def test_a_foreign_server_is_one_sentence() -> None:
    server = socket.create_server((HOST, 0))

    def answer() -> None:
        with contextlib.suppress(OSError):
            while True:
                one, _ = server.accept()
                one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 50)
                one.close()

    threading.Thread(target=answer, daemon=True).start()
    with pytest.raises(ExchangeError, match=r"^the store at .* cannot be used") as raised:
        StoreExchange(HOST, int(server.getsockname()[1]), 0.0, deadline=0.5)
    assert str(raised.value).isprintable()
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def test_a_vote_whose_host_is_gone_does_not_start_the_command(
    host: StoreExchange, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = StoreExchange(HOST, proxy.port, PATIENCE, PATIENCE)
    other.may_coordinate = True  # alone there: it waits with seat 0
    put_once = other.put_once

    def put_and_lose(key: str, record: Any) -> Any:
        found = put_once(key, record)
        proxy.end()
        return found

    monkeypatch.setattr(other, "put_once", put_and_lose)
    found = vote(other, 2, "a", FACTS, 120.0, LIFE)
    assert (found.agreed, found.may_start, found.reason) == (False, False, "unreachable")


WITHOUT_TORCH = """
import sys
sys.modules["torch"] = None
from lagom.nodes.exchange import ExchangeError
from lagom.nodes.store_exchange import StoreExchange
try:
    StoreExchange("127.0.0.1", int(sys.argv[1]), 0.0)
except ExchangeError as error:
    print(error)
"""


def test_without_torch_it_is_one_sentence_and_nothing_else_needs_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCH, str(free_port())], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("--rdzv-endpoint needs torch")
    assert not done.stderr
    line = (
        "import sys, lagom.nodes.rounds, lagom.nodes.vote, lagom.nodes.folder_exchange; print('torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", line], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_the_environment_of_the_job_stays_as_it_is(host: StoreExchange) -> None:
    assert "TORCH_CPP_LOG_LEVEL" not in os.environ


@pytest.mark.parametrize("text", ["", "host", "host:", ":5", "host:x", "host:0", "host:65536", "host:٣"])
def test_what_is_no_endpoint_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="write HOST:PORT"):
        read_endpoint(text)


def test_an_address_of_ipv6_is_an_endpoint() -> None:
    assert read_endpoint("[::1]:29500") == ("::1", 29500)


def threads() -> set[str]:
    return set(os.listdir("/proc/self/task"))


def takes(thread: str, number: int) -> bool:
    """Whether the kernel may give a signal for this process to that thread."""
    status = Path(f"/proc/self/task/{thread}/status").read_text()
    blocked = next(line for line in status.splitlines() if line.startswith("SigBlk:"))
    return not int(blocked.split()[1], 16) >> (number - 1) & 1


def test_no_thread_of_an_exchange_takes_a_signal_that_is_for_the_job() -> None:
    """`lagom run` hands it on: what another thread takes ends the launcher, and the job stays."""
    before = threads()
    session = join(StoreExchange(HOST, free_port(), deadline=PATIENCE), "a", count=1)
    try:
        ours = threads() - before
        wait_until(lambda: not any(takes(one, signal.SIGTERM) for one in ours), "threads that leave the signal")
        assert len(ours) >= 3  # the store, its client, the heartbeat
    finally:
        session.__exit__()
