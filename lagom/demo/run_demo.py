# SPDX-License-Identifier: Apache-2.0
"""``lagom demo``: a whole tuning run without a GPU, from the first call to the table, in under a minute.

Real: the plugin in eight rank processes, the shared memory, the agreement, the controller, the search, the log, the
saved config. Simulated: GPUs, wire and clock (:mod:`lagom.sim`).
"""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from lagom.demo.result import as_json, last_page, the_comm
from lagom.demo.stage import Scene, on_stage
from lagom.errors import LagomError, UsageError
from lagom.files import FOLDER_MODE, write_named, write_whole
from lagom.journal import CommState, RunState
from lagom.journal.log_status import describe_broken_log
from lagom.journal.reader import Tail
from lagom.settings import log_folder
from lagom.watch import Watcher
from lagom.watch.find import Named
from lagom.watch.screen import View, line_view, live_view

__all__ = ["Scene", "run_demo"]

#: Between two looks at the log; between two pictures on a terminal, or lines elsewhere.
LOOK_SECONDS = 0.1
TERMINAL_SECONDS, PLAIN_SECONDS = 0.5, 5.0
PLAIN_WIDTH = 100
LOG_BYTES = 2 << 20  # of the demo's log with its raw records: some 1.4 MB
OTHER_SECONDS = 8.0  # what start-up and end may take on a slow machine
PINNED_ITERATIONS = 100  # under rules that were pinned by hand, of which no search says that it is over
DEFAULT_SCENE = Scene()
DONE, DISAGREED, INTERRUPTED = 0, 1, 130


def run_demo(
    json_file: Path | None = None,
    seconds: float = 50.0,
    *,
    scene: Scene = DEFAULT_SCENE,
    folder: Path | None = None,
    console: Console | None = None,
) -> int:
    """Play the demo and print its table; the exit code: 0, 1 if two ranks ever differed, 130 after Ctrl-C.

    No trial begins near the end of ``seconds``, and all is stopped after them. ``folder``: of the log; default
    LAGOM_DIR, else ``./lagom-demo-...``.
    """
    console = console or (Console() if sys.stdout.isatty() else Console(width=PLAIN_WIDTH))
    job = f"demo-{time.strftime('%H%M%S')}-{time.monotonic_ns() % 1000:03d}"
    log = folder or log_folder(job)
    run_state = RunState()
    try:
        _make_folder(log)
    except OSError as error:
        raise UsageError(f"{log} cannot be written to ({error.strerror}); name another folder in LAGOM_DIR.") from error
    console.print(_opening(scene, log), markup=False, highlight=False)
    try:
        differences = _play(scene, job, log, run_state, console, seconds)
    except KeyboardInterrupt:
        console.print("stopped; no process and no shared memory is left.")
        console.print(_log_line(log), markup=False, highlight=False, soft_wrap=True)
        return INTERRUPTED
    if missing := describe_broken_log(log, run_state):
        raise LagomError(missing)
    console.print(last_page(run_state))
    for line in (_log_line(log), f"why:    lagom report {shlex.quote(str(log))}"):
        console.print(line, markup=False, highlight=False, soft_wrap=True)
    for difference in differences:
        console.print(f"two ranks differed: {difference}", markup=False)
    if json_file is not None:
        document = {**as_json(run_state), "differences": differences, "log": str(log)}
        write_named(json_file, json.dumps(document, indent=1))
    return DISAGREED if differences else DONE


def _make_folder(log: Path) -> None:
    """With room for the log, or the demo would play to its end for nothing."""
    log.mkdir(FOLDER_MODE, parents=True, exist_ok=True)
    probe = log / ".room"
    write_whole(probe, bytes(LOG_BYTES))
    probe.unlink()


def _log_line(log: Path) -> str:
    return f"log:    lagom log {shlex.quote(str(log))}"


def _opening(scene: Scene, log: Path) -> str:
    return (
        f"{scene.ranks} virtual ranks of an FSDP {scene.model} on simulated {scene.machine}, NCCL {scene.version}; "
        "the plugin, the controller and the search are the real ones. They see the real clock, so that two demos "
        f"differ in their windows, and may differ in what they find. Log in {log}"
    )


def controller_arguments(scene: Scene, seconds: float) -> tuple[str, ...]:
    """The search, its final A/B included, must be over before the demo is."""
    search = max(seconds / 3, seconds - OTHER_SECONDS)
    return ("--strategy", "auto", "--seed", str(scene.seed), "--search-seconds", f"{search:.0f}")


def _play(scene: Scene, job: str, log: Path, run_state: RunState, console: Console, seconds: float) -> list[str]:
    """Run it until the search is over, pinned rules have been in force for a while, or the time is up; returns the
    calls that two ranks ran differently."""
    tail, arguments, end = Tail(log), controller_arguments(scene, seconds), End()
    with (
        tempfile.TemporaryDirectory(prefix="lagom-demo-") as scratch,
        on_stage(scene, job, log, Path(scratch), arguments) as (controller, ranks),
    ):
        began = time.monotonic()
        with _view(console) as (view, every):
            watcher, shown = Watcher(Named(log)), began - every
            while (now := time.monotonic()) - began < seconds:
                controller.check()
                ranks.running()
                run_state.read(tail.unread())
                if end.is_reached(the_comm(run_state), ranks.iteration):
                    break
                if now - shown >= every:
                    shown = now
                    view(watcher.look())
                time.sleep(LOOK_SECONDS)
        ranks.stop()
        ranks.finish()
        controller.stop()
        run_state.read(tail.unread())
        return [str(difference) for difference in ranks.differences()]


@dataclass(slots=True)
class End:
    """Whether there is nothing more to wait for."""

    pinned_at: int | None = None  # the iteration at which pinned rules were seen in force

    def is_reached(self, comm: CommState, iteration: int) -> bool:
        if comm.outcome is not None:
            return True
        if not comm.pinned:
            self.pinned_at = None
            return False
        if self.pinned_at is None:
            self.pinned_at = iteration
        return iteration - self.pinned_at >= PINNED_ITERATIONS


@contextlib.contextmanager
def _view(console: Console) -> Iterator[tuple[View, float]]:
    """What `lagom watch` would show of the job, and how often: its screen on a terminal, its lines elsewhere."""
    if not console.is_terminal:
        put = partial(console.print, markup=False, highlight=False, soft_wrap=True)
        yield line_view(put, decisions=False), PLAIN_SECONDS
        return
    with live_view(console, leave_last=False) as view:
        yield view, TERMINAL_SECONDS
