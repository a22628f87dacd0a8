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
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from lagom.journal.schema import Base
    from lagom.launch.progress_text import ProgressText

LOOK_SECONDS = 0.5
#: Between two lines that only say that the search goes on: on a terminal, and where lines are kept.
TERMINAL_SECONDS, PLAIN_SECONDS = 10.0, 60.0
#: Values of TERM.
DUMB = ("", "dumb", "unknown")


@contextlib.contextmanager
def shown(folder: Path, since: float, out: TextIO | None = None) -> Iterator[None]:
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
    from lagom.errors import LagomError
    from lagom.journal.tail import Tail
    from lagom.launch.progress_text import ProgressText

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
