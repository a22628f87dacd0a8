# SPDX-License-Identifier: Apache-2.0
"""A command beside busy loops, as on a laptop that compiles or a shared CI runner; whether it passes must not change.

    python -m tests.busy --loops 3 --runs 10 -- make test
    python -m tests.busy --loops 0 --pauses -- .venv/bin/python -m pytest -n 2 tests/system

``--pauses`` stops one process of the command after another (a rank, a controller, a worker of pytest) for up to three
seconds each, as a scheduler may; a test that fails then has a race.

The output of run 4 is kept in ``build/busy/4.log``. Printed are pytest's closing lines and what failed, run by run.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

import psutil

# A loop ends by itself soon after its parent is gone, however that died.
LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]):\n    for _ in range(1_000_000): pass"
#: Seconds that a process is stopped, and between two stops.
STOPPED, BETWEEN = (0.05, 3.0), (0.0, 0.3)
SHOWN = re.compile(r"^=+ .*(passed|failed|error|skipped).* =+$|^(FAILED|ERROR) .*$", re.MULTILINE)


@contextmanager
def busy_loops(count: int) -> Iterator[None]:
    """So many processes that do nothing but compute."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP, str(os.getpid())]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def pause_processes(root: psutil.Process, over: threading.Event) -> None:
    """Stop one descendant of ``root`` after another for a while until ``over``. Who is stopped already (by the test) is
    left alone. Every second one is of the newest ten, because most ranks and controllers live for seconds only."""
    dice = random.Random()
    while not over.wait(dice.uniform(*BETWEEN)):
        try:
            processes = sorted(root.children(recursive=True), key=psutil.Process.create_time)
            process = dice.choice(processes[-10:] if dice.random() < 0.5 else processes)
            if process.status() != psutil.STATUS_STOPPED:
                process.suspend()
                over.wait(dice.uniform(*STOPPED))
                process.resume()
        except (psutil.Error, IndexError):
            continue  # it has ended meanwhile, or there is none


@contextmanager
def pauses(pid: int) -> Iterator[None]:
    """Its descendants are stopped now and then meanwhile."""
    over = threading.Event()
    thread = threading.Thread(target=pause_processes, args=(psutil.Process(pid), over))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def run(command: list[str], log: Path, *, paused: bool) -> int:
    """The command's exit code; its output goes to ``log``. An interruption ends all that it started."""
    with log.open("w") as out:
        try:
            process = subprocess.Popen(command, stdout=out, stderr=subprocess.STDOUT, start_new_session=True)
            with pauses(process.pid) if paused else nullcontext():
                return process.wait()
        except (SystemExit, KeyboardInterrupt):  # perhaps before Popen has returned
            end_children()
            raise


def end_children() -> None:
    """With their process groups, where they have one of their own; they are gone then."""
    children = psutil.Process().children()
    for child in children:
        with suppress(ProcessLookupError):
            has_group = os.getpgid(child.pid) == child.pid
            (os.killpg if has_group else os.kill)(child.pid, signal.SIGTERM)
    psutil.wait_procs(children)


def main() -> int:
    """1 if any run failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=3)
    parser.add_argument("--pauses", action="store_true", help="stop its processes now and then")
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--logs", type=Path, default=Path("build/busy"))
    parser.add_argument("command", nargs="*", default=["make", "test"])
    wanted = parser.parse_args()
    wanted.logs.mkdir(parents=True, exist_ok=True)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    failed = 0
    for number in range(1, wanted.runs + 1):
        log, began = wanted.logs / f"{number}.log", time.monotonic()
        with busy_loops(wanted.loops):
            code = run(wanted.command, log, paused=wanted.pauses)
        failed += code != 0
        print(f"run {number} of {wanted.runs}: exit code {code} after {time.monotonic() - began:.0f} s ({log})")
        shown = (found.group() for found in SHOWN.finditer(log.read_text(errors="replace")))
        print(*(f"  {line}" for line in shown), sep="\n", flush=True)
    print(f"{wanted.runs - failed} of {wanted.runs} runs beside {wanted.loops} busy loops passed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
