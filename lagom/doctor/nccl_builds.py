"""Builds of NCCL whose communicators the plugin may look into: NVIDIA's wheels, by the build id of their library.

``nccl_builds.json`` and the plugin's own table (tuner_plugin/nccl_builds.h) are written together by
``python -m tests.abi.digest``, from the debug information of the wheels; a test compares them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import BinaryIO

Version = tuple[int, int, int]

PT_NOTE, NT_GNU_BUILD_ID = 4, 3
LARGEST_NOTES = 1 << 16


@dataclass(frozen=True, slots=True)
class Build:
    """One library."""

    version: Version
    wheel: str  # cu12, cu13
    machine: str
    build_id: str


@cache
def known_builds() -> tuple[Build, ...]:
    """Every build of the table, oldest first."""
    records = json.loads((files("lagom.doctor") / "nccl_builds.json").read_text())
    return tuple(
        Build(version_from_code(record["code"]), record["wheel"], record["machine"], record["build_id"])
        for record in records
    )


def version_from_code(code: int) -> Version:
    """``ncclGetVersion``'s number: 23007 is 2.30.7."""
    return code // 10000, code // 100 % 100, code % 100


def is_known(version: Version, build_id: str) -> bool:
    """Whether that very library is one of the table."""
    return any(build.version == version and build.build_id == build_id for build in known_builds())


def build_id_of(library: Path) -> str:
    """The GNU build id of a 64-bit little-endian ELF file, in hex; empty if it has none or is no such file."""
    try:
        with library.open("rb") as file:
            return next((found for notes in _notes(file) if (found := _build_id_in(notes))), "")
    except (OSError, struct.error):
        return ""


def _notes(file: BinaryIO) -> Iterator[bytes]:
    """The contents of each PT_NOTE segment."""
    head = file.read(64)
    if head[:6] != b"\x7fELF\x02\x01":
        return
    (table,) = struct.unpack_from("<Q", head, 32)
    size, count = struct.unpack_from("<HH", head, 54)
    file.seek(table)
    programs = file.read(size * count)
    for at in range(0, size * count, size):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", programs, at)
        if kind == PT_NOTE and length <= LARGEST_NOTES:
            file.seek(offset)
            yield file.read(length)


def _build_id_in(notes: bytes) -> str:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        content = at + 12 + (name_size + 3) // 4 * 4
        if kind == NT_GNU_BUILD_ID and notes[at + 12 : at + 12 + name_size] == b"GNU\0":
            return notes[content : content + size].hex()
        at = content + (size + 3) // 4 * 4
    return ""
