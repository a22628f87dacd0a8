# SPDX-License-Identifier: Apache-2.0
"""How much of a job was seen: the tier of measurement, and how many of its kernels were joined with calls;
and what a reader of the numbers should know.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.format import format_percent, format_time
from lagom.timeline.join import join, tunable_share
from lagom.timeline.kernel_names import KernelKind, communication_of, is_foreign, is_unknown_communication, label
from lagom.timeline.kernel_period import find_period
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.ranks import CombinedRanks, RankTimeline
from lagom.timeline.reference_kernels import Contention
from lagom.timeline.slowdowns import NOTEWORTHY, ContentionOverhead
from lagom.timeline.step_marks import PROFILER_STEP
from lagom.timeline.steps import REPETITION, Steps
from lagom.wire.layout import CALL_RECORD

NCCL_ALONE, HOST = "nccl kernels", "host"
#: Tier -> what can be seen with it.
TIERS = {
    "timeline": "compute and communication kernels: X, Y, Z, overlap and contention overhead",
    NCCL_ALONE: "communication kernels only: X and Z; overlap and contention overhead cannot be seen",
    "compute kernels": "compute kernels only: Y and Z",
    HOST: "no kernels, only when calls are made: Z alone",
}

#: Communication pressure in a reference trace, and difference of the clocks, that are worth a remark.
_PRESSURE_LEFT, _OTHER_CLOCK = 0.02, 0.05
#: So many kernels are named in a note.
_NAMED = 4

#: Rank -> communicator slot -> call records.
Calls = Mapping[int, Mapping[int, NDArray[Any]]]


@dataclass(frozen=True, slots=True)
class TraceCoverage:
    """``tier`` is a key of :data:`TIERS`; ``sources`` say where the kernels come from. Counts are over all ranks and
    steps; ``calls_known`` is False where no calls were recorded beside the kernels, as in a Kineto trace."""

    tier: str
    sources: tuple[str, ...]
    calls_known: bool = False
    exact: int = 0  # kernels placed by call number
    by_order: int = 0  # kernels placed by order and size
    calls_joined: int = 0
    calls_unjoined: int = 0
    unjoined: dict[str, int] = field(default_factory=dict)  # kernels by reason
    tunable_share: float = float("nan")  # joined share of the kernels that a tuner could reach


def measure_coverage(tables: Sequence[KernelTable], calls: Calls | None = None) -> TraceCoverage:
    """What the kernels of all ranks show, and with ``calls`` how they join."""
    tier, sources = _tier(tables), tuple(dict.fromkeys(table.source for table in tables if table.source))
    if not calls:
        return TraceCoverage(tier, sources)
    joins = [join(table, calls.get(table.rank, {})) for table in tables]
    reasons: Counter[str] = Counter()
    for one in joins:
        reasons.update(one.unjoined)
    exact, by_order = sum(one.exact for one in joins), sum(one.by_order for one in joins)
    return TraceCoverage(
        tier=tier,
        sources=sources,
        calls_known=True,
        exact=exact,
        by_order=by_order,
        calls_joined=sum(one.calls_joined for one in joins),
        calls_unjoined=sum(one.calls_unjoined for one in joins),
        unjoined=dict(reasons.most_common()),
        tunable_share=tunable_share(exact + by_order, reasons),
    )


def z_by_calls(calls: Calls | None) -> float | None:
    """Z by the times alone at which the busiest communicator was called, ns: the last tier; ``None`` if its calls do
    not repeat themselves three times."""
    every = [records for of_rank in (calls or {}).values() for records in of_rank.values()]
    records = np.sort(max(every, key=len, default=np.zeros(0, CALL_RECORD)), order="call")
    codes = np.unique(records[["function", "bytes"]], return_inverse=True)[1]
    period = find_period(codes) if codes.size else None
    times = records["time_ns"].astype(np.int64)
    return None if period is None else float(np.median(times[period:] - times[:-period]))


def _tier(tables: Sequence[KernelTable]) -> str:
    compute = any((table.kind == KernelKind.COMPUTE).any() for table in tables)
    communication = any(table.is_communication.any() for table in tables)
    return "timeline" if compute and communication else NCCL_ALONE if communication else "compute kernels"


def resembling_kernels(tables: Sequence[KernelTable]) -> dict[str, int]:
    """Kernels that count as compute though their names look like communication: ns of all ranks, longest first."""
    chosen = [table.is_compute for table in tables]
    return dict(_time_by_word(tables, chosen, lambda name: label(name) if is_unknown_communication(name) else ""))


def note_communication(tables: Sequence[KernelTable]) -> list[str]:
    """Which communication is not NCCL's, and what may be communication and was not counted as such."""
    notes = []
    if libraries := _time_by_word(tables, [table.is_communication for table in tables], _library_without_tuner):
        total = sum(int(table.duration[table.is_communication].sum()) for table in tables)
        named = ", ".join(f"{library} ({format_percent(ns / total, 0)})" for library, ns in libraries)
        notes.append(f"communication that is not by NCCL's kernels, so NCCL asks no tuner about it: {named}.")
    if resembling := resembling_kernels(tables):
        total = sum(int(table.duration[table.is_compute].sum()) for table in tables)
        named = ", ".join(list(resembling)[:_NAMED]) + (" …" if len(resembling) > _NAMED else "")
        share = format_percent(sum(resembling.values()) / total)
        notes.append(
            f"kernels that look like communication but are of no library known here count as compute: {named} "
            f"({share} of compute time)."
        )
    return notes


def _library_without_tuner(name: str) -> str:
    found = communication_of(name)
    return found.library if found is not None and is_foreign(name) else ""


def _time_by_word(
    tables: Sequence[KernelTable], chosen: Sequence[NDArray[np.bool_]], word_of: Callable[[str], str]
) -> list[tuple[str, int]]:
    """Time of the ``chosen`` kernels of each table by the word for their name (left out if empty), longest first;
    ns."""
    found: Counter[str] = Counter()
    for table, rows in zip(tables, chosen, strict=True):
        times = np.bincount(table.name[rows], table.duration[rows], len(table.names))
        for name, time in zip(table.names, times.tolist(), strict=True):
            found[word_of(name)] += int(time)
    return [(word, time) for word, time in found.most_common() if word and time]


def note_limits(
    ranks: Sequence[RankTimeline], overheads: Sequence[ContentionOverhead], merged: CombinedRanks
) -> list[str]:
    faulty = [rank.table for rank in ranks if rank.table.faults.dropped]
    notes = [f"rank {table.rank}: records with faults: {table.faults}." for table in faulty]
    if not all(rank.steps.periodic for rank in ranks):
        notes.append("no period was found, so the whole trace counts as one step; record at least four iterations.")
    notes += _note_steps(ranks[0].steps)
    if not merged.alike:
        notes.append("the ranks do not run the same collectives; sites and patterns are those of the rank shown.")
    if merged.aligned_by == "order":
        notes.append("the ranks' clocks do not agree, so their steps were matched by order.")
    if merged.shifted:
        notes.append(
            f"by their clocks the ranks' recordings begin up to {merged.shifted} steps apart, and their steps were "
            "matched so; if the clocks are wrong, so are X over ranks and waits. Call prof.step() in each iteration: "
            "its numbers match steps without clocks."
        )
    if merged.straggler is not None:
        notes.append(f"rank {merged.straggler} arrives last at most collectives: the others wait for it.")
    unmatched = max(one.unmatched for one in overheads)
    if unmatched > NOTEWORTHY:
        notes.append(
            f"{format_percent(unmatched, 0)} of compute time is in kernels that always have communication beside "
            "them, so the overhead is a lower bound; a reference trace, with hardly any communication (--reference), "
            "shows how long they take alone."
        )
    return notes


def _note_steps(steps: Steps) -> list[str]:
    """By what the steps were cut, where that is a hint only or where something else in the trace says otherwise."""
    if not steps.periodic:
        return []
    taken = f"the steps taken are those by {_count(steps)}"
    if steps.others:
        return [f"{taken}; others in the trace: {'; '.join(map(_count, steps.others))}."]
    if steps.count == 1:
        return [f"{taken}; record at least four iterations."]
    if steps.irregular and steps.found_by != REPETITION:
        return [f"{taken}; {steps.irregular} more have other kernels and are left out."]
    return [f"{taken}."] if steps.found_by not in (PROFILER_STEP, REPETITION) else []


def _count(steps: Steps) -> str:
    return f"{steps.found_by} ({steps.count} of {format_time(steps.length)})"


def note_reference_trace(contention: Contention) -> list[str]:
    """What was taken from a reference trace, and its limits."""
    from_trace = contention.from_trace
    if from_trace is None:
        return []
    if not from_trace.matched:
        return ["the reference trace runs other kernels, so nothing was taken from it; record the same job."]
    taken = f"{format_percent(from_trace.share, 0)} of compute time is compared with the reference trace"
    if not from_trace.share:
        return [f"{taken}: its communication is no lighter, or every kernel also runs alone here."]
    left = f", which has {format_percent(from_trace.pressure, 0)} of the communication pressure: a lower bound"
    notes = [taken + (left if from_trace.pressure > _PRESSURE_LEFT else "") + "."]
    if not from_trace.compared:
        notes.append("no kernel runs alone in both traces, so the GPU clocks could not be compared.")
    elif abs(from_trace.clock_ratio - 1) > _OTHER_CLOCK:
        notes.append(
            f"the GPU clock differed in the reference trace ({from_trace.clock_ratio:.2f}×); this was corrected for."
        )
    return notes
