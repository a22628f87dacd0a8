# SPDX-License-Identifier: Apache-2.0
"""A process in which the plugin meets a real libnccl.so.2: ``python -m tests.abi.meet LIBRARY BUILD``.

No GPU is needed: NCCL answers its version, and the plugin's tuner init is called as that release calls it, with a
context place in memory laid out as the build's communicators are (BUILD: the build's record as JSON). Prints what the
plugin then says of itself: version, knobs, remark.
"""

from __future__ import annotations

import ctypes
import json
import os
import struct
import sys
from typing import Any

from lagom.doctor.nccl_versions import capabilities, version_from_code
from lagom.sim.virtual.abi import ffi
from lagom.sim.virtual.process_entry import ProcessEntry
from lagom.wire.library import plugin_path

COMM_ID, RANKS = 0xABCDEF, 2
ROOM, CONTEXT_AT = 1 << 16, 1 << 15
END_MAGIC = 0x0280028002800280
USUAL_THREADS = (512, 640, 512, 512, 640, 512, 0, 0, 640, 0, 0, 640, 0, 0, 640, 0, 0, 640)


def communicator(build: dict[str, Any]) -> Any:
    """Memory of a communicator's shape around its ``tunerContext``."""
    memory = ffi.new("char[]", ROOM)
    view = ffi.buffer(memory)
    for name, form, values in (
        ("comm_hash", "<Q", (COMM_ID,)),
        ("end_magic", "<Q", (END_MAGIC,)),
        ("ranks", "<i", (RANKS,)),
        ("channels", "<i", (8,)),
        ("max_threads", f"<{len(USUAL_THREADS)}i", USUAL_THREADS),
    ):
        at = CONTEXT_AT + build[name]
        view[at : at + struct.calcsize(form)] = struct.pack(form, *values)
    return memory


def enter(plugin: Any, memory: Any, tuner: int) -> int:
    """Tuner init of that version."""
    place, no_log = ffi.cast("void **", memory + CONTEXT_AT), ffi.NULL
    table = getattr(plugin, f"ncclTunerPlugin_v{tuner}")
    if tuner <= 4:
        return int(table.init(RANKS, 1, no_log, place))
    return int(table.init(place, COMM_ID, RANKS, 1, no_log, ffi.NULL, ffi.NULL))


def announce(plugin: Any, profiler: int) -> int:
    """Profiler init before it, where it takes that to hear the communicator's id (2.27)."""
    place, mask, name = ffi.new("void **"), ffi.new("int *"), ffi.new("char[]", b"pg")
    _KEEP.extend((place, mask, name))
    return int(plugin.ncclProfiler_v4.init(place, mask, name, COMM_ID, 1, RANKS, 0, ffi.NULL)) if profiler == 4 else 0


_KEEP: list[Any] = []


def main(library: str, build: dict[str, Any]) -> None:
    """Prints one JSON object."""
    nccl = ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    version = ctypes.c_int()
    assert nccl.ncclGetVersion(ctypes.byref(version)) == 0
    able = capabilities(version_from_code(version.value))
    plugin, memory = ffi.dlopen(str(plugin_path())), communicator(build)
    results = [announce(plugin, able.profiler), enter(plugin, memory, able.tuner)]
    entry = ProcessEntry.find()
    process = entry._process if entry is not None else None
    said = {
        "code": version.value,
        "results": results,
        "context": ffi.cast("void **", memory + CONTEXT_AT)[0] != ffi.NULL,
        "version": process.nccl_version if process is not None else 0,
        "tuner": process.tuner_api if process is not None else 0,
        "knobs": process.knobs if process is not None else 0,
        "remark": ffi.string(ffi.cast("char *", int(_address(process.remark)))).decode() if process is not None else "",
    }
    print(json.dumps(said), flush=True)
    os._exit(0)  # NCCL's own end wants a driver


def _address(array: Any) -> int:
    from lagom.wire.layout import ffi as wire

    return int(wire.cast("uintptr_t", array))


if __name__ == "__main__":
    main(sys.argv[1], json.loads(sys.argv[2]))
