# SPDX-License-Identifier: Apache-2.0
"""One process of the job from start to end: what it prints, what the log says, how fast it calls; ended when enough is
known, or when its time is up.

The job is started behind ``lagom run`` (``--bare`` for the arm ``off``) in a session of its own. To end it, SIGTERM
goes to ``lagom run``, which passes it on: a launcher such as torchrun then ends its ranks in order.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from lagom import journal
from lagom.bench.fingerprint import OURS, PLUGINS
from lagom.bench.metric import Metric
from lagom.bench.output import CHUNK_BYTES, OutputFile, OutputLines
from lagom.journal.reader import Tail
from lagom.journal.schema import Base

LOOK_SECONDS = 0.1
#: From SIGTERM to SIGKILL. Longer than a launcher gives its own ranks (torchrun: 30 s), or they would be left behind.
GRACE_SECONDS = 60.0
#: The saved config is written just after the outcome: the job is not ended sooner.
AFTER_OUTCOME_SECONDS = 1.0
#: Lines of the job's output that are kept: an error of its own and the launcher's report on it (torchrun: 40 lines).
OUTPUT_LINES = 200
KEPT_LINES, KEPT_COLUMNS = 12, 400
#: An exception as Python ends a traceback with it, also where torch names the rank first.
PYTHONS_ERROR = re.compile(r"^(\[\w+\]:\s?)?[\w.]*(Error|Exception|Interrupt)\b: \S")
#: How torchrun begins its report on a rank that failed. The output of the rank itself is before it.
LAUNCHERS_ACCOUNT = re.compile(r"^E\d{4} .* torch/distributed/elastic/\S+ (failed \(exitcode: -?\d+\) local_rank: \d+)")
LAUNCHERS_LINE = re.compile(r"^[EIW]\d{4} .*torch/distributed/elastic/")
#: A warning of torch that ends no job: "process group was not destroyed" comes after the real reason.
TORCHS_REMARK = re.compile(r"^\[\w+\]:\[[IW]\d{4} ")
#: Prefix of the lines that `lagom run` prints between the job's own.
OUR_LINE = "lagom: "
_LIBC = ctypes.CDLL(None)
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ProcessStart:
    """How the job is started. ``lagom``: options of ``lagom run``, or None for the job without the plugin."""

    command: Sequence[str]
    folder: Path
    name: str
    lagom: Sequence[str] | None
    environ: Mapping[str, str] = field(default_factory=dict)
    limit: float | None = None
    metric: str = ""
    unit: str = ""
    enough: Callable[[Seen], bool] = lambda seen: False
    while_it_runs: Callable[[], None] = lambda: None

    @property
    def log(self) -> Path:
        """The log folder."""
        return self.folder / self.name

    @property
    def seconds_file(self) -> Path:
        """Where the launcher writes how long the command itself ran."""
        return self.folder / f"{self.name}.seconds"

    def line(self) -> list[str]:
        """The whole command line. Every arm has the same launcher, so that what it takes is in none of their times."""
        options = ["--bare"] if self.lagom is None else ["--dir", str(self.log), *self.lagom]
        timed = ["--seconds-file", str(self.seconds_file)]
        return [sys.executable, "-m", "lagom", "run", *timed, *options, "--", *self.command]

    def environment(self) -> dict[str, str]:
        """The caller's environment, without the variables of another tuning run and without configs that other jobs
        left; the job gets its own name."""
        unwanted = OURS if self.lagom is not None else (*OURS, *PLUGINS)
        kept = {name: value for name, value in os.environ.items() if name not in unwanted}
        named = {} if self.lagom is None else {"LAGOM_JOB_ID": f"bench-{os.getpid()}-{self.name}"}
        return {**kept, **named, "LAGOM_CACHE": "off", "LAGOM_ATLAS": "off", **self.environ}


@dataclass
class Seen:
    """Log events and output of a process so far."""

    events: list[Base] = field(default_factory=list)
    metric: Metric = field(default_factory=Metric)
    lines: deque[str] = field(default_factory=lambda: deque(maxlen=OUTPUT_LINES))  # the last ones
    notes: list[str] = field(default_factory=list)  # problems with our own files

    def take(self, line: str) -> None:
        """One more line of the output."""
        self.lines.append(line.rstrip()[:KEPT_COLUMNS])
        if not line.startswith(OUR_LINE):
            self.metric.read(line, time.time())

    def last_lines(self) -> list[str]:
        """The few lines that say how the job ended: up to the first error that Python or the launcher
        reported, since what the launcher prints later does not hold the reason; else the last ones."""
        lines = list(self.lines)
        ends = (at for at, line in enumerate(lines, 1) if PYTHONS_ERROR.match(line) or LAUNCHERS_ACCOUNT.match(line))
        return lines[: next(ends, len(lines))][-KEPT_LINES:]

    def outcomes(self) -> list[journal.Outcome]:
        """How the searches, or the comparison, ended."""
        return [event for event in self.events if isinstance(event, journal.Outcome)]

    def is_passthrough(self) -> bool:
        """Whether nothing will ever be tuned: there are communicators, and each is a passthrough."""
        passthrough = {event.communicator for event in self.events if isinstance(event, journal.Passthrough)}
        known = {event.communicator for event in self.events if isinstance(event, journal.Communicator)}
        return bool(known) and known <= passthrough


@dataclass
class Ended:
    """A process that has ended: by ``itself``, by ``us`` or by its ``limit``."""

    exit: int
    seconds: float
    began: float
    ended: str
    seen: Seen
    command_seconds: float | None = (
        None  # of the command itself, without its launcher; None: it did not come to its end
    )


def leave_in_order() -> None:
    """From now on SIGTERM and SIGHUP raise an exception, so that the running job is ended, and what it leaves is
    removed, on the way out."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def run_process(start: ProcessStart) -> Ended:
    """Run it; returns when it has ended and its output was read. Ctrl-C ends it too, and is raised again."""
    began, clock = time.time(), time.monotonic()
    start.folder.mkdir(parents=True, exist_ok=True)
    start.seconds_file.unlink(missing_ok=True)
    seen, tail, parent = Seen(metric=Metric(start.metric, unit=start.unit)), Tail(start.log), os.getpid()
    process = subprocess.Popen(
        start.line(), env=start.environment(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, stdin=subprocess.DEVNULL, preexec_fn=lambda: _end_with(parent),
    )  # fmt: skip
    reader = threading.Thread(target=_read, args=(process, start, seen), daemon=True)
    reader.start()
    try:
        ended = _watch(process, start, seen, tail, clock)
    finally:
        _end(process)
        reader.join(GRACE_SECONDS)
    seen.events += tail.unread()
    return Ended(process.returncode, time.monotonic() - clock, began, ended, seen, _read_seconds(start.seconds_file))


def _end_with(parent: int) -> None:
    """In the new process: SIGTERM when we are killed. Else the job would continue during the next measurement."""
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGTERM)


def _read_seconds(file: Path) -> float | None:
    try:
        return float(file.read_text())
    except (OSError, ValueError):
        return None


def _watch(process: subprocess.Popen[bytes], start: ProcessStart, seen: Seen, tail: Tail, clock: float) -> str:
    while process.poll() is None:
        seen.events += tail.unread()
        start.while_it_runs()
        if start.limit is not None and time.monotonic() - clock > start.limit:
            return "limit"
        if start.enough(seen):
            time.sleep(AFTER_OUTCOME_SECONDS)
            return "us" if process.poll() is None else "itself"
        time.sleep(LOOK_SECONDS)
    return "itself"


def _read(process: subprocess.Popen[bytes], start: ProcessStart, seen: Seen) -> None:
    """Keeps all of the output in a file, the last lines in memory, and the metric of each line that has one. Reads to
    the end of the pipe even if the file fails: a job blocks when nobody reads its pipe."""
    assert process.stdout is not None
    pipe = process.stdout.fileno()
    copy, lines = OutputFile(start.folder / f"{start.name}.out"), OutputLines()
    for chunk in iter(lambda: os.read(pipe, CHUNK_BYTES), b""):
        copy.write(chunk)
        for line in lines.of(chunk):
            seen.take(line)
    for line in lines.rest():
        seen.take(line)
    copy.close()
    if copy.given_up:
        seen.notes.append(copy.given_up)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ask, wait, insist: the whole session, so that no rank is left. A second Ctrl-C ends the waiting."""
    try:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(GRACE_SECONDS)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
