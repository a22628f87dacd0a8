# SPDX-License-Identifier: Apache-2.0
"""Kineto (PyTorch profiler) traces in Chrome's JSON format: read any job's, write ours so that HTA reads it too.

Format (as torch 2.x writes it): ``traceEvents`` with ``ph: X``; GPU work has ``cat`` kernel, gpu_memcpy or gpu_memset,
``ts`` and ``dur`` in µs (fractions are ns), ``args.stream``, ``args.grid`` and ``args.block`` as [x, y, z]; NCCL
kernels also carry ``Collective name``, ``In msg nelems``, ``Out msg nelems``, ``dtype`` and ``Process Group Name``
since torch 2.4. ``baseTimeNanoseconds`` is added to every ``ts``; ``distributedInfo.rank`` and
``deviceProperties[].numSms`` are at the top.
"""

from __future__ import annotations

import gzip
import json
import math
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lagom.files import write_named
from lagom.records import Function
from lagom.timeline.kernel_names import NO_FUNCTION, KernelKind, function_of, kind_of, plain_name
from lagom.timeline.kernel_table import LONGEST_NS, KernelTable, build
from lagom.timeline.launch_events import LAUNCH_CATEGORIES, correlation_of
from lagom.timeline.peer_copies import name_peer_copies
from lagom.timeline.step_marks import DRAWN_CATEGORY, HostEvents, marks_of_gpu, read_host_events
from lagom.timeline.trace_file import TraceError, parse_json

#: Rank of a table whose trace does not name it.
NO_RANK = -1
#: Larger numbers are damage: ns since 1970 reach it in the year 2116, and two of them still add up in 64 bits.
_LARGEST = 2**62
_LARGEST_RANK = 2**31 - 1
_MOST_SMS = 1 << 20
#: Categories of Kineto's other devices (its ``ActivityType``), which have no kernels of CUDA or ROCm.
_OTHER_DEVICE = re.compile(r"^(glow|hpu|mtia|privateuse1|xpu)_")
_GPU_CATEGORIES = {"kernel", "gpu_memcpy", "gpu_memset", "Kernel", "Memcpy", "Memset"}
_ELEMENT_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "int8": 1, "uint8": 1, "float8_e4m3fn": 1, "float8_e5m2": 1,
    "half": 2, "bfloat16": 2, "short": 2, "float16": 2, "float": 4, "int": 4, "float32": 4,
    "double": 8, "long": 8, "float64": 8,
}  # fmt: skip


def read(name: str, text: str) -> list[KernelTable]:
    """The kernels of a trace, one table a GPU, of rank :data:`NO_RANK` if it does not say which. ``name`` is that of
    the file whose ``text`` it is. Raises :class:`TraceError`."""
    document = parse_json(name, text)
    events = document.get("traceEvents") if isinstance(document, dict) else document
    if not isinstance(events, list):
        raise TraceError(f"{name} is JSON but no Chrome trace: it has no list `traceEvents`; give a Kineto trace.")
    document = document if isinstance(document, dict) else {}
    by_device = _by_device(name_peer_copies(events))
    if not by_device:
        raise TraceError(f"{name} has no GPU kernels{_why_no_kernels(events)}")
    alone = len(by_device) == 1
    source = Path(name).name
    host = read_host_events(events, _base(document, source))
    return [_table(by_device[device], document, device, alone, source, host) for device in sorted(by_device)]


def _why_no_kernels(events: list[Any]) -> str:
    """What there is instead, and what to do."""
    seen = {event["cat"] for event in events if isinstance(event, dict) and isinstance(event.get("cat"), str)}
    if seen.intersection(LAUNCH_CATEGORIES):
        return (
            ", only calls that launch them: record it with ProfilerActivity.CUDA among the activities, and with no "
            "other profiler beside it."
        )
    if other := sorted(category for category in seen if _OTHER_DEVICE.search(category)):
        return f", only events of another device ({', '.join(other)}); Lagom reads those of NVIDIA's and AMD's GPUs."
    if seen:
        return ", only what ran on the CPU; give the trace of a job that computes and communicates on GPUs."
    return "; give the trace of a job that computes and communicates on GPUs."


def _by_device(events: list[Any]) -> dict[int, list[dict[str, Any]]]:
    """The events of each GPU. One whose category is no text may be of any: the first gets it, where it is counted as
    malformed."""
    found: dict[int, list[dict[str, Any]]] = {}
    unreadable = []
    for event in events:
        if not isinstance(event, dict) or event.get("ph") != "X":
            continue
        category = event.get("cat", "")
        if not isinstance(category, str):
            unreadable.append(event)
        elif category in _GPU_CATEGORIES:
            found.setdefault(_device(event), []).append(event)
    if found:
        found[min(found)] += unreadable
    return found


def _device(event: dict[str, Any]) -> int:
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    device = args.get("device", args.get("inDevice", event.get("pid", 0)))  # copies between GPUs: inDevice
    return device if isinstance(device, int) and 0 <= device <= _LARGEST_RANK else 0


def _table(
    events: list[dict[str, Any]], document: dict[str, Any], device: int, alone: bool, source: str, host: HostEvents
) -> KernelTable:
    base = _base(document, source)
    rows = [row for event in events if (row := _row(event, base)) is not None]
    names, ids = _intern([name for name, *_ in rows])
    communicators, slots = _intern([group for _, group, *_ in rows], keep_order=True)
    start, end, stream, grid, block, size, correlation, kind, function, channels = (
        np.array([numbers for _, _, *numbers in rows], np.int64).reshape(len(rows), 10).T
    )
    of_step = (kind != KernelKind.OTHER) & (end >= start) & (end - start <= LONGEST_NS)
    marks = marks_of_gpu(host, start[of_step], end[of_step], correlation[of_step])
    return build(
        start, end, stream, names, ids, grid=grid, block=block, size=size, channels=channels, kind=kind,
        function=function,
        slot=np.where(np.array([name == "" for name in communicators] or [True])[slots], -1, slots),
        rank=_rank(document, device, alone), sms=_sms(document, device), source=source,
        malformed=len(events) - len(rows), marks=marks,
    )  # fmt: skip


def _base(document: dict[str, Any], source: str) -> int:
    base = document.get("baseTimeNanoseconds")
    if isinstance(base, int) and abs(base) > _LARGEST:
        raise TraceError(f"{source} has a damaged `baseTimeNanoseconds`, past the year 2116; record it again.")
    return base if isinstance(base, int) else 0


def _row(event: dict[str, Any], base: int) -> tuple[Any, ...] | None:
    """(name, process group, start, end, stream, blocks, threads, bytes, correlation, kind, function, grid x), None if
    it is unusable."""
    if not isinstance(event["cat"], str):
        return None
    args = event.get("args")
    args = args if isinstance(args, dict) else {}
    try:
        start = base + round(float(event["ts"]) * 1000)
        end = start + round(float(event["dur"]) * 1000)
        grid = [max(int(size), 1) for size in args.get("grid", ())] or [0]  # a copy has none: it takes no SM
        block = [max(int(size), 1) for size in args.get("block", (0,))] or [1]
        stream = int(args.get("stream", event.get("tid", 0)))
        operation = str(args.get("Collective name", ""))
        group = str(args.get("Process Group Name", ""))
        name = printable(str(event["name"]))
        function, kind = function_of(operation), kind_of(name, operation)
        size = _message_bytes(args) or (int(args.get("bytes", 0)) if kind == KernelKind.P2P else 0)
        numbers = (start, end, stream, math.prod(grid), math.prod(block), size, correlation_of(event))
        row = (name, group, *numbers, kind, function if function != NO_FUNCTION else function_of(name), grid[0])
    except (KeyError, TypeError, ValueError, OverflowError, RecursionError):
        return None
    return row if max(map(abs, numbers)) <= _LARGEST else None


def printable(name: str) -> str:
    """The name with lone surrogates spelled out: JSON may have them and text that was no UTF-8, no file or picture."""
    return name.encode(errors="backslashreplace").decode()


def _message_bytes(args: dict[str, Any]) -> int:
    """Bytes as NCCL's tuner counts them: the whole gathered or scattered buffer, not one rank's part; 0 if unknown."""
    element = _ELEMENT_BYTES.get(str(args.get("dtype", "")).lower(), 0)
    counts = [int(args.get(key, 0)) for key in ("In msg nelems", "Out msg nelems")]
    return element * max(counts)


def _intern(values: Sequence[str], keep_order: bool = False) -> tuple[tuple[str, ...], np.ndarray]:
    distinct = tuple(dict.fromkeys(values)) if keep_order else tuple(sorted(set(values)))
    place = {value: index for index, value in enumerate(distinct)}
    return distinct, np.array([place[value] for value in values], np.int64)


def _rank(document: dict[str, Any], device: int, alone: bool) -> int:
    """As in the trace, else the GPU's number; unknown for a single GPU 0, since every process may call its own GPU
    0."""
    if not alone:
        return device
    info = document.get("distributedInfo")
    rank = info.get("rank") if isinstance(info, dict) else None
    return rank if isinstance(rank, int) and 0 <= rank <= _LARGEST_RANK else device or NO_RANK


def _sms(document: dict[str, Any], device: int) -> int:
    known = document.get("deviceProperties")
    for entry in known if isinstance(known, list) else ():
        if isinstance(entry, dict) and entry.get("id") == device and isinstance(entry.get("numSms"), int):
            return int(entry["numSms"]) if 0 < entry["numSms"] <= _MOST_SMS else 0
    return 0


def write(table: KernelTable, path: Path, marks: Iterable[tuple[str, int, int]] = (), world_size: int = 1) -> None:
    """``table`` as a Kineto-shaped trace (gzip if ``path`` ends in ``.gz``). Raises :class:`UsageError`.

    ``marks`` are named ranges (name, start, end in ns) shown as a track of their own: iterations and overlap groups.
    """
    base = int(table.start[0]) // 1_000_000_000 * 1_000_000_000 if len(table) else 0
    process = {
        "ph": "M",
        "name": "process_name",
        "pid": table.rank,
        "tid": 0,
        "ts": 0,
        "args": {"name": f"GPU of rank {table.rank}"},
    }
    events = [process, *_kernels(table, base), *_marks(marks, base, table.rank), *_step_marks(table, base)]
    document = {
        "schemaVersion": 1,
        "deviceProperties": [{"id": table.rank, "name": "GPU", **({"numSms": table.sms} if table.sms else {})}],
        "distributedInfo": {"backend": "nccl", "rank": table.rank, "world_size": world_size},
        "displayTimeUnit": "ms",
        "baseTimeNanoseconds": base,
        "traceEvents": events,
    }
    raw = json.dumps(document, separators=(",", ":")).encode()
    write_named(path, gzip.compress(raw, mtime=0) if path.suffix == ".gz" else raw)


def _kernels(table: KernelTable, base: int) -> Iterable[dict[str, Any]]:
    names = [plain_name(name) for name in table.names]
    is_copy = [name.startswith("Mem") or kind_of(name) == KernelKind.OTHER for name in names]
    for index in range(len(table)):
        yield {
            "ph": "X",
            "cat": "gpu_memcpy" if is_copy[table.name[index]] else "kernel",
            "name": names[table.name[index]],
            "pid": table.rank,
            "tid": int(table.stream[index]),
            "ts": (int(table.start[index]) - base) / 1000,
            "dur": int(table.end[index] - table.start[index]) / 1000,
            "args": _arguments(table, index),
        }


def _arguments(table: KernelTable, index: int) -> dict[str, Any]:
    x = max(int(table.channels[index]), 1)
    arguments: dict[str, Any] = {
        "device": table.rank,
        "stream": int(table.stream[index]),
        "correlation": index + 1,
        **({"grid": [x, max(int(table.grid[index]) // x, 1), 1]} if table.grid[index] or table.channels[index] else {}),
        "block": [max(int(table.block[index]), 1), 1, 1],
    }
    count, function = int(table.bytes[index]), int(table.function[index])
    if function <= max(Function) or table.kind[index] == KernelKind.P2P:
        arguments["Collective name"] = Function(function).name.lower() if function <= max(Function) else "sendrecv"
        arguments |= {"In msg nelems": count, "Out msg nelems": count, "dtype": "Byte"}
    if table.slot[index] >= 0:
        arguments["Process Group Name"] = str(int(table.slot[index]))
    return arguments


def _marks(marks: Iterable[tuple[str, int, int]], base: int, rank: int) -> Iterable[dict[str, Any]]:
    for name, start, end in marks:
        yield {
            "ph": "X", "cat": "lagom", "name": name, "pid": rank, "tid": 1_000_000,
            "ts": (start - base) / 1000, "dur": (end - start) / 1000, "args": {},
        }  # fmt: skip


def _step_marks(table: KernelTable, base: int) -> Iterable[dict[str, Any]]:
    """The steps as the trace marked them, for :mod:`lagom.timeline.step_marks` to find again."""
    for marks in table.marks:
        steps = zip(*(part.tolist() for part in (marks.number, marks.begin, marks.end)), strict=True)
        for number, start, end in steps:
            yield {
                "ph": "X", "cat": DRAWN_CATEGORY, "name": f"{marks.source}#{number}", "pid": table.rank,
                "tid": 1_000_001, "ts": (start - base) / 1000, "dur": (end - start) / 1000, "args": {},
            }  # fmt: skip
