"""The manual keeps up with the commands: every command has a page, every example is a command line that exists."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lagom.cli import manual
from lagom.cli.main import app
from lagom.cli.roff import manual_page
from lagom.settings import BY_NAME

RUNNER = CliRunner()
COMMANDS = manual.commands_of(app)
PAGES = [*COMMANDS, *manual.topics()]
OPERATORS = {"|", ">", ">>", "&&", ";"}


def page(name: str) -> manual.Page:
    found = manual.page_of(name)
    assert found is not None, f"lagom/cli/pages/{name}.txt is missing"
    return found


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_every_section(command: str) -> None:
    sections = page(command).sections
    assert tuple(sections) == manual.HEADINGS
    assert all(any(lines) for lines in sections.values())
    assert command == "demo" or len(list(page(command).examples())) >= 2
    assert all(len(line) <= 120 for lines in sections.values() for line in lines)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_ends_with_the_page(command: str) -> None:
    result = RUNNER.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert result.output.index("Usage:") < result.output.index("EXAMPLES") < result.output.index("SEE ALSO")
    assert all(f"$ {example}" in result.output for example in page(command).examples())


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


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.usefixtures("here")
def test_every_example_is_a_command_line_that_exists(name: str) -> None:
    for example in page(name).examples():
        calls = lagom_calls(example)
        assert calls, f"no lagom in: {example}"
        for command, *arguments in calls:
            parse(command, arguments)


@pytest.mark.usefixtures("here")
def test_a_wrong_option_in_an_example_would_be_found() -> None:
    with pytest.raises(Exception, match=r"[Nn]o such option"):
        parse("watch", ["--onec"])


@pytest.mark.parametrize("name", PAGES)
def test_what_a_page_refers_to_is_there(name: str) -> None:
    sections = page(name).sections
    for variable in re.findall(r"LAGOM_[A-Z_]+", "\n".join(line for lines in sections.values() for line in lines)):
        assert variable.rstrip("_") == "LAGOM" or variable in BY_NAME, variable
    for other in ", ".join(sections.get("SEE ALSO", ())).split(", "):
        assert other in {*PAGES} - {name}, f"{name} refers to {other}"


def test_every_command_stands_in_a_panel_of_the_first_screen() -> None:
    output = RUNNER.invoke(app, ["--help"]).output
    assert "More" not in re.findall(r"─ (.*?) ─", output)
    assert all(panel in output for panel in manual.PANELS)


@pytest.mark.parametrize(
    ("topic", "words"),
    [
        ("watch", "EXAMPLES"),
        ("LAGOM_MODE", "auto, tune, replay, off"),
        ("lagom_set", "LAGOM_SET"),
        ("rules", "first rule"),
    ],
)
def test_help_knows_commands_settings_and_topics(topic: str, words: str) -> None:
    result = RUNNER.invoke(app, ["help", topic])
    assert result.exit_code == 0
    assert words in result.output


def test_help_on_nothing_is_the_first_screen_and_on_nonsense_a_sentence() -> None:
    assert "Usage: " in RUNNER.invoke(app, ["help"]).output
    done = subprocess.run([sys.executable, "-m", "lagom", "help", "nonsense"], capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith("lagom: there is no help on 'nonsense'; ask for one of: run, ")


def test_the_man_page_has_it_all_and_no_request_by_accident() -> None:
    text = RUNNER.invoke(app, ["help", "--man"]).output
    assert text == manual_page(type("Root", (), {"help": manual_help(), "commands": COMMANDS})())
    for command in COMMANDS:
        assert f".SS lagom {command}".replace("-", "\\-") in text
    known = {".TH", ".SH", ".SS", ".B", ".PP", ".TP", ".RS", ".RE", ".nf", ".fi"}
    requests = {line.split(" ")[0] for line in text.splitlines() if line.startswith((".", "'"))}
    assert requests <= known


def manual_help() -> str:
    return str(app.info.help)
