"""``lagom explain``: what NCCL would do at each site, what is done instead, and why."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.files import open_regular

if TYPE_CHECKING:
    from lagom.report.run_model import Explanation

_PIPE_COLUMNS = 120


def explain(
    what: Annotated[
        Path | None,
        typer.Argument(
            help="A profile, a log folder or its decisions.jsonl; default: the newest ./lagom-*.", show_default=False
        ),
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every config that was tried, not only the latest.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Tell at every site what NCCL would do, what is done instead, and the evidence; and what could not be tuned.

    Of a profile: what it does, what it is for, whether it would be replayed on this machine. Exit code 1 if not.
    """
    import json

    from lagom.report import run_text as show

    story = load(what)
    if as_json:
        typer.echo(json.dumps(show.as_json(story), indent=1))
    else:
        from rich.console import Console

        console = Console()
        if not console.is_terminal:
            console.width = max(console.width, _PIPE_COLUMNS)
        show.show(story, console, everything=everything)
    raise typer.Exit(1 if story.fit is not None and story.fit.refusal else 0)


def load(what: Path | None) -> Explanation:
    """The explanation of a profile or of a log, told apart by what the file begins with."""
    from lagom.journal import RunState, find_written, read
    from lagom.journal.log_status import describe_earlier_jobs, how_it_stands
    from lagom.report import from_config, from_log

    if what is not None and is_profile(what):
        return from_config.explain(what)
    file = find_written(what)
    damaged: list[int] = []
    run = RunState(read(file, on_damage=lambda number, _: damaged.append(number)))
    story = from_log.explain(run, str(file))
    unfinished = how_it_stands(run)
    lost = f"{len(damaged)} line(s) of the log could not be read; the first is line {damaged[0]}." if damaged else ""
    return replace(story, remarks=(*story.remarks, *filter(None, (describe_earlier_jobs(run), unfinished, lost))))


def is_profile(path: Path) -> bool:
    """Whether a file is no log: a log's lines are JSON objects."""
    try:
        with open_regular(path) as file:
            first = file.read(4096).lstrip()
    except OSError:
        return False
    return bool(first) and not first.startswith(b"{")
