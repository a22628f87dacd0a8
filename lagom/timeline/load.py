"""From a file of any supported kind to kernel tables, one a rank.

Kineto traces (JSON, gzip or not) and plain-text dumps are told apart by their first byte. Ring records come
from memory: see :mod:`lagom.timeline.spans`.
"""

from __future__ import annotations

import gzip
import zlib
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lagom.files import open_regular
from lagom.timeline import dumps, kineto
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.kineto import NO_RANK, TraceError
from lagom.timeline.spans import from_ring

__all__ = ["TraceError", "from_ring", "load", "load_all"]


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


def _read(path: Path) -> list[KernelTable]:
    """The tables of one file, of rank :data:`NO_RANK` where it names none."""
    return kineto.read(path) if _first_byte(path) in b"{[" else [dumps.read(path, NO_RANK)]


def _ranked(table: KernelTable, otherwise: int) -> KernelTable:
    return replace(table, rank=otherwise) if table.rank == NO_RANK else table


def _first_byte(path: Path) -> bytes:
    if path.is_dir():
        raise TraceError(
            f"{path} is a folder and holds no recording (kernels.npy, calls.npy); give the trace files in it."
        )
    try:
        with open_regular(path) as file:  # a FIFO would be waited for, and then read again
            head = file.read(64)
        if head[:2] == b"\x1f\x8b":
            with gzip.open(path) as packed:
                head = packed.read(64)
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}.") from error
    except (EOFError, zlib.error) as error:
        raise TraceError(f"{path} is a damaged gzip file ({error}); copy it again.") from error
    if not head.strip():
        raise TraceError(f"{path} is empty; was the job killed before it wrote its trace?")
    return head.strip()[:1]
