# SPDX-License-Identifier: Apache-2.0
"""NCCL as a plugin sees it: loads the real library, asks it in NCCL's order, and does with the answers what NCCL does.

One :class:`VirtualNccl` a process, one :class:`VirtualCommunicator` a rank of a communicator. What each step imitates:

* load: one dlopen, newest tuner symbol first, the profiler plugin only if asked for (``NCCL_PROFILER_PLUGIN``);
* communicator init: the profiler plugin first, then the tuner, on the same thread, ``context`` pointers side by side in
  one block of memory as in ``struct ncclComm``;
* a group: ``getCollInfo`` for every collective of it, and only then ``getChunkSize`` for each, part by part, with that
  channel's bytes and ``nChannels = 1``;
* destroy: the tuner's ``finalize`` (``destroy`` up to v4) with whatever context it left, NULL included, then the
  profiler's.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagom.errors import LagomError
from lagom.records import Algorithm, CommConfig, Function, Protocol
from lagom.sim.virtual import selection
from lagom.sim.virtual.abi import ALGORITHMS, IGNORE, PROTOCOLS, SUCCESS, ffi
from lagom.sim.virtual.profiler import ProfilerPlugin, VirtualProfiler
from lagom.sim.virtual.selection import CollectiveCall, Fabric, Launched, NcclVersion

CONTEXT_OFFSET = 4096  # where tunerContext lies in our stand-in for struct ncclComm
COMM_BYTES = 8192
ENTRIES = ALGORITHMS * PROTOCOLS

CostTable = Callable[[Function, int, int, Fabric], list[float]]


class PluginFailed(LagomError):
    """The plugin did something NCCL would turn into an error of the user's job."""


@dataclass(frozen=True, slots=True)
class Pick:
    """A collective between getCollInfo and scheduling; ``parts``: the bytes of the channels that getChunkSize is asked
    for, ``largest``: the chunk it finds."""

    algorithm: Algorithm
    protocol: Protocol
    channels: int
    threads: int
    untouched: bool
    largest: int
    parts: tuple[int, ...]


class VirtualNccl:
    """A process's NCCL of one release with the plugin of ``path`` (``None``: no plugin, NCCL alone)."""

    def __init__(
        self,
        path: Path | None,
        version: NcclVersion,
        *,
        profiler: bool = False,
        costs: CostTable = selection.cost_table,
    ) -> None:
        self.version = version
        self.costs = costs
        self.log: list[str] = []
        self.logger = _logger(self.log)
        self._library = None if path is None else ffi.dlopen(str(path))
        self.tuner = self._newest("ncclTunerPlugin_v", version.tuner_api, 2)
        events = self._newest("ncclProfiler_v", version.profiler_api, 4) if profiler else None
        self.profiler = None if events is None else ProfilerPlugin(events, version.profiler_api, self.logger)

    def _newest(self, prefix: str, newest: int, oldest: int) -> Any:
        """The struct of the newest symbol the library has, as NCCL probes; ``None`` without a library."""
        if self._library is None:
            return None
        for api in range(newest, oldest - 1, -1):
            try:
                return getattr(self._library, f"{prefix}{api}")
            except AttributeError:
                continue
        return None

    def communicator(
        self,
        comm_id: int,
        ranks: int,
        *,
        rank: int = 0,
        nodes: int = 1,
        name: str = "",
        fabric: Fabric | None = None,
    ) -> VirtualCommunicator:
        """Init of one rank of a communicator; raises :class:`PluginFailed` where NCCL's init would fail."""
        return VirtualCommunicator(self, comm_id, ranks, rank, nodes, name, fabric or Fabric())


class VirtualCommunicator:
    """One rank of one communicator. Used by one thread at a time, as NCCL demands."""

    def __init__(
        self, nccl: VirtualNccl, comm_id: int, ranks: int, rank: int, nodes: int, name: str, fabric: Fabric
    ) -> None:
        self.nccl, self.comm_id, self.ranks, self.rank, self.fabric = nccl, comm_id, ranks, rank, fabric
        self._memory = ffi.new("char[]", COMM_BYTES)
        self._context = ffi.cast("void **", self._memory + CONTEXT_OFFSET)
        self._table = ffi.new(f"float[{ENTRIES}]")
        self._table_bytes = ffi.buffer(self._table)
        self._table_argument = ffi.cast("float **", self._table)
        self._channels = ffi.new("int *")
        self._chunk = ffi.new("size_t *")
        self._asks_chunks = nccl.tuner is not None and nccl.version.tuner_api >= 6
        self._offers: dict[tuple[Function, int], bytes] = {}
        self._picks: dict[tuple[Function, int, bytes, int], Pick] = {}
        self.profiler: VirtualProfiler | None = None
        if nccl.profiler is not None:
            where = ffi.cast("void **", self._memory + CONTEXT_OFFSET + 8)
            self.profiler = VirtualProfiler(nccl.profiler, where, comm_id, name, nodes, ranks, rank)
        if nccl.tuner is not None:
            self._init_tuner(nodes)

    def _init_tuner(self, nodes: int) -> None:
        tuner, log = self.nccl.tuner, self.nccl.logger
        if self.nccl.version.tuner_api <= 4:
            result = tuner.init(self.ranks, nodes, log, self._context)
        else:
            domain = ffi.new("nvl_domain *", [nodes, self.ranks, self.ranks])
            constants = ffi.new("tuner_constants *")
            result = tuner.init(self._context, self.comm_id, self.ranks, nodes, log, domain, constants)
        if result != SUCCESS:
            raise PluginFailed(f"tuner init returned {result}; NCCL fails the creation of the communicator on this.")

    def run(self, group: Sequence[CollectiveCall]) -> list[Launched]:
        """One group of collectives, already aggregated: every getCollInfo first, then every getChunkSize."""
        if self.profiler is not None:
            self.profiler.called(group)
        picks = [self._ask(collective) for collective in group]
        launched = [self._finish(collective, pick) for collective, pick in zip(group, picks, strict=True)]
        if self.profiler is not None:
            self.profiler.launched(launched)
        return launched

    def ask_raw(self, function: int, size: int, table: bytes, registered: bool = False) -> tuple[bytes, int]:
        """One getCollInfo with ``table`` (float32, algorithm-major); the table and nChannels as the tuner left them.

        What a tuner of v2 answers is put into the table as NCCL puts it there: the chosen entry becomes 0.
        """
        self._table_bytes[:] = table
        self._channels[0] = 0
        if self.nccl.tuner is not None:
            ask = self._ask_for_answer if self.nccl.version.tuner_api == 2 else self._ask_with_table
            result = ask(function, size, registered)
            if result != SUCCESS:
                raise PluginFailed(f"getCollInfo returned {result}; NCCL fails the user's collective on this.")
        return bytes(self._table_bytes), self._channels[0]

    def _ask_with_table(self, function: int, size: int, registered: bool) -> int:
        about = (self._context[0], function, size, 1, self._table_argument, ALGORITHMS, PROTOCOLS)
        told = (int(registered),) if self.nccl.version.tuner_api >= 4 else ()
        return int(self.nccl.tuner.getCollInfo(*about, *told, self._channels))

    def _ask_for_answer(self, function: int, size: int, registered: bool) -> int:
        """v2: no table; -1 and 0 stand in the answers, and what is there afterwards is used unchecked."""
        nvls = int(self.fabric.nvls_channels > 0)
        answers = ffi.new("int[2]", [-1, -1])
        result = self.nccl.tuner.getCollInfo(
            self._context[0], function, size, 0, nvls, 1, answers, answers + 1, self._channels
        )
        if (answers[0] < 0) != (answers[1] < 0):
            raise PluginFailed("the tuner set one of algorithm and protocol; NCCL 2.21 would use the pair as it is.")
        if answers[0] >= 0:
            entry = answers[0] * PROTOCOLS + answers[1]
            if self._table[entry] == IGNORE:
                raise PluginFailed("the tuner chose what is not built here; NCCL 2.21 would launch it unchecked.")
            self._table[entry] = 0.0
        return int(result)

    def _chunk_of(self, collective: CollectiveCall, pick: Pick, share: int) -> int:
        """One getChunkSize for a channel's ``share`` of a collective; what ``*chunkSize`` holds afterwards."""
        self._chunk[0] = pick.largest
        if self._asks_chunks:
            result = self.nccl.tuner.getChunkSize(
                self._context[0], collective.function, share, pick.algorithm, pick.protocol, 1, self._chunk
            )
            if result != SUCCESS:
                raise PluginFailed(f"getChunkSize returned {result}; NCCL fails the user's collective on this.")
        return int(self._chunk[0])

    def _ask(self, collective: CollectiveCall) -> Pick:
        """getCollInfo, and NCCL's choice after it."""
        offer = self._offer(collective.function, collective.bytes)
        left, asked = self.ask_raw(int(collective.function), collective.bytes, offer, collective.registered)
        key = (collective.function, collective.bytes, left, asked)
        if key not in self._picks:
            self._picks[key] = self._choose(collective, offer, left, asked)
        return self._picks[key]

    def _offer(self, function: Function, size: int) -> bytes:
        """The cost table NCCL would hand out."""
        key = (function, size)
        if key not in self._offers:
            costs = self.nccl.costs(function, size, self.ranks, self.fabric)
            self._offers[key] = array("f", costs).tobytes()
        return self._offers[key]

    def _choose(self, collective: CollectiveCall, offer: bytes, left: bytes, asked: int) -> Pick:
        entry = self.nccl.version.pick(_floats(offer), _floats(left))
        if entry is None:
            raise PluginFailed("no algorithm is available after the tuner's call; NCCL would fail the collective.")
        algorithm, protocol = Algorithm(entry // PROTOCOLS), Protocol(entry % PROTOCOLS)
        stock, threads = selection.default_channels_and_threads(
            algorithm, protocol, collective.bytes, self.ranks, self.fabric
        )
        channels = selection.used_channels(
            collective.function,
            protocol,
            collective.bytes,
            self.nccl.version.channels(stock, asked),
            self.fabric.built(algorithm),
        )
        largest = selection.largest_chunk(collective.function, algorithm, protocol)
        parts = selection.channel_parts(collective.bytes, channels)
        return Pick(algorithm, protocol, channels, threads, left == offer and asked == 0, largest, parts)

    def _finish(self, collective: CollectiveCall, pick: Pick) -> Launched:
        """Scheduling: the chunk of each part. All parts must agree, or NCCL would cut one collective in two ways."""
        asked = {self._chunk_of(collective, pick, part) for part in pick.parts}
        chunk = selection.final_chunk(min(asked), pick.largest, pick.protocol)
        if chunk == 0:
            raise PluginFailed("the tuner's chunk is below NCCL's grain; NCCL would divide by zero.")
        if len(asked) > 1:
            raise PluginFailed(f"the parts of one collective got chunks of {sorted(asked)} bytes.")
        config = CommConfig(pick.algorithm, pick.protocol, pick.channels, pick.threads, chunk)
        return Launched(collective, config, pick.untouched and asked == {pick.largest})

    def destroy(self) -> None:
        """ncclCommDestroy: the tuner first, with whatever context it left, then the profiler."""
        if self.nccl.tuner is not None:
            tuner = self.nccl.tuner
            (tuner.destroy if self.nccl.version.tuner_api <= 4 else tuner.finalize)(self._context[0])
        if self.profiler is not None:
            self.profiler.finalize()


def _floats(raw: bytes) -> list[float]:
    return list(memoryview(raw).cast("f"))


def _logger(lines: list[str]) -> Any:
    """NCCL's debug logger. Variadic in C; we take the first argument, which is where the plugin puts its text."""

    @ffi.callback("void(int, unsigned long, const char *, int, const char *, const char *)")
    def log(level: int, flags: int, file: Any, line: int, form: Any, text: Any) -> None:
        template = ffi.string(form).decode(errors="replace")
        words = ffi.string(text).decode(errors="replace") if "%s" in template else ""
        lines.append(template.replace("%s", words, 1))

    _KEEP.append(log)
    return ffi.cast("nccl_logger", log)


_KEEP: list[Any] = []  # callbacks live as long as the process: the plugin may log at any time
