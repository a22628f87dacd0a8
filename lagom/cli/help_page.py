# SPDX-License-Identifier: Apache-2.0
"""``lagom COMMAND --help``, wrapped to the terminal: usage, description, options, then ``pages/<command>.txt``.

typer's own tables leave 16 columns for the text on a terminal of 60 and cut longer words, hence this layout.

A page has a heading in capitals over each section. ``$ `` begins an example. Two spaces or more between words begin the
second column of a line. A line indented by two describes the line above; so does each further one like it. Any other
indented line continues the line above.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text
from typer.core import TyperCommand

PAGES = Path(__file__).parent / "pages"
HEADING = re.compile(r"[A-Z][A-Z ]+")
#: A second column further to the right than this gives its continued lines too little room.
HANGING = 20
#: From this width on, the options are in two columns.
WIDE = 76
OPTION_COLUMN = 28
_DESCRIPTION = re.compile(r" {2}\S")
_WORD = re.compile(r"""(?:[^\s"']|"[^"]*"|'[^']*')+""")


class Command(TyperCommand):
    """A command whose help has the layout of this module."""

    def format_help(self, ctx: Any, formatter: Any) -> None:
        console = Console(highlight=False)
        width = console.width - 2
        for line in self._help_lines(ctx, width):
            style = "bold" if HEADING.fullmatch(line) else "cyan" if line.lstrip().startswith("--") else ""
            console.print(Text(f" {line}".rstrip(), style), soft_wrap=True)

    def _help_lines(self, ctx: Any, width: int) -> Iterator[str]:
        records = [record for param in self.get_params(ctx) if (record := param.get_help_record(ctx)) is not None]
        records = [(re.sub(r" <.*>$", "", names), text) for names, text in records]  # an argument's type
        arguments = " ".join(names for names, _ in records if not re.match(r"--?\w", names))
        yield from ("", *_wrap(f"Usage: {ctx.command_path} [OPTIONS] {arguments}", width))
        for paragraph in inspect.cleandoc(self.help or "").split("\n\n"):
            yield from ("", *_wrap(" ".join(paragraph.split()), width))
        yield from ("", "OPTIONS", *option_lines(records, width), "")
        yield from page_lines((PAGES / f"{self.name}.txt").read_text(), width)


def option_lines(records: Sequence[tuple[str, str]], width: int) -> Iterator[str]:
    """(names, help) of each option: in two columns on a wide terminal, else one below the other."""
    column = OPTION_COLUMN if width >= WIDE else 4
    for names, text in records:
        first, *rest = textwrap.wrap(text, width - column, break_long_words=False, break_on_hyphens=False) or [""]
        if len(names) + 2 <= column:
            yield f"{names:{column}}{first}"
        else:
            yield from (names, " " * column + first)
        yield from (" " * column + line for line in rest)


def page_lines(page: str, width: int) -> Iterator[str]:
    """The lines of a page, none longer than ``width`` but for single words that are."""
    for line in _whole_lines(page):
        yield from _wrap_command(line, width) if line.startswith("$ ") else _wrap(line, width)


def _whole_lines(page: str) -> Iterator[str]:
    """Each with the lines that continue it."""
    whole, *rest = page.splitlines()
    for line in rest:
        describes = _DESCRIPTION.match(line) is not None
        if line.startswith(" ") and (not describes or _DESCRIPTION.match(whole)):
            whole += f" {line.strip()}"
            continue
        yield whole
        whole = line
    yield whole


def _wrap(line: str, width: int) -> list[str]:
    indent = len(line) - len(line.lstrip())
    column = re.match(r"\s*\S.*?\s{2,}", line)
    if column is not None:
        indent = column.end() if column.end() <= HANGING else 2
    return textwrap.wrap(
        line, width, subsequent_indent=" " * indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def _wrap_command(line: str, width: int) -> Iterator[str]:
    r"""A shell command on several lines with ``\`` between them, so that it can be pasted; no quoted word is broken."""
    first, *rest = _WORD.findall(line)
    for word in rest:
        if len(first) + len(word) + 3 > width:
            yield f"{first} \\"
            first = f"    {word}"
        else:
            first += f" {word}"
    yield first
