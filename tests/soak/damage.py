# SPDX-License-Identifier: Apache-2.0
"""Random bytes where a region may hold garbage without harm: rings, their ends, header, plans.

Not the switch word, nor acknowledgements, nor call counters: what the ranks agree by is not promised to survive
(README.md says what that means).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

from lagom.wire.layout import CALL_RING_CAPACITY, KERNEL_RING_CAPACITY, ffi

REGION = "struct lagom_region"
PLANS, CALL_RINGS, KERNEL_RINGS = 4, 24, 8  # entries that a soak uses
PLAN_HEAD = 160  # bytes of a plan in which nearly every one counts
LENGTHS = (1, 8, 64, 4096)
Place = tuple[int, int]  # offset, bytes


def _header(dice: random.Random) -> Place:
    return 0, ffi.sizeof("struct lagom_header")


def _plan(dice: random.Random) -> Place:
    offset = ffi.offsetof(REGION, "plans", dice.randrange(PLANS))
    return offset, dice.choice([PLAN_HEAD, ffi.sizeof("struct lagom_plan")])


def _call_ring(dice: random.Random) -> Place:
    ring = dice.randrange(CALL_RINGS)
    return ffi.offsetof(REGION, "calls", ring), CALL_RING_CAPACITY * ffi.sizeof("struct lagom_call_record")


def _kernel_ring(dice: random.Random) -> Place:
    ring = dice.randrange(KERNEL_RINGS)
    return ffi.offsetof(REGION, "kernels", ring), KERNEL_RING_CAPACITY * ffi.sizeof("struct lagom_kernel_span")


def _ring_end(dice: random.Random) -> Place:
    entries, count, name = dice.choice([("slots", CALL_RINGS, "call"), ("processes", KERNEL_RINGS, "kernel")])
    end = f"{name}_{dice.choice(['head', 'tail'])}"
    return ffi.offsetof(REGION, entries, dice.randrange(count), end), 8


PLACES: dict[str, Callable[[random.Random], Place]] = {
    "header": _header,
    "plan": _plan,
    "call ring": _call_ring,
    "kernel ring": _kernel_ring,
    "ring end": _ring_end,
}


def scribble(region: Path, kind: str, dice: random.Random) -> bool:
    """One write; False if there is no region just now."""
    offset, size = PLACES[kind](dice)
    at = offset + dice.randrange(size)
    return _write(region, at, dice.randbytes(min(dice.choice(LENGTHS), offset + size - at)))


def _write(region: Path, at: int, what: bytes) -> bool:
    try:
        file = os.open(region, os.O_WRONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        return os.pwrite(file, what, at) == len(what)
    finally:
        os.close(file)


class Header:
    """The fields of a region's header that never change, for whoever repairs them."""

    BYTES = ffi.offsetof("struct lagom_header", "epoch_counter")

    def __init__(self, region: Path) -> None:
        self._region = region
        with region.open("rb") as file:
            self._inode, self._bytes = os.fstat(file.fileno()).st_ino, file.read(self.BYTES)

    def repair(self) -> None:
        """Puts them back, unless another region lies there by now."""
        if self._region.exists() and self._region.stat().st_ino == self._inode:
            _write(self._region, 0, self._bytes)
