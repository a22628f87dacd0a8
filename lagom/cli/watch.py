# SPDX-License-Identifier: Apache-2.0
"""``lagom watch``: the jobs of this node, live."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.cli import complete
from lagom.cli.common import put
from lagom.errors import UsageError
from lagom.files import check_named

if TYPE_CHECKING:
    from lagom.watch import NodeSnapshot, Watcher

    View = Callable[[NodeSnapshot], object]

NOTHING_RUNS = 1
STDOUT = Path("-")
#: Between the two looks of --once: a rate needs two.
ONCE_SECONDS = 0.5
PIPE_COLUMNS = 140


def watch(
    job: Annotated[
        str,
        typer.Argument(
            help="A job's name or log folder; default: every job of yours on this node.",
            metavar="[JOB]",
            autocompletion=complete.jobs,
        ),
    ] = "",
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="FOLDER", help="The same as JOB: a log folder.", show_default=False)
    ] = None,
    interval: Annotated[
        float, typer.Option(metavar="SECONDS", help="Time between two snapshots.", min=0.1, max=3600)
    ] = 1.0,
    once: Annotated[
        bool, typer.Option("--once", help="Print one snapshot, then exit; exit code 1 if no job runs.")
    ] = False,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each snapshot as a line with one JSON object.")
    ] = False,
    prometheus: Annotated[
        Path | None,
        typer.Option(
            "--prometheus",
            metavar="FILE",
            help="Also write each snapshot to this file, for node-exporter's textfile collector; - prints it instead.",
            show_default=False,
        ),
    ] = None,
    grafana: Annotated[
        bool, typer.Option("--grafana", help="Print a Grafana dashboard (JSON) for these metrics, and exit.")
    ] = False,
) -> None:
    """Show running jobs live: sites, calls a second, configs in force, phase, detectable effect, time lost, decisions.

    Finds your jobs on this node by itself. Looks only: the job's shared memory is copied read-only, no lock is taken.
    A table on a terminal, lines elsewhere.
    """
    from lagom.watch import Watcher
    from lagom.watch.find import find_job

    if grafana:
        from lagom.watch.prometheus import dashboard

        typer.echo(dashboard().rstrip("\n"))
        return
    if job and directory is not None:
        raise UsageError("name the job once: as JOB or with --dir.")
    wanted = str(directory or job)
    watcher = Watcher(find_job(wanted) if wanted else None)
    with contextlib.ExitStack() as stack:
        views = [] if prometheus == STDOUT else [_screen(stack, once=once, as_json=as_json)]
        if prometheus is not None:
            views.append(_textfile(prometheus))
        if once:
            found = _look_once(watcher, views)
            raise typer.Exit(0 if found or prometheus is not None else NOTHING_RUNS)
        with contextlib.suppress(KeyboardInterrupt):
            _follow(watcher, views, interval, until_end=bool(job or directory))


def _look_once(watcher: Watcher, views: list[View]) -> bool:
    watcher.look()
    time.sleep(ONCE_SECONDS)
    node = watcher.look()
    for view in views:
        view(node)
    return bool(node.running)


def _follow(watcher: Watcher, views: list[View], interval: float, *, until_end: bool) -> None:
    while True:
        began = time.monotonic()
        node = watcher.look()
        for view in views:
            view(node)
        if until_end and not node.running:
            return
        time.sleep(max(0.0, interval - (time.monotonic() - began)))


def _screen(stack: contextlib.ExitStack, *, once: bool, as_json: bool) -> View:
    """How a snapshot is shown where our output goes."""
    if as_json:
        import json

        return lambda node: put(json.dumps(node.as_json()))
    from rich.console import Console

    console = Console() if sys.stdout.isatty() else Console(width=PIPE_COLUMNS)
    if once:
        from lagom.watch.screen import page

        return lambda node: console.print(page(node))
    from lagom.experiment.process import leave_in_order
    from lagom.watch.screen import line_view, live_view

    if not console.is_terminal:
        return line_view(put)
    leave_in_order()  # by the same way as after Ctrl-C
    return stack.enter_context(live_view(console))


def _textfile(path: Path) -> View:
    from lagom.watch.prometheus import render_metrics, write_textfile

    if path == STDOUT:
        return lambda node: put(render_metrics(node).rstrip("\n"))
    check_named(path)
    return lambda node: write_textfile(node, path)
