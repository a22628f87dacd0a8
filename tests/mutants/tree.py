# SPDX-License-Identifier: Apache-2.0
"""A private copy of the repository in which faults are planted; the checkout itself is only read."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tests.mutants.areas import ROOT, Stage

#: Seconds for one run of pytest; for one test. Past them, it counts as failed.
STAGE_LIMIT_S, TEST_LIMIT_S = 900, 240


@dataclass(frozen=True)
class Outcome:
    """Of one run of pytest."""

    failed: tuple[str, ...]  # test ids; ("time limit",) where it did not end
    compiled: bool = True

    @property
    def passed(self) -> bool:
        return self.compiled and not self.failed


class Tree:
    """The copy, with what is built already so that only what changes is built anew."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        self.temporary = folder / "tmp"
        self.temporary.mkdir(parents=True)
        listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
        names = subprocess.run(listing, cwd=ROOT, check=True, capture_output=True, text=True).stdout
        for name in filter(None, names.split("\0")):
            if (ROOT / name).is_file():
                (self.root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, self.root / name)
        for built in ("lagom/_lib", "build/native", "build/tests"):
            if (ROOT / built).is_dir():
                shutil.copytree(ROOT / built, self.root / built)
        #: The fault in the C sources, and the one that lagom/_lib was built with.
        self.planted: bytes | None = None
        self.built_with: bytes | None = None
        self.running: subprocess.Popen[str] | None = None

    def write(self, path: str, content: bytes, planted: bool) -> None:
        """Changes a file, or restores it. A header keeps its time and the sources that include it get a new one: any
        newer header would make the build compile everything."""
        file = self.root / path
        time = file.stat().st_mtime_ns
        file.write_bytes(content)
        if path.endswith(".h"):
            os.utime(file, ns=(time, time))
            for source in self.including(path):
                os.utime(source)
        if not path.endswith(".py"):
            self.planted = content if planted else None

    def including(self, header: str) -> list[Path]:
        """The C sources that include a header, by way of other headers too."""
        files = [
            file for folder in ("csrc", "tuner_plugin", "tests/native") for file in (self.root / folder).rglob("*.[ch]")
        ]
        texts = {file: file.read_text() for file in files}
        changed, sources = {header}, set[Path]()
        while True:
            names = {name.removeprefix(folder) for name in changed for folder in ("csrc/", "tests/native/")}
            more = {file for file, text in texts.items() if any(f'"{name}"' in text for name in names)}
            if more <= sources:
                return sorted(file for file in sources if file.suffix == ".c")
            sources |= more
            changed |= {str(file.relative_to(self.root)) for file in more if file.suffix == ".h"}

    def run(self, command: list[str], limit: float, **extra: str) -> tuple[int, str]:
        """Exit code and output; at the limit (-1), the command goes with all it has started."""
        environment = {key: value for key, value in os.environ.items() if not key.startswith(("LAGOM_", "NCCL_"))}
        environment |= {key: os.environ[key] for key in ("LAGOM_TEST_FULL",) if key in os.environ}
        environment |= {
            "PYTHONPATH": str(self.root),
            "PYTHONDONTWRITEBYTECODE": "1",
            "TMPDIR": str(self.temporary),
        } | extra
        process = self.running = subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        try:
            output = process.communicate(timeout=limit)[0]
            code = process.returncode
        except subprocess.TimeoutExpired:
            code, output = -1, ""
        finally:
            self.end()
        for left in self.temporary.iterdir():
            shutil.rmtree(left, ignore_errors=True)
        return code, output

    def end(self) -> None:
        """Ends what still runs here, with all it has started."""
        if self.running is not None and self.running.poll() is None:
            os.killpg(self.running.pid, signal.SIGKILL)
            self.running.wait()

    def build(self) -> bool:
        """lagom/_lib as the sources are now; whether they compile."""
        if self.built_with == self.planted:
            return True
        code, _ = self.run([sys.executable, "setup.py", "--quiet", "native"], STAGE_LIMIT_S)
        self.built_with = self.planted if code == 0 else b"unknown"
        return code == 0

    def compiles(self, path: str) -> bool:
        """Whether gcc takes a source or header with the project's warnings."""
        flags = ["-std=c11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra", "-Werror", "-Wshadow", "-Icsrc", "-I."]
        flags += ["-x", "c", "-c", "-o", "/dev/null"]
        return self.run(["gcc", *flags, path], STAGE_LIMIT_S)[0] == 0

    def test(self, stage: Stage, tests: tuple[str, ...] = (), without: Collection[str] = ()) -> Outcome:
        """Runs a stage, or just some tests of it, up to the first failure."""
        if (stage.library or self.built_with is not None) and not self.build():
            return Outcome((), compiled=False)
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--timeout={TEST_LIMIT_S}"]
        sanitize = {"LAGOM_SANITIZE": stage.sanitize} if stage.sanitize else {}
        command += [*(tests or stage.arguments), *(f"--deselect={name}" for name in without)]
        code, output = self.run(command, STAGE_LIMIT_S, **sanitize)
        nothing_left = code == 5 and any(argument.startswith("--deselect") for argument in command)
        if code == 0 or nothing_left:
            return Outcome(())
        if code == -1:
            return Outcome(("time limit",))
        failed = tuple(
            line.split(" ", 1)[1].partition(" - ")[0]
            for line in output.splitlines()
            if line.startswith(("FAILED ", "ERROR "))
        )
        return Outcome(failed or (f"pytest ended with {code}: {output[-300:]}",))
