# SPDX-License-Identifier: Apache-2.0
"""``lagom log``: the decisions of a job, one readable line each."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Iterator
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.cli import complete
from lagom.cli.common import LogFolder, put
from lagom.errors import UsageError

if TYPE_CHECKING:
    from lagom.journal import RunState


def log(
    where: LogFolder = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on as the log grows, until the job ends.")] = False,
    site: Annotated[
        str,
        typer.Option(
            "--site",
            metavar="SITE",
            help="Only what touches this site: its number, or words it starts with (`allgather 416M`).",
            autocompletion=complete.sites,
        ),
    ] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="Also plans of trials, undecided windows and every rank.")
    ] = False,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="What was measured (X, Y, Z, H) and why, in lines of any length.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="The events as they are recorded, one JSON object a line.")
    ] = False,
    schema: Annotated[bool, typer.Option("--schema", help="Print the JSON Schema of a line and exit.")] = False,
) -> None:
    """Print the verdict on a job, then its decisions: one line each, with the speed-up over plain NCCL."""
    from lagom import journal
    from lagom.journal.log_status import describe_log_status, has_died

    if schema:
        import json

        typer.echo(json.dumps(journal.json_schema(), indent=2))
        return
    state = journal.RunState(keep_samples=False)
    columns = min(journal.COLUMNS, get_terminal_size().columns) if sys.stdout.isatty() else journal.COLUMNS
    formatter = journal.Formatter(site, everything=everything or as_json, verbose=verbose, columns=columns, state=state)
    first = not follow and not as_json  # the verdict, which is known once all is read
    said: list[str] = []
    damaged: dict[int, bool] = {}  # by line: whether it is torn
    for event in journal.read(
        journal.find_log(where) if follow else journal.find_written(where),
        follow=follow,
        stop=lambda: has_died(state),
        on_damage=lambda number, line: damaged.update({number: journal.is_torn(line)}),
    ):
        state.apply(event)
        line = formatter.line(event)
        if line is not None and first:
            said.append(line)
        elif line is not None:
            put(event.model_dump_json(by_alias=True) if as_json else line)
    if first:
        for line in [*_verdict(state, columns), "", *said]:
            put(line)
    if site and not formatter.site_is_known:
        known = ", ".join(formatter.sites_known) or "none: no iteration was found"
        raise UsageError(f"there is no site '{site}' in this log; its sites are: {known}.")
    if unfinished := describe_log_status(state):
        print(f"lagom: {unfinished}", file=sys.stderr)
    for torn, why in ((True, "torn by a crash or a full disk"), (False, "no lines of this log's schema")):
        if lines := [number for number, is_torn in damaged.items() if is_torn is torn]:
            print(f"lagom: {len(lines)} line(s) could not be read (first: line {lines[0]}): {why}.", file=sys.stderr)


def _verdict(state: RunState, columns: int) -> Iterator[str]:
    """What became of the job, and the command that uses it."""
    from lagom.journal.verdict import replay_command, verdict_of
    from lagom.report.tuning_report import answers

    for answer in answers(state):
        yield from textwrap.wrap(answer, columns)
    verdict = verdict_of(state)
    if verdict == "pinned" and state.start is not None and state.start.rules:
        rules = shlex.quote(";".join(state.start.rules))
        yield f"What it gains: lagom run --compare {rules} -- CMD"
    saved = shlex.quote(state.end.config) if state.end is not None and state.end.config else ""
    if command := replay_command(verdict, saved, is_simulated=state.is_simulated):
        yield f"Next: {command}"
