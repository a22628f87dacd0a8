# SPDX-License-Identifier: Apache-2.0
"""The profiler plugin's events as NCCL sends them, v4 (2.27), v5 (2.28), v6 (2.29), v7 (2.31).

GroupApi and CollApi start when the user calls, before getCollInfo; KernelLaunch brackets the launch (v5 on); Coll start
and stop follow for each collective in it, all on the calling thread. KernelCh events come later, when the kernel has
run, with the GPU's timer. Only what the mask asked for when the collective was called is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from lagom.sim.virtual.abi import (
    ALGORITHM_NAMES,
    EVENT_COLL,
    EVENT_COLL_API,
    EVENT_GROUP_API,
    EVENT_KERNEL_CHANNEL,
    EVENT_KERNEL_LAUNCH,
    EVENTS_OF,
    FUNCTION_NAMES,
    PROTOCOL_NAMES,
    STATE_KERNEL_CHANNEL_STOP,
    ffi,
)
from lagom.sim.virtual.selection import CollectiveCall, Launched, block_threads

DATATYPE_BYTES = 2
BACKLOG = 4096  # handles whose kernels have not finished; more than that are forgotten, as NCCL's 64-deep rings do


@dataclass(frozen=True, slots=True)
class ProfilerPlugin:
    """The profiler plugin that a process has loaded: ``functions`` is its struct of version ``api``. The mask is one
    for the process; the plugin may switch events on at any time."""

    functions: Any
    api: int
    logger: Any
    mask: Any = field(default_factory=lambda: ffi.new("int *"))


class VirtualProfiler:
    """One communicator's profiler context and the events on it."""

    def __init__(
        self, plugin: ProfilerPlugin, where: Any, comm_id: int, name: str, nodes: int, ranks: int, rank: int
    ) -> None:
        self._plugin, self._functions = plugin, plugin.functions
        self._where, self._rank, self._ranks = where, rank, ranks
        self._modern = plugin.api >= 5
        self._strings = {text: ffi.new("char[]", text.encode()) for text in (*_NAMES, name, "ncclBfloat16")}
        self._event = ffi.new(f"profiler_event_v{EVENTS_OF[plugin.api]} *")
        self._event_bytes = ffi.buffer(self._event)
        self._blank = bytes(len(self._event_bytes))
        self._handle = ffi.new("void **")
        self._args = ffi.new("profiler_state_args *")
        self._sequence = [0] * len(FUNCTION_NAMES)
        self._waiting: dict[int, tuple[Any, int]] = {}  # call -> (Coll handle, channels): its kernel has not ended
        self._mask, self._calls = 0, 0
        self._api: tuple[Any, Any] = (ffi.NULL, ffi.NULL)
        mask, label = plugin.mask, self._strings[name]
        arguments = (comm_id, mask, label) if self._modern else (mask, label, comm_id)
        self.alive: bool = self._functions.init(where, *arguments, nodes, ranks, rank, plugin.logger) == 0

    def called(self, group: Sequence[CollectiveCall]) -> None:
        """The user makes the calls of ``group``: before getCollInfo. What the mask says now holds for them."""
        self._mask = self._plugin.mask[0] if self.alive else 0
        self._api = (ffi.NULL, ffi.NULL)
        if self._modern and self._mask & (EVENT_GROUP_API | EVENT_COLL_API):
            self._api = self._group_api(group[0])

    def launched(self, group: Sequence[Launched]) -> None:
        """One launch with every collective of ``group`` in it."""
        if self._modern and self._mask & EVENT_KERNEL_LAUNCH:
            self._clear(EVENT_KERNEL_LAUNCH, self._api[0])
            self._stop(self._start())
        for launched in group:
            if self._mask & EVENT_COLL:
                self._coll(launched)
            self._calls += 1
        self._stop(self._api[1])
        self._stop(self._api[0])

    def _group_api(self, first: CollectiveCall) -> tuple[Any, Any]:
        """Group and collective API events, open until the launch is done: (group handle, API handle)."""
        group_handle = api_handle = ffi.NULL
        if self._mask & EVENT_GROUP_API:
            self._clear(EVENT_GROUP_API, ffi.NULL)
            self._event.group_api.depth = 1
            group_handle = self._start()
        if self._mask & EVENT_COLL_API:
            self._clear(EVENT_COLL_API, group_handle)
            self._event.coll_api.function = self._strings[FUNCTION_NAMES[first.function]]
            self._event.coll_api.count = first.bytes // DATATYPE_BYTES
            self._event.coll_api.datatype = self._strings["ncclBfloat16"]
            self._event.coll_api.captured = first.registered  # here only a capture registers buffers
            api_handle = self._start()
        return group_handle, api_handle

    def _coll(self, launched: Launched) -> None:
        collective, config = launched.collective, launched.config
        assert config.algorithm is not None
        assert config.protocol is not None
        self._clear(EVENT_COLL, self._api[1])
        coll = self._event.coll
        coll.sequence = self._sequence[collective.function]
        coll.function = self._strings[FUNCTION_NAMES[collective.function]]
        # NCCL's event carries the user's count: of one rank's part for AllGather and ReduceScatter.
        parts = self._ranks if collective.function in (2, 3) else 1
        coll.count = collective.bytes // (DATATYPE_BYTES * parts)
        coll.datatype = self._strings["ncclBfloat16"]
        block = block_threads(config.algorithm, config.protocol, config.threads or 0)
        coll.channels, coll.warps = config.channels, block // 32
        coll.algorithm = self._strings[ALGORITHM_NAMES[config.algorithm]]
        coll.protocol = self._strings[PROTOCOL_NAMES[config.protocol]]
        if self._modern:
            coll.parent_group = self._api[0]
        self._sequence[collective.function] += 1
        handle = self._start()
        self._stop(handle)
        if self._mask & EVENT_KERNEL_CHANNEL and handle != ffi.NULL and len(self._waiting) < BACKLOG:
            self._waiting[self._calls] = (handle, config.channels or 0)

    def kernels_ran(self, times: Mapping[int, tuple[int, int]]) -> None:
        """Kernels have ended: call number -> (start ns, end ns) of the GPU's timer. Reports those requested."""
        for call, (start, end) in times.items():
            coll, channels = self._waiting.pop(call, (ffi.NULL, 0))
            for channel in range(channels):
                self._kernel_channel(coll, channel, start, end)

    def _kernel_channel(self, coll: Any, channel: int, start: int, end: int) -> None:
        self._clear(EVENT_KERNEL_CHANNEL, coll)
        self._event.kernel_channel.channel, self._event.kernel_channel.timer = channel, start
        handle = self._start()
        if handle != ffi.NULL:
            self._args.kernel_channel.timer = end
            self._functions.recordEventState(handle, STATE_KERNEL_CHANNEL_STOP, self._args)
            self._stop(handle)

    def _clear(self, kind: int, parent: Any) -> None:
        self._event_bytes[:] = self._blank
        # v4 descriptors carry the type in eight bits, which is why v4 knows no event above bit 7.
        self._event.type, self._event.parent, self._event.rank = kind, parent, self._rank

    def _start(self) -> Any:
        self._handle[0] = ffi.NULL
        self._functions.startEvent(self._where[0], self._handle, self._event)
        return self._handle[0]

    def _stop(self, handle: Any) -> None:
        if handle != ffi.NULL:
            self._functions.stopEvent(handle)

    def finalize(self) -> None:
        """ncclProfilerPluginFinalize."""
        if self.alive:
            self._functions.finalize(self._where[0])


_NAMES = (*FUNCTION_NAMES, *ALGORITHM_NAMES, *PROTOCOL_NAMES)
