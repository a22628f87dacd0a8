# SPDX-License-Identifier: Apache-2.0
"""A wheel holds what a job needs, and a machine without a compiler is told so in one sentence."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

from tests.processor_time import shared
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = ("liblagom.so", "libnccl-tuner-lagom.so", "liblagom_timeline.so")
#: A command by which pip looks the name up in an index: there it is another project's.
FROM_INDEX = re.compile(r"pip3? install (?:[^`#\n]* )?['\"]?lagom(?![-\w])")
PARTS = ("lagom", "csrc", "tuner_plugin", "setup.py", "pyproject.toml", "README.md", "LICENSE", "MANIFEST.in")


#: One rank that only its environment tells about lagom.
RANK = """
import os, sys
from pathlib import Path
from lagom.sim.virtual.nccl import VirtualNccl
from lagom.sim.virtual.selection import nccl_version
nccl = VirtualNccl(Path(os.environ["NCCL_TUNER_PLUGIN"]), nccl_version("2.30"))
one = nccl.communicator(0xE11, 2)
print("ready", flush=True)
sys.stdin.read()
one.destroy()
"""


def copy_source(target: Path) -> Path:
    """The parts of the repository that a build needs, without anything built."""
    unbuilt = shutil.ignore_patterns("_lib", "__pycache__", "*.so", "*.o")
    target.mkdir()
    for part in PARTS:
        if (ROOT / part).is_dir():
            shutil.copytree(ROOT / part, target / part, ignore=unbuilt)
        else:
            shutil.copy(ROOT / part, target / part)
    return target


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return copy_source(tmp_path / "source")


def quick_compiler(file: Path, *refuses: str) -> dict[str, str]:
    """The environment with gcc as it is quickest, where what it compiles need not be quick; it ``refuses`` options."""
    refusals = "".join(f'case " $* " in *" {option} "*) exit 1 ;; esac\n' for option in refuses)
    file.write_text(f'#!/bin/sh\n{refusals}exec gcc "$@" -O0\n')
    file.chmod(0o755)
    return os.environ | {"CC": str(file)}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """By way of the source distribution: that has to be complete as well."""
    folder = tmp_path_factory.mktemp("wheel")
    environ = quick_compiler(folder / "cc")
    source = copy_source(folder / "source")
    (source / "COMMIT").write_text("0123abc+\n")
    subprocess.run([sys.executable, "setup.py", "--quiet", "sdist", "--dist-dir", str(folder)], cwd=source, check=True)
    (packed,) = folder.glob("*.tar.gz")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "--no-index"]
    with shared("the wheel"):
        subprocess.run([*build, "--wheel-dir", str(folder), str(packed)], env=environ, check=True)
    (built,) = folder.glob("*.whl")
    return built


def test_a_wheel_holds_every_library_and_every_file_of_the_package(wheel: Path) -> None:
    assert "-py3-none-linux_" in wheel.name, "one wheel for every Python 3"
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {*(f"lagom/_lib/{library}" for library in LIBRARIES), "lagom/py.typed"} <= names
    libraries = {name for name in names if name.startswith("lagom/_lib/")}
    expected = {f"lagom/_lib/{name}" for name in (*LIBRARIES, "commit")}
    assert libraries == expected, "nothing there names an interpreter"
    source = wheel.parent / "source"
    files = {str(file.relative_to(source)) for file in (source / "lagom").rglob("*") if file.is_file()}
    left_out = {file for file in files - names if not file.endswith(".md")}
    assert not left_out, "add them to package-data in pyproject.toml"


def install(wheel: Path, prefix: Path) -> None:
    """A fresh environment with the wheel in it. numpy and the like are those of this Python; lagom is not, because a
    .pth file adds a folder without reading the .pth files in it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(prefix)], check=True)
    python = prefix / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--quiet", "--python", str(python), "install", "--no-deps", "--no-index"]
    environ = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}  # it may show a lagom to pip
    subprocess.run([*pip, str(wheel)], env=environ, check=True)
    (packages,) = (prefix / "lib").glob("python*/site-packages")
    (packages / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")


@pytest.fixture
def installed(wheel: Path, tmp_path: Path) -> Path:
    """An environment in a folder with a blank in its name."""
    prefix = tmp_path / "an environment"
    install(wheel, prefix)
    return prefix


def test_a_rank_starts_the_controller_of_an_installed_wheel_from_the_environment_alone(
    installed: Path, tmp_path: Path
) -> None:
    python = installed / "bin" / "python"
    (plugin,) = installed.glob("lib/python*/site-packages/lagom/_lib/libnccl-tuner-lagom.so")
    before = sorted(file.name for file in plugin.parent.iterdir())
    environ = {
        "PATH": "/usr/bin:/bin",
        "NCCL_TUNER_PLUGIN": str(plugin),
        "LAGOM_JOB_ID": "wheel",
        "LAGOM_SHM_DIR": str(tmp_path),
    }
    with subprocess.Popen(
        [str(python), "-c", RANK], cwd=tmp_path, env=environ, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as rank:
        assert rank.stdout is not None
        assert rank.stdout.readline() == "ready\n"
        log = tmp_path / "lagom-wheel" / "controller.log"
        wait_until(lambda: log.exists() and "lagom controller" in log.read_text(), "the controller")
    assert sorted(file.name for file in plugin.parent.iterdir()) == before, "no file is made on first use"


def test_a_wheel_names_the_commit_of_its_source_distribution(wheel: Path) -> None:
    """No git is there when a source distribution is built: what it carries is all there is."""
    assert zipfile.ZipFile(wheel).read("lagom/_lib/commit") == b"0123abc+\n"


def test_nobody_is_asked_to_install_the_lagom_of_pypi() -> None:
    assert FROM_INDEX.search("pip install --upgrade 'lagom[docs]'")
    assert not FROM_INDEX.search("pip install ./dist/lagom-0.1.0-py3-none-any.whl")
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    texts = [name for name in listed if name.startswith(("docs/", "examples/", "lagom/")) or name.endswith(".md")]
    found = [name for name in texts if FROM_INDEX.search((ROOT / name).read_text(errors="replace"))]
    assert found == []


def test_without_a_compiler_one_sentence_says_what_to_install(source: Path) -> None:
    environ = os.environ | {"CC": "no-such-compiler"}
    command = [sys.executable, "setup.py", "--quiet", "native"]
    done = subprocess.run(command, cwd=source, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    said = [line for line in done.stderr.splitlines() if "lagom" in line]
    assert said[-1].startswith("lagom: no C compiler: 'no-such-compiler' is not on PATH; install gcc")


def test_a_compiler_that_cannot_optimise_at_link_time_will_do(source: Path, tmp_path: Path) -> None:
    """Link-time optimisation drops what nobody calls, and so hides a symbol that is missing."""
    environ = quick_compiler(tmp_path / "cc", "-flto")
    command = [sys.executable, "setup.py", "--quiet", "native"]
    done = subprocess.run(command, cwd=source, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {name for name in LIBRARIES if (source / "lagom" / "_lib" / name).exists()} == set(LIBRARIES)


def test_the_libraries_need_nothing_but_libc() -> None:
    for name in LIBRARIES:
        done = subprocess.run(["ldd", str(ROOT / "lagom" / "_lib" / name)], capture_output=True, text=True, check=True)
        needed = {line.split()[0].split("/")[-1] for line in done.stdout.splitlines()}
        assert not {
            need for need in needed if not need.startswith(("linux-vdso", "libc.", "libdl", "libpthread", "ld-"))
        }


def test_the_core_needs_no_torch() -> None:
    script = "import sys; sys.modules['torch'] = None; import lagom.controller, lagom.search, lagom.sim, lagom.cli.main"
    subprocess.run([sys.executable, "-c", script], check=True)
