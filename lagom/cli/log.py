# SPDX-License-Identifier: Apache-2.0
"""``lagom log``: the decisions of a job, one readable line each."""

from __future__ import annotations

import shlex
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.cli import complete
from lagom.cli.common import LogFolder, put
from lagom.errors import UsageError

if TYPE_CHECKING:
    from lagom.journal import Formatter, RunState
    from lagom.journal.schema import Base


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
    from lagom.journal.log_status import has_died

    if schema:
        import json

        typer.echo(json.dumps(journal.json_schema(), indent=2))
        return
    state = journal.RunState(keep_samples=False)
    columns = min(journal.COLUMNS, get_terminal_size().columns) if sys.stdout.isatty() else sys.maxsize
    formatter = journal.Formatter(site, everything=everything or as_json, verbose=verbose, columns=columns, state=state)
    unread: dict[bool, list[int]] = {True: [], False: []}
    events = journal.read(
        journal.find_log(where) if follow else journal.find_written(where),
        follow=follow,
        stop=lambda: has_died(state),
        on_damage=lambda number, line: unread[journal.is_torn(line)].append(number),
    )
    lines = _lines(events, state, formatter, as_json=as_json)
    if not follow and not as_json:  # the verdict comes first, which is known once all is read
        decisions = list(lines)
        lines = iter([*_verdict(state, columns), "", *decisions])
    for line in lines:
        put(line)
    if site and not formatter.site_is_known:
        known = ", ".join(formatter.sites_known) or "none: no iteration was found"
        raise UsageError(f"there is no site '{site}' in this log; its sites are: {known}.")
    for remark in _remarks(state, unread):
        print(f"lagom: {remark}", file=sys.stderr)


def _remarks(state: RunState, unread: Mapping[bool, list[int]]) -> Iterator[str]:
    """How the log ends, and the lines of it that could not be read: by whether they are torn."""
    from lagom.journal.log_status import describe_log_status

    if unfinished := describe_log_status(state):
        yield unfinished
    for torn, numbers in unread.items():
        if numbers:
            why = "torn by a crash or a full disk" if torn else "no lines of this log's schema"
            yield f"{len(numbers)} line(s) could not be read (first: line {numbers[0]}): {why}."


def _lines(events: Iterable[Base], state: RunState, formatter: Formatter, *, as_json: bool) -> Iterator[str]:
    """Of the events that are asked for, each as soon as it is read."""
    for event in events:
        state.apply(event)
        if (line := formatter.line(event)) is not None:
            yield event.model_dump_json(by_alias=True) if as_json else line


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
