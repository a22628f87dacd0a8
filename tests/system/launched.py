# SPDX-License-Identifier: Apache-2.0
"""`lagom run` with the demo's job of virtual ranks, as a user would start it, ended when its log says something."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from lagom import journal
from lagom.journal.reader import Tail
from tests.forked_commands import Lagom
from tests.waiting import wait_until

JOB = (sys.executable, str(Path(__file__).with_name("forked_job.py")), "--ranks", "2", "--layers", "4")
#: The same job with iterations so long in real time that its search can be interrupted before it ends by itself.
UNHURRIED_JOB = (*JOB, "--real-ms", "50")


def launch(
    place: Path,
    *options: str,
    until: type | Callable[[list[Any]], bool] | None = None,
    job: Sequence[str] = JOB,
    ending: int = signal.SIGTERM,
    **environ: str,
) -> tuple[list[Any], subprocess.CompletedProcess[str]]:
    """Run it in ``place`` until an event of that kind is in its log, or the events are such (None: to its own end); the
    log's events, and what it printed."""
    (place / "shm").mkdir(exist_ok=True)
    ours = {"LAGOM_SHM_DIR": str(place / "shm"), "LAGOM_CLOCK": "simulated", "COLUMNS": "80"}
    command = ["run", *options, "--dir", str(place / "log"), "--", *job]
    process = Lagom(*command, cwd=place, env={**bare_environment(), **ours, **environ})
    if until is not None:
        threading.Thread(target=_end_after, args=(process, place / "log", until, ending)).start()
    said = process.communicate()
    assert process.returncode is not None
    return events_in(place / "log"), subprocess.CompletedProcess(command, process.returncode, *said)


def bare_environment() -> dict[str, str]:
    """That of this process without what names another job, and without the configs that earlier jobs left."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("LAGOM_", "NCCL_", "SLURM_"))}
    return {**kept, "LAGOM_CACHE": "off"}


def _end_after(process: Lagom, folder: Path, until: type | Callable[[list[Any]], bool], ending: int) -> None:
    """The signal is passed on to the job, which ends in order."""

    tail, events = Tail(folder), list[Any]()

    def is_there() -> bool:
        events.extend(tail.unread())  # what is there already is not read again at every look
        return any(isinstance(event, until) for event in events) if isinstance(until, type) else until(events)

    wait_until(lambda: process.poll() is not None or is_there(), f"{until.__name__} in {folder}")
    process.send_signal(ending)


def events_in(folder: Path) -> list[Any]:
    """What the log says so far."""
    log = folder / journal.LOG_NAME
    return list(journal.read(log)) if log.exists() else []


def has_event(folder: Path, kind: type) -> bool:
    """Whether the log has one of that kind so far."""
    return any(isinstance(event, kind) for event in events_in(folder))
