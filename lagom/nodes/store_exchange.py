# SPDX-License-Identifier: Apache-2.0
"""torch's TCPStore, for nodes without a shared folder: one launcher hosts it, and listens on one address and port as
long as it has the exchange open.

A store has no authentication. Every call runs in a thread of its own, so that a store that is slow, stopped or gone
keeps its caller no longer than a deadline.
"""

from __future__ import annotations

import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as TookTooLong
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any, TypeVar

from lagom.errors import UsageError
from lagom.nodes.exchange import MOST_BYTES, Exchange, ExchangeError
from lagom.nodes.heartbeat import leave_signals

#: Seconds that a call may take, and that making a connection may take.
DEADLINE, CONNECT_DEADLINE = 5.0, 15.0
#: torch is imported in the first of them: 6 s where the machine is busy, more from a cold network disk.
IMPORT_DEADLINE = 120.0
RETRY_SECONDS = 0.5
#: By which a client that lost its connection knows the store that it has written to.
IDENTITY = "store"
LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"
Given = TypeVar("Given")


def read_endpoint(text: str) -> tuple[str, int]:
    """(host, port) of ``HOST:PORT`` or ``[IPV6]:PORT``; raises :class:`UsageError`."""
    host, _, port = text.rpartition(":")
    if not host or not (port.isascii() and port.isdecimal()) or not 0 < int(port) < 1 << 16:
        raise UsageError(f"--rdzv-endpoint {text} is not understood; write HOST:PORT, a node and a port that is free.")
    return host.strip("[]"), int(port)


class StoreExchange(Exchange):
    """Records in the store at ``host:port``. The first launcher on the machine that has this address hosts it; all
    others wait for it, ``patience`` seconds. Raises :class:`ExchangeError` where there is none by then, or no torch."""

    def __init__(self, host: str, port: int, patience: float = 300.0, deadline: float = DEADLINE) -> None:
        self.name = f"{host}:{port}"
        self._address, self._deadline = (host, port), deadline
        self._client: Any = None
        self._worker: _Worker | None = None
        self._lock = threading.Lock()
        self._call(_import_store, IMPORT_DEADLINE)
        listener = _listen(host, port)
        self.may_coordinate = self.is_host = listener is not None
        self._server = None if listener is None else self._call(lambda: _serve(host, port, listener), CONNECT_DEADLINE)
        self._identity = os.urandom(16).hex().encode() if self.may_coordinate else b""
        self._connect_first(patience)

    def _connect_first(self, patience: float) -> None:
        end = time.monotonic() + patience
        while True:
            try:
                self._call(lambda: None)
                return
            except ExchangeError:
                if time.monotonic() > end:
                    raise
            time.sleep(RETRY_SECONDS)

    def close(self) -> None:
        """Let go of the store; where this launcher hosts it, nobody listens any more."""
        with self._lock:
            if self._worker is not None:
                with suppress(TookTooLong):
                    self._worker.ask(self._let_go).result(self._deadline)
            self._drop()
            self._server = None

    def _let_go(self) -> None:
        self._client = self._server = None  # the last reference: torch ends the thread that listens

    def _put_once(self, key: str, data: bytes) -> bytes:
        return self._call(lambda: _as_bytes(self._client.compare_set(key, "", data.decode())))

    def _put(self, key: str, data: bytes) -> None:
        self._call(lambda: self._client.set(key, data.decode()))

    def _get(self, key: str) -> bytes | None:
        return self._call(lambda: _as_bytes(self._client.get(key)) if self._client.check([key]) else None)

    def _call(self, what: Callable[[], Given], deadline: float = 0.0) -> Given:
        """Do it in the thread: connected, unless it has a deadline of its own. A connection that was cut is made anew
        once: all that is asked may be asked twice. A thread that does not come back is left behind."""
        connects = deadline == 0.0

        def connected() -> Given:
            if not connects:
                return what()
            if self._client is not None:
                with suppress(Exception):
                    return what()
            self._client = self._connect()
            return what()

        with self._lock:
            if self._worker is None:
                self._worker = _Worker()
            limit = deadline or (self._deadline if self._client is not None else CONNECT_DEADLINE)
            try:
                return self._worker.ask(connected).result(limit)
            except ExchangeError:
                self._client = None
                raise
            except TookTooLong as error:
                self._drop()
                raise ExchangeError(self._gone(f"no answer within {limit:g} s")) from error
            except Exception as error:  # noqa: BLE001 - of torch: several kinds, and texts with stack traces
                self._drop()
                raise ExchangeError(self._gone(_first_line(error))) from None

    def _drop(self) -> None:
        if self._worker is not None:
            self._worker.end()
        self._worker = self._client = None

    def _gone(self, why: str) -> str:
        return (
            f"the store at {self.name} cannot be used ({why}); name an address of one of the nodes and a port that is "
            "free with --rdzv-endpoint, and start the same command on all of them."
        )

    def _connect(self) -> Any:
        """In the thread. torch's own client asks a foreign server for seconds, so that one is tried first by hand."""
        host, port = self._address
        with socket.create_connection((host, port), timeout=self._deadline):
            pass
        client = _store(host, port, self._deadline)
        found = _as_bytes(client.compare_set(IDENTITY, "", (self._identity or os.urandom(16).hex().encode()).decode()))
        if len(found) > MOST_BYTES or (self._identity and found != self._identity):
            raise ExchangeError(self._gone("it is not the store that this launcher has written to"))
        self._identity = found
        return client


class _Worker:
    """A daemon thread that does one thing after the other."""

    def __init__(self) -> None:
        self._tasks: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="lagom-store").start()

    def ask(self, what: Callable[[], Given]) -> Future[Given]:
        future: Future[Given] = Future()
        self._tasks.put((what, future))
        return future

    def end(self) -> None:
        self._tasks.put(None)

    def _run(self) -> None:
        leave_signals()  # torch starts threads in here
        while (task := self._tasks.get()) is not None:
            what, future = task
            try:
                future.set_result(what())
            except BaseException as error:  # noqa: BLE001 - whoever asked gets it
                future.set_exception(error)
            del task, what, future


@contextmanager
def _quiet() -> Iterator[None]:
    """Without torch's warnings and stack traces on stderr; the job's environment stays as it is."""
    before = os.environ.get(LOG_LEVEL)
    os.environ[LOG_LEVEL] = "FATAL"
    try:
        yield
    finally:
        os.environ.pop(LOG_LEVEL, None)
        if before is not None:
            os.environ[LOG_LEVEL] = before


def _import_store() -> type[Any]:
    with _quiet():
        try:
            from torch.distributed import TCPStore
        except ImportError:
            raise ExchangeError(
                "--rdzv-endpoint needs torch, which this Python does not have; run lagom with the Python of the job, "
                "or name a folder that all nodes share with --out."
            ) from None
    return TCPStore


def _store(host: str, port: int, deadline: float, **options: Any) -> Any:
    return _import_store()(host, port, timeout=timedelta(seconds=deadline), wait_for_workers=False, **options)


def _listen(host: str, port: int) -> socket.socket | None:
    """A socket that listens on this address alone; None where it is another machine's, or in use."""
    try:
        family, kind, number, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except OSError:
        return None
    listener = socket.socket(family, kind, number)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError:
        listener.close()
        return None
    return listener


def _serve(host: str, port: int, listener: socket.socket) -> Any:
    return _store(host, port, DEADLINE, is_master=True, master_listen_fd=listener.detach())


def _as_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _first_line(error: Exception) -> str:
    """Of torch's text, which goes on with a stack trace."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return "".join(one for one in text if one.isprintable())[:160].rstrip(". ")
