# SPDX-License-Identifier: Apache-2.0
"""``lagom set``: pin configs in a running job by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lagom.cli import complete
from lagom.errors import UsageError
from lagom.files import write_whole

PINS = "pins"
HEAD = (
    "# Written by `lagom set`, read by the controller whenever it changes. One rule a line; empty = nothing pinned.\n"
)


def set_rules(
    rules: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[RULES]...",
            help='Like "allgather:>=1M:nc=4,chunk=512K": function, sizes, config.',
            show_default=False,
            autocompletion=complete.rules,
        ),
    ] = None,
    directory: Annotated[
        Path | None,
        typer.Option(
            "--dir",
            metavar="FOLDER",
            help="The job's log folder; default: the newest ./lagom-*.",
            show_default=False,
            autocompletion=complete.log_folders,
        ),
    ] = None,
    clear: Annotated[bool, typer.Option("--clear", help="Withdraw every pinned rule.")] = False,
) -> None:
    """Pin configs by hand in a running job (first matching rule wins), or show what is pinned.

    All ranks take the change at the same call, or none does; the log says which.
    """
    from lagom.wire.plan import check_rules

    folder = job_folder(directory)
    if clear and rules:
        raise UsageError("--clear withdraws every rule; give either rules or --clear, not both.")
    if not clear and not rules:
        typer.echo("\n".join(read_pins(folder)) or "nothing is pinned")
        return
    checked = check_rules(rules or [])
    write_pins(folder, checked)
    typer.echo(f"{folder / PINS}: " + ("; ".join(checked) if checked else "nothing is pinned any more"))


def job_folder(directory: Path | None) -> Path:
    """The log folder of a job whose controller runs; raises if there is none that would read the pins."""
    from lagom.journal import JobEnd, RunState, find_log, read
    from lagom.journal.log_status import has_died

    log = find_log(directory)
    run = RunState(read(log), keep_samples=False)
    start = run.start
    if isinstance(run.last, JobEnd):
        raise UsageError(f"the job of {log.parent} has ended; name the folder of a running one with --dir.")
    if start is None:
        return log.parent
    if start.mode == "replay":
        raise UsageError(f"the job of {log.parent} replays a saved config, and no controller reads pins there.")
    if has_died(run):
        raise UsageError(f"the controller of the job of {log.parent} (pid {start.pid}) is gone: nobody reads its pins.")
    return log.parent


def read_pins(folder: Path) -> list[str]:
    """The rules pinned now."""
    from lagom.settings import split_rules

    file = folder / PINS
    return split_rules(file.read_text()) if file.exists() else []


def write_pins(folder: Path, rules: list[str]) -> None:
    """Atomically: the controller sees the old rules or the new ones, never half."""
    try:
        write_whole(folder / PINS, HEAD + "".join(f"{rule}\n" for rule in rules))
    except OSError as error:
        raise UsageError(
            f"{folder / PINS} cannot be written ({error.strerror}); run this as the user of the job."
        ) from error
