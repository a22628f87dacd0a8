"""Plain-text kernel dumps: one kernel a line, ``start_ns end_ns stream gridX blockX gridY name``, ``#`` comments.

The smallest format a probe can print; the traces in ``tests/data`` are in it. Names may be mangled and cut short.
"""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

import numpy as np

from lagom.timeline.kernel_table import KernelTable, build
from lagom.timeline.kineto import TraceError

_NUMBERS = 6


def read(path: Path, rank: int = 0, sms: int = 0) -> KernelTable:
    """The table in ``path`` (gzip or not). Lines that do not fit are counted, not fatal; raises :class:`TraceError`."""
    numbers, names, malformed = [], [], 0
    for line in _lines(path):
        fields = line.split(None, _NUMBERS)
        if not fields or fields[0].startswith("#"):
            continue
        try:
            numbers.append([int(field) for field in fields[:_NUMBERS]])
            names.append(fields[_NUMBERS].strip())
        except (ValueError, IndexError):
            del numbers[len(names) :]
            malformed += 1
    if not numbers:
        raise TraceError(f"{path} has no line `start_ns end_ns stream gridX blockX gridY name`; is it a kernel dump?")
    return _table(numbers, names, rank, sms, path.name, malformed)


def _lines(path: Path) -> list[str]:
    try:
        raw = path.read_bytes()
        return (gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw).decode(errors="replace").splitlines()
    except (EOFError, zlib.error) as error:
        raise TraceError(f"{path} is a damaged gzip file ({error}); copy it again.") from error
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror or error}.") from error


def _table(numbers: list[list[int]], names: list[str], rank: int, sms: int, source: str, malformed: int) -> KernelTable:
    limit = 2**62
    columns = np.array([[value if abs(value) < limit else 0 for value in row] for row in numbers], np.int64)
    distinct = sorted(set(names))
    place = {name: index for index, name in enumerate(distinct)}
    grid = np.maximum(columns[:, 3], 1) * np.maximum(columns[:, 5], 1)
    return build(
        columns[:, 0], columns[:, 1], columns[:, 2], distinct, [place[name] for name in names],
        grid=grid, block=columns[:, 4], channels=columns[:, 3], rank=rank, sms=sms, source=source, malformed=malformed,
    )  # fmt: skip
