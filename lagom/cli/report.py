"""``lagom report``: a job's decision log as one offline page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lagom.cli.arguments import LogFolder


def report(
    where: LogFolder = None,
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for report.html and pictures; default: beside the log.", show_default=False),
    ] = None,
) -> None:
    """Write one HTML page on what was tuned: search path, convergence, every site before and after, and the regret."""
    from lagom import journal
    from lagom.journal.ending import NOBODY_CAME
    from lagom.journal.log_status import describe_earlier_jobs
    from lagom.report import tuning_report

    log = journal.find_written(where)
    damaged: list[int] = []
    story = journal.RunState(journal.read(log, on_damage=lambda number, _: damaged.append(number)))
    of_others = describe_earlier_jobs(story)
    nobody = f"{NOBODY_CAME}." if story.nobody_came else ""
    story.remarks += filter(None, (of_others, nobody))
    if damaged:
        story.remarks.append(f"{len(damaged)} line(s) of the log could not be read; the first is line {damaged[0]}.")
    written = tuning_report.write_folder(story, out or log.parent / "report", str(log), log.parent)
    for search in story.searched:
        typer.echo(tuning_report.answer(search))
    if not story.searched:
        typer.echo(tuning_report.nothing(story))
    for remark in filter(None, (nobody, of_others)):
        typer.echo(remark)
    typer.echo(f"Written: {', '.join(str(path) for path in written)}")
