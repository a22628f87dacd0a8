# SPDX-License-Identifier: Apache-2.0
"""The slow loop: drain what the ranks recorded, let each communicator's tuner take a step, write down what happened.

    region ── calls, kernels ──▶ tuner ── requests ──▶ session (search)
       ▲                           │                        │
       └────────── plans ──────────┴──── events ──▶ log, saved config

It shares memory with the ranks and nothing else. It may die at any moment: a trial is a lease and ends by itself, a
confirmed plan stays in force.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from types import FrameType

from lagom import journal
from lagom.controller.call_history_check import CallHistoryCheck
from lagom.controller.config_writer import ConfigWriter
from lagom.controller.counters import Counters
from lagom.controller.event_log import EventLog, SearchEvent
from lagom.controller.kernel_kinds import KernelKinds
from lagom.controller.node_guard import leave_to_nccl
from lagom.controller.options import Options
from lagom.controller.pinned_rules import PinnedRules
from lagom.controller.recorder import Recorder
from lagom.controller.scheduler import Scheduler
from lagom.controller.timeline_control import TimelineControl
from lagom.controller.trace_samples import TraceSamples
from lagom.controller.tuner import CommunicatorTuner
from lagom.environment import read_process_environment, select_known
from lagom.journal.log_status import is_unfinished, pid_namespace
from lagom.version import __version__
from lagom.wire.region import Region
from lagom.wire.views import ProcessView

BUSY_SECONDS = 0.002  # a plan is open or a window runs
IDLE_SECONDS = 0.02
LOOK_AROUND_SECONDS = 0.1
#: After the last rank has gone, where nobody will tell us that the job is over.
LAST_RANK_SECONDS = 1.0


class Controller:
    """One node's controller. :meth:`run` returns when the job is over or a signal came."""

    def __init__(self, region: Region, options: Options, log: journal.Journal) -> None:
        self.region, self.options = region, options
        self.events = EventLog(log, self._write_config)
        self._config = ConfigWriter(options, self.events)
        self.timeline = TimelineControl(region, self.events)
        self.tuners: dict[int, CommunicatorTuner] = {}
        self._scheduler = Scheduler(options.search_seconds)
        self._pins = PinnedRules(options)
        self._recorder = Recorder(options.directory) if options.record or options.profile_iterations else None
        self._trace_samples = TraceSamples(options.directory)
        self.events.listeners.append(self._keep_kernels)
        self._known: dict[int, ProcessView] = {}
        self._history_check = CallHistoryCheck()
        self._counters = Counters()
        self._kinds = KernelKinds(region.kernel_names)
        self._rank_environ: dict[str, str] = {}  # of the first rank that could be read
        self._environment: dict[str, str] = {}
        self._profiled = False
        self._looked_at = 0.0
        self._alone_since: float | None = None
        self._stop_reason = ""
        self._began = time.monotonic()

    def run(self) -> None:
        """The loop."""
        self._emit_start()
        while not self._stop_reason:
            now = time.monotonic()
            if now - self._looked_at >= LOOK_AROUND_SECONDS:
                self._looked_at = now
                self._look_around(now)
            self._drain()
            for tuner in self.tuners.values():
                tuner.step(now)
            self.timeline.want(any(tuner.wants_timeline for tuner in self.tuners.values()), now)
            self._notice_the_profile()
            is_busy = any(tuner.is_busy for tuner in self.tuners.values())
            time.sleep(BUSY_SECONDS if is_busy else IDLE_SECONDS)
        for tuner in self.tuners.values():
            tuner.shut()
        self.timeline.want(False, time.monotonic())
        self._write_config()
        self._write_records()
        self._emit_end()

    def stop(self, number: int, frame: FrameType | None) -> None:
        """Signal handler: finish the round and go."""
        self._stop_reason = describe_stop(number, launched=self.options.launcher is not None)

    # -- who is there

    def _look_around(self, now: float) -> None:
        self._count()
        self.region.sweep()
        self._meet_processes()
        self.timeline.follow(self.region.processes())
        self._meet_communicators()
        if not (self.options.is_alone or self.options.profile_iterations):
            leave_to_nccl(self.tuners.values(), self._rank_environ)
        if not self._profiled:
            self._scheduler.look(self.tuners.values(), now)
        if (rules := self._pins.changed()) is not None:
            for problem in self._pins.problems:
                self.events.warn(problem)
            for tuner in self.tuners.values():
                tuner.pin(rules)
        self._notice_the_end(now)

    def _meet_processes(self) -> None:
        ranks = {slot.process: slot.rank for slot in self.region.slots()}
        processes = self.region.processes()
        self._notice_a_restart(processes)
        for process in processes:
            known = self._known.get(process.index)
            if known is None or known.pid != process.pid:
                self._known[process.index] = process
                first = not self._environment  # while it lives: /proc forgets with the process
                self._rank_environ = self._rank_environ or read_process_environment(process.pid)
                self._environment = self._environment or select_known(self._rank_environ)
                self.events.rank_joined(process, ranks.get(process.index), self._environment if first else {})
                self._note_refused_config(process)
            elif process.remark and process.remark != known.remark:
                self._known[process.index] = process
                self.events.note(f"process {process.pid}: {process.remark}")
                self._note_refused_config(process)

    def _note_refused_config(self, process: ProcessView) -> None:
        """The job is tuned instead: whoever watches it is told at once, and once for all ranks."""
        if process.refusal is not None:
            self.events.note(f"not in force: {process.remark}", level="notice", refusal=process.refusal)

    def _notice_a_restart(self, processes: list[ProcessView]) -> None:
        """Every rank is another one: the job came again under its name, perhaps with fewer. What those before have
        found stays in the saved config until these have found something."""
        known = {process.pid for process in self._known.values()}
        if not processes or not known or not known.isdisjoint(process.pid for process in processes):
            return
        for tuner in self.tuners.values():
            tuner.shut()
        self.tuners.clear()
        self._known.clear()
        self._rank_environ = {}
        self._config.begin_anew()

    def _meet_communicators(self) -> None:
        for view in self.region.communicators():
            known = self.tuners.get(view.index)
            if view.rank_count < 2 or (known is not None and known.view.comm_id == view.comm_id):
                continue
            if known is not None:
                known.shut()
            self._history_check.forget(view.index)
            self.events.communicator(view)
            tuner = CommunicatorTuner(self.region, view, self.options, self.events, self.timeline)
            tuner.pin(self._pins.rules)
            if self._profiled:
                tuner.end_profile()
            self.tuners[view.index] = tuner

    def _count(self) -> None:
        views = {index: tuner.view for index, tuner in self.tuners.items()}
        profiled = any(process.profiler_api for process in self._known.values())
        self._counters.look(self.region.slots(also_gone=True), views, profiled=profiled)
        for sentence in self._history_check.look(self.region.slots(), time.monotonic()):
            self.events.warn(sentence)

    def _notice_the_end(self, now: float) -> None:
        if self.region.processes_alive():
            self._alone_since = None
            return
        if self._alone_since is None:
            self._alone_since = now
        if self.options.launcher is not None:
            if os.getppid() != self.options.launcher:
                self._stop_reason = "the launcher has gone"
            return  # ranks may come back: an elastic restart
        patience = LAST_RANK_SECONDS if self.region.processes_seen else self.options.first_rank_seconds
        if now - self._alone_since > patience and self.region.retire():  # unless one came at this very moment
            self._stop_reason = "every rank has gone" if self.region.processes_seen else "no rank came"

    # -- what they say

    def _drain(self) -> None:
        for slot in self.region.slots(also_gone=True):
            records = self.region.drain_calls(slot.index)
            tuner = self.tuners.get(slot.communicator)
            if tuner is not None:
                tuner.add_calls(slot.index, records)
            self._trace_samples.add_calls(slot, records)
            if self._recorder is not None and self._is_recording():
                self._recorder.add_calls(slot.index, records)
        for process in self._known:
            spans = self._kinds.correct(self.region.drain_kernels(process))
            for tuner in self.tuners.values():
                tuner.add_spans(process, spans)
            self._trace_samples.add_spans(process, spans)
            if self._recorder is not None and self._is_recording():
                self._recorder.add_kernels(process, spans)

    def _is_recording(self) -> bool:
        return self.options.record or any(tuner.is_profiling for tuner in self.tuners.values())

    def _notice_the_profile(self) -> None:
        if not self._profiled and any(tuner.is_profiled for tuner in self.tuners.values()):
            self._profiled = True
            for tuner in self.tuners.values():
                tuner.end_profile()
            self._write_records()
            done = f"profiled {self.options.profile_iterations} iterations; nothing is recorded any more"
            self.events.note(done, level="notice")

    # -- what is written

    def _write_config(self) -> None:
        self._config.write(list(self.tuners.values()), list(self._known.values()), self._environment)

    def _keep_kernels(self, event: SearchEvent) -> None:
        try:
            self._trace_samples.on_event(event, self.region.kernel_names())
        except OSError as error:
            self.events.warn(f"kernels for the report cannot be kept: {error}")

    def _write_records(self) -> None:
        if self._recorder is None or (self._profiled and self._stop_reason):
            return  # nothing to write, or written already
        try:
            self._recorder.write(self.region.kernel_names())
        except OSError as error:
            self.events.warn(f"the raw records cannot be written: {error}")
        if self._recorder.dropped:
            self.events.warn(f"{self._recorder.dropped} raw records did not fit and were dropped")

    def _emit_start(self) -> None:
        if is_unfinished(self.events.log.path):
            self.events.warn(
                "the job before this line has no end in this log: its controller was killed, could not write it "
                "(a full disk), or still runs"
            )
        self.events.log.write(
            journal.JobStart(
                job=self.options.job,
                mode=self.options.mode,
                strategy=self.options.strategy,
                lagom=__version__,
                host=socket.gethostname(),
                folder=str(self.options.directory.resolve()),
                region=str(self.region.path),
                rules=self.options.rules,
                headroom="" if self.options.headroom is None else str(self.options.headroom),
                pid=os.getpid(),
                pid_namespace=pid_namespace(),
                simulated_clock=self.region.has_simulated_clock,
            )
        )

    def _emit_end(self) -> None:
        self.events.log.write(
            journal.JobEnd(
                reason=self._stop_reason,
                seconds=time.monotonic() - self._began,
                calls=self._counters.calls,
                calls_dropped=self._counters.dropped,
                config=str(self.options.config) if self._config.is_written else "",
                not_asked=self._counters.not_asked(),
            )
        )


def lower_priority() -> None:
    """The job's own threads come first."""
    with contextlib.suppress(OSError):
        os.nice(5)


def describe_stop(number: int, *, launched: bool) -> str:
    """Why a signal ends the controller. ``lagom run`` sends SIGTERM to its own, in a session of its own, when the
    job's command has ended: that is no sign that somebody stopped the job."""
    if launched and number == signal.SIGTERM:
        return "the job's command has ended"
    return f"stopped by {signal.Signals(number).name}"
