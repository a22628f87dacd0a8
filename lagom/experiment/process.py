# SPDX-License-Identifier: Apache-2.0
"""One process of the job from start to end: what it prints, what the log says, how fast it calls; ended when enough is
known, or when its time is up.

The job is started behind ``lagom run`` (``--bare`` for the arm ``off``) in a session of its own. To end it, SIGTERM
goes to ``lagom run``, which passes it on: a launcher such as torchrun then ends its ranks in order. Where it does not,
``trial_processes.py`` finds them.
"""

from __future__ import annotations

import contextlib
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
from typing import IO

from lagom import journal
from lagom.experiment.fingerprint import OURS, PLUGINS
from lagom.experiment.metric import Metric
from lagom.experiment.output import CHUNK_BYTES, OutputFile, OutputLines, read_output
from lagom.experiment.trial_processes import JOB, LIBC, TrialProcesses, describe
from lagom.journal.reader import Tail
from lagom.journal.schema import Base
from lagom.settings import new_job_id

LOOK_SECONDS = 0.1
#: From SIGTERM to SIGKILL: longer than torchrun gives its ranks (30 s). Where there is a budget, this share of it, so
#: that it is not exceeded by more, but enough for a job that ends in order.
GRACE_SECONDS, GRACE_SHARE, LEAST_GRACE = 60.0, 0.1, 10.0
#: A job that takes longer to end is said to.
SOON_SECONDS = 3.0
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
PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class ProcessStart:
    """How the job is started. ``lagom``: options of ``lagom run``, or None for the job without the plugin. ``grace``:
    seconds from SIGTERM to SIGKILL. ``say``: for what a user who waits has to know."""

    command: Sequence[str]
    folder: Path
    name: str
    lagom: Sequence[str] | None
    environ: Mapping[str, str] = field(default_factory=dict)
    limit: float | None = None
    metric: str = ""
    unit: str | None = None
    higher_is_better: bool = False
    enough: Callable[[Seen], bool] = lambda seen: False
    while_it_runs: Callable[[], None] = lambda: None
    sleep: Callable[[float], None] = time.sleep  # between two looks
    grace: float = GRACE_SECONDS
    say: Callable[[str], None] = lambda text: None
    begun: str = field(default_factory=new_job_id)

    @property
    def job(self) -> str:
        """The job's name: of no other one, also not in another container."""
        return f"bench-{self.begun}-{self.name}"

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
        left. Every job gets a name of its own, by which its processes are found."""
        unwanted = OURS if self.lagom is not None else (*OURS, *PLUGINS)
        kept = {name: value for name, value in os.environ.items() if name not in unwanted}
        return {**kept, "LAGOM_CACHE": "off", "LAGOM_ATLAS": "off", **self.environ, JOB: self.job}


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
    """A process that has ended: by ``itself``, by ``us`` or by its ``limit``. ``command_seconds``: of the command,
    without its launcher; None: it did not come to its end."""

    exit: int
    seconds: float
    began: float
    ended: str
    seen: Seen
    command_seconds: float | None = None


def leave_in_order() -> None:
    """From now on SIGTERM and SIGHUP raise an exception, so that the running job is ended, and what it leaves is
    removed, on the way out."""

    def leave(number: int, frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, leave)


def grace_within(budget: float | None) -> float:
    """Seconds that a process has to end, where all of them have ``budget``."""
    return GRACE_SECONDS if budget is None else min(GRACE_SECONDS, max(LEAST_GRACE, GRACE_SHARE * budget))


def run_process(start: ProcessStart) -> Ended:
    """Run it; returns when it has ended and its output was read. Ctrl-C ends it too, and is raised again."""
    began, clock = time.time(), time.monotonic()
    start.folder.mkdir(parents=True, exist_ok=True)
    start.seconds_file.unlink(missing_ok=True)
    metric = Metric(start.metric, unit=start.unit, higher_is_better=start.higher_is_better)
    seen, tail, parent = Seen(metric=metric), Tail(start.log), os.getpid()
    tail.unread()  # of an earlier process of this name, which was interrupted or thrown away with --fresh
    environ, over, ended = start.environment(), threading.Event(), "us"
    trial = TrialProcesses(environ)
    process = subprocess.Popen(
        start.line(), env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        start_new_session=True, stdin=subprocess.DEVNULL, preexec_fn=lambda: _end_with(parent),
    )  # fmt: skip
    assert process.stdout is not None
    trial.add_launcher(process.pid)
    reader = threading.Thread(target=_read, args=(process.stdout, start, seen, over), daemon=True)
    reader.start()
    try:
        ended = _watch(process, start, seen, tail, clock)
    finally:
        try:
            _end(process, start, trial)
        finally:
            trial.end(start.say, ended_well=ended == "itself" and process.returncode == 0)
            over.set()
            reader.join()
            threading.Thread(target=_discard, args=(process.stdout,), daemon=True).start()
    seen.events += tail.unread()
    return Ended(process.returncode, time.monotonic() - clock, began, ended, seen, _read_seconds(start.seconds_file))


def _end_with(parent: int) -> None:
    """In the new process: SIGTERM when we are killed. Else the job would continue during the next measurement."""
    LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
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
        start.sleep(LOOK_SECONDS)
    return "itself"


def _read(output: IO[bytes], start: ProcessStart, seen: Seen, over: threading.Event) -> None:
    """Keeps all of the output in a file, the last lines in memory, and the metric of each line that has one. Reads on
    even if the file fails: a job blocks when nobody reads its pipe."""
    copy, lines = OutputFile(start.folder / f"{start.name}.out"), OutputLines()
    for chunk in read_output(output.fileno(), over):
        copy.write(chunk)
        for line in lines.of(chunk):
            seen.take(line)
    for line in lines.rest():
        seen.take(line)
    copy.close()
    if copy.given_up:
        seen.notes.append(copy.given_up)


def _discard(output: IO[bytes]) -> None:
    """What a daemon writes from now on, which would block it, or end it with SIGPIPE."""
    with output:
        while os.read(output.fileno(), CHUNK_BYTES):
            pass


def _end(process: subprocess.Popen[bytes], start: ProcessStart, trial: TrialProcesses) -> None:
    """Ask, wait, insist: the launcher and its process group. A second Ctrl-C ends the waiting."""
    try:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                _wait(process, start, trial)
    finally:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _wait(process: subprocess.Popen[bytes], start: ProcessStart, trial: TrialProcesses) -> None:
    """Raises TimeoutExpired after the job's time to end. It is said what is waited for."""
    try:
        process.wait(SOON_SECONDS)
    except subprocess.TimeoutExpired:
        if waited_for := [one for one in trial.alive() if not one.is_controller]:
            start.say(
                f"{describe(waited_for)} has not ended {SOON_SECONDS:.0f} s after SIGTERM: it is waited for, and ended "
                f"with SIGKILL {start.grace:.0f} s after SIGTERM."
            )
        process.wait(start.grace - SOON_SECONDS)
