# SPDX-License-Identifier: Apache-2.0
"""Which kernel belongs to which call: by number where the span names the call, else by order, with checks.

Two sides: communication kernels (spans on streams) and calls (one counted ``getCollInfo`` of one communicator each).
The correspondence is not one to one: NCCL hands its tuner *one* call with the summed size for several collectives of a
group, and may launch several small calls in *one* kernel. Where both sides know sizes, the common prefix sums of the
two size sequences are exactly the places where both sides stand at the same point, whatever was merged in between.

A kernel that cannot be placed is counted under the reason. Consistency means: same function, sizes add up, and no
kernel starts before its call was made.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.records import Function
from lagom.timeline.kernel_names import KernelKind, is_foreign, is_symmetric
from lagom.timeline.kernel_table import KERNEL_RING, NO_CALL, KernelTable

P2P = "point-to-point: NCCL does not ask its tuner"
SYMMETRIC = "symmetric-memory kernel: NCCL does not ask its tuner"
FOREIGN = "no kernel of NCCL: NCCL asks no tuner"
UNKNOWN_FUNCTION = "the kernel's name names no collective"
NO_SUCH_CALL = "the call's record was dropped or lies outside the window"
FUNCTION_DIFFERS = "the call is of another function"
BYTES_DIFFER = "sizes do not add up"
COUNTS_DIFFER = "as many calls as kernels were expected, and sizes are unknown"
AMBIGUOUS = "several ways to place it fit"
TOO_EARLY = "starts before any call it could belong to"
NO_CALLS = "no call of this function was recorded"

#: CUPTI turns the GPU's clock into the host's by a rate of its own, so kernels of a live job may seem to start before
#: their calls. Seen on H200s: 63 us more for each second of a window. As in csrc/timeline.
_APART_NS, _DRIFT = 200_000, 8000


@dataclass(frozen=True, slots=True)
class Join:
    """``call[i]`` and ``slot[i]`` of kernel i (-1: not joined). A kernel that carries several calls has its first one;
    ``calls_joined`` counts calls, ``exact`` the kernels placed by number. ``unjoined`` counts kernels by reason."""

    call: NDArray[np.int64]
    slot: NDArray[np.int32]
    exact: int
    by_order: int
    calls_joined: int
    calls_unjoined: int
    unjoined: dict[str, int]

    @property
    def tunable_share(self) -> float:
        """Joined share of the kernels that a tuner could reach at all; NaN if there is none."""
        return tunable_share(self.exact + self.by_order, self.unjoined)


def tunable_share(joined: int, unjoined: Mapping[str, int]) -> float:
    """Share of ``joined`` kernels among those that a tuner could reach at all; NaN if there is none."""
    out_of_reach = sum(unjoined.get(reason, 0) for reason in (P2P, SYMMETRIC, FOREIGN))
    tunable = joined + sum(unjoined.values()) - out_of_reach
    return joined / tunable if tunable else float("nan")


@dataclass(frozen=True, slots=True)
class _Placed:
    """Kernel k of a sequence belongs to call ``first[k]`` (-1: unknown); ``used`` marks the calls that are
    placed."""

    first: NDArray[np.int64]
    used: NDArray[np.bool_]


def join(table: KernelTable, calls: Mapping[int, NDArray[Any]]) -> Join:
    """Join the kernels of one rank with its calls by communicator slot (``lagom.wire.layout.CALL_RECORD`` rows with the
    fields call, time_ns, bytes and function; time on the kernels' clock, 0 where it is not)."""
    work = _Work(table, {slot: records[np.argsort(records["call"], kind="stable")] for slot, records in calls.items()})
    work.leave_out_untunable()
    work.place_named()
    for function in np.unique(table.function[work.open]).tolist():
        work.place_by_order(int(function))
    return work.result()


class _Work:
    """A join in progress."""

    def __init__(self, table: KernelTable, calls: Mapping[int, NDArray[Any]]) -> None:
        self.table, self.calls = table, calls
        self.open = table.is_communication.copy()
        self.call = np.full(len(table), NO_CALL, np.int64)
        self.slot = np.full(len(table), -1, np.int32)
        self.used = {slot: np.zeros(records.size, bool) for slot, records in calls.items()}
        self.reasons: Counter[str] = Counter()
        self.exact = self.by_order = 0

    def leave_out_untunable(self) -> None:
        """Kernels that never reach the tuner."""
        self._refuse(np.flatnonzero(self.open & (self.table.kind == KernelKind.P2P)), P2P)
        for is_untunable, reason in ((is_symmetric, SYMMETRIC), (is_foreign, FOREIGN)):
            untunable = np.array([is_untunable(name) for name in self.table.names], bool)[self.table.name]
            self._refuse(np.flatnonzero(self.open & untunable), reason)
        self._refuse(np.flatnonzero(self.open & (self.table.function > max(Function))), UNKNOWN_FUNCTION)

    def place_named(self) -> None:
        """Kernels whose span names communicator and call number."""
        named = self.open & (self.table.call >= 0)
        for slot in np.unique(self.table.slot[named]).tolist():
            mine = np.flatnonzero(named & (self.table.slot == slot))
            self._place_named_of(slot, mine)

    def _place_named_of(self, slot: int, kernels: NDArray[np.int64]) -> None:
        records = self.calls.get(slot)
        if records is None or not records.size:
            self._refuse(kernels, NO_SUCH_CALL)
            return
        numbers = self.table.call[kernels].astype(np.uint64)
        place = np.minimum(np.searchsorted(records["call"], numbers), records.size - 1)
        found = records["call"][place] == numbers
        agrees = records["function"][place] == self.table.function[kernels]
        moved = np.bincount(place[found], self.table.bytes[kernels[found]], records.size)
        fits = moved[place] <= records["bytes"][place].astype(float)
        self._refuse(kernels[~found], NO_SUCH_CALL)
        self._refuse(kernels[found & ~agrees], FUNCTION_DIFFERS)
        self._refuse(kernels[found & agrees & ~fits], BYTES_DIFFER)
        good = found & agrees & fits
        self._accept(slot, kernels[good], place[good], records)
        self.exact += int(good.sum())

    def place_by_order(self, function: int) -> None:
        """The rest of one function: one communicator takes all streams together; several are assigned by what
        fits."""
        kernels = np.flatnonzero(self.open & (self.table.function == function))
        slots = [slot for slot in self.calls if self._free(slot, function).size]
        if not slots:
            self._refuse(kernels, NO_CALLS)
            return
        for owner in np.unique(self.table.slot[kernels]).tolist():
            mine = kernels[self.table.slot[kernels] == owner]
            allowed = [owner] if owner in slots else [] if owner >= 0 else slots
            self._place_sequences(mine, allowed, function)

    def _place_sequences(self, kernels: NDArray[np.int64], slots: list[int], function: int) -> None:
        if not slots:
            self._refuse(kernels, NO_CALLS)
        elif len(slots) == 1:
            self._settle(kernels, slots[0], self._try(kernels, slots[0], function), function)
        else:
            self._tell_apart(kernels, slots, function)

    def _tell_apart(self, kernels: NDArray[np.int64], slots: list[int], function: int) -> None:
        """Streams against communicators: a pair that is the only one possible for both is taken, until none is left."""
        of_kernel, slots = self.table.stream[kernels], list(slots)
        streams = {int(one): kernels[of_kernel == one] for one in np.unique(of_kernel)}
        while True:
            fits = {
                (stream, slot): placed
                for stream, mine in streams.items()
                for slot in slots
                if isinstance(placed := self._try(mine, slot, function), _Placed)
            }
            sole = sole_pairs(fits)
            if not sole:
                break
            for stream, slot in sole:
                self._settle(streams.pop(stream), slot, fits[stream, slot], function)
                slots.remove(slot)
        for mine in streams.values():
            self._refuse(mine, AMBIGUOUS)

    def _try(self, kernels: NDArray[np.int64], slot: int, function: int) -> _Placed | str:
        free = self._free(slot, function)
        records, table = self.calls[slot][free], self.table
        start = self._latest_launch(kernels)
        if (table.bytes[kernels] > 0).all():
            return _by_bytes(table.bytes[kernels], start, records["bytes"].astype(np.int64), _times(records))
        offsets = list(range(len(records) - len(start) + 1))  # one to one, in order
        return _only(offsets, start, _times(records), COUNTS_DIFFER)

    def _latest_launch(self, kernels: NDArray[np.int64]) -> NDArray[np.int64]:
        """Until when each kernel may have been launched, by the clock of the calls."""
        start = self.table.start[kernels]
        if self.table.source != KERNEL_RING:
            return start
        return start + _APART_NS + (start - self.table.start.min()) // _DRIFT

    def _settle(self, kernels: NDArray[np.int64], slot: int, placed: _Placed | str, function: int) -> None:
        if isinstance(placed, str):
            self._refuse(kernels, placed)
            return
        free = self._free(slot, function)
        sure = placed.first >= 0
        self._refuse(kernels[~sure], AMBIGUOUS)
        self._accept(slot, kernels[sure], free[placed.first[sure]], self.calls[slot])
        self.used[slot][free[placed.used]] = True
        self.by_order += int(sure.sum())

    def _free(self, slot: int, function: int) -> NDArray[np.int64]:
        return np.flatnonzero((self.calls[slot]["function"] == function) & ~self.used[slot])

    def _accept(self, slot: int, kernels: NDArray[np.int64], place: NDArray[np.int64], records: NDArray[Any]) -> None:
        self.call[kernels] = records["call"][place].astype(np.int64)
        self.slot[kernels] = slot
        self.used[slot][place] = True
        self.open[kernels] = False

    def _refuse(self, kernels: NDArray[np.int64], reason: str) -> None:
        if kernels.size:
            self.reasons[reason] += int(kernels.size)
            self.open[kernels] = False

    def result(self) -> Join:
        joined = sum(int(used.sum()) for used in self.used.values())
        total = sum(records.size for records in self.calls.values())
        return Join(self.call, self.slot, self.exact, self.by_order, joined, total - joined, dict(self.reasons))


def sole_pairs(possible: Collection[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those of the pairs of which each side is in no other."""
    ones, others = Counter(one for one, _ in possible), Counter(other for _, other in possible)
    return [(one, other) for one, other in possible if ones[one] == others[other] == 1]


def _times(records: NDArray[Any]) -> NDArray[np.int64]:
    return np.minimum(records["time_ns"], np.uint64(2**63 - 1)).astype(np.int64)


def _by_bytes(
    sizes: NDArray[np.int64], start: NDArray[np.int64], call_sizes: NDArray[np.int64], made: NDArray[np.int64]
) -> _Placed | str:
    """By the common prefix sums of both size sequences; failing that, one to one at the only offset that fits."""
    if sizes.sum() == call_sizes.sum():
        placed = _by_prefix_sums(sizes, call_sizes)
        early = (start < made[np.maximum(placed.first, 0)]) & (placed.first >= 0)
        return TOO_EARLY if early.any() else placed
    room = range(call_sizes.size - sizes.size + 1)
    offsets = [at for at in room if (call_sizes[at : at + sizes.size] == sizes).all()]
    return _only(offsets, start, made, BYTES_DIFFER)


def _by_prefix_sums(sizes: NDArray[np.int64], call_sizes: NDArray[np.int64]) -> _Placed:
    kernel_sums, call_sums = np.cumsum(sizes), np.cumsum(call_sizes)
    common = np.intersect1d(kernel_sums, call_sums)
    kernel_ends = np.concatenate([[0], np.searchsorted(kernel_sums, common) + 1])
    call_ends = np.concatenate([[0], np.searchsorted(call_sums, common) + 1])
    first, used = np.full(sizes.size, -1, np.int64), np.zeros(call_sizes.size, bool)
    for (low, high), (begin, end) in zip(pairwise(kernel_ends.tolist()), pairwise(call_ends.tolist()), strict=True):
        if high - low == 1 or end - begin == 1:  # else several to several: unknown which
            first[low:high] = begin
            used[begin:end] = True
    return _Placed(first, used)


def _only(offsets: list[int], start: NDArray[np.int64], made: NDArray[np.int64], otherwise: str) -> _Placed | str:
    fits = [at for at in offsets if (made[at : at + start.size] <= start).all()]
    if len(fits) > 1:
        return AMBIGUOUS
    if not fits:
        return TOO_EARLY if offsets else otherwise
    first = fits[0] + np.arange(start.size)
    return _Placed(first, np.isin(np.arange(made.size), first))
