# SPDX-License-Identifier: Apache-2.0
"""``lagom report``: the result of tuning a job, the reasons, and the settings for the next start."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.cli import complete
from lagom.cli.common import console
from lagom.cli.measured_job import show_compared, show_tuned
from lagom.errors import UsageError
from lagom.files import check_named, open_regular, write_named

if TYPE_CHECKING:
    from lagom.report.advice import Advices
    from lagom.report.read_run import Run
    from lagom.report.read_search import Benchmark, StartSearch
    from lagom.report.run_model import RunReport


def report(
    what: Annotated[
        Path | None,
        typer.Argument(
            help="A log folder, its decisions.jsonl, a saved config, or a folder of `lagom tune` or `lagom bench`; "
            "default: the newest of these folders in ./lagom-*; with an option that needs a log, the newest log.",
            metavar="[LOG|CONFIG]",
            show_default=False,
            autocompletion=complete.log_folders,
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(
            "--html",
            metavar="PATH",
            help="Also write a page with pictures: to this file (*.html), or into this folder with PNGs beside it.",
            show_default=False,
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Site by site, with every config that was tried.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
    bench: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="FOLDER",
            help="Results of `lagom bench` (a folder) on settings of the start; may be repeated. Those in the log "
            "folder are found.",
            show_default=False,
        ),
    ] = None,
    export: Annotated[
        bool,
        typer.Option("--export", help="Only `export` lines for the next start, of what was measured to be worth it."),
    ] = False,
    megatron: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write a file for Megatron's --nccl-communicator-config-path.", show_default=False
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the log's saved config with the measured environment to this file.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Report on a tuned job: the verdict, then every site, what could not be tuned, and what the next start can change.

    At each site: what NCCL would do, what is done instead, and the evidence. Settings that only a start can change come
    with their measurement, or with the command that would measure them. Of a saved config: what it does, what speaks
    for it, whether it would be replayed on this machine; exit code 1 if not.
    """
    of_a_log = html, bench, export, megatron, config
    if what is not None and is_config(what):
        _refuse_options(f"{what} is a saved config", of_a_log)
        raise typer.Exit(_report_config(what, as_json, everything))
    for file in filter(None, (megatron, config)):
        check_named(file)
    from lagom.report import advice_text
    from lagom.report.read_run import Run

    run = _read(what, needs_log=any(of_a_log))
    if not isinstance(run, Run):
        _show_samples(run, as_json=as_json)
        return
    log, advices = run.log, advice_text.gather_advice(run.state, run.log, bench or ())
    if html is not None:
        _write_page(run, html)
    if megatron is not None:
        write_named(megatron, advice_text.format_megatron(advices) or "# lagom report: no process group to cap.\n")
    if config is not None:
        _write_config(advices, log, config)
    if export:
        typer.echo("\n".join(advice_text.format_exports(advices)) or "# nothing was measured to be worth it")
    else:
        _show(run.report, advices, log.parent, as_json=as_json, everything=everything)


def _refuse_options(why: str, given: Iterable[object]) -> None:
    if any(given):
        raise UsageError(f"{why}; this option needs the log of a job.")


def _read(what: Path | None, *, needs_log: bool) -> Run | StartSearch | Benchmark:
    """What was named, else the newest; raises :class:`UsageError` where it is no log and one is needed."""
    from lagom.report.read_run import Run, read_log, read_run

    run = read_log() if what is None and needs_log else read_run(what)
    if not isinstance(run, Run):
        _refuse_options(f"{run.folder} holds results of lagom {run.record.schedule}", (needs_log,))
    return run


def _show_samples(found: StartSearch | Benchmark, *, as_json: bool) -> None:
    """What the command printed that measured them."""
    from lagom.experiment.store import FILE
    from lagom.report.read_search import StartSearch

    if isinstance(found, StartSearch):
        show_tuned(found.plan, found.record, found.result, as_json=as_json)
    else:
        show_compared(found.record, found.results, found.folder / FILE, as_json=as_json)


def _report_config(file: Path, as_json: bool, everything: bool) -> int:
    from lagom.report import from_config

    shown = from_config.build_config_report(file)
    _show(shown, None, None, as_json=as_json, everything=everything)
    return 1 if shown.fit is not None and shown.fit.refusal else 0


def _show(shown: RunReport, advices: Advices | None, folder: Path | None, *, as_json: bool, everything: bool) -> None:
    from lagom.report import run_text

    if as_json:
        typer.echo(json.dumps(run_text.as_json(shown, advices), indent=1))
    else:
        run_text.show(shown, console(), advices, folder, everything=everything)


def _write_page(run: Run, html: Path) -> None:
    from lagom.report import tuning_report

    more = [text for text in run.report.remarks if text not in run.state.remarks]
    written = tuning_report.write_page(run.state, html, str(run.log), run.log.parent, remarks=more)
    print(f"lagom: written: {', '.join(map(str, written))}", file=sys.stderr)


def _write_config(advices: Advices, log: Path, out: Path) -> None:
    from lagom.config_file import saved_in
    from lagom.format import format_variables
    from lagom.journal.log_status import is_of_an_earlier_job
    from lagom.report.advice_text import write_into_config

    mine = saved_in(log.parent)
    if is_of_an_earlier_job(mine, log):
        print(f"lagom: note: {mine} is of an earlier job than the newest one in its log", file=sys.stderr)
    asked = write_into_config(advices, mine, out)
    settings = f"with {format_variables(asked)}" if asked else "without settings of a start"
    print(f"lagom: written: {out}, {settings}", file=sys.stderr)


def is_config(path: Path) -> bool:
    """Whether a file is no log: a log's lines are JSON objects."""
    try:
        with open_regular(path) as file:
            first = file.read(4096).lstrip()
    except OSError:
        return False
    return bool(first) and not first.startswith(b"{")
