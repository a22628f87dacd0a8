"""``make fuzz``: every target for so many CPU seconds under libFuzzer, with the evidence written down as it grows.

    python -m tests.fuzz.run                                 # FUZZ_SECONDS (1440) CPU seconds a target
    python -m tests.fuzz.run --seconds 60 profile timeline   # these two, a minute each

CPU time is what counts, not wall time, so that a busy machine changes nothing. What is found on the way is kept in
``build/fuzz/corpus/<target>`` and used again; a run that is interrupted goes on where it stopped. A crash ends the run:
its input lies in ``build/fuzz/crashes``, the count of that target begins anew, and the input belongs into
``tests/fuzz/corpus/<target>`` once the fault is repaired.
"""

from __future__ import annotations

import argparse
import fcntl
import json
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

EVIDENCE = ROOT / "benchmarks" / "results" / "fuzz_202611.json"
CRASHES = ROOT / "build" / "fuzz" / "crashes"
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


def load() -> dict[str, Any]:
    """The evidence so far."""
    if EVIDENCE.exists():
        return dict(json.loads(EVIDENCE.read_text()))
    return {"command": "make fuzz", "engine": "libFuzzer, AddressSanitizer + UndefinedBehaviorSanitizer", "targets": {}}


@contextmanager
def evidence_lock() -> Iterator[None]:
    """Several targets may be fuzzed side by side, each by a run of its own."""
    with (ROOT / "build" / "fuzz" / "evidence.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def note(target: str, result: Slice) -> dict[str, Any]:
    """Adds one slice to the evidence; a crash begins the count anew."""
    with evidence_lock():
        return _note(target, result)


def _note(target: str, result: Slice) -> dict[str, Any]:
    evidence = load()
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
    fresh = EVIDENCE.with_suffix(f".{os.getpid()}")
    fresh.write_text(json.dumps(evidence, indent=2) + "\n")
    fresh.replace(EVIDENCE)
    return dict(entry)


def cpu_seconds(target: str) -> float:
    """How long the target has been fuzzed since it last crashed."""
    return float(load()["targets"].get(target, {}).get("cpu_seconds", 0.0))


def fuzz(target: str, program: Path, seconds: float) -> bool:
    """One slice, or what is missing; False at a crash."""
    result = run_slice(target, program, min(SLICE_S, max(1, int(seconds - cpu_seconds(target)) + 1)))
    if result.code in INTERRUPTED:
        print(f"{target}: interrupted; the next run goes on")
        return False
    entry = note(target, result)
    if result.code != 0:
        print(result.output[-6000:])
        print(f"{target}: crashed; the input lies in {CRASHES}")
        return False
    had = entry["cpu_seconds"]
    print(f"{target}: {had:.0f} of {seconds:.0f} CPU s, {entry['executions']} runs", flush=True)
    return True


def fuzz_in_turns(targets: list[str], seconds: float) -> bool:
    """Slice by slice, so that a run which is cut short has seen all of them; False at the first crash."""
    programs = {target: build(target, "libfuzzer") for target in targets}
    while left := [target for target in targets if cpu_seconds(target) < seconds]:
        if not all(fuzz(target, programs[target], seconds) for target in left):
            return False
    return True


def main() -> int:
    """All targets named, else all there are."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", default=list(TARGETS), help="targets (default: all)")
    parser.add_argument(
        "--seconds", type=float, default=float(os.environ.get("FUZZ_SECONDS", "1440")), help="CPU seconds a target"
    )
    options = parser.parse_args()
    if not have_libfuzzer():
        print(
            "make fuzz needs clang with libFuzzer (Debian, Ubuntu: apt install clang); "
            "without it `make test` runs the corpus, and mutates it a little.",
            file=sys.stderr,
        )
        return 1
    return 0 if fuzz_in_turns(options.targets, options.seconds) else 1


if __name__ == "__main__":
    sys.exit(main())
