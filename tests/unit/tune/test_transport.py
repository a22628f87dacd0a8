# SPDX-License-Identifier: Apache-2.0
"""How ranks reach each other, from NCCL's log of the connections it makes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lagom.bench.request import Request
from lagom.start import Transport
from lagom.tune.transport import debug_variables, find_transport, read_transport

#: As NCCL 2.28.9 writes them (src/transport/net.cc, p2p.cc, shm.cc); SHM's have no number of a connection.
HEAD = "node1:4711:4720 [0] NCCL INFO "
SOCKET = "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0"
SHARED = "Channel 03/1 : 0[0] -> 1[0] [send] via NET/Socket/0/Shared"
IB = "Channel 01/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA"
CUMEM = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
IPC = "Channel 07/1 : 1[1] -> 0[0] via P2P/IPC"
DIRECT = "Channel 07/1 : 1[1] -> 0[0] via P2P/direct pointer"
SHM = "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"
REST = [
    "NCCL version 2.28.9+cuda12.8",
    "NET/Socket : Using [0]eth0:10.0.0.2<0>",
    "Using network Socket",
    "Channel 00/02 : 0 1",
    "Connected all rings, use ring PXN 0 GDR 1",
]


def log(folder: Path, name: str, *lines: str) -> None:
    (folder / name).write_text("".join(f"{HEAD}{line}\n" for line in [*REST, *lines]))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (SOCKET, Transport.SOCKET), (SHARED, Transport.SOCKET), (IB, Transport.IB), (CUMEM, Transport.NVLINK),
        (IPC, Transport.NVLINK), (DIRECT, Transport.NVLINK), (SHM, Transport.PCI),
        (IB.replace("IB/0", "IBext_v8/0"), Transport.IB), (IB.replace("IB/0", "AWS Libfabric/0"), Transport.EFA),
        (IB.replace("IB/0", "OFI/0"), Transport.EFA), (IB.replace("IB/0", "Other/0"), None),
    ],
)  # fmt: skip
def test_each_kind_of_connection_is_known(tmp_path: Path, line: str, wanted: Transport | None) -> None:
    log(tmp_path, "nccl-node1-4711.log", line)
    assert read_transport(tmp_path) is wanted


def test_the_slowest_connection_of_any_rank_binds_the_job(tmp_path: Path) -> None:
    log(tmp_path, "nccl-node1-1.log", *[CUMEM] * 32)
    assert read_transport(tmp_path) is Transport.NVLINK
    log(tmp_path, "nccl-node1-2.log", CUMEM, SHM)
    assert read_transport(tmp_path) is Transport.PCI
    log(tmp_path, "nccl-node2-1.log", CUMEM, IB)
    assert read_transport(tmp_path) is Transport.IB
    log(tmp_path, "nccl-node2-2.log", SOCKET)
    assert read_transport(tmp_path) is Transport.SOCKET


@pytest.mark.parametrize(
    ("path", "wanted"), [("NVL", Transport.NVLINK), ("PHB", Transport.PCI), ("SYS", Transport.PCI)]
)
def test_peer_access_is_nvlink_only_where_the_topology_has_it(tmp_path: Path, path: str, wanted: Transport) -> None:
    pattern = f"Pattern 4, crossNic 0, nChannels 24, bw 20.0/20.0, type {path}/PIX, sameChannels 1"
    log(tmp_path, "nccl-node1-1.log", pattern, CUMEM)
    assert read_transport(tmp_path) is wanted


def test_without_a_connection_nothing_is_said(tmp_path: Path) -> None:
    """A job of one rank, a job that has not come so far, no log at all."""
    assert read_transport(tmp_path) is None
    assert read_transport(tmp_path / "nowhere") is None
    log(tmp_path, "nccl-node1-1.log")
    (tmp_path / "other.log").write_text(f"{HEAD}{SOCKET}\n")
    assert read_transport(tmp_path) is None


def test_a_log_that_is_cut_within_a_character_is_read(tmp_path: Path) -> None:
    (tmp_path / "nccl-a-1.log").write_bytes(f"{HEAD}{SOCKET}\n".encode() + b"\xff\xe2\x82")
    assert read_transport(tmp_path) is Transport.SOCKET


def test_the_variables_name_the_files_that_are_read(tmp_path: Path) -> None:
    variables = debug_variables(tmp_path)
    name = variables["NCCL_DEBUG_FILE"].replace("%h", "node1").replace("%p", "4711")
    log(tmp_path, Path(name).name, SOCKET)
    assert Path(name).parent == tmp_path
    assert read_transport(tmp_path) is Transport.SOCKET
    assert variables["NCCL_DEBUG"] == "INFO"
    assert {"INIT", "NET", "P2P", "SHM"} <= set(variables["NCCL_DEBUG_SUBSYS"].split(","))


@pytest.mark.parametrize(
    ("job", "limit", "wanted"),
    [
        ("print('no such data set'); raise SystemExit(3)", None, "failed (exit 3): no such data set"),
        ("import time; time.sleep(3000)", 3.0, "was ended after 3 s; by then no rank was connected"),
        ("pass", None, "came to its end, and no rank was connected through NCCL"),
    ],
)
def test_why_the_first_process_showed_no_transport_is_said(
    tmp_path: Path, job: str, limit: float | None, wanted: str
) -> None:
    said: list[str] = []
    request = Request((sys.executable, "-c", job), (), tmp_path, budget=limit)
    assert find_transport(request, said.append) is None
    assert len(said) == 1
    assert wanted in said[0]
