# SPDX-License-Identifier: Apache-2.0
"""``make fuzz``: every target for so many CPU seconds under libFuzzer, and what came of it.

    python -m tests.fuzz.run                              # FUZZ_SECONDS (1440) CPU seconds a target
    python -m tests.fuzz.run --seconds 60 text timeline   # these two, a minute each
    python -m tests.fuzz.run --evidence FILE              # only what FILE lacks of that, added to it as it grows

CPU time is what counts, not wall time, so that a busy machine changes nothing. Every run fuzzes anew for all of it,
unless it is asked to go on with an evidence file. Inputs found on the way are kept in ``build/fuzz/corpus/<target>``
and used again. A crash ends the run: its input lies in ``build/fuzz/crashes``, the count of that target in the evidence
begins anew, and the input belongs into ``tests/fuzz/corpus/<target>`` once the fault is repaired.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import os
import platform
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.fuzz.build import CORPUS, HERE, ROOT, TARGETS, build, have_libfuzzer

CRASHES = ROOT / "build" / "fuzz" / "crashes"
SECONDS = "1440"
SLICE_S = 60
INTERRUPTED = {72, -signal.SIGTERM, -signal.SIGINT, -signal.SIGKILL}  # 72: libFuzzer's own word for a signal
LONGEST_INPUT = 16384
ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=0:symbolize=1:allocator_may_return_null=1",
    "UBSAN_OPTIONS": "print_stacktrace=1",
}


@dataclass(frozen=True)
class Slice:
    """One stretch of fuzzing and what its last lines said."""

    code: int
    cpu_seconds: float
    executions: int
    edges: int
    features: int
    output: str


@dataclass
class Course:
    """What one target is to do in this run, and what it did."""

    wanted: float
    cpu_seconds: float = 0.0
    executions: int = 0
    crashes: int = 0

    @property
    def left(self) -> float:
        """CPU seconds still to do."""
        return self.wanted - self.cpu_seconds

    def add(self, result: Slice) -> None:
        """Counts one slice, also one that crashed or was interrupted."""
        self.cpu_seconds += result.cpu_seconds
        self.executions += result.executions
        self.crashes += is_crash(result)


def is_crash(result: Slice) -> bool:
    """Whether the target found a fault: it neither came to its end nor was stopped."""
    return result.code != 0 and result.code not in INTERRUPTED


def numbers(pattern: str, output: str) -> list[int]:
    """All numbers behind a word of libFuzzer's status lines."""
    return [int(found) for found in re.findall(pattern, output)]


def run_slice(target: str, program: Path, seconds: int) -> Slice:
    """Fuzzes for so many seconds of wall time, on the kept corpus and what was found before."""
    found = ROOT / "build" / "fuzz" / "corpus" / target
    found.mkdir(parents=True, exist_ok=True)
    CRASHES.mkdir(parents=True, exist_ok=True)
    command = [str(program), f"-max_total_time={seconds}", f"-max_len={LONGEST_INPUT}", "-timeout=20"]
    command += ["-rss_limit_mb=2048", "-print_final_stats=1", f"-artifact_prefix={CRASHES}/{target}-"]
    dictionary = HERE / f"{target}.dict"
    command += [f"-dict={dictionary}"] if dictionary.exists() else []
    process = subprocess.Popen(
        [*command, str(found), str(CORPUS / target)],
        env={**os.environ, **ENVIRONMENT},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    )
    assert process.stderr is not None
    output = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    return Slice(
        os.waitstatus_to_exitcode(status),
        usage.ru_utime + usage.ru_stime,
        max(numbers(r"stat::number_of_executed_units:\s+(\d+)", output), default=0),
        max(numbers(r" cov: (\d+)", output), default=0),
        max(numbers(r" ft: (\d+)", output), default=0),
        output,
    )


def commit() -> str:
    """The commit, with a plus where the library sources differ from it."""
    head = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    dirty = subprocess.run(["git", "diff", "--quiet", "HEAD", "--", "csrc", "tuner_plugin"], cwd=ROOT, check=False)
    return head.stdout.strip() + ("+" if dirty.returncode else "")


def load(evidence: Path) -> dict[str, Any]:
    """The evidence so far."""
    if evidence.exists():
        return dict(json.loads(evidence.read_text()))
    return {
        "command": "python -m tests.fuzz.run --evidence FILE",
        "engine": "libFuzzer, AddressSanitizer + UndefinedBehaviorSanitizer",
        "targets": {},
    }


@contextmanager
def evidence_lock() -> Iterator[None]:
    """Several targets may be fuzzed side by side, each by a run of its own."""
    with (ROOT / "build" / "fuzz" / "evidence.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def note(file: Path, target: str, result: Slice) -> None:
    """Adds one slice to the evidence; a crash begins the count anew."""
    with evidence_lock():
        _note(file, target, result)


def _note(file: Path, target: str, result: Slice) -> None:
    evidence = load(file)
    entry = evidence["targets"].setdefault(target, {"crashes_found_and_repaired": [], "commits": []})
    if result.code != 0:
        summary = re.findall(r"(?:SUMMARY: .*|.*: not true: .*)", result.output)
        entry["crashes_found_and_repaired"].append(
            {"commit": commit(), "summary": summary[0] if summary else "exit " + str(result.code)}
        )
        entry.update(cpu_seconds=0.0, executions=0, commits=[])
    else:
        entry["cpu_seconds"] = round(entry.get("cpu_seconds", 0.0) + result.cpu_seconds, 1)
        entry["executions"] = entry.get("executions", 0) + result.executions
        entry["edges"], entry["features"] = result.edges, result.features
        entry["commits"] = list(dict.fromkeys([*entry["commits"], commit()]))
    entry["corpus_files"] = sum(1 for path in (CORPUS / target).glob("*"))
    entry["crashes_since"] = 0
    evidence["date"] = time.strftime("%Y-%m-%d")
    evidence["machine"] = f"{platform.machine()}, {os.cpu_count()} cores, nice {os.nice(0)}"
    fresh = file.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(evidence, indent=2) + "\n")
    fresh.replace(file)


def missing(target: str, seconds: float, evidence: Path | None) -> float:
    """How long the target is to be fuzzed: for all of it, or for what the evidence lacks since the last crash."""
    if evidence is None:
        return seconds
    had = float(load(evidence)["targets"].get(target, {}).get("cpu_seconds", 0.0))
    print(f"{target}: {evidence} has {had:.0f} of {seconds:.0f} CPU s", flush=True)
    return max(0.0, seconds - had)


def fuzz(target: str, program: Path, course: Course, evidence: Path | None) -> bool:
    """One slice, or what is missing; False where it crashed or was stopped."""
    result = run_slice(target, program, min(SLICE_S, int(course.left) + 1))
    course.add(result)
    if result.code in INTERRUPTED:
        print(f"{target}: interrupted")
        return False
    if evidence is not None:
        note(evidence, target, result)
    if is_crash(result):
        print(result.output[-6000:])
        print(f"{target}: crashed; the input lies in {CRASHES}")
        return False
    print(f"{target}: {course.cpu_seconds:.0f} of {course.wanted:.0f} CPU s", flush=True)
    return True


def fuzz_in_turns(courses: dict[str, Course], evidence: Path | None) -> bool:
    """Slice by slice, so that a run which is cut short has seen all of them; False at the first crash."""
    programs = {target: build(target, "libfuzzer") for target, course in courses.items() if course.left > 0}
    while left := [target for target, course in courses.items() if course.left > 0]:
        if not all(fuzz(target, programs[target], courses[target], evidence) for target in left):
            return False
    return True


def report(courses: dict[str, Course]) -> None:
    """What this run did, a line a target."""
    print("done in this run:")
    for target, course in courses.items():
        did = f"{course.cpu_seconds:.0f} CPU s, {course.executions:,} executions, {course.crashes} crash(es)"
        print(f"  {target}: {did if course.wanted else 'nothing: the evidence has all that was asked for'}")


def known_target(name: str) -> str:
    """A target by its name."""
    if name not in TARGETS:
        raise argparse.ArgumentTypeError(f"there is no target '{name}'; choose one of: {', '.join(TARGETS)}.")
    return name


def some_seconds(text: str) -> float:
    """A time that can be waited for."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 < seconds < math.inf:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of seconds above 0.")
    return seconds


def arguments() -> argparse.ArgumentParser:
    """Targets, time, evidence."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz.run",
        usage="%(prog)s [--seconds N] [--evidence FILE] [TARGET ...]",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("targets", nargs="*", type=known_target, help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument(
        "--seconds",
        type=some_seconds,
        default=os.environ.get("FUZZ_SECONDS") or SECONDS,
        help=f"CPU seconds a target (default: FUZZ_SECONDS, else {SECONDS})",
    )
    parser.add_argument(
        "--evidence", type=Path, metavar="FILE", help="fuzz only what this file lacks of that, and add it there"
    )
    return parser


def main() -> int:
    """All targets named, else all there are."""
    options = arguments().parse_args()
    if not have_libfuzzer():
        print(
            "make fuzz needs clang with libFuzzer (Debian, Ubuntu: apt install clang); "
            "without it `make test` runs the corpus, and mutates it a little.",
            file=sys.stderr,
        )
        return 1
    courses = {
        target: Course(missing(target, options.seconds, options.evidence)) for target in options.targets or TARGETS
    }
    try:
        return 0 if fuzz_in_turns(courses, options.evidence) else 1
    finally:
        report(courses)


if __name__ == "__main__":
    sys.exit(main())
