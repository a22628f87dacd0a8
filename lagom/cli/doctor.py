# SPDX-License-Identifier: Apache-2.0
"""``lagom doctor``: what would happen if a job were started here, and what to do about it."""

from __future__ import annotations

from typing import Annotated

import typer

COLOURS = {"ok": typer.colors.GREEN, "note": typer.colors.YELLOW, "problem": typer.colors.RED}


def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="The findings as JSON.")] = False,
    clean: Annotated[bool, typer.Option("--clean", help="Remove shared memory left over by dead jobs.")] = False,
) -> None:
    """Check this machine and environment: plugin, NCCL and what it lets us tune, settings, CUPTI, shared memory.

    Run it with the Python of the training job. The last line says whether this machine can be tuned. Exit code 1 if a
    problem was found or nothing can be tuned.
    """
    from lagom.doctor import examine

    findings, verdict = examine(clean=clean)
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
