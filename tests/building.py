# SPDX-License-Identifier: Apache-2.0
"""How the C programs of the tests are built: one builder at a time, only what is older than its sources.

What that costs is reported by itself, because the test that comes first would pay for all."""

from __future__ import annotations

import fcntl
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.processor_time import shared

ROOT = Path(__file__).resolve().parent.parent


def newest_header(folders: Iterable[str]) -> float:
    """When a header below ``folders`` last changed. Any header rebuilds everything: cheap here and never wrong."""
    return max(path.stat().st_mtime for folder in folders for path in (ROOT / folder).rglob("*.h"))


def is_newer(target: Path, inputs: Sequence[Path], header: float = 0.0) -> bool:
    """Whether ``target`` is newer than all it is made of."""
    return target.exists() and target.stat().st_mtime > max([header, *(path.stat().st_mtime for path in inputs)])


def compile_object(folder: Path, source: Path, command: Sequence[str], header: float) -> Path:
    """The object of one source, below ``folder``; ``command`` is the compiler with its flags."""
    target = folder / source.relative_to(ROOT).with_suffix(".o")
    if not is_newer(target, [source], header):
        target.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([*command, "-c", str(source.relative_to(ROOT)), "-o", str(target)], cwd=ROOT, check=True)
    return target


@contextmanager
def build_lock(folder: Path) -> Iterator[None]:
    """One builder at a time, also between parallel pytest workers."""
    folder.mkdir(parents=True, exist_ok=True)
    with shared("compiling C programs"), (folder / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
