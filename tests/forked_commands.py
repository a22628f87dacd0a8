# SPDX-License-Identifier: Apache-2.0
"""`lagom ...` in a process forked from one that has imported every command: 0.05 s of processor time where a new Python
takes 0.3 to 0.8. It has its own file descriptors, folder, environment and signals, and ends as Python ends. Of what
Python reads when it starts only PYTHONPATH and PYTHONUNBUFFERED are followed.
"""

from __future__ import annotations

import atexit
import functools
import importlib
import io
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from lagom.cli.main import main
from tests.soak.forked import warm

ROOT = Path(__file__).resolve().parents[1]
MOST_BYTES = 1 << 20  # of a request: its environment is the longest part
#: What commands import when they are called.
NEEDED = (
    *("lagom.launch.cached_config", "lagom.launch.run_job", "lagom.launch.start_variables", "lagom.search.strategies"),
    *("lagom.report.read_run", "lagom.report.run_text", "lagom.report.tuning_report", "lagom.report.advice_text"),
    *("lagom.doctor", "lagom.watch.prometheus", "lagom.watch.screen", "lagom.convert", "lagom.bench.schedule"),
    *("lagom.bench.table", "lagom.tune", "lagom.report.profile_report", "rich.console", "typer.rich_utils"),
)


class Server:
    """The process that forks. It ends when this one does."""

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # Numpy's threads would be started before the forks and stay behind.
        environ = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", __name__, str(theirs.fileno())]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=environ, pass_fds=[theirs.fileno()], stdin=quiet, stdout=quiet
        )
        theirs.close()
        self._turn = threading.Lock()
        atexit.register(self.close)

    def ask(self, request: dict[str, Any], fds: tuple[int, ...] = ()) -> Any:
        """The server's answer, to one thread at a time."""
        with self._turn:
            try:
                socket.send_fds(self._socket, [json.dumps(request).encode()], fds)
                return json.loads(self._socket.recv(MOST_BYTES))
            except BaseException:  # a test's time limit: the answer would be taken for that to the next request
                server.cache_clear()
                raise

    def close(self) -> None:
        """Ends it."""
        self._socket.close()
        self._process.wait()


@functools.cache
def server() -> Server:
    """The one of this process, started when it is needed."""
    return Server()


class Lagom:
    """`lagom` with these arguments; looks like :class:`subprocess.Popen` as far as its users need it. Each stream is a
    file or descriptor; None: its input is empty, its output is a file that :meth:`communicate` reads."""

    def __init__(
        self,
        *arguments: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        input: str = "",
        stdout: IO[Any] | int | None = None,
        stderr: IO[Any] | int | None = None,
    ) -> None:
        self.returncode: int | None = None
        self._lock, self._server = threading.RLock(), server()
        self._input, self.stdout, self.stderr = (tempfile.TemporaryFile("w+") for _ in range(3))  # noqa: SIM115
        self._input.write(input)
        self._input.seek(0)
        request = {"arguments": arguments, "cwd": str(cwd or Path.cwd()), "environ": dict(env or os.environ)}
        chosen = (self._input, self.stdout if stdout is None else stdout, self.stderr if stderr is None else stderr)
        fds = tuple(one if isinstance(one, int) else one.fileno() for one in chosen)
        self.pid: int = self._server.ask(request, fds)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        with self._lock:
            if self.returncode is None:
                self.returncode = self._server.ask({"poll": self.pid})
            return self.returncode

    def wait(self) -> int:
        """Until it has ended."""
        began = time.monotonic()
        while (code := self.poll()) is None:
            time.sleep(min(0.05, 0.003 + 0.1 * (time.monotonic() - began)))
        return code

    def send_signal(self, number: int) -> None:
        """As long as it runs. Only :meth:`poll` reaps it: until then its number is its own."""
        with self._lock:
            if self.poll() is None:
                os.kill(self.pid, number)

    def said(self) -> str:
        """What stands on its output by now."""
        return os.pread(self.stdout.fileno(), MOST_BYTES, 0).decode()

    def communicate(self) -> tuple[str, str]:
        """Its output and errors, once it has ended."""
        self.wait()
        texts = []
        for file in (self.stdout, self.stderr):
            file.seek(0)
            texts.append(file.read())
            file.close()
        self._input.close()
        return texts[0], texts[1]


def lagom(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """The command run to its end."""
    process = Lagom(*arguments, **options)
    out, err = process.communicate()
    assert process.returncode is not None
    return subprocess.CompletedProcess(["lagom", *arguments], process.returncode, out, err)


def _be(request: dict[str, Any], fds: list[int]) -> None:
    """What a new Python would find, then the command; raises SystemExit, or what the command raises."""
    for stream, fd in enumerate(fds):
        os.dup2(fd, stream)
        os.close(fd)
    os.environ.clear()
    os.environ.update(request["environ"])
    os.chdir(request["cwd"])
    sys.path[1:1] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    sys.stdin, sys.stdout = io.TextIOWrapper(open(0, "rb", closefd=False)), _writer(1)  # noqa: SIM115
    sys.stderr = _writer(2)
    sys.__stdin__, sys.__stdout__, sys.__stderr__ = sys.stdin, sys.stdout, sys.stderr
    sys.argv = ["lagom", *request["arguments"]]
    main()
    sys.exit(0)


def _writer(fd: int) -> io.TextIOWrapper:
    unbuffered = bool(os.environ.get("PYTHONUNBUFFERED"))
    stream = open(fd, "wb", buffering=0 if unbuffered else -1, closefd=False)  # noqa: SIM115
    by_line = not unbuffered and (fd == 2 or os.isatty(fd))
    return io.TextIOWrapper(stream, encoding="utf-8", line_buffering=by_line, write_through=unbuffered)


def serve(link: socket.socket) -> None:
    """Until the other end is closed; in a child, until its command has ended."""
    while message := socket.recv_fds(link, MOST_BYTES, 3):
        data, fds, _, _ = message
        if not data:
            return
        request = json.loads(data)
        if "poll" in request:
            pid, status = os.waitpid(request["poll"], os.WNOHANG)
            link.send(json.dumps(os.waitstatus_to_exitcode(status) if pid else None).encode())
            continue
        if (pid := os.fork()) == 0:
            link.close()
            _be(request, fds)
        for fd in fds:
            os.close(fd)
        link.send(json.dumps(pid).encode())


if __name__ == "__main__":
    for module in NEEDED:
        importlib.import_module(module)
    warm()
    serve(socket.socket(fileno=int(sys.argv[1])))
