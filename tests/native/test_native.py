"""Builds and runs the C programs of this folder: one program a behaviour, exit 0 = holds, 77 = skipped, else broken.

A program is linked with the objects of ``csrc``, with the plugin's too if it is named ``plugin_*``, and with those of a
folder of its own name, if it has one. With
``LAGOM_SANITIZE=address|undefined|thread`` (or a comma list) everything is compiled and run under these sanitizers; a
list with spaces, ``none address,undefined thread``, makes and runs every program in each of these ways.
Objects and programs are cached in ``build/tests/<flags>`` and rebuilt when a source or any header is newer.
"""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.building import build_lock, compile_object, is_newer, newest_header

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
#: Of the compiler's ``-fsanitize``; "none" = without.
WAYS = os.environ.get("LAGOM_SANITIZE", "").split() or ["none"]
FULL = os.environ.get("LAGOM_TEST_FULL", "") == "1"
SKIPPED = 77
TIME_LIMIT_S = 3500 if FULL else 800

FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fno-omit-frame-pointer", "-pthread", "-Icsrc", "-I."]
FLAGS += ["-Wall", "-Wextra", "-Werror", "-Wshadow"]

PROGRAMS = sorted(path.stem for path in HERE.glob("*.c"))


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


def sources(folder: str) -> list[Path]:
    """The C sources of a library folder."""
    return sorted(path for path in (ROOT / folder).rglob("*.c") if path.name != "dump_layout.c")


def build(program: str, sanitize: str) -> Path:
    """The program, linked with what its name says it tests."""
    folders = ["csrc", "tuner_plugin"] if program.startswith("plugin_") else ["csrc"]
    header = newest_header(("csrc", "tuner_plugin", "tests/native"))
    out = folder_of(sanitize)
    with build_lock(out), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        files = [HERE / f"{program}.c", *sorted((HERE / program).glob("*.c"))]
        files += [path for folder in folders for path in sources(folder)]
        objects = list(pool.map(lambda path: compile_object(out, path, ["gcc", *flags(sanitize)], header), files))
        target = out / program
        if not is_newer(target, objects):
            # -rdynamic: the plugin tests play libnccl, and the plugin looks their ncclGetVersion up
            command = ["gcc", *flags(sanitize), *map(str, objects), "-rdynamic", "-Wl,--build-id=sha1", "-ldl"]
            subprocess.run([*command, "-o", str(target)], cwd=ROOT, check=True)
    return target


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
    code, out, err = run_to_the_end([str(build(program, sanitize)), *arguments(program, sanitize)], environ)
    if code == SKIPPED:
        pytest.skip(out.strip() or "the program says that it cannot run here")
    assert code == 0, f"{program} exited {code}\n{out[-6000:]}\n{err[-6000:]}"


def run_to_the_end(command: list[str], environ: dict[str, str]) -> tuple[int, str, str]:
    """Exit code, stdout, stderr. A program that takes too long goes with all it has started."""
    pipe = subprocess.PIPE
    process = subprocess.Popen(
        command, cwd=ROOT, env=environ, stdout=pipe, stderr=pipe, text=True, errors="replace", start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=TIME_LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, err = process.communicate()
        pytest.fail(f"{command[0]} did not end in {TIME_LIMIT_S} s\n{out[-6000:]}\n{err[-6000:]}")
    return process.returncode, out, err


@pytest.mark.skipif("none" not in WAYS, reason="with a sanitizer, programs test the objects they are linked with")
def test_the_built_libraries_are_not_older_than_their_sources() -> None:
    """plugin_* programs load lagom/_lib: an old library there would be what is tested."""
    library = ROOT / "lagom" / "_lib" / "libnccl-tuner-lagom.so"
    files = [path for folder in ("csrc", "tuner_plugin") for path in (ROOT / folder).rglob("*.[ch]")]
    newer = [path.name for path in files if path.stat().st_mtime > library.stat().st_mtime]
    assert not newer, f"run `make native`: changed since the library was built: {', '.join(newer)}"
