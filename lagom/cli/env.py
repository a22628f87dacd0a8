"""``lagom env``: use without a launcher, by environment variables alone."""

from __future__ import annotations

import os
import shlex
import sys
from typing import Annotated

import typer

from lagom.files import write_whole
from lagom.settings import SETTINGS, interpreter

TUNER_TEXT = (
    "The tuner: records every collective and sets algorithm, protocol, channels (and chunk size on NCCL >= 2.30.3). "
    "Alone it tunes a running job on NCCL >= 2.28."
)
PROFILER_TEXT = (
    "The profiler plugin, optional: process-group names, the channels and threads that really ran, exact joins of "
    "kernels and calls; on NCCL 2.27 it is what makes tuning a running job possible. Takes NCCL's one profiler slot."
)


def env(
    shell: Annotated[bool, typer.Option("--shell", help="Only the export lines, for scripts.")] = False,
    path: Annotated[bool, typer.Option("--path", help="Only the path of the plugin.")] = False,
    settings: Annotated[bool, typer.Option("--settings", help="The table of LAGOM_ variables instead.")] = False,
) -> None:
    """Print the two variables for use without `lagom run`: eval "$(lagom env)", then start the job as always."""
    if settings:
        from lagom.settings import table

        typer.echo(table())
        return
    from lagom.wire.library import plugin_path

    bake_interpreter()
    if path:
        typer.echo(plugin_path())
        return
    plugin = shlex.quote(str(plugin_path()))
    for name, text in (("NCCL_TUNER_PLUGIN", TUNER_TEXT), ("NCCL_PROFILER_PLUGIN", PROFILER_TEXT)):
        if not shell:
            typer.echo(_comment(text))
        typer.echo(f"export {name}={plugin}")
    if not shell:
        typer.echo(
            _comment(
                "The first rank of a node starts the controller; it ends with the job. The log is in ./lagom-<job>."
            )
        )


env.__doc__ = f"""{env.__doc__}

Variables that lagom reads:

""" + "\n\n".join(f"{s.name} (default: {s.default or 'unset'}). {s.text}" for s in SETTINGS if not s.internal)


def bake_interpreter() -> None:
    """Write the path of this Python into a file next to the plugin, for the rank that starts the controller. If that
    file cannot be written, LAGOM_PYTHON must name this Python."""
    from lagom.wire.library import LIBRARY_FOLDER

    file = LIBRARY_FOLDER / "python_path"
    wanted = interpreter() + "\n"
    try:
        if not file.exists() or file.read_text() != wanted:
            write_whole(file, wanted)
    except OSError:
        if "LAGOM_PYTHON" not in os.environ:
            print(f"lagom: {file} cannot be written; also export LAGOM_PYTHON={interpreter()}", file=sys.stderr)


def _comment(text: str) -> str:
    import textwrap

    return textwrap.fill(text, 100, initial_indent="# ", subsequent_indent="# ")
