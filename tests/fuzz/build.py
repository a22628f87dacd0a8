# SPDX-License-Identifier: Apache-2.0
"""Builds the fuzz targets: with clang's libFuzzer where it is installed, with gcc and ``standalone.c`` everywhere.

Both under AddressSanitizer and UndefinedBehaviorSanitizer, without recovery. What a target is linked with stands in
TARGETS; objects are cached in ``build/tests/<flags>``, programs in ``build/fuzz``.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path

from tests.building import build_lock, compile_object, newest_header
from tests.native.programs import flags

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CORPUS = HERE / "corpus"

CORE = ("csrc/agreement", "csrc/plan", "csrc/config", "csrc/shm")
#: target -> the library folders it is linked with (the plugin's settings and names come with all of it).
TARGETS: dict[str, tuple[str, ...]] = {
    "text": (*CORE, "csrc/timeline", "tuner_plugin", "tests/fuzz/config.c", "tests/fuzz/environment.c"),
    "agreement": CORE,
    "region": (*CORE, "csrc/timeline/kernel_name.c"),
    "timeline": (*CORE, "csrc/timeline"),
}

SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
#: engine -> compiler, flags of an object, flags of the program. gcc's are those of ``tests/native`` under both
#: sanitizers, and the objects lie in the same folder: `make test` builds them once.
ENGINES: dict[str, tuple[str, list[str], list[str]]] = {
    "libfuzzer": (
        "clang",
        [*flags("none"), *SANITIZED, "-fsanitize=fuzzer-no-link"],
        [*SANITIZED, "-fsanitize=fuzzer"],
    ),
    "standalone": ("gcc", flags("address,undefined"), SANITIZED),
}


@cache
def have_libfuzzer() -> bool:
    """Whether clang and its libFuzzer are installed (Debian and Ubuntu: ``apt install clang``)."""
    if shutil.which("clang") is None:
        return False
    with tempfile.TemporaryDirectory() as folder:
        probe = Path(folder) / "probe.c"
        probe.write_text("int LLVMFuzzerTestOneInput(const char *d, unsigned long n) { (void)d; (void)n; return 0; }\n")
        flags = ENGINES["libfuzzer"][2]
        command = ["clang", *flags, str(probe), "-o", str(Path(folder) / "probe")]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0


def sources(target: str, engine: str) -> list[Path]:
    """Everything one program is made of."""
    own = [HERE / f"{target}.c"] + ([HERE / "standalone.c"] if engine == "standalone" else [])
    return own + [path for entry in TARGETS[target] for path in library_sources(ROOT / entry)]


def library_sources(entry: Path) -> list[Path]:
    """A file, or the C files of a folder."""
    return [entry] if entry.suffix == ".c" else sorted(entry.rglob("*.c"))


def build(target: str, engine: str) -> Path:
    """The program of one target."""
    header = newest_header(("csrc", "tuner_plugin", "tests/fuzz"))
    compiler, compile_flags, flags = ENGINES[engine]
    folder = ROOT / "build" / "tests" / hashlib.sha256(" ".join(compile_flags).encode()).hexdigest()[:8]
    command = [compiler, *compile_flags]
    with build_lock(ROOT / "build" / "fuzz"), ThreadPoolExecutor(2) as pool:
        made = pool.map(lambda source: compile_object(folder, source, command, header), sources(target, engine))
        objects = list(made)
        program = ROOT / "build" / "fuzz" / f"{target}-{engine}"
        if not program.exists() or program.stat().st_mtime < max(path.stat().st_mtime for path in objects):
            linked = program.with_suffix(".new")  # a program that runs, or is being written, cannot be started
            call([compiler, "-g", "-pthread", *flags, *map(str, objects), "-ldl", "-o", str(linked)])
            linked.replace(program)
    return program


def call(command: list[str]) -> None:
    """Runs the compiler; what it says is the explanation when it fails."""
    subprocess.run(command, cwd=ROOT, check=True)
