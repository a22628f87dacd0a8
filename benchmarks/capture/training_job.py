# SPDX-License-Identifier: Apache-2.0
"""The training job that captures are taken of, and the region whose rings are drained while it runs."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from benchmarks.matrix.place import JOBS
from lagom.controller.recorder import CALL_ROW, KERNEL_ROW
from lagom.wire.region import Capture, Region, TimelineState


@dataclass
class CaptureJob:
    """A running job and what its first rank printed."""

    process: subprocess.Popen[str]
    steps: list[dict[str, Any]] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    def read(self) -> None:
        """Collect its lines; runs in a thread until the job ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith('{"step"'):
                self.steps.append(json.loads(line))
            elif not line.startswith('{"'):
                self.other.append(line.rstrip())

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None


def start(command: list[str], environment: dict[str, str]) -> CaptureJob:
    """Start a job and the thread that reads it."""
    pipe = subprocess.PIPE
    job = CaptureJob(subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True))
    threading.Thread(target=job.read, daemon=True).start()
    return job


def torchrun(gpus: int, script: str, *arguments: str) -> list[str]:
    """The command line of a job of this folder."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(gpus), "--standalone"]
    return [*launcher, str(JOBS / script), *arguments]


def until(condition: Callable[[], bool], job: CaptureJob, seconds: float) -> bool:
    """Wait for something as long as the job runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.runs and not condition():
        time.sleep(0.002)
    return condition()


def more_steps(job: CaptureJob, count: int, seconds: float = 60) -> None:
    """Wait for some more steps."""
    target = len(job.steps) + count
    until(lambda: len(job.steps) >= target, job, seconds)


class RegionReader:
    """Holds the region, drains it all the time, and switches the timeline."""

    def __init__(self, region: Region, job: CaptureJob) -> None:
        self.region, self.job = region, job
        self.calls: list[np.ndarray] = []
        self.kernels: list[np.ndarray] = []
        self.states: list[tuple[int, int, str]] = []  # (ns, process, state)
        self._last: dict[int, TimelineState] = {}
        self._lock = threading.Lock()
        self.remarks: set[str] = set()
        self.wanted = False
        self._over = False
        self._thread = threading.Thread(target=self._drain_always, daemon=True)
        self._thread.start()

    def _drain_always(self) -> None:
        while not self._over:
            with self._lock:
                self._drain()
            time.sleep(0.002)

    def _drain(self) -> None:
        for slot in self.region.slots(also_gone=True):
            records = self.region.drain_calls(slot.index)
            rows = np.zeros(len(records), CALL_ROW)
            rows["slot"], rows["record"] = slot.index, records
            self.calls.append(rows)
        for process in self.region.processes():
            spans = self.region.drain_kernels(process.index)
            rows = np.zeros(len(spans), KERNEL_ROW)
            rows["process"], rows["span"] = process.index, spans
            self.kernels.append(rows)
            state = self.region.timeline_state(process.index)
            if self._last.get(process.index) is not state:
                self._last[process.index] = state
                self.states.append((time.monotonic_ns(), process.index, state.name))
            self.remarks |= {process.remark, process.timeline_remark} - {""}

    def set(self, capture: Capture | int, timeline: bool) -> None:
        """What the ranks record from now on."""
        with self._lock:
            self.wanted = timeline
            for view in self.region.communicators():
                self.region.set_capture(view.index, int(capture))
            for process in self.region.processes():
                self.region.want_timeline(process.index, timeline)

    def in_state(self, *states: TimelineState) -> bool:
        """Whether every process is in one of these states."""
        with self._lock:
            processes = self.region.processes()
            return bool(processes) and all(self.region.timeline_state(p.index) in states for p in processes)

    def take(self) -> tuple[np.ndarray, np.ndarray]:
        """(calls, kernels) since the last take."""
        with self._lock:
            calls, kernels = self.calls, self.kernels
            self.calls, self.kernels = [], []
        return np.concatenate([np.zeros(0, CALL_ROW), *calls]), np.concatenate([np.zeros(0, KERNEL_ROW), *kernels])

    def processes(self) -> list[Any]:
        """The process entries."""
        with self._lock:
            return self.region.processes()

    def names(self) -> dict[int, str]:
        """Kernel names by number."""
        with self._lock:
            return self.region.kernel_names()

    def close(self) -> None:
        """Let go."""
        self._over = True
        self._thread.join()
        self.region.close(unlink=True)
