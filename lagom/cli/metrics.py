"""``lagom metrics``: what `lagom watch` shows, for Prometheus and Grafana."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from lagom.errors import UsageError

#: Between two looks: a rate needs two.
LOOK_SECONDS = 0.5


def metrics(
    out: Annotated[
        Path | None,
        typer.Option("--out", help="Write to this file, in one step, instead of printing.", show_default=False),
    ] = None,
    grafana: Annotated[bool, typer.Option("--grafana", help="Print the Grafana dashboard (JSON) instead.")] = False,
    names: Annotated[bool, typer.Option("--list", help="Print the table of metrics instead.")] = False,
) -> None:
    """Print the state of this node's jobs once, in Prometheus' text format.

    For a file that is always fresh use `lagom watch --prometheus FILE`; this one is for cron.
    """
    from lagom import metrics as exporter

    if grafana and names:
        raise UsageError("ask for one thing: --grafana or --list.")
    if grafana or names:
        typer.echo(exporter.dashboard() if grafana else exporter.table())
        return
    from lagom.watch import Watcher

    watcher = Watcher()
    watcher.look()
    time.sleep(LOOK_SECONDS)
    node = watcher.look()
    if out is None:
        typer.echo(exporter.exposition(node), nl=False)
    else:
        exporter.write_textfile(node, out)
