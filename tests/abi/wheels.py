# SPDX-License-Identifier: Apache-2.0
"""NCCL's wheels: fetched by pip one at a time, unpacked to the one file that matters, kept only on request.

``LAGOM_ABI_CACHE`` names the folder (default: a folder under the user's cache), ``LAGOM_ABI_KEEP=1`` leaves the
libraries there: some 250 to 430 MB each. Everything here needs the network, or a folder that was kept.
"""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

MEMBER = "nvidia/nccl/lib/libnccl.so.2"
FIRST = (2, 21, 5)  # the first with a tuner that has a context
TAGS = ("manylinux2014", *(f"manylinux_2_{minor}" for minor in (17, 18, 24, 26, 27, 28, 31, 34)))
RELEASE = re.compile(r"\d+\.\d+\.\d+(\.post\d+)?")


class NoWheel(Exception):
    """pip has no such wheel for us, or cannot reach its index."""


@dataclass(frozen=True, order=True, slots=True)
class Wheel:
    """One library: release, CUDA major (``cu12``), processor."""

    version: str
    cuda: str
    machine: str = "x86_64"

    @property
    def code(self) -> int:
        """What its ncclGetVersion says: 23007 is 2.30.7, and post-releases are their release."""
        major, minor, patch = (int(part) for part in self.version.split(".")[:3])
        return major * 10000 + minor * 100 + patch

    def __str__(self) -> str:
        return f"{self.version}-{self.cuda}-{self.machine}"


def cache() -> Path:
    """Where libraries lie while they are looked at."""
    chosen = os.environ.get("LAGOM_ABI_CACHE", "")
    return Path(chosen) if chosen else Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"), "lagom-abi")


@contextmanager
def library(wheel: Wheel) -> Iterator[Path]:
    """The wheel's libnccl.so.2 for the length of a ``with``; :class:`NoWheel` if it cannot be had."""
    folder = cache() / str(wheel)
    path = folder / "libnccl.so.2"
    if not path.exists():
        _fetch(wheel, folder)
    try:
        yield path
    finally:
        if os.environ.get("LAGOM_ABI_KEEP", "") != "1":
            shutil.rmtree(folder)


def available(cuda: str, machine: str) -> list[Wheel]:
    """Every release of ``nvidia-nccl-<cuda>`` from 2.21.5 on that pip's index has for ``machine``, oldest first."""
    # pip names what there is only when asked for what there is not
    done = _pip("download", f"nvidia-nccl-{cuda}==0", machine, Path(tempfile.gettempdir()))
    listed = done.stderr.partition("from versions: ")[2].partition(")")[0]
    words = (word.strip() for word in listed.split(","))
    wheels = [Wheel(word, cuda, machine) for word in words if RELEASE.fullmatch(word)]
    return sorted((wheel for wheel in wheels if _numbers(wheel.version) >= FIRST), key=lambda wheel: wheel.code)


def newest() -> Wheel:
    """The newest release there is for this processor."""
    wheels = [wheel for cuda in ("cu12", "cu13") for wheel in available(cuda, platform.machine())]
    if not wheels:
        raise NoWheel("pip's index names no release of nvidia-nccl; is there a network?")
    return max(wheels, key=lambda wheel: (_numbers(wheel.version), wheel.cuda))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:3])


def _fetch(wheel: Wheel, folder: Path) -> None:
    """pip's file is unpacked beside its place and moved there whole: a broken download is no library."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
        done = _pip("download", f"nvidia-nccl-{wheel.cuda}=={wheel.version}", wheel.machine, Path(scratch))
        (packed,) = Path(scratch).glob("*.whl") if done.returncode == 0 else (None,)
        if packed is None:
            raise NoWheel(f"pip could not download {wheel}: {done.stderr.strip().splitlines()[-1:]}")
        with zipfile.ZipFile(packed) as archive:
            archive.extract(MEMBER, scratch)
        folder.mkdir(exist_ok=True)
        Path(scratch, MEMBER).replace(folder / "libnccl.so.2")


def _pip(verb: str, requirement: str, machine: str, into: Path) -> subprocess.CompletedProcess[str]:
    platforms = [f"--platform={tag}_{machine}" for tag in TAGS]
    options = ["--no-deps", "--no-cache-dir", "--only-binary=:all:", "--disable-pip-version-check", "--dest", str(into)]
    command = [sys.executable, "-m", "pip", verb, *options, *platforms, requirement]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=1200)
