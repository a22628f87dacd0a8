# SPDX-License-Identifier: Apache-2.0
"""Builds and runs the C programs of this folder: one program a behaviour, exit 0 = holds, 77 = skipped, else broken.

How: ``programs.py``. With ``LAGOM_SANITIZE=address|undefined|thread`` (or a comma list) everything is compiled and run
under these sanitizers. With a list of ways, ``none address,undefined thread``, every program is run in each way that
can show something: under ThreadSanitizer those in which threads run, without a sanitizer those that load the built
library or leave something out under one.
Objects and programs are cached in ``build/tests/<flags>`` and rebuilt when a source or any header is newer.
"""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from tests.native.programs import PROGRAMS, ROOT, SKIPPED, build, flags, run_to_the_end, text_of
from tests.tiers import FULL

#: Of the compiler's ``-fsanitize``; "none" = without.
WAYS = os.environ.get("LAGOM_SANITIZE", "").split() or ["none"]
#: Every interleaving: ten times as many states a second without a sanitizer.
EXHAUSTIVE = "agreement_interleavings"


def shows_something(program: str, sanitize: str) -> bool:
    """Whether one of several ways to build a program finds what the others cannot."""
    if sanitize == "thread":  # between processes it sees nothing
        return any(word in text_of(program) for word in ("pthread_create(", "timeline_harness.h"))
    if sanitize == "none":
        return program == EXHAUSTIVE or any(word in text_of(program) for word in ("dlopen(", "__SANITIZE_"))
    return True


CASES = [(way, program) for way in WAYS for program in PROGRAMS if len(WAYS) == 1 or shows_something(program, way)]


def folder_of(sanitize: str) -> Path:
    """Where objects and programs lie."""
    return ROOT / "build" / "tests" / hashlib.sha256(" ".join(flags(sanitize)).encode()).hexdigest()[:8]


def arguments(program: str, sanitize: str) -> list[str]:
    """What a program is told; only the interleavings come in sizes."""
    if program != EXHAUSTIVE:
        return []
    if sanitize != "none":
        return ["as shipped, one rank a call ahead"]
    return ["full"] if FULL else []


@pytest.mark.parametrize(("sanitize", "program"), CASES)
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
