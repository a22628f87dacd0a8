# SPDX-License-Identifier: Apache-2.0
"""Virtual ranks and controllers forked from a server that has imported everything: 10 ms of CPU each, not 300.

The server holds no region and has loaded no plugin: only imported modules are inherited. What a fork cannot have is an
environment of its own in ``/proc``: a module whose tests look there sets ``FRESH_PROCESSES = True``. ``lagom demo`` and
the jobs that tests start by command lines begin every process as a fresh Python anyway.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from lagom.controller.__main__ import main as controller_main
from lagom.sim.virtual import job_controller, virtual_job
from lagom.sim.virtual.rank import main as rank_main
from lagom.sim.virtual.virtual_job import Process, spawned
from lagom.wire.library import controller_environment
from tests.soak.forked import Forked, to_the_end, warm

ROOT = Path(__file__).resolve().parents[2]
MOST_BYTES = 1 << 20  # of a request: its environment is the longest part


def at_start(environ: Mapping[str, str]) -> dict[str, str]:
    """What the loader and Python read once, when a program starts."""
    return {name: value for name, value in environ.items() if name.startswith(("LD_", "PYTHON"))}


class Child:
    """A child of the server; looks like :class:`subprocess.Popen` as far as its users need it."""

    def __init__(self, server: Server, pid: int) -> None:
        self._server, self.pid = server, pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        code: int | None = self._server.ask({"poll": self.pid})
        return code

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended; raises :class:`subprocess.TimeoutExpired`."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout or 0.0)
            time.sleep(0.003)
        return code

    def send_signal(self, number: int, /) -> None:
        """As long as it runs. Only :meth:`poll` reaps it: until then its number is its own."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)


class Server:
    """The process that forks, and the socket to it. It ends when this process does, and its children with it."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # What /proc says of its children too. Numpy's threads would be started before the forks and stay behind.
        environ = {**virtual_job.neutral_environment(), "OPENBLAS_NUM_THREADS": "1"}
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        self._process = subprocess.Popen(command, cwd=ROOT, env=environ, pass_fds=[theirs.fileno()])
        theirs.close()

    def ask(self, request: dict[str, Any], fds: Sequence[int] = ()) -> Any:
        """The server's answer."""
        socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
        return json.loads(self._socket.recv(MOST_BYTES))

    def close(self) -> None:
        """Ends it."""
        self._socket.close()
        self._process.wait()

    def rank(self, arguments: Sequence[str], environ: Mapping[str, str], said: Path, fd: int) -> Process:
        """Instead of :func:`lagom.sim.virtual.virtual_job.spawned`."""
        if at_start(environ) != at_start(os.environ):
            return spawned(arguments, environ, said, fd)
        said.write_bytes(b"")
        start = {"start": "rank", "arguments": arguments[:-1], "environ": dict(environ), "said": str(said)}
        return Child(self, self.ask(start, [fd]))

    def controller(self, arguments: Sequence[str], environ: Mapping[str, str], said: Path) -> Child:
        """Instead of the one that :class:`~lagom.sim.virtual.job_controller.JobController` spawns."""
        launcher = [str(self._process.pid) if one == str(os.getpid()) else one for one in arguments]
        environ = controller_environment(environ)
        start = {"start": "controller", "arguments": launcher, "environ": environ, "said": str(said)}
        return Child(self, self.ask(start))


@contextmanager
def forked_from(server: Server) -> Iterator[None]:
    """Inside, jobs of virtual ranks and their controllers begin this way."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(virtual_job, "spawned", server.rank)
        patch.setattr(job_controller, "_spawned", server.controller)
        yield


MAINS = {"rank": partial(to_the_end, rank_main), "controller": partial(to_the_end, controller_main)}


def serve(link: socket.socket) -> None:
    """Until the other end is closed."""
    os.register_at_fork(after_in_child=link.close)
    children: dict[int, Forked] = {}
    while message := socket.recv_fds(link, MOST_BYTES, 1):
        data, fds, _, _ = message
        if not data:
            return
        request = json.loads(data)
        if "poll" in request:
            answer = children[request["poll"]].poll()
        else:
            arguments = [*request["arguments"], *map(str, fds)]
            child = Forked(MAINS[request["start"]], arguments, request["environ"], Path(request["said"]))
            children[child.pid] = child
            answer = child.pid
        for fd in fds:
            os.close(fd)
        link.send(json.dumps(answer).encode())


if __name__ == "__main__":
    warm()
    serve(socket.socket(fileno=int(sys.argv[1])))
