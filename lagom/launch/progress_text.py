# SPDX-License-Identifier: Apache-2.0
"""What ``lagom run`` prints while the job runs: whole lines on stderr, made from the controller's log.

The terminal belongs to the job, so nothing is redrawn: a line is printed when something was decided, and at intervals
during a search. On a terminal the lines are coloured, the window's title shows the state of the search, and the cursor
is moved to a new line first, so that no line begins in the middle of the job's output (a progress bar). A dumb terminal
gets plain lines.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TextIO

from lagom.errors import LagomError
from lagom.format import format_count, format_percent, format_speedup
from lagom.journal import Formatter, RunState, schema
from lagom.journal.reader import Tail
from lagom.journal.schema import Base
from lagom.launch.status_text import describe_in_force, shorten

LOOK_SECONDS = 0.5
#: Between two lines that only say that the search goes on: on a terminal, and where lines are kept.
TERMINAL_SECONDS, PLAIN_SECONDS = 10.0, 60.0
#: Values of TERM.
DUMB = ("", "dumb", "unknown")
NOTHING_FASTER = ", nothing faster than plain NCCL so far"


@contextlib.contextmanager
def show_progress(folder: Path, since: float, out: TextIO | None = None) -> Iterator[None]:
    """Inside, print what the log in ``folder`` gains after ``since`` (wall clock, s) to ``out`` (stderr)."""
    out = out or sys.stderr
    is_dumb = os.environ.get("TERM", "") in DUMB  # it would show a control sequence instead of following it
    screen = Screen(out) if out.isatty() and not is_dumb else Plain(out)
    over = threading.Event()
    thread = threading.Thread(target=_follow, args=(folder, since, screen, over), daemon=True, name="lagom-progress")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5.0)
        screen.close()


def _follow(folder: Path, since: float, screen: Plain, over: threading.Event) -> None:
    """The thread. No error here may affect the job."""
    tail, progress = Tail(folder), ProgressText(screen.seconds)
    with contextlib.suppress(LagomError, OSError, ValueError):  # another schema; a terminal that is gone
        while not over.wait(LOOK_SECONDS):
            _print_events(tail.unread(), since, progress, screen)
        _print_events(tail.unread(), since, progress, screen)


def _print_events(events: Iterable[Base], since: float, progress: ProgressText, screen: Plain) -> None:
    for event in events:
        if event.t >= since and (line := progress.line(event, time.monotonic())) is not None:
            screen.say(line)
    screen.status(progress.status)


class Plain:
    """Lines for a file, a pipe or a dumb terminal."""

    seconds = PLAIN_SECONDS

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def say(self, line: str) -> None:
        """One whole line, in one write."""
        self._write(f"lagom: {line}\n")

    def status(self, text: str) -> None:
        """The state of the search; not shown here."""

    def close(self) -> None:
        """Restore what was changed."""

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._out.write(text)
            self._out.flush()


class Screen(Plain):
    """Lines for a terminal, and its title."""

    seconds = TERMINAL_SECONDS

    def __init__(self, out: TextIO) -> None:
        from rich.console import Console

        super().__init__(out)
        self._console = Console(file=out, force_terminal=True, highlight=False, soft_wrap=True)
        self._titled = os.environ.get("TERM", "") not in (*DUMB, "linux")
        self._title = ""
        if self._titled:
            self._write("\x1b[22;2t")  # keep the title that is there

    def say(self, line: str) -> None:
        from rich.text import Text

        with self._console.capture() as captured:
            self._console.print(Text.assemble(("lagom ", "bold cyan"), line))
        # To the start of an empty line from any column: as many blanks as the terminal is wide leave the cursor on this
        # line if it was at its start, and on the next line otherwise.
        self._write(" " * self._console.width + "\r\x1b[K" + captured.get())

    def status(self, text: str) -> None:
        if self._titled and text and text != self._title:
            self._title = text
            self._write(f"\x1b]2;lagom: {text}\x07")

    def close(self) -> None:
        if self._titled:
            self._write("\x1b[23;2t")


class ProgressText:
    """Turns the events of a log, in order, into lines. ``seconds``: interval of the lines during a search."""

    def __init__(self, seconds: float) -> None:
        self.status = ""
        self._seconds = seconds
        self._said_at = float("-inf")
        self._state = RunState(keep_samples=False)
        self._formatter = Formatter(state=self._state)

    def line(self, event: Base, now: float) -> str | None:
        """The line for an event, if it gets one. ``now``: monotonic clock, s."""
        self._state.apply(event)
        say: Callable[[Any], str | None] | None = getattr(self, f"_{event.kind}", None)
        said = None if say is None else say(event)
        text = describe_in_force(self._state, event) or (None if said is None else shorten(said))
        if text is None and isinstance(event, schema.Move) and now - self._said_at >= self._seconds:
            text = shorten(f"{event.purpose} {event.number}: {event.verdict}; {self._figures(event)}")
        if text is not None:
            self._said_at = now
        return text

    # -- one method for each kind of event that gets a line at once

    def _program(self, e: schema.Program) -> None:
        self.status = f"searching on {self._formatter.name(e.communicator)}"

    def _move(self, e: schema.Move) -> str | None:
        self.status = f"{e.purpose} {e.number}, {self._figures(e)}"
        if e.purpose == "baseline" and e.verdict == "baseline":
            return e.reason
        if e.verdict == "confirmed" and e.purpose == "confirm":
            comm = self._state.comm(e.communicator)
            gain = comm.last_step
            speedup = "" if gain.speedup is None else f"{format_speedup(gain.speedup, gain.low, gain.high)}: "
            return shorten(f"in force: {speedup}{self._formatter.configs(e.communicator, e.candidate)}")
        return None

    def _outcome(self, e: schema.Outcome) -> None:
        self.status = e.verdict.replace("_", " ")

    def _drift(self, e: schema.Drift) -> str:
        self.status = "learning again"
        return (self._formatter.line(e) or "").partition(" ")[2]  # without the time

    def _note(self, e: schema.Note) -> str | None:
        if e.level == "warning":
            return f"warning: {e.text}"
        return e.text if e.level == "notice" else None

    # -- during a search

    def _figures(self, e: schema.Move) -> str:
        comm = self._state.comm(e.communicator)
        best = ""
        if comm.best_speedup is not None:  # of the best trial so far; stock is one of them
            is_faster = comm.best_speedup > 1.0
            best = f", best {comm.best_speedup:.3f}x plain NCCL" if is_faster else NOTHING_FASTER
        smallest = "" if e.resolvable is None else f", detectable {format_percent(e.resolvable)}"
        return f"{format_count(comm.configs_tried, 'config')}{best}{smallest}, {e.lost_iterations:.1f} iterations lost"
