# SPDX-License-Identifier: Apache-2.0
"""What each NCCL lets a plugin do: one table, for doctor, docs/nccl.md and the tests of the plugin.

Sources: the symbol names that each wheel's libnccl.so.2 looks up (2.19.3 to 2.32.3), and the tuner headers of each
release. ``tests/system/test_every_nccl.py`` runs the plugin under every row and compares the knobs it reports;
``make test-abi`` asks the wheels.
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

from lagom.format import format_version

Version = tuple[int, int, int]
PT_NOTE, NT_GNU_BUILD_ID = 4, 3
LARGEST_NOTES = 1 << 16
TUNERS_KNOWN = 6  # newest tuner interface that a wheel has shown


@dataclass(frozen=True, slots=True)
class Capabilities:
    """For NCCL from ``since`` on. ``tuner``/``profiler``: API versions it would take from our plugin (0 = none)."""

    since: Version
    tuner: int
    profiler: int
    online: str  # which variables it takes to change configs in a running job: "tuner", "both"; "" = cannot be done
    replay: str  # what LAGOM_MODE=replay can put in force: "saved config", "size rules"; "" = nothing
    knobs: tuple[str, ...]
    torch: str  # torch releases whose wheels bring it
    remark: str = ""  # a limit of its own, as a clause

    @property
    def sentence(self) -> str:
        """For the doctor."""
        if not self.tuner:
            return "its tuner interface is too old for lagom's plugin, which is not loaded"
        knobs = f"can set {', '.join(self.knobs)}{f' ({self.remark})' if self.remark else ''}"
        if not self.online:
            return (
                f"tuner API v{self.tuner}: it gives no communicator id, so ranks cannot agree while the job runs "
                f"and nothing is tuned; size rules can be replayed (LAGOM_MODE=replay), on one node; {knobs}"
            )
        how = {
            "tuner": "tunes a running job",
            "both": "tunes a running job if NCCL_PROFILER_PLUGIN names the plugin too",
        }[self.online]
        profiler = f", profiler API v{self.profiler}" if self.profiler else ""
        return f"tuner API v{self.tuner}{profiler}: {how}; {knobs}"


A_P_NC = ("algorithm", "protocol", "channels")
ALL = (*A_P_NC, "chunk")
PLAIN = "algorithm and protocol: ring, for AllReduce also tree, with LL or SIMPLE"
BOUNDED = "channels of AllGather: no more than are known to be built"
NEVER_RAISED = "channels: never above NCCL's own pick for the size"
TABLE = (
    Capabilities((2, 0, 0), 0, 0, "", "", (), "up to 2.4"),
    Capabilities((2, 21, 0), 2, 0, "", "size rules", A_P_NC, "2.5, 2.6", PLAIN),
    Capabilities((2, 22, 0), 3, 0, "", "size rules", A_P_NC, "-"),
    Capabilities((2, 24, 0), 4, 0, "", "size rules", A_P_NC, "2.7"),
    Capabilities((2, 27, 0), 4, 4, "both", "saved config", A_P_NC, "2.8, 2.9, 2.10 (CUDA 12)"),
    Capabilities((2, 28, 0), 5, 5, "tuner", "saved config", A_P_NC, "2.10 (CUDA 13), 2.11"),
    Capabilities((2, 29, 0), 5, 6, "tuner", "saved config", A_P_NC, "2.12, 2.13", BOUNDED),
    Capabilities((2, 30, 3), 6, 6, "tuner", "saved config", ALL, "later ones, or by `LD_PRELOAD`", BOUNDED),
    Capabilities((2, 31, 0), 6, 7, "tuner", "saved config", ALL, "later ones, or by `LD_PRELOAD`", NEVER_RAISED),
)


def threads_versions() -> tuple[Version, ...]:
    """Releases in which the plugin can set threads: the build is known, and NCCL passes an id to check memory with."""
    found = {build.version for build in known_builds() if capabilities(build.version).online}
    return tuple(sorted(found))


def threads_known(version: Version) -> bool:
    """Whether LAGOM_NT=1 can work on a build of this release."""
    return version in threads_versions()


def beyond_what_is_known(version: Version) -> str:
    """A clause if this NCCL is newer than every one our declarations were compared with; else empty."""
    newest = max(build.version for build in known_builds())
    if version <= newest:
        return ""
    return (
        f"it is newer than {format_version(newest)}, the last release lagom was compared with: where it looks for a "
        f"tuner interface above v{TUNERS_KNOWN}, it takes the plugin through its own adapter for v{TUNERS_KNOWN}"
    )


def capabilities(version: Version) -> Capabilities:
    """What the given NCCL can do."""
    return next(entry for entry in reversed(TABLE) if version >= entry.since)


def parse_version(text: str) -> Version | None:
    """``2.30.7``, ``2.30.7+cuda13.0`` or ``2.30.7.post1`` as numbers; None if it is no version."""
    parts = text.split("+")[0].split(".")[:3]
    if len(parts) < 2 or not all(part.isdigit() for part in parts):
        return None
    numbers = [int(part) for part in parts] + [0]
    return numbers[0], numbers[1], numbers[2]


def support_table() -> str:
    """The table as Markdown, for docs/nccl.md."""
    columns = "NCCL | comes with torch | tuner / profiler API | while the job runs | replay | NC | A, P | C"
    head = f"| {columns} | NT (`LAGOM_NT=1`) |"
    following = (*(entry.since for entry in TABLE[1:]), None)
    rows = [_row(entry, upper) for entry, upper in zip(TABLE, following, strict=True)]
    return "\n".join([head, "|---|---|---|---|---|---|---|---|---|", *rows])


def _row(entry: Capabilities, upper: Version | None) -> str:
    online = {"tuner": "yes", "both": "with both variables", "": "no: ranks have no common id"}[entry.online]
    apis = (
        f"v{entry.tuner} / {f'v{entry.profiler}' if entry.profiler else '-'}" if entry.tuner else "too old, not loaded"
    )
    cells = [
        _span(entry.since, upper),
        entry.torch,
        apis,
        online if entry.tuner else "no",
        entry.replay or "-",
        "lower only" if entry.tuner else "-",
        _algorithms_text(entry),
        "lower only" if "chunk" in entry.knobs else "-",
        _threads_text(entry.since, upper),
    ]
    return f"| {' | '.join(cells)} |"


def _algorithms_text(entry: Capabilities) -> str:
    if not entry.tuner:
        return "-"
    return "ring and tree, LL and SIMPLE" if entry.remark == PLAIN else "yes"


def _span(since: Version, upper: Version | None) -> str:
    if since == TABLE[0].since:
        return f"below {_short(TABLE[1].since)}"
    return f"{_short(since)} and later" if upper is None else f"{_short(since)} to below {_short(upper)}"


def _threads_text(since: Version, upper: Version | None) -> str:
    """The releases of a row on whose wheels threads can be set; neighbours as a range."""
    runs: list[list[Version]] = []
    for version in threads_versions():
        if version < since or (upper is not None and version >= upper):
            continue
        if runs and runs[-1][-1][:2] == version[:2] and runs[-1][-1][2] + 1 == version[2]:
            runs[-1].append(version)
        else:
            runs.append([version])
    texts = (format_version(run[0]) + (f"-{run[-1][2]}" if len(run) > 1 else "") for run in runs)
    return ", ".join(texts) or "-"


def _short(version: Version) -> str:
    return format_version(version).removesuffix(".0")


# -- builds whose communicators the plugin may look into: NVIDIA's wheels, by the build id of their library.
# nccl_builds.json and the plugin's own table (tuner_plugin/nccl_builds.h) are written together by
# `python -m tests.abi.digest`, from the debug information of the wheels; a test compares them.


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
