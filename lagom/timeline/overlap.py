# SPDX-License-Identifier: Apache-2.0
"""``lagom.overlap``: how much of a job's communication is hidden behind compute, and what that costs the compute."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from lagom.timeline.job_profile import Profile, profile
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.load import load_reference, load_trace
from lagom.timeline.slowdowns import ContentionOverhead, KernelSlowdown
from lagom.timeline.trace_coverage import Calls

StrPath: TypeAlias = "str | os.PathLike[str]"
Trace: TypeAlias = "StrPath | KernelTable | Sequence[StrPath] | Sequence[KernelTable]"


@dataclass(frozen=True, slots=True)
class RankOverlap:
    """One rank of a job. C and K are the sets of times when communication and compute run on its GPU.

    Attributes
    ----------
    rank : int
        The rank.
    iterations : int
        Whole, regular iterations in its trace.
    x_ns, y_ns : float
        Busy time of communication, |C|, and of compute, |K|: median over iterations, ns.
    z_ns : float
        Length of an iteration: median, ns.
    exposed_ns : float
        Communication time without compute beside it, |C| - |C n K|: median over iterations, ns.
    overlap_ratio : float
        |C n K| / |C| over the whole trace, 0 to 1: the definition of HolisticTraceAnalysis, whose
        ``get_comm_comp_overlap`` gives the same number in percent where all communication is by kernels of NCCL. NaN
        without communication.
    wait_ns : float
        Time that its collectives wait for ranks that arrive later: median over iterations, ns. NaN if it runs other
        collectives than the first rank.
    overhead_share : float
        Contention overhead as a share of its compute time (:class:`~lagom.timeline.slowdowns.ContentionOverhead`).
    """

    rank: int
    iterations: int
    x_ns: float
    y_ns: float
    z_ns: float
    exposed_ns: float
    overlap_ratio: float
    wait_ns: float
    overhead_share: float


@dataclass(frozen=True, slots=True)
class Overlap:
    """Overlap of communication and compute in a training job.

    Let C be the set of times when communication runs on a GPU (NCCL's kernels, those of the other libraries in
    ``lagom/timeline/communication_kernels.py``, copies between GPUs), K the set of times when compute runs (every other
    kernel; other memory copies are neither), |.| the total length. All values are medians
    over iterations. What cannot be seen is NaN: without compute kernels in the trace, everything but X and Z max.

    Attributes
    ----------
    x_ns : float
        X, communication busy time |C| of an iteration, ns: sum of the minima over ranks, since the rank that
        arrives last does not wait.
    y_ns : float
        Y, compute busy time |K| of an iteration, ns: maximum over ranks.
    z_max_ns : float
        Z max, length of an iteration on the rank where it is longest, ns: from its first collective to that of the
        next. The decision log of a tuning run gives Z, the mean over ranks.
    overlap_ratio : float
        |C n K| / |C|, 0 to 1 (HolisticTraceAnalysis), in an iteration of the rank with the median length of an
        iteration.
    exposed_ns : float
        Exposed communication |C| - |C n K| of an iteration, ns; same rank.
    idle_ns : float
        Time without communication and compute, Z - |C u K| with the Z of that rank, ns.
    overhead : ContentionOverhead
        Extra time of compute kernels compared with the same kernels running without communication, with a 95 %
        interval; same rank.
    slowdowns : tuple of KernelSlowdown
        Each compute kernel that runs beside communication, by name: its mean duration there and without communication
        (ns), ``slowdown`` = the ratio of both, and its extra time an iteration; largest extra time first.
    ranks : tuple of RankOverlap
        Each rank by itself.
    iterations : int
        Iterations that all ranks have and that the medians are over.
    notes : tuple of str
        What a reader should know before trusting the numbers, in sentences.
    profile : Profile
        Everything else that ``lagom profile`` shows: overlap groups, sites, patterns.
    """

    x_ns: float
    y_ns: float
    z_max_ns: float
    overlap_ratio: float
    exposed_ns: float
    idle_ns: float
    overhead: ContentionOverhead
    slowdowns: tuple[KernelSlowdown, ...]
    ranks: tuple[RankOverlap, ...]
    iterations: int
    notes: tuple[str, ...]
    profile: Profile = field(repr=False)


def overlap(trace: Trace, *, reference: Trace | None = None, calls: Calls | None = None) -> Overlap:
    """How much communication a job hides behind compute, what stays exposed, and how much slower compute is for it.

    Parameters
    ----------
    trace : path, KernelTable, or a sequence of either
        The kernels of every rank: Kineto traces of ``torch.profiler`` (``.json``, ``.json.gz`` or ``.zip``, at least
        four iterations, one file a rank), the folder of an earlier ``lagom profile`` or ``lagom run --record``, or
        tables.
    reference : same types, optional
        The same job with hardly any communication: durations of kernels that never run without it in ``trace``.
        Default: where ``trace`` is the folder of a ``lagom profile``, the reference trace that it was measured by.
    calls : mapping of rank to communicator slot to call records, optional
        The collective calls of each rank; read from the folder where ``trace`` is one.

    Returns
    -------
    Overlap
        Times in ns, ratios and shares of 1.

    Raises
    ------
    lagom.timeline.TraceError
        A file that cannot be read, or no usable kernel record in it.
    """
    tables, recorded = _tables(trace)
    if reference is not None:
        quieter = _tables(reference)[0]
    else:  # the reference trace in the folder of a profile
        quieter = load_reference([Path(trace)]) if isinstance(trace, (str, os.PathLike)) else []
    found = profile(tables, quieter, recorded if calls is None else calls)
    return Overlap(
        x_ns=found.x,
        y_ns=found.y,
        z_max_ns=found.z_max,
        overlap_ratio=found.overlap_ratio,
        exposed_ns=found.exposed,
        idle_ns=found.idle,
        overhead=found.overhead,
        slowdowns=found.slowdowns,
        ranks=measure_ranks(found),
        iterations=found.steps,
        notes=found.notes,
        profile=found,
    )


def measure_ranks(found: Profile) -> tuple[RankOverlap, ...]:
    """Each rank of a profile by itself."""
    rows = []
    for rank, wait, overhead in zip(found.ranks, found.combined.wait_ns, found.overheads, strict=True):
        table, times = rank.table, rank.step_times().typical()
        whole = rank.busy.between(table.start.min(), table.end.max())
        sees = found.sees_compute
        rows.append(
            RankOverlap(
                rank=table.rank,
                iterations=rank.steps.count,
                x_ns=float(times.x),
                y_ns=float(times.y) if sees else math.nan,
                z_ns=float(times.z),
                exposed_ns=float(times.exposed) if sees else math.nan,
                overlap_ratio=float(whole.overlap_ratio) if sees else math.nan,
                wait_ns=wait,
                overhead_share=overhead.share,
            )
        )
    return tuple(rows)


def _tables(trace: Trace) -> tuple[list[KernelTable], Calls | None]:
    parts: Sequence[StrPath | KernelTable]
    parts = [trace] if isinstance(trace, (str, os.PathLike, KernelTable)) else trace
    tables = [part for part in parts if isinstance(part, KernelTable)]
    if tables and len(tables) == len(parts):
        return tables, None
    return load_trace([Path(part) for part in parts if not isinstance(part, KernelTable)])
