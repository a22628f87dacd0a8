"""Lines for whoever reads standard output, a person or a pipe."""

from __future__ import annotations

import sys

import typer


def put(line: str) -> None:
    """At once, so that a pipe sees it; a closed pipe (`lagom log | head`) ends the command quietly."""
    try:
        print(line, flush=True)
    except BrokenPipeError:
        sys.stdout = None  # type: ignore[assignment]
        raise typer.Exit from None
