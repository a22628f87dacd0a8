# SPDX-License-Identifier: Apache-2.0
"""What one libnccl.so.2 says of itself: the plugin symbols it looks up, the structs it passes, its communicator."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.abi.debug_info import DebugInfo, Layout
from tests.abi.wheels import Wheel

TUNERS, PROFILERS = range(2, 8), range(1, 8)
SYMBOLS = ("ncclTunerPlugin_v", "ncclProfiler_v")
STRUCTS = (
    *(f"ncclTuner_v{api}_t" for api in TUNERS),
    *(f"ncclProfiler_v{api}_t" for api in PROFILERS),
    *(f"ncclProfilerEventDescr_v{api}_t" for api in PROFILERS),
)
UNITS = (
    "/tuner.cc",
    "/profiler.cc",
    *(f"/tuner_v{api}.cc" for api in TUNERS),
    *(f"/profiler_v{api}.cc" for api in PROFILERS),
)
COMMUNICATOR = ("/enqueue.cc", "enqueue.cc", "/tuner.cc")

#: member of struct ncclComm -> the name under which a build's record keeps its distance from tunerContext.
#: From 2.31 on the thread tables lie in a struct of their own.
MEMBERS = {
    "maxThreads": "max_threads",
    "tuningContext.maxThreads": "max_threads",
    "threadThresholds": "thresholds",
    "tuningContext.threadThresholds": "thresholds",
    "nRanks": "ranks",
    "commHash": "comm_hash",
    "nChannels": "channels",
    "endMagic": "end_magic",
}
KINDS = {
    "max_threads": r"int32\[[67]\]\[3\]",
    "thresholds": r"int64\[[67]\]\[3\]",
    "ranks": "int32",
    "comm_hash": "int64",
    "channels": "int32",
    "end_magic": "int64",
}


class Unexpected(Exception):
    """A communicator whose members are not what the plugin would read and write."""


@dataclass(frozen=True, slots=True)
class Reading:
    """One library. ``structs``: those of STRUCTS that it knows; ``offsets``: bytes from ``&comm->tunerContext``."""

    wheel: Wheel
    build_id: str
    symbols: tuple[str, ...]
    structs: dict[str, Layout]
    offsets: dict[str, int]

    def record(self) -> dict[str, Any]:
        """The build as ``nccl_builds.json`` keeps it."""
        return {
            "version": self.wheel.version,
            "code": self.wheel.code,
            "wheel": self.wheel.cuda,
            "machine": self.wheel.machine,
            "build_id": self.build_id,
            **self.offsets,
        }


def read(path: Path, wheel: Wheel) -> Reading:
    """Everything at once; some seconds a library."""
    with DebugInfo(path) as info:
        words = info.strings(tuple(symbol.encode() for symbol in SYMBOLS))
        known = tuple(sorted(word for word in words if re.fullmatch(r"nccl(TunerPlugin|Profiler)_v\d+", word)))
        structs = info.layouts(STRUCTS, UNITS)
        comm = info.layouts(["ncclComm"], COMMUNICATOR)["ncclComm"]["members"]
        return Reading(wheel, info.build_id(), known, structs, offsets(comm))


def offsets(comm: dict[str, Layout]) -> dict[str, int]:
    """Distances from ``tunerContext``, each with the kind that the plugin takes it for."""
    context = comm["tunerContext"]["at"]
    found = {}
    for member, name in MEMBERS.items():
        if member in comm:
            if not re.fullmatch(KINDS[name], comm[member]["kind"]):
                raise Unexpected(f"ncclComm.{member} is {comm[member]['kind']}, not {KINDS[name]}")
            found[name] = comm[member]["at"] - context
    if found.keys() != KINDS.keys():
        raise Unexpected(f"ncclComm lacks {', '.join(KINDS.keys() - found.keys())}")
    return found
