# SPDX-License-Identifier: Apache-2.0
"""One window measured: call records and kernel spans of all ranks in, pairs of samples out.

Z is the time between starts of position 0, credited to the config the GPU ran: the start is that of the kernel where a
tier of measurement sees kernels, else that of the host's call (then only the inside of long blocks counts, since the
host runs ahead of the GPU by some iterations). The iteration after a change of config is dropped, and so is one in
which the job did something else as well (an evaluation, a checkpoint that gathers) with the one after it.

Over ranks, communication time is the minimum (the last to arrive waits least) and compute time the maximum. Z is the
mean: all ranks of a job take equally long, and what one start is late by makes one iteration longer and the next one
shorter. The slowest of each would keep the longer ones, and more of it the fewer iterations a block has.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.records import Sample
from lagom.timeline.intervals import merge
from lagom.wire.layout import (
    CALL_CANDIDATE,
    CALL_PROGRAM,
    CALL_RECORD,
    CALL_TRANSPARENT,
    KERNEL_SPAN,
    NO_CALL,
    SPAN_COLLECTIVE,
    SPAN_COMPUTE,
    SPAN_CUPTI,
    SPAN_NCCL_KERNEL,
    SPAN_P2P,
    SPAN_SIMULATED,
)


class Tier(Enum):
    """What can be seen, best first."""

    TIMELINE = "timeline"  # compute and communication kernels: X, Y, Z
    KERNELS = "nccl kernels"  # NCCL's profiler events: X and Z
    HOST = "host"  # call times only: Z, in long blocks

    @property
    def sources(self) -> tuple[int, ...]:
        """Whose spans count. One source only: CUPTI and NCCL report the same kernel, and on different clocks."""
        if self is Tier.HOST:
            return ()
        return (SPAN_CUPTI if self is Tier.TIMELINE else SPAN_NCCL_KERNEL, SPAN_SIMULATED)


@dataclass(frozen=True, slots=True)
class Pacing:
    """How a window alternates: blocks of ``block`` iterations, of which the ones too near a change do not count."""

    block: int
    before: int  # iterations after a change that do not count
    after: int  # iterations before a change that do not count
    least: int  # iterations that must be left of a block

    @classmethod
    def of(cls, tier: Tier) -> Pacing:
        """Two iterations a block where kernels are seen; 20 where only the host's calls are (run-ahead is about 3)."""
        return cls(20, 4, 4, 4) if tier is Tier.HOST else cls(2, 1, 0, 1)


@dataclass(slots=True)
class _Rank:
    """One rank's share of a window: what is not digested yet, and one sample an iteration."""

    calls: list[NDArray[Any]] = field(default_factory=list)
    spans: list[NDArray[Any]] = field(default_factory=list)
    samples: dict[int, Sample] = field(default_factory=dict)
    labels: dict[int, bool] = field(default_factory=dict)  # iteration -> was it the candidate's
    broken: set[int] = field(default_factory=set)  # iterations that are not the program's calls under one config
    latest: int = -1  # iteration
    measured_to: int = 0  # call: the iterations before it are samples, or will never be


class WindowMeter:
    """Collects what the ranks recorded under one plan and turns it into pairs.

    ``slots`` maps each rank's slot to its process; ``sites`` is how many sites are tuned; ``starts_only``: the ranks
    were asked for the kernels of position 0 alone, so Z is known and X is not. Kernels are digested as soon as their
    iteration is over, so that a long window of a busy job needs no more memory than a short one.
    """

    def __init__(self, epoch: int, slots: dict[int, int], sites: int, tier: Tier, *, starts_only: bool = False) -> None:
        self.epoch = epoch
        self.tier = tier
        self._starts_only = starts_only
        self.pacing = Pacing.of(tier)
        self._sites = sites
        self._slots = slots
        self._ranks = {slot: _Rank() for slot in slots}

    def add_calls(self, slot: int, records: NDArray[Any]) -> None:
        """Call records of one rank, as drained."""
        if slot not in self._ranks:
            return
        rank, under_plan = self._ranks[slot], records[records["epoch"] == self.epoch]
        in_program = (under_plan["flags"] & CALL_PROGRAM) != 0
        foreign = under_plan[~in_program & ((under_plan["flags"] & CALL_TRANSPARENT) == 0)]
        ours = under_plan[in_program]
        starts = ours[ours["position"] == 0]
        rank.broken.update(_iterations_of(foreign["call"], starts, rank.latest))
        if len(ours):
            rank.labels.update(_labels(starts))
            rank.broken.update(number for number, label in _labels(ours) if rank.labels.get(number, label) != label)
            rank.calls.append(ours)
            rank.latest = int(ours["iteration"][-1])

    def add_spans(self, process: int, spans: NDArray[Any]) -> None:
        """Kernel spans of one process, as drained; several ranks in one process tell theirs by slot."""
        timed = spans[np.isin(spans["source"], self.tier.sources)]
        for slot, owner in self._slots.items():
            if owner == process and len(timed):
                self._ranks[slot].spans.append(timed)

    @property
    def candidate_iterations(self) -> int:
        """How many iterations have begun with the candidate in force: more than count."""
        return sum(self._first.labels.values())

    @property
    def discarded(self) -> int:
        """Pairs of blocks that some irregular call has spoilt."""
        return len({iteration // self.pacing.block // 2 for iteration in self._first.broken})

    @property
    def _first(self) -> _Rank:
        """Any of the ranks: their calls are the same."""
        return next(iter(self._ranks.values()))

    def has_measured(self, call: int) -> bool:
        """Whether no pair of iterations before ``call`` is still to come, as far as the last :meth:`pairs` saw."""
        return all(rank.measured_to >= call for rank in self._ranks.values())

    def pairs(self, *, no_more_comes: bool = False) -> tuple[tuple[Sample, Sample], ...]:
        """(incumbent, candidate) of every pair of blocks that are over on all ranks, in order; with ``no_more_comes``
        also of those that will never be."""
        for slot, rank in self._ranks.items():
            self._digest(slot, rank)
        everywhere = set.intersection(*(set(rank.samples) for rank in self._ranks.values()))
        labels = self._first.labels
        over = math.inf if no_more_comes else (max(everywhere, default=-1) + 1) // self.pacing.block
        counted: dict[int, list[int]] = defaultdict(list)  # block -> its iterations that count
        for iteration in sorted(everywhere):
            if iteration // self.pacing.block < over and self._counts(labels, iteration):
                counted[iteration // self.pacing.block].append(iteration)
        of_candidate = {block: labels[iterations[-1]] for block, iterations in counted.items()}
        means = {
            block: _mean([[rank.samples[iteration] for iteration in iterations] for rank in self._ranks.values()])
            for block, iterations in counted.items()
            if len(iterations) >= self.pacing.least
        }
        return tuple(_paired(means, of_candidate))

    def _counts(self, labels: dict[int, bool], iteration: int) -> bool:
        """Whether the iteration is far enough from a change of config, and from calls that are not the program's. A
        window's first iterations follow a change too."""
        near = range(iteration - self.pacing.before, iteration + self.pacing.after + 1)
        return all(labels.get(i) == labels[iteration] and i not in self._first.broken for i in near)

    def _digest(self, slot: int, rank: _Rank) -> None:
        """Turn every iteration that is over into a sample and forget its kernels. The newest one that has ended waits
        for one more start: its last kernels may still be on their way."""
        records = np.concatenate(rank.calls or [np.zeros(0, CALL_RECORD)])
        spans = np.concatenate(rank.spans or [np.zeros(0, KERNEL_SPAN)])
        starts = records[records["position"] == 0]
        times, known = self._start_times(spans, slot, starts)
        numbers = starts["iteration"].tolist()
        ripe = len(starts) - (1 if self.tier is Tier.HOST else 2)
        done = 0
        for index in range(max(0, ripe)):
            if known[index] and known[index + 1] and numbers[index + 1] == numbers[index] + 1:
                begin, end = int(times[index]), int(times[index + 1])
                rank.samples[numbers[index]] = self._sample(spans, records, slot, begin, end)
                done = index + 1
        if done:
            rank.measured_to = int(starts["call"][done])
            rank.calls = [records[records["call"] >= rank.measured_to]]
            rank.spans = [spans[spans["start_ns"] >= times[done]]]

    def _start_times(
        self, spans: NDArray[Any], slot: int, starts: NDArray[Any]
    ) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """(when each position 0 started, whether that is known)."""
        if self.tier is Tier.HOST:
            return starts["time_ns"].astype(np.int64), np.ones(len(starts), bool)
        return kernel_starts(spans, slot, starts["call"])

    def _sample(self, spans: NDArray[Any], records: NDArray[Any], slot: int, begin: int, end: int) -> Sample:
        inside = spans[(spans["start_ns"] >= begin) & (spans["start_ns"] < end)]
        if not len(inside) or self._starts_only:
            return Sample(float(end - begin))
        kinds = inside["kind"]
        collectives, compute = inside[kinds == SPAN_COLLECTIVE], inside[kinds == SPAN_COMPUTE]
        # Copies have no blocks. Kernels that send and receive wait for other ranks, for a whole stage of a pipeline.
        copies = inside[(kinds == SPAN_P2P) & (inside["blocks"] == 0)]
        return Sample(
            z=float(end - begin),
            x=busy_ns(np.concatenate([collectives, copies])),
            y=busy_ns(compute) if self.tier is Tier.TIMELINE else None,
            x_by_site=_by_site(collectives, records, slot, self._sites),
        )


def _paired(blocks: dict[int, Sample], of_candidate: dict[int, bool]) -> list[tuple[Sample, Sample]]:
    """(incumbent, candidate) of every even block and the one after it, where both are there. Behind the lease's end
    all blocks are the incumbent's: those are no pairs."""
    pairs = []
    for first in sorted(block for block in blocks if block % 2 == 0 and block + 1 in blocks):
        if of_candidate[first] != of_candidate[first + 1]:
            one, other = blocks[first], blocks[first + 1]
            pairs.append((other, one) if of_candidate[first] else (one, other))
    return pairs


def _labels(records: NDArray[Any]) -> set[tuple[int, bool]]:
    """(iteration, was the candidate's config in force) of the calls."""
    return set(zip(records["iteration"].tolist(), ((records["flags"] & CALL_CANDIDATE) != 0).tolist(), strict=True))


def busy_ns(spans: NDArray[Any]) -> float:
    """Length of the union of the spans, ns."""
    return float(merge(spans["start_ns"].astype(np.int64), spans["end_ns"].astype(np.int64)).length)


def _iterations_of(calls: NDArray[Any], starts: NDArray[Any], latest: int) -> list[int]:
    """The iteration in which each of ``calls`` came: that of the last start before it, ``latest`` before any."""
    numbers = np.concatenate([[latest], starts["iteration"].astype(np.int64)])
    before = numbers[np.searchsorted(starts["call"], calls)]
    return [int(number) for number in before if number >= 0]


def kernel_starts(spans: NDArray[Any], slot: int, calls: NDArray[Any]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """(start of each call's kernel, ns, whether it was seen), from the spans of the process that has ``slot``."""
    ours = spans[(spans["kind"] == SPAN_COLLECTIVE) & (spans["slot"] == slot) & (spans["call"] != NO_CALL)]
    ours = ours[np.argsort(ours["call"], kind="stable")]
    index = np.minimum(np.searchsorted(ours["call"], calls), max(0, len(ours) - 1))
    if not len(ours):
        return np.zeros(len(calls), np.int64), np.zeros(len(calls), bool)
    return ours["start_ns"][index].astype(np.int64), ours["call"][index] == calls


def _by_site(collectives: NDArray[Any], records: NDArray[Any], slot: int, sites: int) -> tuple[float, ...]:
    """Communication time of each tuned site within one iteration, ns."""
    totals = np.zeros(sites + 1)
    ours = collectives[(collectives["slot"] == slot) & (collectives["call"] != NO_CALL)]
    index = np.searchsorted(records["call"], ours["call"])
    known = (index < len(records)) & (records["call"][np.minimum(index, len(records) - 1)] == ours["call"])
    durations = (ours["end_ns"].astype(np.int64) - ours["start_ns"].astype(np.int64))[known]
    np.add.at(totals, np.minimum(records["site"][index[known]], sites), durations)
    return tuple(totals[:sites].tolist())


def _mean(ranks: list[list[Sample]]) -> Sample:
    """The mean iteration of a block, from each rank's samples of it."""
    iterations = list(zip(*ranks, strict=True))
    x, y, by_site = (
        _mean_over_ranks(iterations, *how) for how in (("x", np.min), ("y", np.max), ("x_by_site", np.min))
    )
    return Sample(
        z=float(np.mean([sample.z for rank in ranks for sample in rank])),
        x=None if x is None else float(x),
        y=None if y is None else float(y),
        x_by_site=None if by_site is None else tuple(by_site.tolist()),
    )


def _mean_over_ranks(iterations: list[tuple[Sample, ...]], name: str, combine: Callable[..., Any]) -> Any:
    """The mean over iterations of what ``combine`` makes of the ranks' times of that name; None where no rank saw
    any."""
    seen = [[time for sample in samples if (time := getattr(sample, name)) is not None] for samples in iterations]
    combined = [combine(times, axis=0) for times in seen if times]
    return np.mean(combined, axis=0) if combined else None
