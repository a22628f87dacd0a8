# SPDX-License-Identifier: Apache-2.0
"""Help keeps up with the commands: every command has its epilog, every example is a command line that exists."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from lagom.bench.arm_words import BARE, TUNERS, VALUED
from lagom.cli.help_page import PAGES
from lagom.cli.main import PANELS, app
from lagom.settings import BY_NAME

RUNNER = CliRunner(env={"COLUMNS": "160"})
GROUP: Any = typer.main.get_command(app)
COMMANDS = {name: command for name, command in GROUP.commands.items() if not command.hidden}
HEADINGS = ("RULES", "ARMS", "EXAMPLES", "FILES", "EXIT CODES", "ENVIRONMENT", "SEE ALSO")
OPTIONAL = {"RULES", "ARMS", "ENVIRONMENT"}
OPERATORS = {"|", ">", ">>", "&&", ";"}


def sections_of(command: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (PAGES / f"{command}.txt").read_text().splitlines():
        if re.fullmatch(r"[A-Z][A-Z ]+", line):
            lines = sections.setdefault(line, [])
        else:
            lines.append(line)
    return sections


def examples_of(command: str) -> list[str]:
    return [line.removeprefix("$ ") for line in sections_of(command)["EXAMPLES"] if line.startswith("$ ")]


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_every_section(command: str) -> None:
    sections = sections_of(command)
    assert [name for name in HEADINGS if name in sections] == list(sections)
    assert set(HEADINGS) - OPTIONAL <= set(sections)
    assert all(any(lines) for lines in sections.values())
    assert command == "demo" or len(examples_of(command)) >= 2
    assert all(len(line) <= 120 for lines in sections.values() for line in lines)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_the_epilog(command: str) -> None:
    result = RUNNER.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert result.output.index("Usage:") < result.output.index("EXAMPLES") < result.output.index("SEE ALSO")
    assert all(f"$ {example}" in result.output for example in examples_of(command))


def test_no_epilog_is_without_a_command() -> None:
    assert {file.stem for file in PAGES.glob("*.txt")} == set(COMMANDS)


def lagom_calls(example: str) -> list[list[str]]:
    """The arguments of each ``lagom`` in a line of shell, up to the next operator."""
    inner = re.findall(r"\$\((lagom [^)]*)\)", example)
    words = shlex.split(re.sub(r"\$\(lagom [^)]*\)", "INNER", example), comments=True)
    calls, call = [shlex.split(text)[1:] for text in inner], None
    for word in words:
        if word == "lagom" and call is None:
            call = []
            calls.append(call)
        elif word in OPERATORS:
            call = None
        elif call is not None:
            call.append(word)
    return calls


FILE_NAME = re.compile(r"[\w./-]+\.(csv|json|gz|lagom)")


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder of one's own to parse in: options that want a file look whether it is there."""
    monkeypatch.chdir(tmp_path)


def parse(command: str, arguments: list[str]) -> None:
    """Parses a line as the command itself would, without running it. Raises what click raises."""
    for word in filter(FILE_NAME.fullmatch, arguments):
        if not word.startswith("/"):
            Path(word).parent.mkdir(parents=True, exist_ok=True)
            Path(word).touch()
    COMMANDS[command].make_context(command, list(arguments))


@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.usefixtures("here")
def test_every_example_is_a_command_line_that_exists(name: str) -> None:
    for example in examples_of(name):
        calls = lagom_calls(example)
        assert calls, f"no lagom in: {example}"
        for command, *arguments in calls:
            parse(command, arguments)


@pytest.mark.usefixtures("here")
def test_a_wrong_option_in_an_example_would_be_found() -> None:
    with pytest.raises(Exception, match=r"[Nn]o such option"):
        parse("watch", ["--onec"])


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_page_refers_to_is_there(name: str) -> None:
    sections = sections_of(name)
    for variable in re.findall(r"LAGOM_[A-Z_]+", "\n".join(line for lines in sections.values() for line in lines)):
        assert variable.rstrip("_") == "LAGOM" or variable in BY_NAME, variable
    for other in ", ".join(sections.get("SEE ALSO", ())).split(", "):
        assert other in {*COMMANDS} - {name}, f"{name} refers to {other}"


def test_every_command_stands_in_a_panel_of_the_first_screen() -> None:
    output = RUNNER.invoke(app, ["--help"]).output
    assert re.findall(r"─ (.*?) ─", output) == ["Options", *PANELS]


def test_each_arm_of_a_benchmark_is_explained_on_a_line_that_80_columns_hold() -> None:
    lines = sections_of("bench")["ARMS"]
    named = {word.partition("=")[0] for line in lines for word in re.split(r",? +", line)}
    assert {*BARE, *VALUED, *TUNERS, "own:ARM"} <= named
    shown = CliRunner(env={"COLUMNS": "80"}).invoke(app, ["bench", "--help"]).output
    assert all(line in shown for line in lines)
