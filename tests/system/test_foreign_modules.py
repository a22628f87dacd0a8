# SPDX-License-Identifier: Apache-2.0
"""No module of the folder that the job runs in is executed by the controller, whichever way it is started: in a folder
that other users may write to, such a module is theirs.

Played with plain virtual environments of every Python that is installed: the one lagom is developed in imports much at
its start, and what is imported already is not searched for again.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from lagom.wire.library import LIBRARY_FOLDER, controller_environment, controller_program, plugin_path
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parent.parent.parent
VERSIONS = ["3.10", "3.11", "3.12", "3.13"]

#: Writes its name down, by a module that is built into Python, and goes on as if it were a module.
TRAP = """
import posix
_file = posix.open({mark!r}, posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND)
posix.write(_file, (__name__ + " ").encode())
posix.close(_file)
"""
#: Stands for the controller: says that it runs, and what it could import from where.
CONTROLLER = """
import importlib, json, os, pkgutil, runpy, sys
sys.modules["lagom_done"] = sys
with open({done!r} + ".new", "w") as file:
    json.dump([sys.version_info[:2], sys.argv[1:], sys.path], file)
os.rename({done!r} + ".new", {done!r})
"""
RANK = """
import os, sys
from lagom.sim.virtual.nccl import VirtualNccl
from lagom.sim.virtual.selection import nccl_version
from pathlib import Path
sys.path[:] = [path for path in sys.path if path]
os.chdir(sys.argv[2])
one = VirtualNccl(Path(sys.argv[1]), nccl_version("2.30")).communicator(0x5EC, 2)
print("ready", flush=True)
sys.stdin.read()
one.destroy()
"""


@dataclass(frozen=True)
class Place:
    """A plain virtual environment, a package that is not installed in it, and a folder full of traps."""

    python: Path
    package: Path
    work: Path
    mark: Path
    done: Path

    def executed(self) -> list[str]:
        return self.mark.read_text().split() if self.mark.exists() else []


def works(python: str) -> bool:
    """A pyenv shim of a version that is not installed is there and does not run."""
    return subprocess.run([python, "-c", ""], capture_output=True, check=False).returncode == 0


def find_python(version: str) -> str:
    found = shutil.which(f"python{version}")
    if found is not None and works(found):
        return found
    for folder in sorted(Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"), "versions").glob(f"{version}.*")):
        if works(str(folder / "bin" / "python")):
            return str(folder / "bin" / "python")
    pytest.skip(f"python{version} is not installed here")


@pytest.fixture(scope="module", params=VERSIONS)
def python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a plain virtual environment."""
    folder = tmp_path_factory.mktemp("plain") / "venv"
    command = [find_python(request.param), "-m", "venv", "--without-pip", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return folder / "bin" / "python"


@pytest.fixture
def place(python: Path, tmp_path: Path) -> Place:
    package, work = tmp_path / "package", tmp_path / "work"
    (package / "lagom" / "controller").mkdir(parents=True)
    work.mkdir()
    here = Place(python, package, work, tmp_path / "executed", tmp_path / "done")
    for folder in (package / "lagom", package / "lagom" / "controller"):
        (folder / "__init__.py").touch()
    (package / "lagom" / "controller" / "__main__.py").write_text(CONTROLLER.format(done=str(here.done)))
    for name in modules_of(python):
        (work / f"{name}.py").write_text(TRAP.format(mark=str(here.mark)))
    return here


def modules_of(python: Path) -> list[str]:
    """All of the standard library, and what site imports where it is there: more than Python imports at its start."""
    asked = "import sys; print(*sys.stdlib_module_names)"
    names = subprocess.run([str(python), "-c", asked], check=True, capture_output=True, text=True).stdout.split()
    return [*names, "sitecustomize", "usercustomize", "lagom"]


def plain_environment(**more: str) -> dict[str, str]:
    """Nothing that the developer's shell asks of Python."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "LAGOM_"))}
    return {**kept, "LAGOM_CACHE": "off", **more}


def test_the_traps_catch_what_they_are_for(place: Place) -> None:
    """Started as it once was, the controller executes one: else the tests below would show nothing."""
    words = "import runpy, sys; sys.path[:] = [path for path in sys.path + sys.argv[1:2] if path]"
    subprocess.run([str(place.python), "-c", words], cwd=place.work, env=plain_environment(), check=False)
    assert place.executed()


@pytest.mark.parametrize("search_path", ["", ":", "{package}:", ":{package}::"])
def test_by_the_launcher(place: Place, search_path: str) -> None:
    _, *words, _ = controller_program()
    environ = controller_environment(plain_environment(PYTHONPATH=search_path.format(package=place.package)))
    process = subprocess.run(
        [str(place.python), *words, str(place.package), "--dir", "x"],
        cwd=place.work,
        env=environ,
        capture_output=True,
        text=True,
        check=False,
    )
    assert place.executed() == [], process.stderr
    assert place.done.exists(), process.stderr


@pytest.fixture
def plugin(place: Place) -> Path:
    """The plugin beside the stand-in's package, as in a checkout that is not installed."""
    folder = place.package / "lagom" / "_lib"
    shutil.copytree(LIBRARY_FOLDER, folder)
    return folder / plugin_path().name


@pytest.mark.parametrize("search_path", ["", ":/nowhere"])
def test_by_a_rank(place: Place, plugin: Path, search_path: str, tmp_path: Path) -> None:
    variables = plain_environment(
        LAGOM_JOB_ID="foreign-modules",
        LAGOM_SHM_DIR=str(tmp_path),
        LAGOM_DIR=str(tmp_path / "log"),
        LAGOM_PYTHON=str(place.python),
        PYTHONPATH=search_path,
    )
    rank = subprocess.Popen(
        [sys.executable, "-c", f"import sys; sys.path.append({str(ROOT)!r})\n{RANK}", str(plugin), str(place.work)],
        cwd=ROOT,
        env=variables,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert rank.stdout is not None
    ready = rank.stdout.readline()
    with contextlib.suppress(AssertionError):  # what its log says is told below
        wait_until(lambda: not ready or place.done.exists() or place.executed(), "the controller's stand-in")
    _, errors = rank.communicate()
    assert ready == "ready\n", errors
    log = tmp_path / "log" / "controller.log"
    said = log.read_text() if log.exists() else "no log"
    assert place.executed() == [], said
    assert place.done.exists(), f"the controller's stand-in did not run: {said}"
