# SPDX-License-Identifier: Apache-2.0
"""What a virtual rank shows the controller: kernels after the GPU has run them, and only what capture asks for.

Two ways, as on a real machine: spans in the process's kernel ring, as the timeline (CUPTI) would put them there, or
NCCL's own kernel events through the profiler plugin. The rings are finite and simulated time is compressed, so a
rank waits for its reader: on the simulated clock waiting costs nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lagom.records import CommConfig
from lagom.sim.virtual.iteration_timing import IterationTimes, fill_collective
from lagom.sim.virtual.nccl import VirtualCommunicator
from lagom.sim.virtual.pacing import Finished
from lagom.sim.virtual.process_entry import ProcessEntry
from lagom.sim.virtual.selection import CollectiveCall
from lagom.sim.virtual.spec import JobSpec
from lagom.sim.virtual.workload_events import shaped
from lagom.wire.layout import CALL_RING_CAPACITY, KERNEL_RING_CAPACITY, KERNEL_SPAN, SPAN_COMPUTE, UNKNOWN_RANK

PACE_SECONDS = 2.0  # real time a rank waits at most for a controller that does not read
CALLS_BETWEEN_WAITS = CALL_RING_CAPACITY // 2  # iterations may have more calls than the ring holds
SPANS_AT_ONCE = KERNEL_RING_CAPACITY // 2  # and more kernels, which a GPU shows as they end
ANSWER_SECONDS = 0.05  # the same for the outcome of a plan
ARRIVAL_NS = 4_000.0  # ranks reach a collective this far apart
KERNEL_JITTER = 0.002
CAPTURE_ITERATION, CAPTURE_KERNELS = 2, 4  # enum lagom_capture


@dataclass(frozen=True, slots=True)
class ExtraCall:
    """A call that is no part of the iteration after it: number ``call`` of communicator ``index``. Its kernel runs from
    ``start`` to ``end`` on the GPU, ns."""

    index: int
    call: int
    collective: CollectiveCall
    config: CommConfig
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class _Enqueued:
    """An iteration that is enqueued: ``times`` stretched by ``scale``, its first call on each communicator."""

    times: IterationTimes
    scale: float
    first_calls: list[int]
    extra_calls: Sequence[ExtraCall]


class TraceWriter:
    """Keeps what was enqueued until the GPU has run it, then writes it.

    ``mine[i]`` lists the operations of communicator i in an iteration, in order.
    """

    def __init__(
        self,
        spec: JobSpec,
        rank: int,
        entry: ProcessEntry | None,
        communicators: Sequence[VirtualCommunicator],
        mine: Sequence[Sequence[int]],
    ) -> None:
        self._spec, self._entry, self._communicators, self._mine = spec, entry, communicators, mine
        self._comm_ids = [communicator.comm_id for communicator in communicators]
        self._places = [{operation: place for place, operation in enumerate(operations)} for operations in mine]
        self._dice = np.random.default_rng([spec.seed, rank])
        self._enqueued: dict[int, _Enqueued] = {}

    def enqueue(
        self,
        number: int,
        times: IterationTimes,
        scale: float,
        first_calls: list[int],
        extra_calls: Sequence[ExtraCall] = (),
        share: float = 1.0,
    ) -> None:
        """Iteration ``number`` is enqueued: ``times``, stretched by ``scale``; its first call on each communicator;
        what was called before it; what share of their usual bytes the collectives have."""
        rows = times.rows.copy()
        rows["bytes"] = np.where(rows["bytes"] > 0, shaped(rows["bytes"].astype(float), share), 0)
        self._enqueued[number] = _Enqueued(replace(times, rows=rows), scale, first_calls, extra_calls)

    def write(self, finished: Sequence[Finished]) -> None:
        """The GPU has run these iterations."""
        for iteration in finished:
            if iteration.number not in self._enqueued:
                continue  # a graph's replay: no tuner call, no names
            one = self._enqueued.pop(iteration.number)
            if self._spec.timeline == "spans" and self._entry:
                self._push_spans(self._entry, iteration.gpu_start, one)
            elif self._spec.timeline == "profiler":
                self._end_kernels(iteration.gpu_start, one)

    # -- waiting

    def wait_for_reader(self, alive: Callable[[], bool]) -> None:
        """Until the controller has read our rings and decided on a plan that we have acknowledged, but not for ever.

        On the simulated clock it takes no time, as in a job whose iterations are long.
        """
        if not (self._spec.pace and self._entry and self._capture(self._entry)):
            return
        began = time.monotonic()
        while alive() and (waited := time.monotonic() - began) < PACE_SECONDS:
            undecided = waited < ANSWER_SECONDS and self._entry.awaits_outcome(self._comm_ids)
            if not undecided and self._has_room(self._entry):
                return
            time.sleep(1e-3)

    def _has_room(self, entry: ProcessEntry) -> bool:
        """For the spans of everything enqueued, and the calls of one more iteration with a small one; or for a part of
        either that the ring does not hold."""
        kernels, calls = entry.room(self._comm_ids)
        spans = sum(len(one.times.rows) + len(one.extra_calls) for one in self._enqueued.values())
        next_calls = max(map(len, self._mine), default=0) + 2
        return kernels >= min(spans, SPANS_AT_ONCE) and calls >= min(next_calls, CALLS_BETWEEN_WAITS)

    def _capture(self, entry: ProcessEntry) -> int:
        capture = 0
        for comm_id in self._comm_ids:
            capture |= entry.capture(comm_id)
        return capture

    # -- the timeline's spans

    def _push_spans(self, entry: ProcessEntry, origin: int, one: _Enqueued) -> None:
        capture = self._capture(entry)
        if not capture & (CAPTURE_KERNELS | CAPTURE_ITERATION):
            return
        rows = self._jittered(origin, one.times, one.scale)
        self._name_calls(entry, rows, one.times, one.first_calls)
        if capture & CAPTURE_KERNELS:
            rows = np.concatenate([self._extra_rows(entry, one.extra_calls), rows])
        else:
            rows = rows[one.times.operations == 0]
        end = time.monotonic() + PACE_SECONDS
        for first in range(0, len(rows), SPANS_AT_ONCE):
            part = rows[first : first + SPANS_AT_ONCE]
            while first and self._spec.pace and entry.room(self._comm_ids)[0] < len(part) and time.monotonic() < end:
                time.sleep(1e-3)
            entry.push_spans(part)

    def _extra_rows(self, entry: ProcessEntry, extra_calls: Sequence[ExtraCall]) -> Any:
        rows = np.zeros(len(extra_calls), KERNEL_SPAN)
        for row, extra in zip(rows, extra_calls, strict=True):
            fill_collective(row, extra.collective, extra.config, extra.start, extra.end)
            row["call"], row["slot"] = extra.call, self._slot(entry, extra.index)
        return rows

    def _slot(self, entry: ProcessEntry, index: int) -> int:
        slot = entry.slot_of(self._comm_ids[index])
        return UNKNOWN_RANK if slot is None else slot

    def _jittered(self, origin: int, times: IterationTimes, scale: float) -> Any:
        """The iteration's kernels on the simulated clock: compute varies in length, collectives in their start."""
        rows = times.rows.copy()
        start, length = rows["start_ns"] * scale, (rows["end_ns"] - rows["start_ns"]) * scale
        compute = rows["kind"] == SPAN_COMPUTE
        shorter = np.abs(self._dice.normal(0.0, KERNEL_JITTER, len(rows)))
        length = np.where(compute, length * (1.0 - shorter), length)
        late = np.where(compute, 0.0, np.minimum(self._dice.random(len(rows)) * ARRIVAL_NS, length / 2))
        rows["start_ns"], rows["end_ns"] = origin + start + late, origin + start + length
        return rows

    def _name_calls(self, entry: ProcessEntry, rows: Any, times: IterationTimes, first_calls: list[int]) -> None:
        """Which call of which slot each collective was: as the launch events of the profiler plugin show."""
        for index, places in enumerate(self._places):
            slot = self._slot(entry, index)
            for row in np.flatnonzero(np.isin(times.operations, self._mine[index])):
                rows[row]["call"] = first_calls[index] + places[int(times.operations[row])]
                rows[row]["slot"] = slot

    # -- NCCL's kernel events

    def _end_kernels(self, origin: int, one: _Enqueued) -> None:
        for index, operations in enumerate(self._mine):
            profiler = self._communicators[index].profiler
            if profiler is not None:
                rows = one.times.rows[np.isin(one.times.operations, operations)]
                starts = (origin + rows["start_ns"] * one.scale).astype(int).tolist()
                ends = (origin + rows["end_ns"] * one.scale).astype(int).tolist()
                profiler.kernels_ran(
                    {extra.call: (extra.start, extra.end) for extra in one.extra_calls if extra.index == index}
                )
                profiler.kernels_ran(dict(enumerate(zip(starts, ends, strict=True), one.first_calls[index])))
