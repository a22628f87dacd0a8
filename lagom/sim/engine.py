# SPDX-License-Identifier: Apache-2.0
"""The discrete-event engine: two in-order queues, the rates at which their heads slow each other, and nothing else.

Between two events both heads progress at constant rates, read from a table. A segment of many equal repetitions soon
repeats itself exactly; once the state at the end of two repetitions agrees, the rest is skipped by arithmetic.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field

from lagom.sim.operations import ComputeKernel, GroupTimes, OverlapGroup, Span

_SAME = 1e-6  # ns: two states this close are one
_MARGIN = 2  # repetitions at a segment's end that are always played: the communication queue may run ahead by one

_NO_STOP = (0, 1, 0, sys.maxsize, 0)


@dataclass(frozen=True, slots=True)
class Head:
    """A collective under its config as the engine needs it: alone, and beside each kernel (by table row)."""

    ns: float
    stretch: tuple[float, ...]  # its slow-down beside kernel row i
    burden: tuple[float, ...]  # kernel row i's slow-down beside it
    name: str
    grid: int
    block: int


@dataclass(frozen=True, slots=True)
class KernelRow:
    """A kernel alone: its length with the gap before it, and what a newly arrived collective waits while it runs."""

    ns: float
    arrival: float
    kernel: ComputeKernel


@dataclass(frozen=True, slots=True)
class Script:
    """A group written out: for each operation of both queues what it is and how many of the other queue precede it.

    ``stops[c] = (end, stride, comm_stride, comm_start, comm_end)``: compute operation ``c`` starts a repetition of a
    segment whose last skippable repetition starts at ``end``; one repetition advances the queues by the strides; the
    segment's own collectives are those from ``comm_start`` to ``comm_end``.
    """

    rows: tuple[int, ...]
    rows_after: tuple[int, ...]
    sites: tuple[int, ...]
    sites_after: tuple[int, ...]
    stops: dict[int, tuple[int, int, int, int, int]] = field(default_factory=dict)


def write_out(group: OverlapGroup, row_of: dict[ComputeKernel, int]) -> Script:
    """The group's segments unrolled into one script."""
    rows: list[int] = []
    rows_after: list[int] = []
    sites: list[int] = []
    sites_after: list[int] = []
    stops: dict[int, tuple[int, int, int, int, int]] = {}
    for segment in group.segments:
        stride, comm_stride = len(segment.compute), len(segment.comm)
        end = len(rows) + (segment.repeats - _MARGIN) * stride
        comm_start, comm_end = len(sites), len(sites) + segment.repeats * comm_stride
        for _ in range(segment.repeats):
            base, comm_base = len(rows), len(sites)
            if stride and segment.repeats > _MARGIN + 1:
                stops[base] = (end, stride, comm_stride, comm_start, comm_end)
            for op in segment.compute:
                rows.append(row_of[op.kernel])
                rows_after.append(0 if op.after_comm is None else comm_base + op.after_comm + 1)
            for call in segment.comm:
                sites.append(call.collective.site)
                sites_after.append(0 if call.after_compute is None else base + call.after_compute + 1)
    return Script(tuple(rows), tuple(rows_after), tuple(sites), tuple(sites_after), stops)


def play(script: Script, rows: Sequence[KernelRow], calls: Sequence[Head], skip: bool = True) -> GroupTimes:
    """Times of one run of the script; ``calls[n]`` is the head of its n-th collective. ``skip`` needs equal heads in
    equal places of a segment's repetitions."""
    return _Play(script, rows, calls).to_the_end(skip)


def play_spans(script: Script, rows: Sequence[KernelRow], calls: Sequence[Head]) -> GroupTimes:
    """The same, without skipping, and with every kernel's span."""
    player = _Play(script, rows, calls)
    player.spans = []
    return player.to_the_end(skip=False)


class _Play:
    """One run in progress: where each queue is, what is left of its head, and the times so far."""

    def __init__(self, script: Script, rows: Sequence[KernelRow], calls: Sequence[Head]) -> None:
        self.script, self.rows, self.calls = script, rows, calls
        self.now = self.x = self.y = 0.0
        self.by_site: dict[int, float] = {}
        self.compute = self.comm = 0  # operations finished
        self.compute_left = self.comm_left = -1.0  # ns alone; negative: the head has not started
        self.room = 0.0  # ns until a started collective finds room on the SMs; inf: when the kernel ends
        self.compute_began = self.comm_began = 0.0
        self.spans: list[Span] | None = None
        self._looked_at = -1  # the compute operation at which repetition was last looked for: once each is enough
        self._seen: tuple[float, ...] | None = None
        self._then: tuple[float, float, float, dict[int, float]] | None = None

    def to_the_end(self, skip: bool) -> GroupTimes:
        compute_total, comm_total = len(self.script.rows), len(self.script.sites)
        while self.compute < compute_total or self.comm < comm_total:
            if (
                skip
                and self.compute_left < 0.0
                and self.compute != self._looked_at
                and self.compute in self.script.stops
            ):
                self._skip_if_steady()
            self._start_heads(compute_total, comm_total)
            self._advance()
        by_site = tuple(sorted(self.by_site.items()))
        return GroupTimes(self.now, self.x, self.y, by_site, tuple(self.spans or ()))

    def _start_heads(self, compute_total: int, comm_total: int) -> None:
        script = self.script
        if self.comm_left < 0.0 and self.comm < comm_total and self.compute >= script.sites_after[self.comm]:
            self.comm_left = self.calls[self.comm].ns
            running = self.compute_left >= 0.0
            self.room = self.rows[script.rows[self.compute]].arrival if running else 0.0
            self.comm_began = self.now
        if self.compute_left < 0.0 and self.compute < compute_total and self.comm >= script.rows_after[self.compute]:
            self.compute_left = self.rows[script.rows[self.compute]].ns
            self.compute_began = self.now

    def _advance(self) -> None:
        """To the next event: a head ends, or a waiting collective finds room."""
        if self.compute_left < 0.0:
            if self.comm_left < 0.0:
                raise ValueError("the two queues wait for each other: the workload's dependencies form a cycle")
            self._end_comm(self.comm_left)
        elif self.comm_left < 0.0:
            self._end_compute(self.compute_left)
        elif self.room > 0.0:
            self._wait_for_room()
        else:
            self._both()

    def _both(self) -> None:
        head, row = self.calls[self.comm], self.script.rows[self.compute]
        burden, stretch = head.burden[row], head.stretch[row]
        compute_ns, comm_ns = self.compute_left * burden, self.comm_left * stretch
        if compute_ns <= comm_ns:
            self.comm_left = max(0.0, self.comm_left - compute_ns / stretch)
            self._end_compute(compute_ns)
        else:
            self.compute_left = max(0.0, self.compute_left - comm_ns / burden)
            self._end_comm(comm_ns)

    def _wait_for_room(self) -> None:
        if self.room < self.compute_left:
            self.now += self.room
            self.compute_left -= self.room
            self.room = 0.0
        else:
            self._end_compute(self.compute_left)
        self.comm_began = self.now

    def _end_compute(self, after: float) -> None:
        self.now += after
        self.y += self.now - self.compute_began
        if self.spans is not None:
            kernel = self.rows[self.script.rows[self.compute]].kernel
            self.spans.append(
                Span(
                    "compute",
                    kernel.name,
                    self.compute_began,
                    self.now,
                    self.compute,
                    -1,
                    kernel.blocks,
                    kernel.threads,
                )
            )
        self.compute_left = -1.0
        self.compute += 1
        self.room = 0.0

    def _end_comm(self, after: float) -> None:
        self.now += after
        site, took = self.script.sites[self.comm], self.now - self.comm_began
        self.x += took
        self.by_site[site] = self.by_site.get(site, 0.0) + took
        if self.spans is not None:
            head = self.calls[self.comm]
            self.spans.append(
                Span("comm", head.name, self.comm_began, self.now, self.comm, site, head.grid, head.block)
            )
        self.comm_left = -1.0
        self.comm += 1
        self.room = 0.0

    def _skip_if_steady(self) -> None:
        """At the start of a repetition: if the last one began in this very state, the ones to come will too."""
        self._looked_at = self.compute
        end, stride, comm_stride, comm_start, comm_end = self.script.stops.get(self.compute, _NO_STOP)
        if self.comm < comm_start:
            return  # no such start, or still at collectives from before the segment
        ahead = self.comm - comm_stride * (self.compute // stride)
        begun = self.now - self.comm_began if self.comm_left >= 0.0 else 0.0
        state = (float(stride), float(end), self.compute_left, float(ahead), self.comm_left, self.room, begun)
        seen, then = self._seen, self._then
        self._seen, self._then = state, (self.now, self.x, self.y, dict(self.by_site))
        if seen is None or then is None or not _same(seen, state):
            return
        times = (end - self.compute) // stride
        if comm_stride:  # the communication queue may run ahead, but not out of the segment
            times = min(times, (comm_end - self.comm) // comm_stride - 1)
        if times > 0:
            self._jump(times, stride, comm_stride, then)

    def _jump(
        self, times: int, stride: int, comm_stride: int, then: tuple[float, float, float, dict[int, float]]
    ) -> None:
        now, x, y, by_site = then
        length = self.now - now
        self.x += times * (self.x - x)
        self.y += times * (self.y - y)
        for site, total in self.by_site.items():
            self.by_site[site] = total + times * (total - by_site.get(site, 0.0))
        self.compute += times * stride
        self.comm += times * comm_stride
        self.now += times * length
        self.comm_began += times * length
        self._seen = None


def _same(a: tuple[float, ...], b: tuple[float, ...]) -> bool:
    return all(p == q or abs(p - q) <= _SAME * max(1.0, abs(p)) for p, q in zip(a, b, strict=True))
