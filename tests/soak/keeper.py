# SPDX-License-Identifier: Apache-2.0
"""Keeps a controller beside the ranks: starts the next one when one was killed, and knows why each one ended."""

from __future__ import annotations

import random
import signal
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lagom.controller.__main__ import main as controller_main
from lagom.sim.virtual.job_controller import JobController
from tests.soak.forked import Forked
from tests.soak.process import open_files, resident_bytes

STOP_SECONDS = 180.0  # on a busy machine
REFUSED = 2  # exit code of a controller that could not take the region, and said why


def forked_controller(arguments: Sequence[str], environ: Mapping[str, str], said: Path) -> Forked:
    """The real controller, in milliseconds."""
    return Forked(controller_main, arguments, environ, said)


@dataclass
class Life:
    """One controller: its process, and how it was meant to end ("" = it runs)."""

    pid: int
    began: float
    ended_by: str = ""


class Keeper:
    """The controller of the soak, through all its lives."""

    def __init__(self, environ: Mapping[str, str], log: Path, dice: random.Random) -> None:
        self._environ, self._log, self._dice = environ, log, dice
        self._process: JobController | None = None
        self._due: float | None = None  # when the next one starts
        self._stopping_since: float | None = None
        self._pause_then = self._measured = 0.0
        self.paused_until = 0.0
        self.lives: list[Life] = []
        self.largest = self.files = 0  # bytes resident and open descriptors, the most of any life
        self.counts: Counter[str] = Counter()
        named = JobController(environ, log)
        self.region, self.key = named.region, named.key

    @property
    def is_up(self) -> bool:
        """A controller runs, and is not being stopped."""
        return self._process is not None and self._stopping_since is None

    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def has_attached(self) -> bool:
        """Whether this life's controller has said in its log which region it holds."""
        said = self._log / "controller.log"
        return bool(self.lives) and said.exists() and f"controller {self.lives[-1].pid}:" in said.read_text()

    def start(self) -> None:
        """The next life."""
        arguments = ["--seed", str(self._dice.randrange(1 << 30)), "--stable-iterations", "6"]
        self._process = JobController(self._environ, self._log, arguments, begin=forked_controller)
        self._process.start()
        assert self._process.process is not None
        self.lives.append(Life(self._process.process.pid, time.monotonic()))
        self._due = self._stopping_since = None

    def kill(self, pause: float) -> None:
        """SIGKILL; the next comes after ``pause`` seconds."""
        if self._process is not None:
            self._process.kill()
            self._over("killed", pause)

    def stop(self, pause: float) -> None:
        """SIGTERM; the next comes ``pause`` seconds after it has ended."""
        if self.is_up and self._process is not None:
            self._go_on()
            self._process.send(signal.SIGTERM)
            self._stopping_since, self._pause_then = time.monotonic(), pause

    def pause(self, seconds: float) -> None:
        """SIGSTOP for so long."""
        if self.is_up and self._process is not None:
            self._process.send(signal.SIGSTOP)
            self.paused_until = time.monotonic() + seconds

    def _go_on(self) -> None:
        if self.paused_until and self._process is not None:
            self._process.send(signal.SIGCONT)
        self.paused_until = 0.0

    def _over(self, how: str, pause: float) -> None:
        self.lives[-1].ended_by = how
        self._process, self.paused_until, self._stopping_since = None, 0.0, None
        self._due = time.monotonic() + pause

    def look(self, damaged_until: float) -> str:
        """Restarts, resumes, measures. Returns what is wrong, or nothing. Who began before ``damaged_until`` (monotonic
        clock, s) may have found the region unusable."""
        now = time.monotonic()
        if self._process is None:
            if self._due is not None and now >= self._due:
                self.start()
            return ""
        assert self._process.process is not None
        if self.paused_until and now >= self.paused_until:
            self._go_on()
        code = self._process.process.poll()
        if code is None:
            self._measure(self._process.process.pid)
            late = self._stopping_since is not None and now - self._stopping_since > STOP_SECONDS
            return f"a controller did not end within {STOP_SECONDS} s of SIGTERM" if late else ""
        return self._ended(code, excused=self.lives[-1].began < damaged_until)

    def _measure(self, pid: int) -> None:
        if time.monotonic() - self._measured > 1.0:
            self._measured = time.monotonic()
            self.largest, self.files = max(self.largest, resident_bytes(pid)), max(self.files, open_files(pid))

    def _ended(self, code: int, *, excused: bool) -> str:
        if self._stopping_since is not None and code in (0, -signal.SIGTERM):
            # Not yet ready for signals, it just ends: nothing was begun.
            self._over("stopped" if code == 0 else "stopped at its start", self._pause_then)
            return ""
        if code == REFUSED and excused:
            self._over("refused", self._dice.uniform(0.2, 1.0))
            self.counts["controllers that stood aside from a damaged region"] += 1
            return ""
        return f"a controller ended with {code} by itself; the end of {self._log}/controller.log says why"

    def close(self) -> None:
        """Whatever happened, none is left."""
        if self._process is not None:
            self._process.kill()
            self._over("killed", 0.0)
