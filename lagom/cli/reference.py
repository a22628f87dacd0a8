# SPDX-License-Identifier: Apache-2.0
"""Every command as Markdown, for docs/cli.md: what ``--help`` says, from the same options and texts."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import typer

from lagom.cli.help_page import PAGES
from lagom.cli.main import PANELS, app

HEADING = re.compile(r"^([A-Z][A-Z ]+)\n", re.MULTILINE)


def reference() -> str:
    """The commands by panel, in the order of ``lagom --help``."""
    group: Any = typer.main.get_command(app)
    parts = []
    for panel, names in PANELS.items():
        parts.append(f"## {panel}")
        parts += ["\n\n".join(_command(name, group.commands[name])) for name in names]
    return "\n\n".join(parts)


def _command(name: str, command: Any) -> Iterator[str]:
    arguments = [one for one in command.params if one.param_type_name == "argument"]
    options = [one for one in command.params if one.param_type_name == "option" and not one.hidden]
    yield f"### lagom {name}"
    yield f"```text\nlagom {name} [OPTIONS]{''.join(' ' + _value(one) for one in arguments)}\n```"
    yield _escaped(command.help.partition("\n\nVariables that lagom reads:")[0])  # docs/settings.md has them
    rows = [(_value(one), one) for one in arguments] + [(_names(one), one) for one in options]
    yield "\n".join(["| argument or option | what |", "|---|---|", *(_row(*row) for row in rows)])
    sections = HEADING.split((PAGES / f"{name}.txt").read_text())[1:]
    for heading, text in zip(sections[::2], sections[1::2], strict=True):
        yield f"**{heading.capitalize()}**"
        yield f"```text\n{text.strip()}\n```"


def _names(option: Any) -> str:
    names = ", ".join(option.opts)
    return names if option.is_flag else f"{names} {_value(option)}"


def _value(parameter: Any) -> str:
    return parameter.metavar or ("VALUE" if parameter.param_type_name == "option" else f"[{parameter.name.upper()}]")


def _row(names: str, parameter: Any) -> str:
    default = parameter.default
    text = parameter.help
    if parameter.show_default and default not in (None, "") and default is not False:
        text += f" [default: {default:g}]" if isinstance(default, float) else f" [default: {default}]"
    return f"| `{_in_cell(names)}` | {_in_cell(_escaped(text))} |"


def _escaped(text: str) -> str:
    """Angle brackets are no HTML, and stars no emphasis, outside of code."""
    pieces = re.split(r"(`[^`]*`)", text)
    return "".join(
        piece if piece.startswith("`") else piece.replace("<", "&lt;").replace("*", r"\*") for piece in pieces
    )


def _in_cell(text: str) -> str:
    return text.replace("|", r"\|").replace("\n", " ")
