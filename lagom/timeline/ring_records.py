# SPDX-License-Identifier: Apache-2.0
"""Records of the shared kernel ring as kernel tables: drained just now, or read from the files of a live job.

Ring records are ``struct lagom_kernel_span`` (``lagom.wire.layout.KERNEL_SPAN``): a numpy array straight from the
drain, possibly garbage. Names are hashes there; ``names`` translates those that are known. Records that only announce a
collective (source NCCL_EVENT, no GPU time) are no kernels and are left out.

``kernels.npy`` and ``calls.npy`` (``--record``) are what the controller drained (``lagom.controller.recorder``),
``names.json`` the kernels' names by index. The rank is the index of its process. CUPTI and NCCL's profiler report the
same collective, on different clocks, so only one source is read: the one that saw compute.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
from numpy.typing import NDArray

from lagom.records import Function
from lagom.timeline.kernel_names import NAMELESS, NO_FUNCTION, KernelKind, function_of, kind_of
from lagom.timeline.kernel_table import KERNEL_RING, NO_CALL, KernelTable, build
from lagom.timeline.trace_file import TraceError
from lagom.wire import layout
from lagom.wire.layout import (
    CALL_RECORD,
    KERNEL_SPAN,
    SPAN_COMPUTE,
    SPAN_CUPTI,
    SPAN_NCCL_KERNEL,
    SPAN_SIMULATED,
)

CALLS, KERNELS, NAMES = "calls.npy", "kernels.npy", "names.json"
TRACE_SAMPLES = "kernels"

Recorded = tuple[list[KernelTable], dict[int, dict[int, NDArray[Any]]]]


def has_records(folder: Path, since: float = 0.0) -> bool:
    """Whether a log folder holds raw records, written since then (wall clock, s)."""
    return all((folder / name).is_file() and (folder / name).stat().st_mtime >= since for name in (CALLS, KERNELS))


def forget_records(folder: Path) -> None:
    """Remove those of an earlier job from a log folder, so that they are not mistaken for those of the next job."""
    for name in (CALLS, KERNELS, NAMES):
        (folder / name).unlink(missing_ok=True)


def load_records(folder: Path) -> Recorded:
    """Tables, one a process that recorded kernels, and rank -> slot -> calls. Raises TraceError with the reason."""
    kernels = _read(folder / KERNELS, "process", "span", KERNEL_SPAN)
    calls = _read(folder / CALLS, "slot", "record", CALL_RECORD)
    try:
        names = _names((folder / NAMES).read_text())
    except OSError:
        names = {}
    return _by_rank(kernels, calls, names)


def find_trace_samples(folder: Path, communicator: int) -> dict[int, Path]:
    """The files of a search's kept moves in a log folder, by the move's number (``lagom.controller.trace_samples``)."""
    found = {}
    for path in (folder / TRACE_SAMPLES).glob(f"{communicator}-*.npz"):
        number = path.stem.partition("-")[2]
        if number.isdecimal():
            found[int(number)] = path
    return dict(sorted(found.items()))


def load_trace_sample(path: Path) -> Recorded:
    """One of them, like :func:`load_records`. Raises TraceError with the reason."""
    try:
        with np.load(path, allow_pickle=False) as kept:
            kernels, calls, names = kept["kernels"], kept["calls"], bytes(kept["names"]).decode(errors="replace")
    except (OSError, ValueError, KeyError, EOFError, BadZipFile) as error:
        raise TraceError(f"{path} is damaged or no sample of kernels; it was left out.") from error
    _check(path, kernels, "process", "span", KERNEL_SPAN)
    _check(path, calls, "slot", "record", CALL_RECORD)
    return _by_rank(kernels, calls, _names(names))


def _by_rank(kernels: NDArray[Any], calls: NDArray[Any], names: dict[int, str]) -> Recorded:
    tables, by_rank = [], {}
    for process in np.unique(kernels["process"]).tolist():
        spans = _one_source(kernels["span"][kernels["process"] == process])
        tables.append(from_ring(spans, names, rank=process))
        slots = np.intersect1d(
            spans["slot"], calls["slot"]
        ).tolist()  # a trace sample has the calls of one communicator
        by_rank[process] = {slot: calls["record"][calls["slot"] == slot] for slot in slots}
    return tables, by_rank


def _one_source(spans: NDArray[Any]) -> NDArray[Any]:
    """Spans of the best source that is there."""
    for source in (SPAN_CUPTI, SPAN_SIMULATED):
        if (spans["source"] == source).any() and (spans["kind"][spans["source"] == source] == SPAN_COMPUTE).any():
            return np.asarray(spans[spans["source"] == source])
    sources = [source for source in (SPAN_NCCL_KERNEL, SPAN_CUPTI, SPAN_SIMULATED) if (spans["source"] == source).any()]
    return np.asarray(spans[spans["source"] == sources[0]] if sources else spans[:0])


def _read(path: Path, tag: str, field: str, record: np.dtype[Any]) -> NDArray[Any]:
    try:
        rows = np.load(path, allow_pickle=False)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (ValueError, EOFError) as error:
        raise TraceError(f"{path} is damaged or no record file; record again with `lagom run --record`.") from error
    _check(path, rows, tag, field, record)
    return rows


def _check(path: Path, rows: NDArray[Any], tag: str, field: str, record: np.dtype[Any]) -> None:
    wanted = np.dtype([(tag, "u4"), (field, record)])
    if not isinstance(rows, np.ndarray) or rows.dtype != wanted:
        raise TraceError(f"{path} was written by another version of lagom; record again with this one.")


def _names(text: str) -> dict[int, str]:
    """Name index -> kernel name; empty where it was not written or is damaged: names are for people."""
    try:
        return {int(index): str(name) for index, name in json.loads(text).items()}
    except (ValueError, AttributeError):
        return {}


def from_ring(spans: NDArray[Any], names: Mapping[int, str] | None = None, rank: int = 0) -> KernelTable:
    """A table from ring records of one process. Kind and function are taken from the record; from the name only where
    what was recorded as compute has the name of another library's communication."""
    spans = spans[spans["source"] != layout.SPAN_NCCL_EVENT]
    kind = np.where(spans["kind"] <= max(KernelKind), spans["kind"], KernelKind.OTHER)
    function = np.where(spans["function"] <= max(Function), spans["function"], NO_FUNCTION)
    spellings, index = _spelled(spans, function, dict(names or {}))
    kinds, functions = np.array([(kind_of(name), function_of(name)) for name in spellings], np.uint8).T[:, index]
    foreign = (kind == KernelKind.COMPUTE) & np.isin(kinds, (KernelKind.COLLECTIVE, KernelKind.P2P))
    kind, function = np.where(foreign, kinds, kind), np.where(foreign, functions, function)
    bad = (spans["kind"] > max(KernelKind)) | (spans["source"] > layout.SPAN_SIMULATED)
    keep = np.flatnonzero(~bad)
    return build(
        spans["start_ns"][keep], spans["end_ns"][keep], spans["stream"][keep], spellings, index[keep],
        grid=spans["blocks"][keep], block=spans["threads"][keep], channels=spans["channels"][keep],
        kind=kind[keep], function=np.where(kind == KernelKind.COLLECTIVE, function, NO_FUNCTION)[keep],
        slot=_minus_one(spans["slot"], layout.UNKNOWN_RANK)[keep], call=_minus_one(spans["call"], layout.NO_CALL)[keep],
        size=spans["bytes"][keep], rank=rank, source=KERNEL_RING, malformed=int(bad.sum()),
    )  # fmt: skip


def _spelled(
    spans: NDArray[Any], function: NDArray[Any], known: Mapping[int, str]
) -> tuple[list[str], NDArray[np.int64]]:
    """The names, and the index of each span's. NCCL's own events have none: such a collective is called by its
    function, as NCCL's kernels are, so that the name shows what it is."""
    hashes, index = np.unique(spans["name"], return_inverse=True)
    spellings = [known.get(int(value), f"{NAMELESS}{value:08x}") for value in hashes]
    nameless = (spans["name"] == 0) & (spans["kind"] == KernelKind.COLLECTIVE) & (function != NO_FUNCTION)
    for one in (one for one in Function if (nameless & (function == one)).any()):
        index = np.where(nameless & (function == one), len(spellings), index)
        spellings.append(f"ncclDevKernel_{one.name.title().replace('_', '')}")
    return spellings, index.astype(np.int64)


def _minus_one(values: NDArray[Any], nothing: int) -> NDArray[np.int64]:
    """``values`` with the marker for "not known" turned into -1, and garbage past int64 into it as well."""
    wide = values.astype(np.uint64)
    unknown = (wide == np.uint64(nothing)) | (wide > np.uint64(2**63 - 1))
    return np.where(unknown, np.uint64(0), wide).astype(np.int64) + np.where(unknown, np.int64(NO_CALL), 0)
