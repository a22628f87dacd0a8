# SPDX-License-Identifier: Apache-2.0
"""How ranks reach each other, from NCCL's log of the connections it makes."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest

from lagom.cli.tune import SearchOptions, _choose_groups
from lagom.experiment.request import Request
from lagom.start import Transport
from lagom.tune.transport import Connected, debug_variables, find_connected, read_connected
from lagom.tune.tune_result import PlainNccl

SEARCH = SearchOptions(transport=None, is_demo=False, as_json=False)
#: As NCCL 2.28.9 writes them (src/transport/net.cc, p2p.cc, shm.cc); SHM's have no number of a connection.
HEAD = "node1:4711:4720 [0] NCCL INFO "
SOCKET = "Channel 00/0 : 1[0] -> 0[0] [receive] via NET/Socket/0"
SHARED = "Channel 03/1 : 0[0] -> 1[0] [send] via NET/Socket/0/Shared"
IB = "Channel 01/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA"
CUMEM = "Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM"
IPC = "Channel 07/1 : 1[1] -> 0[0] via P2P/IPC"
DIRECT = "Channel 07/1 : 1[1] -> 0[0] via P2P/direct pointer"
SHM = "Channel 00 : 0[0] -> 1[1] via SHM/direct/direct"
MNNVL = "Channel 00/0 : 3[3] -> 4[0] via P2P/MNNVL"
PXN = "Channel 03/0 : 3[3] -> 8[0] [send] via NET/IB/0(1)/GDRDMA"
COLLNET = "CollNet 00/0 : 0 [send] via COLLNET/SHARP/0/GDRDMA"
RCCL = "Channel 00/0 : 0[d6000] -> 3[c6000] via P2P/IPC comm 0x9bbf3b0 nRanks 4096"
#: As plugins name themselves: NVIDIA's (UCX, Spectrum-X), Google's, AMD's, and libfabric's where no provider is logged.
OTHERS = ("UCX", "UCX-RMA", "SPCX", "FasTrak", "FastSocket", "GPUDirectTCPX_v7", "RCCL-ANP", "AWS Libfabric", "FIBRE")


def over(network: str) -> str:
    return f"Channel 01/0 : 8[0] -> 0[0] [receive] via NET/{network}/0/GDRDMA/Shared"


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
        (MNNVL, Transport.NVLINK), (PXN, Transport.IB), (COLLNET, Transport.IB), (RCCL, Transport.NVLINK),
        (over("IBext"), Transport.IB), (over("IBext_v11"), Transport.IB), (over("gIB"), Transport.IB),
        *((over(name), Transport.OTHER) for name in OTHERS),
    ],
)  # fmt: skip
def test_each_kind_of_connection_is_known(tmp_path: Path, line: str, wanted: Transport) -> None:
    log(tmp_path, "nccl-node1-4711.log", line)
    assert read_connected(tmp_path).transport is wanted


@pytest.mark.parametrize("name", OTHERS)
def test_an_unknown_network_outranks_the_connections_of_a_node_and_is_named(tmp_path: Path, name: str) -> None:
    log(tmp_path, "nccl-node1-1.log", CUMEM, SHM, over(name))
    found = read_connected(tmp_path)
    assert (found.transport, found.name) == (Transport.OTHER, f"NET/{name}")
    assert found.text.startswith(f"transport: NET/{name}, which Lagom has no settings for; ")
    log(tmp_path, "nccl-node1-2.log", over("Mixed"))
    assert read_connected(tmp_path).name == " and ".join(sorted((f"NET/{name}", "NET/Mixed")))
    log(tmp_path, "nccl-node1-3.log", SOCKET)
    assert read_connected(tmp_path) == Connected(Transport.SOCKET)


@pytest.mark.parametrize("network", ["AWS Libfabric", "Libfabric", "OFI"])
@pytest.mark.parametrize(
    ("lines", "wanted", "name"),
    [
        (["NET/OFI Selected Provider is efa (found 4 nics)"], Transport.EFA, ""),
        (["NET/OFI Selected Provider is efa"], Transport.EFA, ""),
        (["NET/OFI Selected provider is efa, fabric is efa-direct (found 16 nics)"], Transport.EFA, ""),
        (["NET/OFI Selected provider is cxi, fabric is cxi (found 4 nics)"], Transport.OTHER, " with provider cxi"),
        (["NET/OFI Selected Provider is tcp;ofi_rxm (found 1 nics)"], Transport.OTHER, " with provider tcp;ofi_rxm"),
        (
            ["NET/OFI Selected Provider is efa", "NET/OFI Selected Provider is tcp"],
            Transport.OTHER,
            " with provider efa and tcp",
        ),
        (["Using network AWS Libfabric"], Transport.OTHER, ""),
    ],
)
def test_what_libfabric_is_used_on_is_its_provider(
    tmp_path: Path, network: str, lines: list[str], wanted: Transport, name: str
) -> None:
    log(tmp_path, "nccl-node1-1.log", CUMEM, *lines)
    log(tmp_path, "nccl-node2-1.log", CUMEM, over(network))
    found = read_connected(tmp_path)
    assert found.transport is wanted
    assert found.name == (f"NET/{network}{name}" if wanted is Transport.OTHER else "EFA")


def test_a_provider_of_a_plugin_that_connects_nothing_says_nothing(tmp_path: Path) -> None:
    log(tmp_path, "nccl-node1-1.log", "NET/OFI Selected Provider is efa (found 4 nics)", over("UCX"))
    assert read_connected(tmp_path).name == "NET/UCX"


def test_the_slowest_connection_of_any_rank_binds_the_job(tmp_path: Path) -> None:
    log(tmp_path, "nccl-node1-1.log", *[CUMEM] * 32)
    assert read_connected(tmp_path).transport is Transport.NVLINK
    log(tmp_path, "nccl-node1-2.log", CUMEM, SHM)
    assert read_connected(tmp_path).transport is Transport.PCI
    log(tmp_path, "nccl-node2-1.log", CUMEM, IB)
    assert read_connected(tmp_path).transport is Transport.IB
    log(tmp_path, "nccl-node2-2.log", SOCKET)
    assert read_connected(tmp_path).transport is Transport.SOCKET


@pytest.mark.parametrize(
    ("path", "wanted"), [("NVL", Transport.NVLINK), ("PHB", Transport.PCI), ("SYS", Transport.PCI)]
)
def test_peer_access_is_nvlink_only_where_the_topology_has_it(tmp_path: Path, path: str, wanted: Transport) -> None:
    pattern = f"Pattern 4, crossNic 0, nChannels 24, bw 20.0/20.0, type {path}/PIX, sameChannels 1"
    log(tmp_path, "nccl-node1-1.log", pattern, CUMEM)
    assert read_connected(tmp_path).transport is wanted


def test_without_a_connection_nothing_is_said(tmp_path: Path) -> None:
    """A job of one rank, a job that has not come so far, no log at all."""
    assert read_connected(tmp_path).transport is None
    assert read_connected(tmp_path / "nowhere").transport is None
    log(tmp_path, "nccl-node1-1.log")
    (tmp_path / "other.log").write_text(f"{HEAD}{SOCKET}\n")
    assert read_connected(tmp_path).transport is None


def test_a_log_that_is_cut_within_a_character_is_read(tmp_path: Path) -> None:
    (tmp_path / "nccl-a-1.log").write_bytes(f"{HEAD}{SOCKET}\n".encode() + b"\xff\xe2\x82")
    assert read_connected(tmp_path).transport is Transport.SOCKET


def test_a_name_that_is_cut_is_no_other_network(tmp_path: Path) -> None:
    for end in range(len(IB)):
        log(tmp_path, "nccl-a-1.log", CUMEM, IB[:end])
        assert read_connected(tmp_path).transport in (Transport.NVLINK, Transport.IB)


def test_the_variables_name_the_files_that_are_read(tmp_path: Path) -> None:
    variables = debug_variables(tmp_path)
    name = variables["NCCL_DEBUG_FILE"].replace("%h", "node1").replace("%p", "4711")
    log(tmp_path, Path(name).name, SOCKET)
    assert Path(name).parent == tmp_path
    assert read_connected(tmp_path).transport is Transport.SOCKET
    assert variables["NCCL_DEBUG"] == "INFO"
    assert {"INIT", "NET", "P2P", "SHM", "ALLOC"} <= set(variables["NCCL_DEBUG_SUBSYS"].split(","))


RESERVED = "Symmetric VA size=144GB"
WINDOW = "Inserted window 0x7f2ad8e00000 into address map, ret=0"


@pytest.mark.parametrize(
    ("version", "lines", "wanted"),
    [
        ("2.28.9", [], False), ("2.28.9", [RESERVED], True),
        ("2.29.7", [RESERVED], False), ("2.29.7", [RESERVED, WINDOW], True),
        ("2.30.7", [RESERVED], False), ("2.30.7", [RESERVED, WINDOW], True), ("2.27.7", [], False),
    ],
)  # fmt: skip
def test_windows_are_seen_in_the_log_of_any_rank(tmp_path: Path, version: str, lines: list[str], wanted: bool) -> None:
    """2.28 reserves address space for its first window; the later ones reserve it with the first collective. The
    version is in the log of one rank."""
    (tmp_path / "nccl-node1-1.log").write_text(f"{HEAD}NCCL version {version}+cuda13.0\n{HEAD}{CUMEM}\n")
    (tmp_path / "nccl-node1-2.log").write_text("".join(f"{HEAD}{line}\n" for line in [CUMEM, *lines]))
    found = read_connected(tmp_path)
    assert found == Connected(Transport.NVLINK, wanted)
    assert ("symmetric windows" in found.text) == wanted


#: A job that started NCCL and connected nothing.
LOGS = "import os; open(os.environ['NCCL_DEBUG_FILE'].replace('%h', 'h').replace('%p', '1'), 'w').write('NCCL version')"


@pytest.mark.parametrize(
    ("job", "wanted", "why_not"),
    [
        (
            "print('no such data set'); raise SystemExit(3)",
            "failed (exit 3): no such data set",
            "the job failed before NCCL had connected its ranks",
        ),
        (
            "pass",
            "came to its end, and no rank was connected through NCCL",
            "no rank of the job started NCCL, which is all that is tuned",
        ),
        (LOGS, "came to its end, and no rank was connected through NCCL", ""),
    ],
)
def test_why_the_first_process_showed_no_transport_is_said(tmp_path: Path, job: str, wanted: str, why_not: str) -> None:
    said: list[str] = []
    found = find_connected(Request((sys.executable, "-c", job), tmp_path), said.append)
    assert found == Connected(why_not=why_not)
    assert len(said) == 1
    assert wanted in said[0]


def test_a_first_process_that_was_ended_at_its_limit_is_said_with_its_seconds(tmp_path: Path) -> None:
    """They are those that it ran, which on a busy machine are more than the limit: it takes time to end."""
    said: list[str] = []
    job = "import time; time.sleep(3000)"
    began = time.monotonic()
    found = find_connected(Request((sys.executable, "-c", job), tmp_path, budget=1.0), said.append)
    assert found == Connected()
    assert 1.0 <= found.seconds <= time.monotonic() - began, "of the budget"
    (seconds,) = re.findall(r"was ended after (\d+) s; by then no rank was connected through NCCL", " ".join(said))
    assert 1 <= int(seconds) <= time.monotonic() - began + 0.5, "rounded"


#: Logs as NCCL does in a job of two ranks over NVLink that registers windows.
LOGS = f"""
import os
name = os.environ["NCCL_DEBUG_FILE"].replace("%h", "node1").replace("%p", str(os.getpid()))
open(name, "w").write({"".join(f"{HEAD}{line}{chr(10)}" for line in [*REST, CUMEM, RESERVED])!r})
"""


def test_over_an_unknown_network_what_every_network_may_need_is_tried(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    job = LOGS.replace(RESERVED, over("UCX"))
    record = _choose_groups(Request((sys.executable, "-c", job), tmp_path), SEARCH, PlainNccl({}, {}), None)
    assert (record.transport, record.groups) == ("NET/UCX", [])
    assert {"NCCL_MIN_NCHANNELS", "NCCL_BUFFSIZE", "NCCL_P2P_NET_CHUNKSIZE"} <= set(record.factors)
    assert not [name for name in record.factors if "_IB_" in name or "SOCK" in name or "NVL" in name]
    assert "transport: NET/UCX, which Lagom has no settings for" in capsys.readouterr().err


def test_what_the_first_process_shows_decides_what_is_tried(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    request = Request((sys.executable, "-c", LOGS), tmp_path)
    record = _choose_groups(request, SEARCH, PlainNccl({}, {}), None)
    assert (record.transport, [group.name for group in record.groups]) == ("NVLink", ["copy engines"])
    assert "NCCL_MAX_CTAS" in record.factors
    assert "transport: NVLink, buffers in symmetric windows." in capsys.readouterr().err
    taken = _choose_groups(request, SEARCH, PlainNccl({"NCCL_CTA_POLICY": "0"}, {}), None)
    assert not taken.groups
    assert "copy engines is left out: NCCL_CTA_POLICY is set by you" in capsys.readouterr().err
