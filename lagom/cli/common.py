# SPDX-License-Identifier: Apache-2.0
"""What several commands share: an argument, and printing to standard output and stderr."""

from __future__ import annotations

import errno
import shutil
import sys
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.cli import complete

if TYPE_CHECKING:
    from rich.console import Console

LogFolder = Annotated[
    Path | None,
    typer.Argument(
        metavar="[LOG]",
        help="Log folder or decisions.jsonl; default: the newest ./lagom-*.",
        show_default=False,
        autocompletion=complete.log_folders,
    ),
]
NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)


def put(line: str) -> None:
    """At once, so that a pipe sees it; a closed pipe (`lagom log | head`) ends the command quietly."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        sys.stdout = None  # type: ignore[assignment]
        raise typer.Exit from None


def say(prefix: str, text: str, *, whole: bool = False) -> None:
    """A sentence on stderr; on a terminal its lines are broken between words, unless it is to be copied ``whole``."""
    lines = f"{prefix}{text}".split("\n")
    if sys.stderr.isatty() and not whole:
        columns = shutil.get_terminal_size().columns
        lines = [
            textwrap.fill(line, columns, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)
            for line in lines
        ]
    print("\n".join(lines), file=sys.stderr, flush=True)


def console(pipe_columns: int = 120) -> Console:
    """Standard output, with at least so many columns where it is no terminal: a table in a file is not cut short."""
    from rich.console import Console

    found = Console()
    if not found.is_terminal:
        found.width = max(found.width, pipe_columns)
    return found


def flush() -> None:
    """What Python would else do on its way out. A closed pipe is no error; any other OSError is raised."""
    try:
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        sys.stdout = None  # type: ignore[assignment]


def is_unwritten(error: OSError) -> bool:
    """Whether it says that output found no room, which is no bug: only a file that cannot be opened has its name in the
    error. Nothing more is written to standard output then, not on Python's way out either."""
    if error.filename is not None or error.errno not in NO_ROOM:
        return False
    sys.stdout = None  # type: ignore[assignment]
    return True
