# SPDX-License-Identifier: Apache-2.0
"""Imports only go down: the layers of ``pyproject.toml`` hold, and an import that goes up is seen."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
LINT = "from importlinter.cli import lint_imports_command; lint_imports_command()"


def lint_imports(root: Path) -> subprocess.CompletedProcess[str]:
    """``make lint``'s check of imports, of the copy below ``root``."""
    return subprocess.run(
        [sys.executable, "-c", LINT, "--no-cache", "--no-logo"],
        cwd=root,
        env={"PYTHONPATH": str(root)},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """The package's Python files and the contract."""
    shutil.copytree(ROOT / "lagom", tmp_path / "lagom", ignore=shutil.ignore_patterns("_lib", "__pycache__"))
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_imports_only_go_down(copy: Path) -> None:
    done = lint_imports(copy)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ("wire/layout.py", "lagom.journal"),
        ("cost/__init__.py", "lagom.controller"),
        ("launch/__init__.py", "lagom.cli"),
    ],
)
def test_an_import_that_goes_up_inside_a_function_is_seen(copy: Path, lower: str, upper: str) -> None:
    with (copy / "lagom" / lower).open("a") as file:
        file.write(f"\n\ndef planted():\n    import {upper}\n")
    done = lint_imports(copy)
    assert done.returncode == 1
    package = lower.partition("/")[0]
    assert f"lagom.{package} is not allowed to import {upper}" in done.stdout


@pytest.mark.parametrize("planted", ["from lagom import read_run", "from lagom import __version__", "import lagom"])
def test_an_import_of_the_public_names_is_seen(copy: Path, planted: str) -> None:
    with (copy / "lagom" / "wire" / "plan.py").open("a") as file:
        file.write(f"\n\ndef planted():\n    {planted}\n")
    done = lint_imports(copy)
    assert done.returncode == 1
    assert "lagom.wire.plan -> lagom" in done.stdout


def test_a_module_outside_the_layers_is_seen(copy: Path) -> None:
    (copy / "lagom" / "unlisted.py").write_text("")
    done = lint_imports(copy)
    assert done.returncode == 1
    assert "lagom.unlisted" in done.stdout


def test_a_cycle_within_a_layer_is_seen(copy: Path) -> None:
    with (copy / "lagom" / "files.py").open("a") as file:
        file.write("\n\ndef planted():\n    import lagom.settings\n")
    with (copy / "lagom" / "settings.py").open("a") as file:
        file.write("\n\ndef planted():\n    import lagom.files\n")
    done = lint_imports(copy)
    assert done.returncode == 1
    assert "lagom.files" in done.stdout
