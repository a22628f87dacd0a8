# SPDX-License-Identifier: Apache-2.0
"""Calls no sane job makes, from inside one rank: ``python odd_calls.py``; prints what became of each as JSON."""

from __future__ import annotations

import json
import struct
from array import array

from lagom.records import Function
from lagom.sim.virtual.nccl import VirtualNccl
from lagom.sim.virtual.process_entry import ProcessEntry
from lagom.sim.virtual.selection import CollectiveCall, Fabric, cost_table, nccl_version
from lagom.wire.library import plugin_path

UNAVAILABLE = array("f", [-1.0] * 21).tobytes()
GOOD = array("f", cost_table(Function.ALL_GATHER, 64 << 20, 2, Fabric())).tobytes()
NANS = struct.pack("21f", *[float("nan")] * 21)
INFINITE = struct.pack("21f", *[float("inf")] * 21)


def main() -> None:
    """One communicator of two ranks of which only this one exists."""
    nccl = VirtualNccl(plugin_path(), nccl_version("2.30"))
    one = nccl.communicator(0xB0B, 2)
    entry = ProcessEntry.find()
    results: dict[str, dict[str, object]] = {}
    odd = {
        "all unavailable": (2, 64 << 20, UNAVAILABLE),
        "function 5": (5, 64 << 20, GOOD),
        "function 99": (99, 64 << 20, GOOD),
        "function -1": (-1, 64 << 20, GOOD),
        "nothing to send": (2, 0, GOOD),
        "more than any memory": (2, (1 << 64) - 1, GOOD),
        "not a number": (2, 64 << 20, NANS),
        "infinite": (2, 64 << 20, INFINITE),
    }
    for name, (function, size, table) in odd.items():
        before = entry.calls(0xB0B) if entry else 0
        left, channels = one.ask_raw(function, size, table)
        counted = (entry.calls(0xB0B) if entry else 0) - before
        results[name] = {"same": left == table, "channels": channels, "counted": counted}
    one.run([CollectiveCall(Function.ALL_GATHER, 64 << 20)])
    one.destroy()
    print(json.dumps({"joined": entry is not None, "results": results}))


if __name__ == "__main__":
    main()
