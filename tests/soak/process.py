# SPDX-License-Identifier: Apache-2.0
"""What the kernel says of a process."""

from __future__ import annotations

from pathlib import Path


def resident_bytes(pid: int) -> int:
    """Memory it has now; 0 if it has just gone."""
    return _kilobytes(pid, "VmRSS:") * 1024


def _kilobytes(pid: int, name: str) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith(name)), 0)


def open_files(pid: int) -> int:
    """How many descriptors it has open; 0 if it has just gone."""
    try:
        return len(list(Path(f"/proc/{pid}/fd").iterdir()))
    except OSError:
        return 0
