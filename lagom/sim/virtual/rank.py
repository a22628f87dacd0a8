# SPDX-License-Identifier: Apache-2.0
"""The process of one virtual rank: ``python -m lagom.sim.virtual.rank FOLDER RANK FD``.

init every communicator; then, iteration by iteration:
    wait until the slowest rank and the controller's reading of our rings allow it
    make the iteration's calls through the plugin, stamped on the simulated clock
    let the simulator say how long an iteration with those configs takes
    hand out the kernels of iterations the GPU has finished by now
    write what every call ran (``*.calls``)
and at the end a summary (``rank<N>.json``).
"""

from __future__ import annotations

import json
import os
import random
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lagom.records import CommConfig, Function
from lagom.sim.virtual.call_log import CallLog, PlanLog
from lagom.sim.virtual.iteration_timing import Timing, length_alone, timing_of
from lagom.sim.virtual.nccl import VirtualCommunicator, VirtualNccl
from lagom.sim.virtual.pacing import HostAndGpu, Rendezvous
from lagom.sim.virtual.process_entry import ProcessEntry
from lagom.sim.virtual.selection import MAX_CHANNELS, CollectiveCall, nccl_version
from lagom.sim.virtual.spec import JobSpec
from lagom.sim.virtual.trace_writer import CALLS_BETWEEN_WAITS, ExtraCall, TraceWriter
from lagom.sim.virtual.workload_events import EventScript, WorkloadEvent
from lagom.wire.library import plugin_path

REPLAY_SECONDS = 0.002  # of real time: without calls nothing else would slow this rank down
LOGGING_CALL = CollectiveCall(Function.ALL_REDUCE, 8)  # transparent: a loss being logged


class Rank:
    """One rank's state; :meth:`run` is its life."""

    def __init__(self, spec: JobSpec, rank: int, meeting: Rendezvous, folder: Path) -> None:
        self.spec, self.rank, self.meeting = spec, rank, meeting
        self.timing: Timing = timing_of(spec)
        self.log = CallLog(folder, rank)
        self.host = HostAndGpu(spec.run_ahead, spec.host_share)
        self.nccl = VirtualNccl(
            plugin_path() if spec.plugin else None, nccl_version(spec.version), profiler=spec.profiler
        )
        self.communicators = [self._create(index) for index in range(len(spec.communicators))]
        self.entry = ProcessEntry.find()
        known = (one.comm_id for one in spec.communicators)
        self.plans = PlanLog(folder, rank, self.entry) if spec.keep_plans else None
        self.slots = sum(self.entry is not None and self.entry.slot_of(comm_id) is not None for comm_id in known)
        self.script = EventScript(spec.events)
        self._number = 0
        self._parent = os.getppid()
        self._common = random.Random(spec.seed)  # noise that every rank shares
        self._own = random.Random(f"{spec.seed} {rank}")
        self.untouched = self.calls = 0
        self.lengths: list[int] = []
        self._mine = [
            [i for i, operation in enumerate(self.timing.operations) if operation.communicator == index]
            for index in range(len(self.communicators))
        ]
        self.trace = TraceWriter(spec, rank, self.entry, self.communicators, self._mine)

    def _create(self, index: int) -> VirtualCommunicator:
        one = self.spec.communicators[index]
        fabric = self.spec.fabric.with_minimum(int(os.environ.get("NCCL_MIN_NCHANNELS", "0")))
        for name in ("NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS"):
            fabric = fabric.with_maximum(int(os.environ.get(name, MAX_CHANNELS)))
        return self.nccl.communicator(
            one.comm_id, self.spec.ranks, rank=self.rank, nodes=one.nodes, name=one.name, fabric=fabric
        )

    def run(self) -> None:
        """Every iteration until the spec's last, the parent's wish, or the parent's death."""
        number, began = 0, time.monotonic()
        while number < self._end():
            if not self.meeting.wait_for(number - self.spec.run_ahead, self.parent_alive):
                return
            self.trace.wait_for_reader(self.parent_alive)
            self._number = number
            self._iteration(number)
            self._save()
            number += 1
            self.meeting.arrive(self.rank, number)
            if self.spec.real_ms:
                time.sleep(max(0.0, began + number * self.spec.real_ms * 1e-3 - time.monotonic()))
        self.trace.write(self.host.finished(all_of_them=True))

    def _end(self) -> int:
        """The iteration to end before, as it is known by now."""
        named = self.meeting.end(self.parent_alive)
        return self.spec.iterations if named is None else min(named, self.spec.iterations)

    def _save(self) -> None:
        if self.plans is not None:
            self.plans.save()  # first: a rank killed in between has left the shape of every call in its log
        self.log.save()

    def parent_alive(self) -> bool:
        """Whether the process that started us is still there: orphans end."""
        return os.getppid() == self._parent

    # -- one iteration

    def _iteration(self, number: int) -> None:
        extra_calls = [extra for event in self.script.before(number) for extra in self._interrupt(event)]
        if self.spec.logging_every and number % self.spec.logging_every == self.spec.logging_every - 1:
            extra_calls.append(self._make_extra_call(0, LOGGING_CALL))
        self.host.begin(self._own.random() * self.spec.late if self.spec.late else 0.0)
        first_calls = [self._counted(c.comm_id) for c in self.communicators]
        if self.script.is_replayed(number):
            self._replay_graph()
            return
        configs = self._all_calls()
        times = self.timing.of(configs)
        scale = self.script.slower * (1.0 + self._common.gauss(0.0, self.spec.noise))
        self.host.end(times.z * scale)
        self.trace.enqueue(number, times, scale, first_calls, extra_calls, self.script.share)
        self.lengths.append(int(times.z * scale))
        self.trace.write(self.host.finished())

    def _replay_graph(self) -> None:
        """The GPU runs what was captured: NCCL is not called, no call has a number."""
        length = self.lengths[-1]
        self.host.end(length)
        self.lengths.append(length)
        self.trace.write(self.host.finished())
        self._show_time(self.host.now)
        time.sleep(REPLAY_SECONDS)

    def _interrupt(self, event: WorkloadEvent) -> list[ExtraCall]:
        """Calls that are no part of the iteration, spread over the pause that goes with them."""
        calls, extra_calls = event.collectives, []
        for one in calls:
            self.host.pause(event.pause_s * 1e9 / (len(calls) + 1))
            self._show_time(self.host.now)
            extra_calls.append(self._make_extra_call(event.communicator, one))
            self.host.pause(extra_calls[-1].end - extra_calls[-1].start)
        self.host.pause(event.pause_s * 1e9 / (len(calls) + 1))
        return extra_calls

    def _make_extra_call(self, communicator: int, collective: CollectiveCall) -> ExtraCall:
        """One such call; it runs when the GPU has nothing else to do."""
        call = self._counted(self.communicators[communicator].comm_id)
        config = self._run(communicator, [collective])[0]
        length = length_alone(collective, config, self.spec.ranks, self.spec.fabric)
        start = self.host.idle_from
        return ExtraCall(communicator, call, collective, config, start, start + int(length))

    def _counted(self, comm_id: int) -> int:
        return self.entry.calls(comm_id) if self.entry else self.log.count(comm_id)

    def _all_calls(self) -> list[CommConfig]:
        """The iteration's collectives, on one thread or on one a communicator; their effective configs in order."""
        configs: list[CommConfig | None] = [None] * len(self.timing.operations)
        if self.spec.threads:
            with ThreadPoolExecutor(len(self._mine)) as workers:
                list(workers.map(lambda mine: self._calls(mine, configs), self._mine))
        else:
            self._calls(range(len(configs)), configs)
        return [config for config in configs if config is not None]

    def _calls(self, indices: Sequence[int], configs: list[CommConfig | None]) -> None:
        """The collectives of ``indices`` in groups: neighbours on one communicator, ``spec.groups`` at most."""
        operations, at, waited_at = self.timing.operations, 0, 0
        while at < len(indices):
            if at - waited_at + self.spec.groups > CALLS_BETWEEN_WAITS:
                self.trace.wait_for_reader(self.parent_alive)
                waited_at = at
            communicator = operations[indices[at]].communicator
            end = at + 1
            while end < len(indices) and end - at < self.spec.groups:
                if operations[indices[end]].communicator != communicator:
                    break
                end += 1
            self._show_time(self.host.stamp(indices[at], len(self.timing.operations)))
            self._dawdle()
            group = [operations[i].collective for i in indices[at:end]]
            launched = self._run(communicator, self.script.shaped(group, self._number))
            for index, config in zip(indices[at:end], launched, strict=True):
                configs[index] = config
            at = end

    def _run(self, communicator: int, group: list[CollectiveCall]) -> list[CommConfig]:
        one = self.communicators[communicator]
        launched = one.run(group)
        self.calls += len(launched)
        for item in launched:
            self.untouched += item.untouched
            self.log.add(one.comm_id, item.config)
            if self.plans is not None:
                self.plans.called(one.comm_id, item.collective)
        if self.plans is not None:
            self.plans.look(one.comm_id)
        return [item.config for item in launched]

    def _show_time(self, now: int) -> None:
        if self.entry:
            self.entry.set_now(now)

    def _dawdle(self) -> None:
        if self.spec.skew_us and self._own.random() < 0.02:
            time.sleep(self._own.random() * self.spec.skew_us * 1e-6)

    # -- the end

    def finish(self, folder: Path) -> None:
        """Destroys the communicators and writes what was seen."""
        for communicator in self.communicators:
            communicator.destroy()
        self._save()
        summary = {
            "rank": self.rank,
            "calls": self.calls,
            "untouched": self.untouched,
            "joined": self.entry is not None,
            "slots": self.slots,
            "lengths": self.lengths,
            "log": self.nccl.log,
        }
        (folder / f"rank{self.rank}.json").write_text(json.dumps(summary))


def main(arguments: Sequence[str]) -> int:
    """``FOLDER RANK FD``; exit status 0, or a traceback."""
    folder, rank, fd = Path(arguments[0]), int(arguments[1]), int(arguments[2])
    spec = JobSpec.load(folder / "spec.json")
    one = Rank(spec, rank, Rendezvous(fd, spec.ranks), folder)
    try:
        one.run()
    finally:
        one.finish(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
