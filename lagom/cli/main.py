# SPDX-License-Identifier: Apache-2.0
"""``lagom``: every command, and the one place where errors are printed."""

from __future__ import annotations

import io
import signal
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from lagom.cli import (
    bench,
    convert,
    demo,
    doctor,
    env,
    log,
    pin,
    profile,
    report,
    run,
    tune,
    watch,
)
from lagom.cli.common import flush, is_unwritten, say
from lagom.cli.help_page import Command
from lagom.errors import LagomError
from lagom.version import __version__, commit_of_build

EXIT_REFUSED = 2
INSTALL_COMPLETION = "--install-completion"  # typer's own; it writes below the home folder

app = typer.Typer(
    help="Lagom tunes NCCL while your training job runs: just the right amount of communication.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: lagom demo (no GPU needed), or: lagom run -- torchrun ... train.py",
)
#: The commands as ``lagom --help`` shows them: by panel, in this order.
PANELS: dict[str, dict[str, Callable[..., None]]] = {
    "Tune a job": {"run": run.run, "tune": tune.tune, "env": env.env, "set": pin.set_rules, "doctor": doctor.doctor},
    "See what happens": {"watch": watch.watch, "log": log.log},
    "Afterwards": {
        "report": report.report,
        "bench": bench.bench,
        "profile": profile.profile,
        "convert": convert.convert,
    },
    "Without a GPU": {"demo": demo.demo},
}
WITH_JOB_COMMAND = ("run", "bench", "tune")  # their options end where the job's command begins, with or without --


for _panel, _commands in PANELS.items():
    for _name, _command in _commands.items():
        app.command(
            _name,
            cls=Command,
            rich_help_panel=_panel,
            context_settings={"allow_interspersed_args": _name not in WITH_JOB_COMMAND},
        )(_command)


def _show_version(wanted: bool) -> None:
    if wanted:
        commit = commit_of_build()
        typer.echo(f"lagom {__version__}" + (f" (commit {commit})" if commit else ""))
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", help="Print the version and the commit of the build.", callback=_show_version, is_eager=True
        ),
    ] = False,
) -> None:
    """Options of lagom itself."""


def main() -> None:
    """The console script. A LagomError, or output that finds no room, is one sentence on stderr and exit code 2; a bug
    keeps its traceback."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that cannot show a letter is no reason to end
    try:
        try:
            app(prog_name="lagom")
        finally:
            flush()  # here, where a failure can still be reported
    except LagomError as error:
        say("lagom: ", str(error))
        sys.exit(EXIT_REFUSED)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except OSError as error:
        if is_unwritten(error):
            why = f"the output could not be written ({error.strerror})"
            print(f"lagom: {why}; make room for it, or send it elsewhere.", file=sys.stderr)
            sys.exit(EXIT_REFUSED)
        if INSTALL_COMPLETION not in sys.argv:
            raise
        why = f"{error.filename} cannot be written ({error.strerror})"
        print(f"lagom: {why}; put what --show-completion prints where your shell finds it.", file=sys.stderr)
        sys.exit(EXIT_REFUSED)
