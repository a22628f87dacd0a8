# SPDX-License-Identifier: Apache-2.0
"""``lagom env``: use without a launcher, by environment variables alone."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import Annotated

import typer

from lagom.settings import SETTINGS, interpreter


def env(
    path: Annotated[bool, typer.Option("--path", help="Only the path of the plugin.")] = False,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Also export this saved config and the start settings it asks for.",
            exists=True,
            dir_okay=False,
            show_default=False,
        ),
    ] = None,
    settings: Annotated[bool, typer.Option("--settings", help="The table of LAGOM_ variables instead.")] = False,
) -> None:
    """Print one `export` line for use without `lagom run`: eval "$(lagom env)", then start the job as always."""
    if settings:
        from lagom.settings import table

        typer.echo(table())
        return
    from lagom.wire.library import plugin_path

    plugin = str(plugin_path())
    if path:
        typer.echo(plugin)
        return
    variables = {"NCCL_TUNER_PLUGIN": plugin, "NCCL_PROFILER_PLUGIN": plugin, "LAGOM_PYTHON": interpreter()}
    if config is not None:
        from lagom.launch.start_variables import choose_start

        start = choose_start("", None, config, os.environ, [])
        variables |= {"LAGOM_CONFIG": str(config.absolute()), **start.variables}
        for remark in start.remarks:
            print(f"lagom: {remark}", file=sys.stderr)
    else:
        from lagom.launch.cached_config import cached_here

        for line in cached_here(os.environ):
            print(f"lagom: {line}", file=sys.stderr)
    # one line: an unquoted `eval $(lagom env)` joins lines with blanks, and a comment would hide what follows it
    typer.echo(f"export {' '.join(f'{name}={shlex.quote(value)}' for name, value in variables.items())}")


env.__doc__ = f"""{env.__doc__}

Variables that lagom reads:

""" + "\n\n".join(f"{s.name} (default: {s.default or 'unset'}). {s.text}" for s in SETTINGS if not s.internal)
