"""Records of the shared kernel ring as a kernel table.

Ring records are ``struct lagom_kernel_span`` (``lagom.wire.layout.KERNEL_SPAN``): a numpy array straight from the
drain, possibly garbage. Names are hashes there; ``names`` translates those that are known. Records that only announce a
collective (source NCCL_EVENT, no GPU time) are no kernels and are left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.records import Function
from lagom.timeline.classify import NO_FUNCTION, Kind
from lagom.timeline.kernel_table import KERNEL_RING, NO_CALL, KernelTable, build
from lagom.wire import layout


def from_ring(spans: NDArray[Any], names: Mapping[int, str] | None = None, rank: int = 0, sms: int = 0) -> KernelTable:
    """A table from ring records of one process. Kind and function are taken from the record, not from the name."""
    spans = spans[spans["source"] != layout.SPAN_NCCL_EVENT]
    kind = np.where(spans["kind"] <= max(Kind), spans["kind"], Kind.OTHER)
    function = np.where(spans["function"] <= max(Function), spans["function"], NO_FUNCTION)
    spellings, index = _spelled(spans, function, dict(names or {}))
    bad = (spans["kind"] > max(Kind)) | (spans["source"] > layout.SPAN_SIMULATED)
    keep = np.flatnonzero(~bad)
    return build(
        spans["start_ns"][keep], spans["end_ns"][keep], spans["stream"][keep], spellings, index[keep],
        grid=_blocks(spans)[keep], block=spans["threads"][keep], channels=spans["channels"][keep],
        kind=kind[keep], function=np.where(kind == Kind.COLLECTIVE, function, NO_FUNCTION)[keep],
        slot=_minus_one(spans["slot"], layout.UNKNOWN_RANK)[keep], call=_minus_one(spans["call"], layout.NO_CALL)[keep],
        size=spans["bytes"][keep], rank=rank, sms=sms, source=KERNEL_RING, malformed=int(bad.sum()),
    )  # fmt: skip


def _spelled(
    spans: NDArray[Any], function: NDArray[Any], known: Mapping[int, str]
) -> tuple[list[str], NDArray[np.int64]]:
    """The names, and the index of each span's. NCCL's own events have none: such a collective is called by its
    function, as NCCL's kernels are, so that whoever reads the name knows what it is."""
    hashes, index = np.unique(spans["name"], return_inverse=True)
    spellings = [known.get(int(value), f"kernel#{value:08x}") for value in hashes]
    nameless = (spans["name"] == 0) & (spans["kind"] == Kind.COLLECTIVE) & (function != NO_FUNCTION)
    for one in (one for one in Function if (nameless & (function == one)).any()):
        index = np.where(nameless & (function == one), len(spellings), index)
        spellings.append(f"ncclDevKernel_{one.name.title().replace('_', '')}")
    return spellings, index.astype(np.int64)


def _blocks(spans: NDArray[Any]) -> NDArray[Any]:
    """Thread blocks of each kernel; 0 = unknown, where the record holds the grid's x alone."""
    return spans["blocks"] if "blocks" in (spans.dtype.names or ()) else np.zeros(spans.size, np.int64)


def _minus_one(values: NDArray[Any], nothing: int) -> NDArray[np.int64]:
    """``values`` with the marker for "not known" turned into -1, and garbage past int64 into it as well."""
    wide = values.astype(np.uint64)
    unknown = (wide == np.uint64(nothing)) | (wide > np.uint64(2**63 - 1))
    return np.where(unknown, np.uint64(0), wide).astype(np.int64) + np.where(unknown, np.int64(NO_CALL), 0)
