"""What ``lagom run`` says while the job runs: whole lines on stderr, made of the controller's log.

The terminal is the job's. So nothing is redrawn and nothing stays on the screen: a line is written when something was
decided, and now and then while a search goes on; on a terminal in colour, and the state of the search stands in the
window's title. There a line never lands in the middle of one of the job's (a progress bar): the cursor is brought to a
fresh line first, without touching what is there. A dumb terminal gets the plain lines of a file.
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
from lagom.format import format_percent
from lagom.journal import Formatter, RunState, schema
from lagom.journal.reader import Tail
from lagom.journal.schema import Base

LOOK_SECONDS = 0.5
#: Between two lines that only say that the search goes on: on a terminal, and where lines are kept.
TERMINAL_SECONDS, PLAIN_SECONDS = 10.0, 60.0
#: Values of TERM.
DUMB = ("", "dumb", "unknown")


@contextlib.contextmanager
def show_progress(folder: Path, since: float, out: TextIO | None = None) -> Iterator[None]:
    """Inside, what the log in ``folder`` gains after ``since`` (wall clock, s) is told on ``out`` (stderr)."""
    out = out or sys.stderr
    screen = Screen(out) if out.isatty() and not _is_dumb() else Plain(out)
    over = threading.Event()
    thread = threading.Thread(target=_follow, args=(folder, since, screen, over), daemon=True, name="lagom-progress")
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(5.0)
        screen.close()


def _is_dumb() -> bool:
    """Whether the terminal would show a control sequence instead of following it."""
    return os.environ.get("TERM", "") in DUMB


def _follow(folder: Path, since: float, screen: Plain, over: threading.Event) -> None:
    """The thread: nothing it meets may cost the job anything."""
    tail, progress = Tail(folder), ProgressText(screen.seconds)
    with contextlib.suppress(LagomError, OSError, ValueError):  # another schema; a terminal that is gone
        while not over.wait(LOOK_SECONDS):
            _tell(tail.unread(), since, progress, screen)
        _tell(tail.unread(), since, progress, screen)


def _tell(events: Iterable[Base], since: float, progress: ProgressText, screen: Plain) -> None:
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
        """Where the search is: nothing here."""

    def close(self) -> None:
        """Leave everything as it was found."""

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
        self._write(self._fresh_line() + captured.get())

    def status(self, text: str) -> None:
        if self._titled and text and text != self._title:
            self._title = text
            self._write(f"\x1b]2;lagom: {text}\x07")

    def close(self) -> None:
        if self._titled:
            self._write("\x1b[23;2t")

    def _fresh_line(self) -> str:
        """To the start of an empty line, from wherever the job has left the cursor: so many blanks as the terminal is
        wide leave the cursor on this line if it stood at its start, and on the next one if it did not."""
        return " " * self._console.width + "\r\x1b[K"


class ProgressText:
    """Told every event in order, with the time (monotonic, s). ``seconds``: how often a search says that it goes on."""

    def __init__(self, seconds: float) -> None:
        self.status = ""
        self._seconds = seconds
        self._said_at = float("-inf")
        self._state = RunState(keep_samples=False)
        self._formatter = Formatter(state=self._state)

    def line(self, event: Base, now: float) -> str | None:
        """What to say about it, or nothing."""
        self._state.apply(event)
        say: Callable[[Any], str | None] | None = getattr(self, f"_{event.kind}", None)
        text = None if say is None else say(event)
        if text is None and isinstance(event, schema.Move) and now - self._said_at >= self._seconds:
            text = self._progress(event)
        if text is not None:
            self._said_at = now
        return text

    # -- one method a kind of event that is said at once

    def _program(self, e: schema.Program) -> str:
        self.status = f"searching on {self._formatter.name(e.communicator)}"
        return f"{self._plainly(e)}; measured by {e.tier or 'what can be seen'}; searching"

    def _move(self, e: schema.Move) -> str | None:
        self.status = f"{e.purpose} {e.number}, {self._figures(e)}"
        if e.purpose == "baseline" and e.verdict == "baseline":
            return e.reason
        if e.verdict == "confirmed" and e.purpose == "confirm":
            return f"in force now: {self._formatter.configs(e.communicator, e.candidate)}; {_after_colon(e.reason)}"
        return None

    def _outcome(self, e: schema.Outcome) -> str:
        self.status = e.verdict.replace("_", " ")
        return self._plainly(e)

    def _drift(self, e: schema.Drift) -> str:
        self.status = "learning again"
        return self._plainly(e)

    def _standing_aside(self, e: schema.Passthrough) -> str:
        return self._plainly(e)

    def _plainly(self, e: Base) -> str:
        """The log's own line, without the time."""
        return (self._formatter.line(e) or "").partition(" ")[2]

    def _note(self, e: schema.Note) -> str | None:
        if e.level == "warning":
            return f"warning: {e.text}"
        return e.text if e.level == "notice" else None

    # -- the search as it goes on

    def _progress(self, e: schema.Move) -> str:
        z = "" if e.z is None else f", Z {e.z / 1e6:.1f} ms"
        return f"{e.purpose} {e.number}{z} {e.verdict}: {self._figures(e)}"

    def _figures(self, e: schema.Move) -> str:
        comm = self._state.comm(e.communicator)
        best = "" if comm.best_speedup is None else f", {_best_text(comm.best_speedup)}"
        sees = "" if e.resolvable is None else f", smallest detectable effect {format_percent(e.resolvable)}"
        return f"{comm.configs_tried} configs{best}{sees}, {e.lost_iterations:.1f} iterations lost"


def _best_text(speedup: float) -> str:
    """Of the best trial so far; stock is one of them."""
    return f"best so far {speedup:.3f}x stock" if speedup > 1.0 else "nothing faster than stock so far"


def _after_colon(reason: str) -> str:
    return reason.partition(": ")[2] or reason
