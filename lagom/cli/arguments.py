"""Arguments that several commands have."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lagom.cli import complete

LogFolder = Annotated[
    Path | None,
    typer.Argument(
        help="Log folder or decisions.jsonl; default: the newest ./lagom-*.",
        show_default=False,
        autocompletion=complete.log_folders,
    ),
]
