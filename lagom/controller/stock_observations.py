# SPDX-License-Identifier: Apache-2.0
"""What the first iterations show about a communicator: how much can be measured, and what NCCL picks by itself."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.controller.measure import Tier
from lagom.headroom import Headroom
from lagom.program import CallProgram, TunedProgram
from lagom.records import Algorithm, CommConfig, Knobs, Problem, Protocol, Site
from lagom.wire.layout import NO_CALL, SPAN_COLLECTIVE, SPAN_COMPUTE, SPAN_SIMULATED
from lagom.wire.library import library
from lagom.wire.views import ProcessView

#: The ceiling of NC where nothing has told how many channels NCCL built: asking for more than that is stock.
UNKNOWN_CEILING = 32
#: From this size on NCCL takes every channel it has, be they 64: 32 KiB a channel is the most it asks for.
ENOUGH_FOR_EVERY_CHANNEL = 2 << 20
#: Algorithms that share one number of channels; NVLS has its own.
BUILT_ALIKE = (Algorithm.RING, Algorithm.TREE)
WARP = 32
Shape = tuple[int, int]  # (function, bytes)


@dataclass(slots=True)
class StockObservations:
    """Filled from stock iterations only."""

    _compute: set[tuple[int, int]] = field(default_factory=set)  # (source, process)
    _kernels: set[tuple[int, int]] = field(default_factory=set)  # (source, slot): joined with their calls
    _picks: dict[Shape, CommConfig] = field(default_factory=dict)
    _shape_of_call: dict[int, Shape] = field(default_factory=dict)
    _channels: dict[Shape, int] = field(default_factory=dict)
    _blocks: dict[Shape, int] = field(default_factory=dict)  # threads of a launched block
    times_refuted: bool = False  # NCCL's times of its kernels are other kernels', and count for nothing

    def add_calls(self, records: NDArray[Any]) -> None:
        """NCCL's own pick at each shape, from one rank's records."""
        for record in records:
            shape = (int(record["function"]), int(record["bytes"]))
            self._shape_of_call[int(record["call"])] = shape
            if shape not in self._picks and record["stock_algorithm"] >= 0:
                self._picks[shape] = CommConfig(
                    Algorithm(int(record["stock_algorithm"])), Protocol(int(record["stock_protocol"]))
                )
        while len(self._shape_of_call) > 4096:
            self._shape_of_call.pop(next(iter(self._shape_of_call)))

    def add_spans(self, process: int, slots: dict[int, int], spans: NDArray[Any]) -> None:
        """Which kernels this process can show, and how many channels its collectives really took."""
        computed = spans["source"][spans["kind"] == SPAN_COMPUTE]
        self._compute.update((source, process) for source in np.unique(computed).tolist())
        ours = spans[
            (spans["kind"] == SPAN_COLLECTIVE) & (spans["call"] != NO_CALL) & np.isin(spans["slot"], list(slots))
        ]
        self._kernels.update(zip(ours["source"].tolist(), ours["slot"].tolist(), strict=True))
        for call, *widths in zip(*(ours[name].tolist() for name in ("call", "channels", "threads")), strict=True):
            shape = self._shape_of_call.get(call)
            for width, widest in zip(widths, (self._channels, self._blocks), strict=True):
                if shape is not None and width:
                    widest[shape] = max(width, widest.get(shape, 0))

    def tier(self, slots: dict[int, int]) -> Tier:
        """The best tier of measurement that every rank supports; ``slots`` maps slot to process."""
        computed = {process for source, process in self._compute if source in Tier.TIMELINE.sources}
        if computed >= set(slots.values()) and self._sees(Tier.TIMELINE, slots):
            return Tier.TIMELINE
        return self.quiet_tier(slots)

    def quiet_tier(self, slots: dict[int, int]) -> Tier:
        """The best tier while CUPTI is off."""
        computed = {process for source, process in self._compute if source == SPAN_SIMULATED}
        if computed >= set(slots.values()):
            return Tier.TIMELINE
        return Tier.KERNELS if self._sees(Tier.KERNELS, slots) and not self.times_refuted else Tier.HOST

    def shows(self, program: CallProgram, slots: dict[int, int]) -> bool:
        """Whether every rank has shown kernels, and each call of the program how many channels it took."""
        shapes = {(int(function), size) for function, size in program.positions}
        return self.quiet_tier(slots) is not Tier.HOST and shapes <= set(self._channels)

    def _sees(self, tier: Tier, slots: dict[int, int]) -> bool:
        return {slot for source, slot in self._kernels if source in tier.sources} >= set(slots)

    def stock_pick(self, site: Site) -> CommConfig:
        """NCCL's own pick at a site, as far as it was seen."""
        shape = (int(site.function), site.bytes)
        pick = self._picks.get(shape, CommConfig())
        return CommConfig(pick.algorithm, pick.protocol, self._channels.get(shape))

    def seen(self, site: Site) -> CommConfig:
        """The same for people, with the threads of a channel where kernels showed them."""
        pick, block = self.stock_pick(site), self._blocks.get((int(site.function), site.bytes))
        return replace(pick, threads=_channel_threads(pick, block))

    def channels_built(self) -> int | None:
        """The channels NCCL has for rings and trees, by what it took for calls large enough for all of them."""
        large = (
            (channels, self._picks.get(shape))
            for shape, channels in self._channels.items()
            if shape[1] >= ENOUGH_FOR_EVERY_CHANNEL
        )
        rings = (channels for channels, pick in large if pick is not None and pick.algorithm in BUILT_ALIKE)
        return max(rings, default=None)

    def _used_by(self, site: Site) -> tuple[tuple[int, int], ...]:
        """The (algorithm, protocol) pairs NCCL picks for this function here, at any size."""
        picks = (pick for (function, _), pick in self._picks.items() if function == site.function)
        return tuple(sorted({_pair(pick) for pick in picks}))

    def problem(self, tuned: TunedProgram, processes: list[ProcessView], headroom: Headroom | None = None) -> Problem:
        """What the search may do here: every knob that all ranks have, up to the channels NCCL was seen to take, or
        with ``headroom`` up to those it has built.

        Algorithms and protocols only as this communicator already uses them: a first use would allocate.
        """
        sites = tuned.sites[: tuned.tuned]
        stock = tuple(_above(self.stock_pick(site), headroom) for site in sites)
        ceiling = headroom.built if headroom is not None else max(self._channels.values(), default=UNKNOWN_CEILING)
        usable = tuple(self._used_by(site) for site in sites)
        return Problem(
            sites=sites,
            stock=stock,
            channels_ceiling=ceiling,
            knobs=common_knobs(processes),
            usable=usable if any(len(pairs) > 1 for pairs in usable) else (),
        )


def _above(pick: CommConfig, headroom: Headroom | None) -> CommConfig:
    """With head-room NCCL's own NC lies below the ceiling, and must be known for that."""
    return replace(pick, channels=headroom.stock) if headroom is not None and pick.channels is None else pick


def _channel_threads(pick: CommConfig, block: int | None) -> int | None:
    """NT of a launched block: RING/SIMPLE has a warp more; TREE and PAT run 640 threads whatever NT is."""
    if block is None or pick.algorithm in (Algorithm.TREE, Algorithm.PAT):
        return None
    return block - WARP if (pick.algorithm, pick.protocol) == (Algorithm.RING, Protocol.SIMPLE) else block


def common_knobs(processes: list[ProcessView]) -> Knobs:
    """The knobs that every rank process can set."""
    flags = library()
    every = ~0
    for process in processes:
        every &= process.knobs
    return Knobs(
        channels=bool(every & flags.LAGOM_KNOB_CHANNELS),
        algorithm=bool(every & flags.LAGOM_KNOB_ALGORITHM),
        chunk=bool(every & flags.LAGOM_KNOB_CHUNK),
        threads=bool(every & flags.LAGOM_KNOB_THREADS),
    )


def _pair(pick: CommConfig) -> tuple[int, int]:
    assert pick.algorithm is not None, "add_calls keeps whole picks only"
    assert pick.protocol is not None
    return int(pick.algorithm), int(pick.protocol)
