"""``lagom metrics``: what `lagom watch` shows, for Prometheus and Grafana."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.errors import UsageError
from lagom.files import write_named

if TYPE_CHECKING:
    from lagom.watch.snapshot import NodeSnapshot

#: Between two looks: a rate needs two.
LOOK_SECONDS = 0.5


def metrics(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write to this file, in one step, instead of printing.", show_default=False),
    ] = None,
    grafana: Annotated[bool, typer.Option("--grafana", help="The Grafana dashboard (JSON) instead.")] = False,
    names: Annotated[bool, typer.Option("--list", help="The table of metrics instead.")] = False,
) -> None:
    """Print the state of this node's jobs once, in Prometheus' text format.

    For a file that is always fresh use `lagom watch --prometheus FILE`; this one is for cron.
    """
    from lagom.watch import prometheus as exporter

    if grafana and names:
        raise UsageError("ask for one thing: --grafana or --list.")
    if grafana or names:
        text = (exporter.dashboard() if grafana else exporter.table()).rstrip("\n") + "\n"
    else:
        text = exporter.exposition(_look())
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_named(out, text)


def _look() -> NodeSnapshot:
    """This node's jobs now, with their rates."""
    from lagom.watch import Watcher

    watcher = Watcher()
    watcher.look()
    time.sleep(LOOK_SECONDS)
    return watcher.look()
