# SPDX-License-Identifier: Apache-2.0
"""One rank's kernels as columns.

:func:`build` is the only way in: it cleans, counts what it had to clean, and sorts, so that the order of the records
in a file or a ring never matters. Everything downstream may rely on: ``end >= start``, sorted by start, no duplicates.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from lagom.timeline.kernel_names import NO_FUNCTION, UNKNOWN_COLLECTIVE, KernelKind, function_of, kind_of
from lagom.timeline.step_marks import StepMarks

_COLUMNS = (
    "start", "end", "stream", "name", "grid", "block", "channels", "kind", "function", "slot", "call", "bytes"
)  # fmt: skip
#: No kernel takes a minute; a longer one is a torn record.
LONGEST_NS = 60_000_000_000
NO_CALL = -1
#: The source of what ranks recorded of themselves while they ran.
KERNEL_RING = "kernel ring"


@dataclass(frozen=True, slots=True)
class Faults:
    """What was wrong with the records of one rank. The first four are dropped, the others kept and only counted."""

    malformed: int = 0  # not a kernel record at all
    unstamped: int = 0  # start or end is 0: CUPTI had no time for it, or the record was cut
    impossible: int = 0  # ends before it starts, or lasts longer than a minute
    duplicated: int = 0  # the same kernel twice
    zero_length: int = 0
    out_of_order: int = 0  # starts before the record ahead of it on its stream
    overlapping: int = 0  # starts before the previous kernel of its stream ended (legal with dependent launch)

    @property
    def dropped(self) -> int:
        """Records that are not in the table."""
        return self.malformed + self.unstamped + self.impossible + self.duplicated

    def __str__(self) -> str:
        named = [(entry.name.replace("_", " "), getattr(self, entry.name)) for entry in fields(self)]
        return ", ".join(f"{count} {name}" for name, count in named if count) or "none"


@dataclass(frozen=True, slots=True)
class KernelTable:
    """Kernels of one rank (one process, one GPU); all arrays have one entry a kernel, in order of start.

    ``grid`` is the number of thread blocks (0 where unknown), ``channels`` the grid's x (of NCCL's kernels: the
    channels that really ran), ``name`` an index into ``names``; ``slot`` is the communicator and ``call`` is the
    number on it, both -1 where unknown; ``bytes`` as NCCL's tuner counts them, 0 where unknown. ``sms`` of the GPU, 0
    where unknown. ``marks``: the steps as the trace itself marks them, the surest first.
    """

    start: NDArray[np.int64]
    end: NDArray[np.int64]
    stream: NDArray[np.int32]
    name: NDArray[np.int32]
    grid: NDArray[np.int32]
    block: NDArray[np.int32]
    channels: NDArray[np.int32]
    kind: NDArray[np.uint8]
    function: NDArray[np.uint8]
    slot: NDArray[np.int32]
    call: NDArray[np.int64]
    bytes: NDArray[np.int64]
    names: tuple[str, ...]
    rank: int = 0
    sms: int = 0
    source: str = ""
    faults: Faults = field(default_factory=Faults)
    marks: tuple[StepMarks, ...] = ()

    def __len__(self) -> int:
        return self.start.size

    def only(self, rows: NDArray) -> KernelTable:
        """The same with some of its kernels: a mask, or indices in ascending order."""
        columns = {key: getattr(self, key)[rows] for key in _COLUMNS}
        return replace(self, **columns)

    @property
    def duration(self) -> NDArray[np.int64]:
        """Nanoseconds."""
        return self.end - self.start

    @property
    def is_communication(self) -> NDArray[np.bool_]:
        """Collectives and point-to-point."""
        return (self.kind == KernelKind.COLLECTIVE) | (self.kind == KernelKind.P2P)

    @property
    def is_compute(self) -> NDArray[np.bool_]:
        """Kernels that are neither communication nor memory copies."""
        return self.kind == KernelKind.COMPUTE


def build(
    start: ArrayLike,
    end: ArrayLike,
    stream: ArrayLike,
    names: Sequence[str],
    name: ArrayLike,
    *,
    grid: ArrayLike = 0,
    block: ArrayLike = 0,
    channels: ArrayLike = 0,
    kind: ArrayLike | None = None,
    function: ArrayLike | None = None,
    slot: ArrayLike = -1,
    call: ArrayLike = NO_CALL,
    size: ArrayLike = 0,
    rank: int = 0,
    sms: int = 0,
    source: str = "",
    malformed: int = 0,
    marks: tuple[StepMarks, ...] = (),
) -> KernelTable:
    """A table from columns in any order; ``name`` indexes ``names``. Kind and function come from the names unless
    given.

    Times in ns as int64 or uint64; values past int64 (garbage from a ring) count as impossible.
    """
    raw_start, raw_end = _times(start), _times(end)
    ids, spellings = _canonical(np.asarray(name, np.int64), names)
    columns: dict[str, NDArray] = {
        "start": raw_start,
        "end": raw_end,
        "stream": _column(stream, raw_start.size, np.int32),
        "name": ids,
        "grid": _column(grid, raw_start.size, np.int32),
        "block": _column(block, raw_start.size, np.int32),
        "channels": _column(channels, raw_start.size, np.int32),
        "slot": _column(slot, raw_start.size, np.int32),
        "call": _column(call, raw_start.size, np.int64),
        "bytes": _column(size, raw_start.size, np.int64),
    }
    columns["kind"] = _by_name(kind, [kind_of(spelling) for spelling in spellings], ids)
    columns["function"] = _by_name(function, [function_of(spelling) for spelling in spellings], ids)
    is_collective = columns["kind"] == KernelKind.COLLECTIVE
    columns["function"][~is_collective] = NO_FUNCTION
    columns["function"][is_collective & (columns["function"] == NO_FUNCTION)] = UNKNOWN_COLLECTIVE
    columns, faults = _clean(columns, malformed)
    return KernelTable(**columns, names=spellings, rank=rank, sms=sms, source=source, faults=faults, marks=marks)


def _times(values: ArrayLike) -> NDArray[np.int64]:
    array = np.asarray(values)
    if array.dtype == np.uint64:
        array = np.where(array > np.uint64(2**63 - 1), np.uint64(0), array)
    return array.astype(np.int64)


def _column(values: ArrayLike, count: int, dtype: type) -> NDArray:
    limits = np.iinfo(dtype)
    array = np.asarray(values)
    if array.dtype == np.uint64:
        array = np.minimum(array, np.uint64(limits.max))
    return np.ascontiguousarray(np.broadcast_to(np.clip(array, limits.min, limits.max).astype(dtype), (count,)))


def _canonical(ids: NDArray[np.int64], names: Sequence[str]) -> tuple[NDArray[np.int32], tuple[str, ...]]:
    """Distinct names in alphabetical order, so that ids do not depend on the order of the records."""
    spellings = tuple(sorted(set(names))) or ("",)
    place = {spelling: index for index, spelling in enumerate(spellings)}
    translate = np.array([place[spelling] for spelling in names] or [0], np.int32)
    return translate[np.clip(ids, 0, translate.size - 1)], spellings


def _by_name(given: ArrayLike | None, of_name: Sequence[int], ids: NDArray[np.int32]) -> NDArray[np.uint8]:
    if given is not None:
        return np.array(np.broadcast_to(np.asarray(given, np.uint8), ids.shape))
    return np.asarray(of_name, np.uint8)[ids]


def _clean(columns: dict[str, NDArray], malformed: int) -> tuple[dict[str, NDArray], Faults]:
    start, end = columns["start"], columns["end"]
    unstamped = (start <= 0) | (end <= 0)
    impossible = ~unstamped & ((end < start) | (end - start > LONGEST_NS))
    keep = np.flatnonzero(~(unstamped | impossible))
    out_of_order = _descents(start[keep], columns["stream"][keep])
    order = keep[np.lexsort([columns[key][keep] for key in ("call", "grid", "name", "stream", "end", "start")])]
    columns = {key: values[order] for key, values in columns.items()}
    twins = _duplicates(columns)
    columns = {key: values[~twins] for key, values in columns.items()}
    faults = Faults(
        malformed=malformed,
        unstamped=int(unstamped.sum()),
        impossible=int(impossible.sum()),
        duplicated=int(twins.sum()),
        zero_length=int((columns["end"] == columns["start"]).sum()),
        out_of_order=out_of_order,
        overlapping=_overlaps(columns),
    )
    return columns, faults


def _duplicates(columns: dict[str, NDArray]) -> NDArray[np.bool_]:
    """Rows equal in every column to the row before; the sort has put them side by side."""
    twin = np.zeros(columns["start"].size, bool)
    if twin.size > 1:
        twin[1:] = np.logical_and.reduce([values[1:] == values[:-1] for values in columns.values()])
    return twin


def _descents(start: NDArray[np.int64], stream: NDArray[np.int32]) -> int:
    order = np.argsort(stream, kind="stable")
    same = stream[order][1:] == stream[order][:-1]
    return int((same & (np.diff(start[order]) < 0)).sum())


def _overlaps(columns: dict[str, NDArray]) -> int:
    order = np.argsort(columns["stream"], kind="stable")
    stream, start, end = columns["stream"][order], columns["start"][order], columns["end"][order]
    return int(((stream[1:] == stream[:-1]) & (start[1:] < end[:-1])).sum())
