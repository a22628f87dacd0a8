# SPDX-License-Identifier: Apache-2.0
"""Each wheel is for the platform in its name: its tag, the libraries it links, the versions of glibc's symbols."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

from tests.wheel.conftest import ROOT

LIBC = re.compile(r"libc\.so\.6|libpthread\.so\.0|libdl\.so\.2|ld-linux.*")
NEWEST_GLIBC = (2, 17)
MACHINES = {"x86_64": "Advanced Micro Devices X86-64", "aarch64": "AArch64"}


def readelf(flags: str, library: Path) -> str:
    return subprocess.run(["readelf", flags, str(library)], capture_output=True, text=True, check=True).stdout


def visible(library: Path) -> set[str]:
    """What other libraries may call."""
    command = ["nm", "-D", "--defined-only", "--format=posix", str(library)]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return {line.split()[0] for line in lines}


def test_auditwheel_agrees_with_the_tag(wheel: Path, wheel_python: Path) -> None:
    command = [str(wheel_python), "-m", "auditwheel", "show", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    (tag,) = re.findall(r"-py3-none-(\w+)\.whl$", wheel.name)
    assert f'platform tag: "{tag}"' in " ".join(done.stdout.split())


def test_a_library_is_of_its_processor_and_links_nothing_but_libc(libraries: list[Path], processor: str) -> None:
    for library in libraries:
        assert MACHINES[processor] in readelf("-h", library)
        dynamic = readelf("-dW", library)
        needed = re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic)
        assert needed
        assert [name for name in needed if not LIBC.fullmatch(name)] == []
        assert re.findall(r"\(R(?:UN)?PATH\)", dynamic) == []


def test_no_symbol_is_newer_than_the_glibc_of_the_tag(libraries: list[Path]) -> None:
    for library in libraries:
        versions = re.findall(r"GLIBC_(\d+)\.(\d+)", readelf("-VW", library))
        assert versions
        assert max((int(major), int(minor)) for major, minor in versions) <= NEWEST_GLIBC


def test_a_library_is_like_the_one_that_gcc_builds(libraries: list[Path]) -> None:
    """The same symbols are visible, it stays loaded where NCCL closes it, and its relocations become read-only."""
    for library in libraries:
        built = ROOT / "lagom" / "_lib" / library.name
        assert visible(library) == visible(built)
        assert ("NODELETE" in readelf("-dW", library)) == ("NODELETE" in readelf("-dW", built))
        assert "GNU_RELRO" in readelf("-lW", library)
