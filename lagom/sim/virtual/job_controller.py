# SPDX-License-Identifier: Apache-2.0
"""The real controller beside a job of virtual ranks, and the region they share: started, killed, removed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from lagom.errors import LagomError
from lagom.sim.virtual.virtual_job import Process
from lagom.wire.job_key import JOB_VARIABLES, key_and_region
from lagom.wire.library import controller_environment, controller_program

#: Generous: beside other work a controller, whose priority is lower, may need a minute for what takes it a second.
STOP_SECONDS = START_SECONDS = 180.0


class ControllerFailed(LagomError):
    """The controller ended by itself; the text quotes the end of its log."""


Beginning = Callable[[Sequence[str], Mapping[str, str], Path], Process]


def _spawned(arguments: Sequence[str], environ: Mapping[str, str], said: Path) -> Process:
    line = [*controller_program(), *arguments]
    with said.open("ab") as log:
        return subprocess.Popen(
            line,
            env=controller_environment(environ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


class JobController:
    """``python -m lagom.controller``, simulated clock; as a context manager it leaves neither process nor region."""

    def __init__(
        self,
        environ: Mapping[str, str],
        folder: Path,
        arguments: Sequence[str] = (),
        begin: Beginning | None = None,
    ) -> None:
        """``environ`` names the job (LAGOM_JOB_ID, LAGOM_SHM_DIR); the log goes to ``folder``. ``begin``: another way
        to start it than as a fresh Python."""
        self.key, self.region = key_and_region(environ)
        self.folder = folder
        self._environ = {**{k: v for k, v in os.environ.items() if not k.startswith(JOB_VARIABLES)}, **environ}
        self._arguments = [*arguments]
        self._begin = begin or _spawned
        self.process: Process | None = None

    def __enter__(self) -> JobController:
        self.start()
        return self

    def start(self) -> None:
        """Starts one; again after :meth:`kill`."""
        self.folder.mkdir(parents=True, exist_ok=True)
        line = ["--job-key", self.key, "--clock", "simulated", "--launcher", str(os.getpid())]
        line += ["--dir", str(self.folder), *self._arguments]
        self.process = self._begin(line, self._environ, self.folder / "controller.log")

    def wait_for_region(self) -> None:
        """Until the controller has made the region; raises :class:`ControllerFailed`."""
        end = time.monotonic() + START_SECONDS
        while not self.region.exists():
            self.check()
            if time.monotonic() > end:
                raise ControllerFailed(f"the controller made no region within {START_SECONDS:.0f} s.")
            time.sleep(0.01)

    def check(self) -> None:
        """Raises :class:`ControllerFailed` if the controller has ended."""
        if self.process is not None and self.process.poll() is not None:
            lines = (self.folder / "controller.log").read_text(errors="replace").strip().splitlines()
            raise ControllerFailed(f"the controller ended with {self.process.poll()}: {lines[-1] if lines else ''}")

    def send(self, number: signal.Signals) -> None:
        """SIGSTOP, SIGCONT, SIGKILL..."""
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and reaped."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        """SIGTERM; killed if it does not end in time. Safe to call twice."""
        if self.process is None or self.process.poll() is not None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def __exit__(self, *_: object) -> None:
        self.stop()
        with contextlib.suppress(OSError):  # whatever it is, it is not what went wrong
            self.region.unlink(missing_ok=True)
