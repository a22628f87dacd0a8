# SPDX-License-Identifier: Apache-2.0
"""From a file of any supported kind to kernel tables, one a rank.

Kineto traces (JSON) and plain-text dumps, plain, gzip or zip (:mod:`lagom.timeline.trace_file`), are distinguished by
their first character. Ring records come from memory: see :mod:`lagom.timeline.ring_records`.

A dump has one kernel a line, ``start_ns end_ns stream gridX blockX gridY name``, and ``#`` comments: the smallest
format a probe can print; the traces in ``tests/data`` are in it. Names may be mangled and cut short.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from lagom.timeline import kineto
from lagom.timeline.kernel_table import KernelTable, build
from lagom.timeline.kineto import NO_RANK, printable
from lagom.timeline.ring_records import Recorded, from_ring, has_records, load_records
from lagom.timeline.trace_file import TraceError, read_texts

__all__ = ["TraceError", "from_ring", "load", "load_all"]

#: What `lagom profile` writes into its folder: the kernels of the rank shown, and those it was compared with.
TRACE_NAME, REFERENCE_NAME = "trace.json.gz", "reference.json.gz"

_NUMBERS = 6  # columns of a dump before the name


def load(path: Path) -> list[KernelTable]:
    """The tables of one file, one a GPU in it. Raises :class:`TraceError` with the file's name and the reason."""
    return [_ranked(table, 0) for table in _read(path)]


def load_all(paths: Iterable[Path]) -> list[KernelTable]:
    """The tables of several files, in order of rank; a rank found twice is an error, unless no file names its rank,
    when files count as ranks in the order given."""
    tables = [table for path in paths for table in _read(path)]
    if not tables:
        raise TraceError("no trace was given; name one or more Kineto traces (one a rank).")
    unnamed = all(table.rank == NO_RANK for table in tables)
    tables = [_ranked(table, index if unnamed else 0) for index, table in enumerate(tables)]
    ranks = Counter(table.rank for table in tables)
    if twice := [rank for rank, count in ranks.items() if count > 1]:
        raise TraceError(f"two traces are of rank {twice[0]}; give one trace a rank, all of one job.")
    return sorted(tables, key=lambda table: table.rank)


def trace_files(paths: Sequence[Path]) -> list[Path]:
    """The same with the trace that ``lagom profile`` wrote where the folder of a profile without a recording is
    named."""
    if len(paths) == 1 and (paths[0] / TRACE_NAME).is_file() and not any(map(has_records, _recordings(paths[0]))):
        return [paths[0] / TRACE_NAME]
    return list(paths)


def load_reference(paths: Sequence[Path]) -> list[KernelTable]:
    """The reference trace that belongs to what :func:`load_trace` loads: the one that ``lagom profile`` measured by and
    wrote beside it; none where there is none."""
    reference = paths[0] / REFERENCE_NAME
    return load_all([reference]) if len(paths) == 1 and reference.is_file() else []


def _recordings(folder: Path) -> tuple[Path, Path]:
    """Where the folder of a recording, or of a profile of one, has it."""
    return folder, folder / "log"


def load_trace(paths: Sequence[Path]) -> Recorded | tuple[list[KernelTable], None]:
    """The kernels in trace files, one a rank, or in the folder of a recording or of a profile; only a recording holds
    the calls too."""
    for folder in _recordings(paths[0]) if len(paths) == 1 else ():
        if has_records(folder):
            return load_records(folder)
    return load_all(trace_files(paths)), None


def _read(path: Path) -> list[KernelTable]:
    """The tables of one file, of rank :data:`NO_RANK` where it names none."""
    if path.is_dir():
        raise TraceError(
            f"{path} is a folder and holds no recording (kernels.npy, calls.npy); give the trace files in it."
        )
    tables = []
    for name, text in read_texts(path):
        tables += kineto.read(name, text) if text.lstrip()[:1] in ("{", "[") else [_read_dump(name, text)]
    return tables


def _ranked(table: KernelTable, otherwise: int) -> KernelTable:
    return replace(table, rank=otherwise) if table.rank == NO_RANK else table


def _read_dump(name: str, text: str) -> KernelTable:
    """The table of a text dump. Lines that do not fit are counted, not fatal."""
    numbers, names, malformed = [], [], 0
    for line in text.splitlines():
        fields = line.split(None, _NUMBERS)
        if not fields or fields[0].startswith("#"):
            continue
        try:
            numbers.append([int(field) for field in fields[:_NUMBERS]])
            names.append(printable(fields[_NUMBERS].strip()))
        except (ValueError, IndexError):
            del numbers[len(names) :]
            malformed += 1
    if not numbers:
        raise TraceError(
            f"{name} is no Kineto trace (JSON) and has no line `start_ns end_ns stream gridX blockX gridY name`; "
            "is it a kernel dump?"
        )
    return _dump_table(numbers, names, Path(name).name, malformed)


def _dump_table(numbers: list[list[int]], names: list[str], source: str, malformed: int) -> KernelTable:
    limit = 2**62
    columns = np.array([[value if abs(value) < limit else 0 for value in row] for row in numbers], np.int64)
    distinct = sorted(set(names))
    place = {name: index for index, name in enumerate(distinct)}
    grid = np.maximum(columns[:, 3], 1) * np.maximum(columns[:, 5], 1)
    return build(
        columns[:, 0], columns[:, 1], columns[:, 2], distinct, [place[name] for name in names],
        grid=grid, block=columns[:, 4], channels=columns[:, 3], rank=NO_RANK, source=source, malformed=malformed,
    )  # fmt: skip
