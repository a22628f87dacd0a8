"""Builds the fuzz targets: with clang's libFuzzer where it is installed, with gcc and ``standalone.c`` everywhere.

Both under AddressSanitizer and UndefinedBehaviorSanitizer, without recovery. What a target is linked with stands in
TARGETS; objects are cached in ``build/tests/<flags>``, programs in ``build/fuzz``.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
CORPUS = HERE / "corpus"

CORE = ("csrc/agreement", "csrc/plan", "csrc/profile", "csrc/shm")
#: target -> the library folders it is linked with (the plugin's settings and names come with all of it).
TARGETS: dict[str, tuple[str, ...]] = {
    "text": (*CORE, "csrc/timeline", "tuner_plugin", "tests/fuzz/profile.c", "tests/fuzz/environment.c"),
    "agreement": CORE,
    "region": (*CORE, "csrc/timeline/kernel_name.c"),
    "timeline": (*CORE, "csrc/timeline"),
}

COMMON = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-g", "-fno-omit-frame-pointer", "-pthread", "-Icsrc", "-I."]
COMMON += ["-Wall", "-Wextra", "-Werror", "-Wshadow"]
SANITIZED = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
#: engine -> compiler, flags of an object, flags of the program. gcc's are those of ``tests/native`` under both
#: sanitizers, and the objects lie in the same folder: `make test` builds them once.
ENGINES: dict[str, tuple[str, list[str], list[str]]] = {
    "libfuzzer": ("clang", [*COMMON, *SANITIZED, "-fsanitize=fuzzer-no-link"], [*SANITIZED, "-fsanitize=fuzzer"]),
    "standalone": ("gcc", [*COMMON, *SANITIZED], SANITIZED),
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


def newest_header() -> float:
    """Any header rebuilds everything: cheap here and never wrong."""
    folders = ("csrc", "tuner_plugin", "tests/fuzz")
    return max(path.stat().st_mtime for folder in folders for path in (ROOT / folder).rglob("*.h"))


def compile_object(source: Path, engine: str, header: float) -> Path:
    """The object of one source, made anew when the source or any header is newer."""
    compiler, flags, _ = ENGINES[engine]
    key = hashlib.sha256(" ".join(flags).encode()).hexdigest()[:8]
    target = ROOT / "build" / "tests" / key / source.relative_to(ROOT).with_suffix(".o")
    if not target.exists() or target.stat().st_mtime < max(header, source.stat().st_mtime):
        target.parent.mkdir(parents=True, exist_ok=True)
        call([compiler, *flags, "-c", str(source.relative_to(ROOT)), "-o", str(target)])
    return target


@contextmanager
def build_lock() -> Iterator[None]:
    """One builder at a time, also between parallel pytest workers."""
    folder = ROOT / "build" / "fuzz"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def build(target: str, engine: str) -> Path:
    """The program of one target."""
    header = newest_header()
    with build_lock(), ThreadPoolExecutor(2) as pool:
        objects = list(pool.map(lambda source: compile_object(source, engine, header), sources(target, engine)))
    program = ROOT / "build" / "fuzz" / f"{target}-{engine}"
    if not program.exists() or program.stat().st_mtime < max(path.stat().st_mtime for path in objects):
        compiler, _, flags = ENGINES[engine]
        call([compiler, "-g", "-pthread", *flags, *map(str, objects), "-ldl", "-o", str(program)])
    return program


def call(command: list[str]) -> None:
    """Runs the compiler; what it says is the explanation when it fails."""
    subprocess.run(command, cwd=ROOT, check=True)
