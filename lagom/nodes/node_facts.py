# SPDX-License-Identifier: Apache-2.0
"""What the nodes of a job are compared by, and what they are called."""

from __future__ import annotations

import hashlib
import json
import re
import socket
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from lagom.nodes.exchange import NodeFacts, Place
from lagom.version import __version__

MOST_NAMED = 4
#: Variables that may differ between the nodes of one job: names of the node, of its interfaces and of its files.
OF_A_NODE = frozenset({
    "NCCL_HOSTID", "NCCL_SOCKET_IFNAME", "NCCL_OOB_NET_IFNAME", "NCCL_IB_HCA", "NCCL_TOPO_FILE", "NCCL_GRAPH_FILE",
    "NCCL_CONF_FILE", "CUDA_VISIBLE_DEVICES",
})  # fmt: skip
#: What is compared, in the words of a sentence; of digests nobody wants to see the value.
COMPARED = {
    "command": "the command", "config": "the saved config", "lagom": "the release of lagom",
    "plugin": "the build of the plugin", "nccl": "NCCL's version", "gpu": "the GPU",
}  # fmt: skip
DIGESTS = ("command", "config", "plugin")


def facts_of(
    words: Sequence[str], variables: Mapping[str, str], *, plugin: str, nccl: int, gpu: str, config: bytes = b""
) -> NodeFacts:
    """What is compared. ``words``: of the command, those that stay (``launchers.words_that_stay``); ``variables``: that
    make another job of it (``env_fingerprint``), or those that a start would set; ``plugin``: the GNU build id of the
    tuner plugin in hex; ``nccl``: version code; ``gpu``: its name; ``config``: the saved config."""
    shared = {name: value for name, value in sorted(variables.items()) if name not in OF_A_NODE}
    return NodeFacts(
        command=_digest(json.dumps(list(words)).encode()),
        config=_digest(config) if config else "",
        lagom=__version__,
        plugin=plugin,
        nccl=nccl,
        gpu="".join(one for one in gpu if one.isprintable())[:100],
        variables={name: _digest(value.encode(errors="replace"))[:16] for name, value in shared.items()},
    )


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def node_name(environ: Mapping[str, str]) -> str:
    """What this node is called: by what NCCL tells machines apart by."""
    name = environ.get("NCCL_HOSTID", "") or socket.gethostname()
    return re.sub(r"[^A-Za-z0-9._-]", "-", name)[:56].strip(".-_") or "node"


def machine_id() -> str:
    """This machine since it was booted; containers on it have the same. Empty = not known."""
    with suppress(OSError):
        return _digest(Path("/proc/sys/kernel/random/boot_id").read_bytes())
    return ""


def differences(one: Place, other: Place, names: tuple[str, str]) -> list[str]:
    """A clause for each fact that is not the same."""
    mine, theirs, (a, b) = one.facts, other.facts, names
    found = [
        what if name in DIGESTS else f"{what} ({here or 'not known'} on {a}, {there or 'not known'} on {b})"
        for name, what in COMPARED.items()
        if (here := getattr(mine, name)) != (there := getattr(theirs, name))
    ]
    if one.count != other.count:
        found.append(f"the number of nodes ({one.count} on {a}, {other.count} on {b})")
    variables = {*mine.variables, *theirs.variables}
    return found + sorted(name for name in variables if mine.variables.get(name) != theirs.variables.get(name))


def reason_against(places: Sequence[Place]) -> str:
    """Why these cannot agree, as in :class:`Begin`; empty = nothing is against it."""
    if any(differences(places[0], one, ("", "")) for one in places[1:]):
        return "differs"
    return "twice" if started_twice(places) else ""


def started_twice(places: Sequence[Place]) -> str:
    """The name of a node that has two launchers; empty: none has. Two machines may have one name."""
    seen: set[tuple[str, str]] = set()
    for place in places:
        if place.machine and (place.node, place.machine) in seen:
            return place.node
        seen.add((place.node, place.machine))
    return ""


def names_of(places: Sequence[Place]) -> tuple[str, ...]:
    """Of the nodes; those that are there already get a number."""
    found: list[str] = []
    for name in (place.node for place in places):
        tries = (name if at == 1 else f"{name}-{at}" for at in range(1, len(places) + 2))
        found.append(next(one for one in tries if one not in found))
    return tuple(found)


def list_names(names: Sequence[str]) -> str:
    """For a sentence; of many the first ones."""
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")
