# SPDX-License-Identifier: Apache-2.0
"""Our own declarations of NCCL's plugin interface, as layouts: the plugin's header, the virtual ranks' cffi structs."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

from lagom.sim.virtual.abi import EVENTS_OF, PROFILER_INITS, TUNERS, ffi
from tests.abi.debug_info import DebugInfo, Layout

ROOT = Path(__file__).resolve().parents[2]
TUNER_VERSIONS = (2, 3, 4, 5, 6)
PROFILER_VERSIONS = (4, 5, 6, 7)
OURS_FOR_PROFILER = {4: 4, 5: 5, 6: 5, 7: 7}  # NCCL's version -> the struct that serves it in nccl_abi.h

#: A field the plugin reads -> NCCL's name of it. Of the collective both the common head and v7's whole are read.
HEAD = {
    "sequence": "seqNumber",
    "function": "func",
    "send": "sendBuff",
    "receive": "recvBuff",
    "count": "count",
    "root": "root",
    "type": "datatype",
    "channels": "nChannels",
    "warps": "nWarps",
    "algorithm": "algo",
    "protocol": "proto",
}
CALLED = {
    "function": "func",
    "count": "count",
    "type": "datatype",
    "stream": "stream",
    "graph_captured": "graphCaptured",
}
FIELDS = {
    "type": "type",
    "parent": "parentObj",
    "rank": "rank",
    "body.group_api.graph_captured": "groupApi.graphCaptured",
    "body.group_api.depth": "groupApi.groupDepth",
    **{f"body.coll_api.{ours}": f"collApi.{theirs}" for ours, theirs in {**CALLED, "root": "root"}.items()},
    **{f"body.p2p_api.{ours}": f"p2pApi.{theirs}" for ours, theirs in CALLED.items()},
    **{f"body.coll.{ours}": f"coll.{theirs}" for ours, theirs in HEAD.items()},
    **{f"coll.head.{ours}": f"coll.{theirs}" for ours, theirs in HEAD.items()},
    "coll.parent_group": "coll.parentGroup",
    "coll.kernel": "coll.kernelVariant",
    "coll.symmetric": "coll.isSymColl",
    "body.kernel_ch.channel": "kernelCh.channelId",
    "body.kernel_ch.gpu_ns": "kernelCh.pTimer",
}
API_EVENTS = ("body.group_api.", "body.coll_api.", "body.p2p_api.")  # came with profiler v5
VIRTUAL_FIELDS = {  # of the virtual ranks' events
    "group_api.captured": "groupApi.graphCaptured",
    "group_api.depth": "groupApi.groupDepth",
    "coll_api.function": "collApi.func",
    "coll_api.count": "collApi.count",
    "coll_api.datatype": "collApi.datatype",
    "coll_api.root": "collApi.root",
    "coll_api.stream": "collApi.stream",
    "coll_api.captured": "collApi.graphCaptured",
    "coll_api.tag": "collApi.userTag",
    "kernel_launch.stream": "kernelLaunch.stream",
    **{f"coll.{'datatype' if ours == 'type' else ours}": f"coll.{theirs}" for ours, theirs in HEAD.items()},
    "coll.parent_group": "coll.parentGroup",
    "coll.kernel": "coll.kernelVariant",
    "coll.symmetric": "coll.isSymColl",
    "coll.tag": "coll.userTag",
    "kernel_channel.channel": "kernelCh.channelId",
    "kernel_channel.timer": "kernelCh.pTimer",
}


def plugin_structs(folder: Path) -> dict[str, Layout]:
    """Every struct of tuner_plugin/nccl_abi.h as gcc lays it out; ``folder`` is for the object file."""
    source, target = folder / "abi.c", folder / "abi.o"
    source.write_text('#include "tuner_plugin/nccl_abi.h"\n')
    flags = [
        "-std=c11",
        "-D_GNU_SOURCE",
        "-g",
        "-fno-eliminate-unused-debug-types",
        "-fno-eliminate-unused-debug-symbols",
    ]
    subprocess.run(["gcc", *flags, "-I.", "-c", str(source), "-o", str(target)], cwd=ROOT, check=True)
    names = [
        *(f"nccl_tuner_v{version}" for version in TUNER_VERSIONS),
        *(f"nccl_{kind}_v{version}" for kind in ("profiler", "event") for version in (4, 5, 7)),
    ]
    with DebugInfo(target) as info:
        return info.layouts(names, ("abi.c",))


def members_by_place(struct: Layout) -> list[dict[str, Any]]:
    """A table of functions without its names: two of them are the same to a caller when these lists are."""
    return list(struct["members"].values())


def fields_read(ours: Layout, version: int) -> dict[str, dict[str, Any]]:
    """Those of our event that the plugin reads of that version's."""
    return {
        name: member for name, member in ours["members"].items() if not (version == 4 and name.startswith(API_EVENTS))
    }


def event_faults(ours: Layout, theirs: Layout, version: int) -> list[str]:
    """Fields that the plugin reads in another place, or as another kind, than NCCL writes them."""
    faults = []
    for name, member in fields_read(ours, version).items():
        there = theirs["members"].get(FIELDS.get(name, ""))
        if there != member:
            faults.append(f"{name} is {member}, NCCL's {FIELDS.get(name)} {there}")
    if not faults and ours["size"] > theirs["size"]:
        faults.append(f"{ours['size']} bytes are read of an event of {theirs['size']}")
    return faults


# ---- The virtual ranks' side


def virtual_table(name: str) -> list[dict[str, Any]]:
    """A cffi struct of functions, without its names."""
    fields = ffi.typeof(name).fields
    return [_virtual_member(field.type, field.offset) for _, field in fields]


def virtual_fields(name: str) -> dict[str, dict[str, Any]]:
    """A cffi struct by dotted names, nameless unions dissolved; what only takes up room is left out."""
    return {field: member for field, member in _walk(ffi.typeof(name), "", 0) if "room" not in field}


def _walk(struct: Any, prefix: str, base: int) -> list[tuple[str, dict[str, Any]]]:
    found = []
    for name, field in struct.fields:
        if field.type.kind in ("struct", "union"):
            found += _walk(field.type, f"{prefix}{name}." if name else prefix, base + field.offset)
        else:
            found.append((f"{prefix}{name}", _virtual_member(field.type, base + field.offset)))
    return found


def _virtual_member(kind: Any, at: int) -> dict[str, Any]:
    member = {"at": at, "size": ffi.sizeof(kind), "kind": _virtual_kind(kind)}
    if kind.kind == "function" or (kind.kind == "pointer" and kind.item.kind == "function"):
        signature = kind if kind.kind == "function" else kind.item
        member["arguments"] = [_virtual_kind(argument) for argument in signature.args]
    return member


def _virtual_kind(kind: Any) -> str:
    if kind.kind in ("pointer", "function"):
        return "ptr"
    if kind.kind == "array":
        return f"{_virtual_kind(kind.item)}[{kind.length}]"
    word = "bool" if "bool" in kind.cname.lower() else "float" if kind.cname in ("float", "double") else "int"
    return f"{word}{8 * ffi.sizeof(kind)}"


__all__ = [
    "EVENTS_OF",
    "OURS_FOR_PROFILER",
    "PROFILER_INITS",
    "PROFILER_VERSIONS",
    "TUNERS",
    "TUNER_VERSIONS",
    "VIRTUAL_FIELDS",
    "event_faults",
    "ffi",
    "fields_read",
    "members_by_place",
    "plugin_structs",
    "virtual_fields",
    "virtual_table",
]
