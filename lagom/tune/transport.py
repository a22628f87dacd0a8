# SPDX-License-Identifier: Apache-2.0
"""How the ranks of a job are connected, from what NCCL logs when it connects them: their transport, and whether their
buffers are registered as symmetric windows."""

from __future__ import annotations

import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

from lagom.bench.arm_words import Kind
from lagom.bench.process import Ended, ProcessStart, Seen, grace_within, run_process
from lagom.bench.request import Request
from lagom.bench.store import RunRecord
from lagom.start import Transport
from lagom.tune.numbering import numbered

#: After the first connection: others come with the first use of their algorithm.
LOOK_SECONDS = 5.0

#: What a process is given, so that its connections stand in ``nccl-*.log`` of the folder.
DEBUG = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,P2P,SHM,GRAPH,ENV,ALLOC"}
#: ``Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0``; of host memory ``Channel 00 : 0[0] -> 1[1] via SHM/...``.
_VIA = re.compile(r"Channel \d+(?:/\d+)? : .* via ([A-Za-z0-9]+)(?:/([A-Za-z]+))?")
#: ``Pattern 4, crossNic 0, nChannels 24, bw 20/20, type NVL/PIX, ...``: first between GPUs, then from GPU to NIC.
_PATTERN = re.compile(r"Pattern \d+, .* type ([A-Z0-9]+)/")
_WITHOUT_NVLINK = {"PIX", "PXB", "PHB", "SYS"}
#: NCCL 2.29 and later log each window (src/dev_runtime.cc). 2.28 logs that its first one needs address space; the later
#: releases reserve that in any case.
_WINDOW, _FIRST_WINDOW, _LOGS_THE_FIRST = "Inserted window ", "Symmetric VA size=", "NCCL version 2.28."
#: A job that crosses a network is bound by it.
_SLOWEST_FIRST = (Transport.SOCKET, Transport.EFA, Transport.IB, Transport.PCI, Transport.NVLINK)


@dataclass(frozen=True, slots=True)
class Connected:
    """``transport``: the slowest that some connection of the job has; None if no log names one. ``has_windows``: some
    buffer is registered as a symmetric window. ``why_not``: the job had no NCCL, or did not run; a clause. ``seconds``:
    what it took to find out."""

    transport: Transport | None = None
    has_windows: bool = False
    why_not: str = ""
    seconds: float = field(default=0.0, compare=False)

    @property
    def text(self) -> str:
        """For people."""
        transport = "not seen" if self.transport is None else self.transport.value
        return f"transport: {transport}{', buffers in symmetric windows' if self.has_windows else ''}"


def debug_variables(folder: Path) -> dict[str, str]:
    """Variables by which NCCL logs its connections into ``folder``."""
    return {**DEBUG, "NCCL_DEBUG_FILE": str(folder / "nccl-%h-%p.log")}


def read_connected(folder: Path) -> Connected:
    """What the logs of all ranks say so far."""
    found: set[Transport | None] = set()
    between_gpus: set[str] = set()
    windows: set[str] = set()
    for line in _lines(folder):
        if (via := _VIA.search(line)) is not None:
            found.add(_transport(via[1], via[2] or ""))
        elif (pattern := _PATTERN.search(line)) is not None:
            between_gpus.add(pattern[1])
        else:
            windows |= {sign for sign in (_WINDOW, _FIRST_WINDOW, _LOGS_THE_FIRST) if sign in line}
    if Transport.NVLINK in found and between_gpus & _WITHOUT_NVLINK:
        found.add(Transport.PCI)
    transport = next((transport for transport in _SLOWEST_FIRST if transport in found), None)
    return Connected(transport, _WINDOW in windows or {_FIRST_WINDOW, _LOGS_THE_FIRST} <= windows)


def _lines(folder: Path) -> Iterator[str]:
    for path in folder.glob("nccl-*.log"):
        yield from path.read_text(errors="replace").splitlines()


def _transport(kind: str, plugin: str) -> Transport | None:
    """By NCCL's words: ``NET/IBext_v8`` is a network plugin's; ``NET/AWS Libfabric`` and ``NET/OFI`` are EFA."""
    if kind == "NET":
        if plugin == "Socket":
            return Transport.SOCKET
        return Transport.IB if "IB" in plugin else Transport.EFA if plugin in ("AWS", "Libfabric", "OFI") else None
    return {"P2P": Transport.NVLINK, "SHM": Transport.PCI}.get(kind)


#: The number of the process that is not compared; the others count from 1.
LOOK = 0


def find_connected(request: Request, say: Callable[[str], None] = lambda text: None) -> Connected:
    """From one process of the job that is not compared: it logs its connections, and is ended once it has shown them
    and gone on for a while. Why it showed none is said."""
    folder = request.folder / "look"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    since: list[float] = []

    def enough(seen: Seen) -> bool:
        if not since and read_connected(folder).transport is not None:
            since.append(time.monotonic())
        return bool(since) and time.monotonic() - since[0] > LOOK_SECONDS

    request = numbered(request, LOOK)
    environ = {**request.environ, **debug_variables(folder)}
    lagom = ["--mode", "off"]
    limit = min((one for one in (request.run_limit, request.budget) if one is not None), default=None)
    ended = run_process(
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
