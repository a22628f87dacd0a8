# SPDX-License-Identifier: Apache-2.0
"""A child of this process that finds everything imported: a controller at work in milliseconds instead of a second.

The parent must have no threads and hold no region; what it has imported is what the child has.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

Main = Callable[[list[str]], int]


class Forked:
    """``main(arguments)`` in a process of its own: own session, own environment, output appended to a file.

    Looks like :class:`subprocess.Popen` as far as its users need it.
    """

    def __init__(self, main: Main, arguments: Sequence[str], environ: Mapping[str, str], output: Path) -> None:
        sys.stdout.flush()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _be(main, [*arguments], environ, output)

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._reap(os.WNOHANG)

    def wait(self, timeout: float | None = None) -> int:
        """Until it has ended; raises :class:`subprocess.TimeoutExpired`."""
        end = None if timeout is None else time.monotonic() + timeout
        while (code := self._reap(os.WNOHANG if end is not None else 0)) is None:
            if end is not None and time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"forked {self.pid}", timeout or 0.0)
            time.sleep(0.002)
        return code

    def send_signal(self, number: int) -> None:
        """Only to a child that has not been reaped: its number cannot have become another's."""
        if self.returncode is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def _reap(self, options: int) -> int | None:
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, options)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode


def _be(main: Main, arguments: list[str], environ: Mapping[str, str], output: Path) -> None:
    """The child's life. Never returns."""
    code = 1
    try:
        os.setsid()
        _redirect(output)
        os.environ.clear()
        os.environ.update(environ)
        code = main(arguments)
    except SystemExit as leaving:
        code = int(leaving.code or 0)
    except BaseException:  # noqa: BLE001 - what a Python process says when it dies of an exception
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(output: Path) -> None:
    nothing = os.open(os.devnull, os.O_RDONLY)
    said = os.open(output, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.dup2(nothing, 0)
    os.dup2(said, 1)
    os.dup2(said, 2)


def to_the_end(main: Main, arguments: list[str]) -> int:
    """As a program ends: the plugin leaves the region in its destructor."""
    code = main(arguments)
    sys.stdout.flush()
    sys.stderr.flush()
    ctypes.CDLL(None).exit(code)
    return code


def warm() -> None:
    """Before the first fork: what is here now is garbage to nobody, so children do not copy it by looking at it."""
    gc.collect()
    gc.freeze()
