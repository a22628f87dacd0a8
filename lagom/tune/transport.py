# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a job are connected, from what NCCL logs when it connects them: their transport, and whether their
buffers are registered as symmetric windows."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from lagom.experiment.arm import Kind
from lagom.experiment.process import Ended, ProcessStart, Seen, grace_within, run_process
from lagom.experiment.request import Request
from lagom.experiment.store import RunRecord
from lagom.start import Transport

#: After the first connection: others come with the first use of their algorithm.
LOOK_SECONDS = 5.0

#: What a process is given, so that its connections stand in ``nccl-*.log`` of the folder.
DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,P2P,SHM,GRAPH,ENV,ALLOC"}
#: ``Channel 00/0 : 1[0] -> 0[0] [receive] via NET/AWS Libfabric/0/GDRDMA``: a network by its plugin's name;
#: ``CollNet 00/0 : 0 [send] via COLLNET/SHARP/0``: reduced in its switches; ``Channel 00 : 0[0] -> 1[1] via SHM/...``.
_VIA = re.compile(r"(?:Channel|CollNet) \d+(?:/\d+)? : .* via (?:(?:NET|COLLNET)/([^/\n]+)/\d|(P2P|SHM)/)")
_ON_A_NODE = {"P2P": Transport.NVLINK, "SHM": Transport.PCI}
#: What reads the ``NCCL_IB_`` variables: NCCL itself, NVIDIA's plugin and its SHARP, Google's plugin.
_IB = re.compile(r"IB|IBext(_v\d+)?|gIB|SHARP")
#: The names of aws-ofi-nccl. The network is libfabric's provider: EFA, Slingshot (cxi), tcp and others.
_LIBFABRIC = {"AWS Libfabric", "Libfabric", "OFI"}
#: ``Selected Provider is efa (found 4 nics)``; newer: ``Selected provider is efa, fabric is efa-direct (...)``.
_PROVIDER = re.compile(r"NET/OFI Selected [Pp]rovider is ([^\s,]+)")
#: ``Pattern 4, crossNic 0, nChannels 24, bw 20/20, type NVL/PIX, ...``: first between GPUs, then from GPU to NIC.
_PATTERN = re.compile(r"Pattern \d+, .* type ([A-Z0-9]+)/")
_WITHOUT_NVLINK = {"PIX", "PXB", "PHB", "SYS"}
#: NCCL 2.29 and later log each window (src/dev_runtime.cc). 2.28 logs that its first one needs address space; the later
#: releases reserve that in any case.
_WINDOW, _FIRST_WINDOW, _LOGS_THE_FIRST = "Inserted window ", "Symmetric VA size=", "NCCL version 2.28."
#: A job that crosses a network is bound by it.
_SLOWEST_FIRST = (
    Transport.SOCKET, Transport.OTHER, Transport.EFA, Transport.IB, Transport.PCI, Transport.NVLINK,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Connected:
    """``transport``: the slowest that some connection of the job has; None if no log names one. ``has_windows``: some
    buffer is registered as a symmetric window. ``why_not``: the job had no NCCL, or did not run; a clause. ``network``:
    the name of the other network, as NCCL writes it; empty for every other transport. ``seconds``: what it took to find
    out."""

    transport: Transport | None = None
    has_windows: bool = False
    why_not: str = ""
    network: str = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def name(self) -> str:
        """The transport as the user knows it; empty if no log names one."""
        return self.network or (self.transport.value if self.transport else "")

    @property
    def text(self) -> str:
        """For people."""
        unknown = ", which Lagom has no settings for; settings for every network are tried" if self.network else ""
        windows = ", buffers in symmetric windows" if self.has_windows else ""
        return f"transport: {self.name or 'not seen'}{windows}{unknown}"


def debug_variables(folder: Path) -> dict[str, str]:
    """Variables by which NCCL logs its connections into ``folder``."""
    return {**DEBUG, "NCCL_DEBUG_FILE": str(folder / "nccl-%h-%p.log")}


def read_connected(folder: Path) -> Connected:
    """What the logs of all ranks say so far."""
    text = "\n".join(path.read_text(errors="replace") for path in folder.glob("nccl-*.log"))
    providers = sorted(set(_PROVIDER.findall(text)))
    named: dict[Transport, list[str]] = {}
    for network, on_a_node in sorted(set(_VIA.findall(text))):
        transport = _ON_A_NODE[on_a_node] if on_a_node else _network(network, providers)
        named.setdefault(transport, []).append(_full_name(network, providers))
    if Transport.NVLINK in named and _WITHOUT_NVLINK.intersection(_PATTERN.findall(text)):
        named[Transport.PCI] = []
    slowest = next((transport for transport in _SLOWEST_FIRST if transport in named), None)
    has_windows = _WINDOW in text or (_FIRST_WINDOW in text and _LOGS_THE_FIRST in text)
    return Connected(slowest, has_windows, network=" and ".join(named[slowest]) if slowest is Transport.OTHER else "")


def _network(name: str, providers: Sequence[str]) -> Transport:
    """By the name that the network has in NCCL's log, and what libfabric's providers are on the job's ranks."""
    if name == "Socket":
        return Transport.SOCKET
    if name in _LIBFABRIC and providers == ["efa"]:
        return Transport.EFA
    return Transport.IB if _IB.fullmatch(name) else Transport.OTHER


def _full_name(network: str, providers: Sequence[str]) -> str:
    provider = f" with provider {' and '.join(providers)}" if network in _LIBFABRIC and providers else ""
    return f"NET/{network}{provider}"


#: The number of the process that is not compared; the others count from 1.
LOOK = 0


def find_connected(
    request: Request, say: Callable[[str], None] = lambda text: None, run: Callable[[ProcessStart], Ended] | None = None
) -> Connected:
    """From one process of the job that is not compared: it logs its connections, and is ended once it has shown them
    and gone on for a while. Why it showed none is said. ``run``: how, if not
    here alone."""
    folder = request.folder / "look"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    since: list[float] = []

    def enough(seen: Seen) -> bool:
        if not since and read_connected(folder).transport is not None:
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] > LOOK_SECONDS

    request = request.numbered(LOOK)
    environ = {**request.environ, **debug_variables(folder)}
    lagom = ["--mode", "off"]
    limit = min((one for one in (request.run_limit, request.budget) if one is not None), default=None)
    ended = (run or run_process)(
        ProcessStart(
            request.command, request.folder, "look", lagom, environ, limit, enough=enough, say=say,
            grace=grace_within(request.budget),
        )
    )  # fmt: skip
    connected = replace(read_connected(folder), seconds=ended.seconds)
    if connected.transport is None:
        say(_why_none(ended, request.folder / "look.out"))
        return replace(connected, why_not=_why_not(ended, folder))
    return connected


def _why_not(ended: Ended, folder: Path) -> str:
    if ended.ended == "limit":
        return ""  # it may have come to that later
    if ended.exit:
        return "the job failed before NCCL had connected its ranks"
    has_nccl = any(folder.glob("nccl-*.log"))
    return "" if has_nccl else "no rank of the job started NCCL, which is all that is tuned"


def _why_none(ended: Ended, output: Path) -> str:
    if ended.ended == "limit":
        return f"the first process was ended after {ended.seconds:.0f} s; by then no rank was connected through NCCL."
    if ended.exit:
        last = RunRecord(kind=Kind.PROCESS.value, output=ended.seen.last_lines()).last_line
        return f"the first process failed (exit {ended.exit}): {last}; all it printed is in {output}."
    return "the first process came to its end, and no rank was connected through NCCL."
