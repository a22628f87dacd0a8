# SPDX-License-Identifier: Apache-2.0
"""torch's TCPStore, for nodes without a shared folder: one launcher hosts it, and listens on one address and port as
long as it has the exchange open. A store has no authentication.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import Any

from lagom.errors import UsageError
from lagom.nodes.exchange import MOST_BYTES, Exchange, ExchangeError, NoAnswer
from lagom.nodes.worker import DEADLINE, Given

#: torch is imported in the first of them: 6 s where the machine is busy, more from a cold network disk.
IMPORT_DEADLINE = 120.0
RETRY_SECONDS = 0.5
#: By which a client that lost its connection knows the store that it has written to.
IDENTITY = "store"
LOG_LEVEL = "TORCH_CPP_LOG_LEVEL"
#: Of /etc/hosts. By another name a machine may be known to itself as 127.0.1.1, as Debian writes it there.
LOCAL_NAMES = ("localhost", "localhost.localdomain", "ip6-localhost", "ip6-loopback")


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
        super().__init__(f"{host}:{port}", deadline)
        self._address, self.patience = (host, port), patience
        self._client: Any = None
        self._server: Any = None
        self._identity = b""
        # Whoever hosts it listens before it imports torch: whether anybody does is known at once, and without torch.
        listener = self._in_time(lambda: _listen(host, port))
        self.may_coordinate = self.is_host = listener is not None
        try:
            if listener is None:
                self._again(self._knock)
            self._in_time(_import_store, IMPORT_DEADLINE)
            if listener is not None:
                self._identity = os.urandom(16).hex().encode()
                self._server = self._in_time(lambda: self._ask(lambda: _serve(host, port, listener)))
        except BaseException:
            if listener is not None:
                listener.close()
            raise
        self._again(lambda: self._ask(lambda: None, is_connected=True))

    def _again(self, what: Callable[[], None]) -> None:
        """Until it succeeds, or the patience with whoever is to host the store is at its end."""
        begun, spent = time.monotonic(), self.waited
        while True:
            try:
                return self._in_time(what)
            except ExchangeError:
                if self.waited > self.patience:
                    raise
                time.sleep(RETRY_SECONDS)
            finally:
                self.waited = spent + time.monotonic() - begun

    def close(self) -> None:
        """Let go of the store; where this launcher hosts it, nobody listens any more."""
        if self._client is not None or self._server is not None:
            with suppress(NoAnswer):
                self._in_time(self._let_go)
        super().close()

    def _let_go(self) -> None:
        self._client = self._server = None  # the last reference: torch ends the thread that listens

    def _leave_behind(self) -> None:
        self._client = None

    def _put_once(self, key: str, data: bytes) -> bytes:
        return self._ask(lambda: _as_bytes(self._client.compare_set(key, "", data.decode())), is_connected=True)

    def _put(self, key: str, data: bytes) -> None:
        self._ask(lambda: self._client.set(key, data.decode()), is_connected=True)

    def _get(self, key: str) -> bytes | None:
        def get() -> bytes | None:
            return _as_bytes(self._client.get(key)) if self._client.check([key]) else None

        return self._ask(get, is_connected=True)

    def _ask(self, what: Callable[[], Given], *, is_connected: bool = False) -> Given:
        """Something of torch, in the thread. A connection that was cut is made anew once: all that is asked may be
        asked twice."""
        try:
            if is_connected:
                if self._client is not None:
                    with suppress(Exception):
                        return what()
                self._client = self._connect()
            return what()
        except ExchangeError:
            self._client = None
            raise
        except Exception as error:  # noqa: BLE001 - of torch: several kinds, and texts with stack traces
            self._client = None
            raise ExchangeError(self._gone(_first_line(error))) from None

    def _gone(self, why: str) -> str:
        return (
            f"the store at {self.name} cannot be used ({why}); name an address of one of the nodes and a port that is "
            "free with --rdzv-endpoint, and start the same command on all of them."
        )

    def _knock(self) -> None:
        """In the thread: whether anybody listens there. torch's own client asks a foreign server for seconds."""
        try:
            with socket.create_connection(self._address, timeout=self._deadline):
                pass
        except OSError as error:
            raise ExchangeError(self._gone(_first_line(error))) from None

    def _connect(self) -> Any:
        """In the thread."""
        self._knock()
        client = _store(*self._address, self._deadline)
        if self.is_host:
            found = _as_bytes(client.compare_set(IDENTITY, "", self._identity.decode()))
        elif client.check([IDENTITY]):
            found = _as_bytes(client.get(IDENTITY))
        else:  # a client that is here before the host has written must not write it: the host would not know its store
            raise ExchangeError(self._gone("no launcher that hosts it has written to it"))
        if len(found) > MOST_BYTES or (self._identity and found != self._identity):
            raise ExchangeError(self._gone("it is not the store that this launcher has written to"))
        self._identity = found
        return client


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
    """A socket that listens on this address alone; None where it is another machine's, or in use. Raises
    :class:`ExchangeError` where the name of a machine is on it an address that no other machine reaches."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError:
        return None
    addresses = found if _is_meant_to_be_here(host) else [one for one in found if not _is_loopback(one[4][0])]
    if not addresses:
        raise ExchangeError(
            f"{host} is {found[0][4][0]} on this machine, where no other node reaches it; name an address of its "
            "network with --rdzv-endpoint, the same on all nodes."
        )
    family, kind, number, _, address = addresses[0]
    listener = socket.socket(family, kind, number)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(1024)
    except OSError:
        listener.close()
        return None
    return listener


def _is_meant_to_be_here(host: str) -> bool:
    """Whether it is an address, or the name that each machine has for itself: launchers of one machine may meet."""
    if host in LOCAL_NAMES:
        return True
    with suppress(ValueError):
        ipaddress.ip_address(host.partition("%")[0])
        return True
    return False


def _is_loopback(address: str | int) -> bool:
    return ipaddress.ip_address(str(address).partition("%")[0]).is_loopback


def _serve(host: str, port: int, listener: socket.socket) -> Any:
    return _store(host, port, DEADLINE, is_master=True, master_listen_fd=listener.detach())


def _as_bytes(value: Any) -> bytes:
    return value.encode() if isinstance(value, str) else bytes(value)


def _first_line(error: Exception) -> str:
    """Of torch's text, which goes on with a stack trace."""
    text = (str(error).splitlines() or [type(error).__name__])[0]
    return "".join(one for one in text if one.isprintable())[:160].rstrip(". ")
