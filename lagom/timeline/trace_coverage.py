"""How much of a job was seen: the tier of measurement, and how many of its kernels were joined with calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.join import join, tunable_share
from lagom.timeline.kernel_names import KernelKind
from lagom.timeline.kernel_period import find_period
from lagom.timeline.kernel_table import KernelTable
from lagom.wire.layout import CALL_RECORD

NCCL_ALONE, HOST = "nccl kernels", "host"
#: Tier -> what can be seen with it.
TIERS = {
    "timeline": "compute and communication kernels: X, Y, Z, overlap and contention overhead",
    NCCL_ALONE: "communication kernels only: X and Z; overlap and contention overhead cannot be seen",
    "compute kernels": "compute kernels only: Y and Z",
    HOST: "no kernels, only when calls are made: Z alone",
}

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


def z_by_calls(calls: Calls) -> float | None:
    """Z by the times alone at which the busiest communicator was called, ns: the last tier; ``None`` if its calls do
    not repeat themselves three times."""
    every = [records for of_rank in calls.values() for records in of_rank.values()]
    records = np.sort(max(every, key=len, default=np.zeros(0, CALL_RECORD)), order="call")
    codes = np.unique(records[["function", "bytes"]], return_inverse=True)[1]
    period = find_period(codes) if codes.size else None
    times = records["time_ns"].astype(np.int64)
    return None if period is None else float(np.median(times[period:] - times[:-period]))


def _tier(tables: Sequence[KernelTable]) -> str:
    compute = any((table.kind == KernelKind.COMPUTE).any() for table in tables)
    communication = any(table.is_communication.any() for table in tables)
    return "timeline" if compute and communication else NCCL_ALONE if communication else "compute kernels"
