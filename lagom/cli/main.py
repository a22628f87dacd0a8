"""``lagom``: every command, and the one place where errors become sentences."""

from __future__ import annotations

import io
import signal
import sys
from typing import Annotated

import typer

from lagom import __version__
from lagom.cli import (
    advise,
    bench,
    demo,
    doctor,
    exchange,
    explain,
    help,
    log,
    manual,
    metrics,
    pin,
    plugin,
    profile,
    report,
    run,
    watch,
)
from lagom.cli.pipe import flush, is_unwritten
from lagom.errors import LagomError

EXIT_REFUSED = 2
INSTALL_COMPLETION = "--install-completion"  # typer's own; it writes below the home folder

app = typer.Typer(
    help="Lagom tunes NCCL while your training job runs: just the right amount of communication.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with: lagom demo (no GPU needed), or: lagom run -- torchrun ... train.py",
)
PREFIX = {"allow_interspersed_args": False}  # options end where the user's command begins, with or without --

app.command("run", context_settings=PREFIX)(run.run)
app.command("env")(plugin.env)
app.command("plugin-path")(plugin.plugin_path)
app.command("doctor")(doctor.doctor)
app.command("watch")(watch.watch)
app.command("metrics")(metrics.metrics)
app.command("log")(log.log)
app.command("set")(pin.set_rules)
app.command("import")(exchange.import_rules)
app.command("export")(exchange.export_rules)
app.command("demo")(demo.demo)
app.command("bench", context_settings=PREFIX)(bench.bench)
app.command("profile")(profile.profile)
app.command("report")(report.report)
app.command("explain")(explain.explain)
app.command("advise")(advise.advise)
app.command("help")(help.show_help)
manual.attach(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"lagom {__version__}")
        raise typer.Exit


@app.callback()
def options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_show_version, is_eager=True)
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
            flush()  # here, where it can still be told that it fails
    except LagomError as error:
        print(f"lagom: {error}", file=sys.stderr)
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
