# SPDX-License-Identifier: Apache-2.0
"""Help at any width: nothing is cut, no line is too long, a command can be pasted."""

from __future__ import annotations

import re
import shlex

import pytest
from typer.testing import CliRunner

from lagom.cli.help_page import PAGES, option_lines, page_lines
from lagom.cli.main import PANELS, app

COMMANDS = [name for commands in PANELS.values() for name in commands]


def help_at(width: int, command: str) -> list[str]:
    return CliRunner(env={"COLUMNS": str(width)}).invoke(app, [command, "--help"]).output.splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("command", COMMANDS)
def test_no_line_is_longer_than_the_terminal_and_nothing_is_cut(command: str, width: int) -> None:
    lines = help_at(width, command)
    assert not [line for line in lines if len(line) > width]
    assert "\u2026" not in "".join(lines)
    options = {word for line in lines if line.startswith(" -") for word in line.split() if word.startswith("--")}
    assert "--help" in options


@pytest.mark.parametrize("command", COMMANDS)
def test_the_words_are_the_same_at_every_width(command: str) -> None:
    """Only line breaks differ, and the backslashes of a command on several lines."""

    def words(width: int) -> list[str]:
        return [word for line in help_at(width, command) for word in line.split() if word != "\\"]

    assert words(60) == words(80) == words(160)


@pytest.mark.parametrize("width", [58, 78])
@pytest.mark.parametrize("command", COMMANDS)
def test_an_example_on_several_lines_is_the_same_command(command: str, width: int) -> None:
    page = (PAGES / f"{command}.txt").read_text()
    whole = [line for line in page.splitlines() if line.startswith("$ ")]
    shown = re.findall(r"(?m)^\$ (?:.*\\\n)*.*$", "\n".join(page_lines(page, width)))
    assert [shlex.split(text.replace("\\\n", "")) for text in shown] == [shlex.split(text) for text in whole]


def test_a_continued_line_hangs_under_its_second_column() -> None:
    page = "ARMS\noff      the job without the plugin\n2  refused: one\n   two\n  it is\n  described\nnext"
    assert list(page_lines(page, 20)) == [
        "ARMS",
        "off      the job",
        "         without the",
        "         plugin",
        "2  refused: one two",
        "  it is described",
        "next",
    ]


def test_an_option_stands_over_its_text_on_a_narrow_terminal() -> None:
    records = [("--out FOLDER", "Folder of the samples."), ("--a-name-that-is-much-too-long N", "A number.")]
    assert list(option_lines(records, 60))[:2] == ["--out FOLDER", "    Folder of the samples."]
    wide = list(option_lines(records, 80))
    assert wide == [f"{'--out FOLDER':28}Folder of the samples.", records[1][0], f"{'':28}A number."]
