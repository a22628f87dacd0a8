# SPDX-License-Identifier: Apache-2.0
"""The timeline's place in the controller: one source a window, its tier, when it is wished for."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from lagom.controller.measure import Tier, WindowMeter
from lagom.controller.stock_observations import StockObservations
from lagom.controller.timeline_control import PATIENCE_SECONDS, TimelineControl
from lagom.wire.layout import (
    KERNEL_SPAN,
    NO_CALL,
    SPAN_COLLECTIVE,
    SPAN_COMPUTE,
    SPAN_CUPTI,
    SPAN_NCCL_EVENT,
    SPAN_NCCL_KERNEL,
    SPAN_SIMULATED,
)
from lagom.wire.region import TimelineState
from lagom.wire.views import ProcessView

SLOTS = {0: 0, 1: 1}  # slot -> process


def spans(*rows: tuple[int, int, int, int]) -> NDArray[np.void]:
    """(source, kind, slot, call)"""
    made = np.zeros(len(rows), KERNEL_SPAN)
    for row, (source, kind, slot, call) in zip(made, rows, strict=True):
        row["source"], row["kind"], row["slot"], row["call"] = source, kind, slot, call
        row["start_ns"], row["end_ns"] = 10, 20
    return made


def evidence(source: int, compute: bool = True, call: int = 5) -> StockObservations:
    seen = StockObservations()
    for slot, process in SLOTS.items():
        rows = [(source, SPAN_COLLECTIVE, slot, call)]
        rows += [(source, SPAN_COMPUTE, 0xFFFFFFFF, NO_CALL)] if compute else []
        seen.add_spans(process, SLOTS, spans(*rows))
    return seen


def test_the_tier_needs_compute_and_joined_collectives_of_one_source() -> None:
    assert evidence(SPAN_CUPTI).tier(SLOTS) is Tier.TIMELINE
    assert evidence(SPAN_CUPTI, call=NO_CALL).tier(SLOTS) is Tier.HOST, "kernels without their calls start no iteration"
    assert evidence(SPAN_NCCL_KERNEL, compute=False).tier(SLOTS) is Tier.KERNELS
    assert evidence(SPAN_NCCL_EVENT, compute=False).tier(SLOTS) is Tier.HOST
    assert evidence(SPAN_SIMULATED).tier(SLOTS) is Tier.TIMELINE
    mixed = evidence(SPAN_NCCL_KERNEL, compute=False)
    mixed.add_spans(0, SLOTS, spans((SPAN_CUPTI, SPAN_COMPUTE, 0, NO_CALL)))
    mixed.add_spans(1, SLOTS, spans((SPAN_CUPTI, SPAN_COMPUTE, 0, NO_CALL)))
    assert mixed.tier(SLOTS) is Tier.KERNELS, "compute from one clock and collectives from another make no window"


def test_with_cupti_off_other_kernels_or_the_clock_must_do() -> None:
    assert evidence(SPAN_CUPTI).quiet_tier(SLOTS) is Tier.HOST
    assert evidence(SPAN_SIMULATED).quiet_tier(SLOTS) is Tier.TIMELINE
    both = evidence(SPAN_CUPTI)
    for slot, process in SLOTS.items():
        both.add_spans(process, SLOTS, spans((SPAN_NCCL_KERNEL, SPAN_COLLECTIVE, slot, 5)))
    assert both.tier(SLOTS) is Tier.TIMELINE
    assert both.quiet_tier(SLOTS) is Tier.KERNELS


def test_a_window_counts_each_kernel_once() -> None:
    told = spans(
        (SPAN_CUPTI, SPAN_COLLECTIVE, 0, 1), (SPAN_NCCL_KERNEL, SPAN_COLLECTIVE, 0, 1),
        (SPAN_NCCL_EVENT, SPAN_COLLECTIVE, 0, 1), (SPAN_SIMULATED, SPAN_COLLECTIVE, 0, 1),
    )  # fmt: skip
    kept = {}
    for tier in Tier:
        meter = WindowMeter(1, {0: 0}, 1, tier)
        meter.add_spans(0, told)
        kept[tier] = [int(source) for part in meter._ranks[0].spans for source in part["source"]]
    assert kept == {
        Tier.TIMELINE: [SPAN_CUPTI, SPAN_SIMULATED],
        Tier.KERNELS: [SPAN_NCCL_KERNEL, SPAN_SIMULATED],
        Tier.HOST: [],
    }


@dataclass
class FakeRegion:
    states: dict[int, TimelineState] = field(default_factory=dict)
    asked: list[tuple[int, bool]] = field(default_factory=list)

    def want_timeline(self, process: int, wanted: bool) -> None:
        self.asked.append((process, wanted))

    def timeline_state(self, process: int) -> TimelineState:
        return self.states[process]


@dataclass
class FakeStory:
    told: list[str] = field(default_factory=list)

    def note(self, text: str, *, warning: bool = False) -> None:
        if text not in self.told:
            self.told.append(text)


def view(index: int, state: TimelineState, timeline_remark: str = "", pid: int = 100, remark: str = "") -> ProcessView:
    return ProcessView(
        index, pid + index, 23007, 6, 6, 31, "GPU", "libnccl", remark, 0, int(state), 7_000_000, 9, 0,
        timeline_remark=timeline_remark,
    )  # fmt: skip


def test_asked_once_and_again_of_a_new_process() -> None:
    region, events = FakeRegion(), FakeStory()
    timeline = TimelineControl(region, events)  # type: ignore[arg-type]
    timeline.follow([view(0, TimelineState.OFF), view(1, TimelineState.OFF)])
    timeline.want(True, 1.0)
    timeline.want(True, 2.0)
    assert region.asked == [(0, False), (1, False), (0, True), (1, True)]
    timeline.follow([view(0, TimelineState.OFF), view(1, TimelineState.OFF, pid=200)])
    assert region.asked[4:] == [(1, True)], "a rank that came back is asked anew"
    timeline.want(False, 3.0)
    assert region.asked[5:] == [(0, False), (1, False)]


def test_it_is_told_when_it_comes_on_and_to_whom_it_yields() -> None:
    events = FakeStory()
    timeline = TimelineControl(FakeRegion(), events)  # type: ignore[arg-type]
    timeline.want(True, 0.0)
    timeline.follow([view(0, TimelineState.ON), view(1, TimelineState.YIELDED, "torch.profiler works")])
    timeline.follow([view(0, TimelineState.ON)])
    assert events.told == [
        "process 100: kernels are recorded; CUPTI took 7 ms to start",
        "process 101: torch.profiler works",
    ]


def test_why_there_is_none_is_told_and_other_remarks_are_not() -> None:
    events = FakeStory()
    timeline = TimelineControl(FakeRegion(), events)  # type: ignore[arg-type]
    timeline.want(True, 0.0)
    timeline.follow(
        [
            view(0, TimelineState.ABSENT, "libcupti.so.13 and .12 are not found."),
            view(1, TimelineState.ABSENT, remark="NT is off: another build"),
        ]
    )
    assert events.told == ["process 100: libcupti.so.13 and .12 are not found."]


def test_a_window_waits_for_it_but_not_for_ever() -> None:
    region = FakeRegion({0: TimelineState.ON, 1: TimelineState.STARTING})
    timeline = TimelineControl(region, FakeStory())  # type: ignore[arg-type]
    timeline.want(True, 100.0)
    assert not timeline.is_settled([0, 1], 101.0)
    assert not timeline.is_on([0, 1])
    assert timeline.is_settled([0, 1], 100.1 + PATIENCE_SECONDS)
    region.states[1] = TimelineState.YIELDED
    assert timeline.is_settled([0, 1], 101.0), "one rank that cannot is enough: the window needs all"
    assert not timeline.is_on([0, 1])
    region.states[1] = TimelineState.ON
    assert timeline.is_on([0, 1])
    assert timeline.is_settled([0, 1], 101.0)
