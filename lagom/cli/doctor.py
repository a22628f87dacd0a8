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

    Run it with the Python of the training job. Exit code 1 if a problem was found.
    """
    from lagom.doctor import Level, examine

    findings = examine(clean=clean)
    problems = sum(finding.level is Level.PROBLEM for finding in findings)
    if as_json:
        import json

        report = {"schema": 1, "problems": problems, "findings": [finding.as_dict() for finding in findings]}
        typer.echo(json.dumps(report, indent=2))
    else:
        for finding in findings:
            level = typer.style(f"{finding.level.value:<8}", fg=COLOURS[finding.level.value])
            typer.echo(f"{level}{finding.area}: {finding.text}")
            if finding.remedy:
                typer.echo(f"{'':8}-> {finding.remedy}")
        typer.echo(f"{problems} problem(s)" if problems else "no problems")
    raise typer.Exit(1 if problems else 0)
