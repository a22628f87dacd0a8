"""What ``--help`` says beyond the options: examples, files, exit codes, environment, see also.

The texts are in ``pages/<command>.txt``, so that they read as text; the same pages make ``lagom help`` and lagom(1).
A heading is a line in capitals, a command begins with ``$``, what it does is indented below it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperCommand

HEADINGS = ("EXAMPLES", "FILES", "EXIT CODES", "ENVIRONMENT", "SEE ALSO")
PAGES = Path(__file__).parent / "pages"
_HEADING = re.compile(r"[A-Z][A-Z ]+")

#: Which commands stand together in ``lagom --help``, in this order; one that is named nowhere comes last.
PANELS = {
    "Tune a job": ("run", "env", "plugin-path", "set", "doctor"),
    "See what happens": ("watch", "log", "explain", "metrics"),
    "Afterwards": ("report", "advise", "bench", "profile", "export", "import"),
    "Without a GPU, and help": ("demo", "help"),
}


@dataclass(frozen=True, slots=True)
class Page:
    """The further help of one command: its sections, each a list of lines."""

    sections: dict[str, tuple[str, ...]]

    def examples(self) -> Iterator[str]:
        """The commands of the examples, without their ``$``."""
        for line in self.sections.get("EXAMPLES", ()):
            if line.startswith("$ "):
                yield line.removeprefix("$ ")


def page_of(name: str) -> Page | None:
    """The page of a command or topic; ``None`` if it has none."""
    file = PAGES / f"{name}.txt"
    return parse(file.read_text()) if file.is_file() else None


def topics() -> list[str]:
    """Pages that belong to no command."""
    commands = {name for names in PANELS.values() for name in names}
    return sorted(file.stem for file in PAGES.glob("*.txt") if file.stem not in commands)


def parse(text: str) -> Page:
    """The sections of a page's text."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.splitlines():
        if _HEADING.fullmatch(line):
            lines = sections.setdefault(line, [])
        else:
            lines.append(line.rstrip())
    return Page({name: tuple(_trimmed(content)) for name, content in sections.items()})


def _trimmed(lines: list[str]) -> list[str]:
    """Without empty lines at both ends."""
    while lines and not lines[0]:
        lines = lines[1:]
    while lines and not lines[-1]:
        lines = lines[:-1]
    return lines


def show(page: Page) -> None:
    """Prints the sections as ``--help`` has them."""
    for name, lines in page.sections.items():
        typer.secho(f" {name}", bold=True)
        for line in lines:
            typer.echo(f"   {line}" if line else "")
        typer.echo()


class Command(TyperCommand):
    """A command whose ``--help`` ends with its page."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """The options first, as always. (typer's click is its own or click's, by version: hence Any.)"""
        super().format_help(ctx, formatter)
        page = page_of(self.name or "")
        if page is not None:
            show(page)


def attach(app: typer.Typer) -> None:
    """Gives every command of ``app`` its page, its panel and its place in the list."""
    panel_of = {name: panel for panel, names in PANELS.items() for name in names}
    order = list(panel_of)
    for info in app.registered_commands:
        info.cls = Command
        info.rich_help_panel = panel_of.get(info.name or "", "More")
    app.registered_commands.sort(key=lambda info: _place(order, info.name or ""))


def _place(order: list[str], name: str) -> int:
    return order.index(name) if name in order else len(order)


def commands_of(app: typer.Typer) -> dict[str, Any]:
    """Every command by name, as click has them."""
    return dict(getattr(typer.main.get_command(app), "commands", {}))
