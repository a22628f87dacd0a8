# SPDX-License-Identifier: Apache-2.0
"""The wheel of this machine, in a fresh environment, with nothing but that environment's programs on PATH."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.contract.test_packaging import install
from tests.wheel.conftest import ROOT


@pytest.fixture(scope="module")
def installed(wheel_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ``bin`` folder of an environment with lagom."""
    prefix = tmp_path_factory.mktemp("installed") / "environment"
    (wheel,) = (ROOT / "dist").glob(f"lagom-*_{os.uname().machine}.whl")
    install(wheel, prefix)
    return prefix / "bin"


def lagom(installed: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environ = {"PATH": str(installed), "HOME": str(folder), "LAGOM_CACHE": "off", "COLUMNS": "200"}
    return subprocess.run(
        ["lagom", *arguments],
        executable=str(installed / "lagom"),
        cwd=folder,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_version_names_the_commit_of_the_build(installed: Path, tmp_path: Path) -> None:
    done = lagom(installed, tmp_path, "--version")
    command = ["git", "describe", "--always", "--exclude=*"]
    commit = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    assert done.stdout.strip() in (f"lagom 0.1.0 (commit {commit})", f"lagom 0.1.0 (commit {commit}+)")


def test_doctor_finds_the_plugin_of_the_wheel(installed: Path, tmp_path: Path) -> None:
    done = lagom(installed, tmp_path, "doctor")
    assert str(installed.parent) in done.stdout, done.stdout + done.stderr
    assert done.returncode in (0, 1), done.stderr


@pytest.mark.slow
def test_the_demo_runs(installed: Path, tmp_path: Path) -> None:
    done = lagom(installed, tmp_path, "demo")
    assert done.returncode == 0, done.stdout + done.stderr
