# SPDX-License-Identifier: Apache-2.0
"""Names in a log are the job's, or whoever wrote it: neither terminal nor page takes them for more than names."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lagom import journal
from lagom.cli.main import app
from tests.unit.report.test_tuning_report import events

MARKUP = "<script>alert(1)</script>"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\r"
HOSTILE = {name: f"{name} {MARKUP}{ESCAPES}[bold red]{{{{x}}}}" for name in ("llama", "fsdp", "NVIDIA H200", "2.30.7")}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A log of which every name is hostile."""
    lines = [event.model_dump_json(by_alias=True) for event in events()]
    for name, hostile in HOSTILE.items():
        lines = [line.replace(json.dumps(name), json.dumps(hostile)) for line in lines]
    (tmp_path / journal.LOG_NAME).write_text("\n".join(lines) + "\n")
    return tmp_path


@pytest.mark.parametrize("command", ["log", "report"])
def test_no_escape_sequence_reaches_the_terminal(command: str, folder: Path) -> None:
    more = ["--html", str(folder / "page")] if command == "report" else []
    result = CliRunner().invoke(app, [command, str(folder), *more])
    assert result.exit_code == 0, result.output
    for sequence in ("\x1b]0;", "\x07", "\x1b[2J", "\r"):
        assert sequence not in result.output


def test_no_markup_reaches_the_page(folder: Path) -> None:
    result = CliRunner().invoke(app, ["report", str(folder), "--html", str(folder / "page")])
    assert result.exit_code == 0, result.output
    page = (folder / "page" / "report.html").read_text()
    assert "llama" in page
    assert MARKUP not in page
    assert "\x1b" not in page
