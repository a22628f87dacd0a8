# SPDX-License-Identifier: Apache-2.0
"""After the start settings: one process of the job in which its communicators are tuned while it runs, inside the start
that was found. What each of the two contributes is kept apart: a speed-up of whole processes, and one of the final A/B.
"""

from __future__ import annotations

from pathlib import Path

from lagom.config_file import SavedConfig, load_config, saved_in
from lagom.experiment.arm import Kind, Task, TrialArm
from lagom.experiment.log_extract import gain_text, search_of
from lagom.experiment.request import Request
from lagom.experiment.store import RunRecord, Store
from lagom.experiment.trial import Say, run_task
from lagom.start import StartGroup
from lagom.tune.stages import TuneRecord

#: A live search is not begun with less time than this: it has to learn the iteration first.
LEAST_SECONDS = 60.0
SPANS_NODES = "the communicator spans nodes, so it is not tuned while the job runs: NCCL chooses within this start."
NO_NODES = "on how many nodes the ranks are was not seen, so the job is not tuned while it runs; `lagom run` does that."


def search_while_running(
    request: Request, start: StartGroup | None, store: Store[TuneRecord], time_left: float | None, say: Say
) -> None:
    """One live search inside ``start`` (None: plain NCCL), if the record has none; nothing where ranks are on several
    nodes, or too little time is left."""
    if found_by(store.record.runs) is not None:
        return
    nodes = request.nnodes if request.nnodes > 1 else max((run.nodes for run in store.record.runs), default=0)
    if nodes != 1:
        say(SPANS_NODES if nodes else NO_NODES)
        return
    if time_left is not None and time_left < LEAST_SECONDS:
        say(f"{max(0.0, time_left):.0f} s are left, too few to tune the job while it runs; `lagom run` does that.")
        return
    say("one more process tunes the job while it runs, inside this start.")
    settings = {} if start is None else dict(start.settings)
    task = Task(Kind.TUNING, TrialArm("while it runs", Kind.TUNING, strategy="auto", environ=settings))
    run = run_task(request.numbered(len(store.record.runs) + 1), task, store, time_left, say)
    store.add(run)
    say(describe_live(run))


def found_by(runs: list[RunRecord]) -> RunRecord | None:
    """The process of the live search."""
    return next((run for run in runs if run.kind == Kind.TUNING.value), None)


def describe_live(run: RunRecord) -> str:
    """What the live search came to, over the same start without it."""
    search = search_of(run)
    if search is None:
        return f"while the job runs: nothing was tuned{f': {run.reason}' if run.reason else ''}"
    if search.verdict == "improved" and search.speedup:
        return f"while the job runs: {gain_text(search)} on top of the start"
    return f"while the job runs: {search.verdict.replace('_', ' ')}, {search.configs} configs tried"


def live_config(run: RunRecord | None, folder: Path) -> SavedConfig | None:
    """The saved config that the live search wrote, if it found something faster."""
    if run is None or run.outcome is None or run.outcome["verdict"] != "improved":
        return None
    file = saved_in(folder / run.log)
    return load_config(file) if file.is_file() else None
