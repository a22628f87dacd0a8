# SPDX-License-Identifier: Apache-2.0
"""``lagom doctor``: what would happen if a job were started here, and what to do about it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.errors import UsageError

if TYPE_CHECKING:
    from lagom.doctor.nodes import NodesTrial

COLOURS = {"ok": typer.colors.GREEN, "note": typer.colors.YELLOW, "problem": typer.colors.RED}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="The findings as JSON.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove shared memory left over by dead jobs.")] = False,
    nodes: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Try whether N nodes find each other: start this on each of them, with the same --out or "
            "--rdzv-endpoint.",
            min=0,
            show_default=False,
        ),
    ] = 0,
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="With --nodes: a folder that all of them see.")
    ] = None,
    rdzv_endpoint: Annotated[
        str,
        typer.Option(metavar="HOST:PORT", help="With --nodes: one of the nodes, and a free port.", show_default=False),
    ] = "",
) -> None:
    """Check this machine and environment: plugin, NCCL and what it lets us tune, settings, CUPTI, shared memory.

    Run it with the Python of the training job. The last line says whether this machine can be tuned. Exit code 1 if a
    problem was found or nothing can be tuned.
    """
    from lagom.doctor import examine

    findings, verdict = examine(clean=clean, trial=_trial(nodes, out, rdzv_endpoint))
    if as_json:
        import json

        report = {
            "schema": 1,
            "problems": verdict.problems,
            "findings": [finding.as_dict() for finding in findings],
            "verdict": verdict.as_dict(),
        }
        typer.echo(json.dumps(report, indent=2))
    else:
        for finding in findings:
            level = typer.style(f"{finding.level.value:<8}", fg=COLOURS[finding.level.value])
            typer.echo(f"{level}{finding.area}: {finding.text}")
            if finding.remedy:
                typer.echo(f"{'':8}-> {finding.remedy}")
        typer.echo(verdict.sentence)
    raise typer.Exit(verdict.exit_code)


def _trial(nodes: int, out: Path | None, endpoint: str) -> NodesTrial | None:
    if not (nodes or out or endpoint):
        return None
    if nodes < 2 or bool(out) == bool(endpoint):
        raise UsageError("a trial takes --nodes N, two or more, and either --out FOLDER or --rdzv-endpoint HOST:PORT.")
    from lagom.doctor.nodes import NodesTrial
    from lagom.nodes.store_exchange import read_endpoint

    if endpoint:
        read_endpoint(endpoint)
    return NodesTrial(nodes, endpoint or str(Path(out or "").absolute()))
