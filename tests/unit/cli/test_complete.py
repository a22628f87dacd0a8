# SPDX-License-Identifier: Apache-2.0
"""What the Tab key offers, asked as the shells ask: by the variables of their scripts."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lagom import journal
from lagom.cli import complete
from lagom.search import STRATEGIES
from tests.forked_commands import lagom

SHELLS = {
    "bash": lambda line: {"COMP_WORDS": line, "COMP_CWORD": str(len(line.split(" ")) - 1)},
    "zsh": lambda line: {"_TYPER_COMPLETE_ARGS": line},
    "fish": lambda line: {"_TYPER_COMPLETE_ARGS": line, "_TYPER_COMPLETE_FISH_ACTION": "get-args"},
}


def tab(shell: str, line: str, where: Path) -> str:
    """What the installed script would be told."""
    environ = {**os.environ, "_LAGOM_COMPLETE": f"complete_{shell}", **SHELLS[shell](line)}
    return lagom(env=environ, cwd=where).stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_every_shell_is_offered_the_strategies(shell: str, tmp_path: Path) -> None:
    offered = tab(shell, "lagom run --strategy ", tmp_path)
    assert all(name in offered for name in STRATEGIES)


def test_commands_and_options_are_offered(tmp_path: Path) -> None:
    assert tab("bash", "lagom wat", tmp_path).split() == ["watch"]
    assert tab("bash", "lagom watch --prom", tmp_path).split() == ["--prometheus"]


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two log folders, the second the newer, and one that is none."""
    site = journal.SiteRecord(index=0, function="allgather", bytes=416 << 20)
    for number, name in enumerate(("lagom-old", "lagom-new")):
        with journal.Journal(tmp_path / name) as log:
            log.write(journal.Program(communicator=0, period=2, sites=(site,)))
        os.utime(tmp_path / name / journal.LOG_NAME, (number + 1, number + 1))
    (tmp_path / "lagom-empty").mkdir()
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_log_folders_are_offered_newest_first(folders: Path) -> None:
    assert complete.log_folders("lagom-") == ["lagom-new", "lagom-old"]
    assert complete.log_folders("lagom-o") == ["lagom-old"]
    assert complete.log_folders(f"{folders}/") == [f"{folders}/lagom-new", f"{folders}/lagom-old"]
    assert complete.sites("all") == ["allgather 416M"]


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        ("allg", ["allgather:"]),
        ("allgather:>", ["allgather:>=1M:"]),
        ("allgather:>=1M:c", ["allgather:>=1M:chunk="]),
        ("allgather:>=1M:nc=4,n", ["allgather:>=1M:nc=4,nc=", "allgather:>=1M:nc=4,nt="]),
        ("nothing", []),
    ],
)
def test_rules_are_offered_part_by_part(typed: str, offered: list[str]) -> None:
    assert complete.rules(typed) == offered


def test_presets_and_modes_are_offered() -> None:
    assert complete.machines("h200") == ["h200-nvlink", "h200-host"]
    assert "fsdp-llama3-8b" in complete.workloads("fsdp_ll")
    assert complete.modes("r") == ["replay", "replay-or-tune"]


def test_a_line_that_asks_for_nothing_known_is_answered_with_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert complete.log_folders("x/y/z") == []
    assert complete.sites("") == []
