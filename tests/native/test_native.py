# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the C programs of this folder: one program a behaviour, exit 0 = holds, 77 = skipped, else broken.

How: ``programs.py``. With ``LAGOM_SANITIZE=address|undefined|thread`` (or a comma list) everything is compiled and run
under these sanitizers; a list with spaces, ``none address,undefined thread``, makes and runs every program in each of
these ways.
Objects and programs are cached in ``build/tests/<flags>`` and rebuilt when a source or any header is newer.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.native.programs import FLAGS, FULL, PROGRAMS, ROOT, SKIPPED, build, run_to_the_end

#: Of the compiler's ``-fsanitize``; "none" = without.
WAYS = os.environ.get("LAGOM_SANITIZE", "").split() or ["none"]


def flags(sanitize: str) -> list[str]:
    """The compiler's."""
    if sanitize == "none":
        return FLAGS
    # gcc warns that the thread sanitizer does not model fences; ours only order atomics, which it does
    no_warning = ["-Wno-tsan"] if "thread" in sanitize else []
    return [*FLAGS, f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", *no_warning]


def folder_of(sanitize: str) -> Path:
    """Where objects and programs lie."""
    return ROOT / "build" / "tests" / hashlib.sha256(" ".join(flags(sanitize)).encode()).hexdigest()[:8]


def arguments(program: str, sanitize: str) -> list[str]:
    """What a program is told; only the interleavings come in sizes."""
    if program != "agreement_interleavings":
        return []
    if sanitize != "none":
        return ["as shipped, one rank a call ahead"]
    return ["full"] if FULL else []


@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("sanitize", WAYS)
def test_program(program: str, sanitize: str, tmp_path: Path) -> None:
    """The program's own checks."""
    environ = {
        **os.environ,
        "LAGOM_SHM_DIR": str(tmp_path),
        "LAGOM_SANITIZE": "" if sanitize == "none" else sanitize,  # empty: plugin_* load the library that was built
        "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0",
        "TSAN_OPTIONS": "halt_on_error=1:die_after_fork=0",
        "UBSAN_OPTIONS": "print_stacktrace=1",
    }
    built = build(program, ["gcc", *flags(sanitize)], folder_of(sanitize))
    code, out, err = run_to_the_end([str(built), *arguments(program, sanitize)], environ)
    if code == SKIPPED:
        pytest.skip(out.strip() or "the program says that it cannot run here")
    assert code == 0, f"{program} exited {code}\n{out[-6000:]}\n{err[-6000:]}"


@pytest.mark.skipif("none" not in WAYS, reason="with a sanitizer, programs test the objects they are linked with")
def test_the_built_libraries_are_not_older_than_their_sources() -> None:
    """plugin_* programs load lagom/_lib: an old library there would be what is tested."""
    library = ROOT / "lagom" / "_lib" / "libnccl-tuner-lagom.so"
    files = [path for folder in ("csrc", "tuner_plugin") for path in (ROOT / folder).rglob("*.[ch]")]
    newer = [path.name for path in files if path.stat().st_mtime > library.stat().st_mtime]
    assert not newer, f"run `make native`: changed since the library was built: {', '.join(newer)}"
