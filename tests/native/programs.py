# SPDX-License-Identifier: Apache-2.0
"""How the C programs of this folder are built and run, for ``test_native.py`` and for the wheels of other processors.

A program is linked with the objects of ``csrc``, with the plugin's too if it is named ``plugin_*``, and with those of a
folder of its own name, if it has one.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from typing import IO

import pytest

from tests.building import build_lock, compile_object, is_newer, newest_header
from tests.tiers import amount

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
TIME_LIMIT_S = amount(800, 3500)
SKIPPED = 77  # the exit code of a program that cannot run here

FLAGS = ["-std=c11", "-D_GNU_SOURCE", "-g1", "-fno-omit-frame-pointer", "-pthread", "-Icsrc", "-I."]
FLAGS += ["-Wall", "-Wextra", "-Werror", "-Wshadow"]

PROGRAMS = sorted(path.stem for path in HERE.glob("*.c"))


def flags(sanitize: str) -> list[str]:
    """gcc's, under the sanitizers that ``-fsanitize`` is given; "none" = without."""
    if sanitize == "none":
        return [*FLAGS, "-O2"]
    # gcc warns that the thread sanitizer does not model fences; ours only order atomics, which it does
    no_warning = ["-Wno-tsan"] if "thread" in sanitize else []
    return [*FLAGS, "-O1", f"-fsanitize={sanitize}", "-fno-sanitize-recover=all", *no_warning]


@cache
def text_of(program: str) -> str:
    """The program's sources, with the headers of the tests that they include."""
    files = [HERE / f"{program}.c", *sorted((HERE / program).glob("*.[ch]"))]
    for file in files:  # which grows meanwhile
        included = (ROOT / name for name in re.findall(r'"(tests/native/[^"]+)"', file.read_text()))
        files += [header for header in included if header not in files]
    return "".join(file.read_text() for file in files)


def sources(folder: str) -> list[Path]:
    """The C sources of a library folder."""
    return sorted(path for path in (ROOT / folder).rglob("*.c") if path.name != "dump_layout.c")


def build(program: str, compiler: Sequence[str], out: Path) -> Path:
    """The program, built with ``compiler`` and its flags below ``out``."""
    folders = ["csrc", "tuner_plugin"] if program.startswith("plugin_") else ["csrc"]
    header = newest_header(("csrc", "tuner_plugin", "tests/native"))
    with build_lock(out), ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        files = [HERE / f"{program}.c", *sorted((HERE / program).glob("*.c"))]
        files += [path for folder in folders for path in sources(folder)]
        objects = list(pool.map(lambda path: compile_object(out, path, compiler, header), files))
        target = out / program
        if not is_newer(target, objects):
            # -rdynamic: the plugin tests play libnccl, and the plugin looks their ncclGetVersion up
            command = [*compiler, *map(str, objects), "-rdynamic", "-Wl,--build-id=sha1", "-ldl"]
            subprocess.run([*command, "-o", str(target)], cwd=ROOT, check=True)
    return target


def run_to_the_end(command: list[str], environ: dict[str, str], folder: Path = ROOT) -> tuple[int, str, str]:
    """Exit code, stdout, stderr. With the program goes all that it has started: where a check failed in it, children of
    it may be stopped or wait for ever."""
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        process = subprocess.Popen(command, cwd=folder, env=environ, stdout=out, stderr=err, start_new_session=True)
        try:
            code = process.wait(TIME_LIMIT_S)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        said = [_all_of(file) for file in (out, err)]
    if code is None:
        pytest.fail(f"{command[0]} did not end in {TIME_LIMIT_S} s\n{said[0][-6000:]}\n{said[1][-6000:]}")
    return code, said[0], said[1]


def _all_of(file: IO[bytes]) -> str:
    file.seek(0)
    return file.read().decode(errors="replace")
