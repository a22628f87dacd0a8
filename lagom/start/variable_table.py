# SPDX-License-Identifier: Apache-2.0
"""The table of start settings: every variable that a saved config may ask for, and what is known of it.

One row a variable. A saved config can ask for these and no others (``environment`` lines): the plugin's list of names,
``csrc/config/known_variables.h``, is written from this table (``python -m lagom.start.c_names``). What a search may try
is in ``values``; a row without them is recorded and replayed, never tried. Sources: NCCL's source and documentation
(``nccl:FILE`` is a file of its repository at v2.30.7-1, ``nccl#N`` an issue there), torch's.

Not in the table, because a short run cannot judge them or they can give wrong data: NCCL_CHUNK_SIZE, everything that is
the network policy of a site (traffic classes, interfaces, time-outs), and switches of correctness contracts.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum


class Transport(Enum):
    """How the ranks of a communicator reach each other, as far as start settings depend on it. ``OTHER``: a network
    that none of them is made for, such as UCX, Slingshot or Google's; those for every network are tried."""

    SOCKET = "sockets"
    IB = "InfiniBand or RoCE"
    EFA = "EFA"
    OTHER = "another network"
    NVLINK = "NVLink"
    PCI = "PCIe or host memory"


EVERY = frozenset(Transport)
NETWORK = frozenset({Transport.SOCKET, Transport.IB, Transport.EFA, Transport.OTHER})
INTRA = frozenset({Transport.NVLINK, Transport.PCI})


@dataclass(frozen=True, slots=True)
class StartVariable:
    """``meaning``: what it decides, in the words of NCCL's documentation. ``since``: the first NCCL (or torch) that
    reads it; empty = every one that Lagom supports. ``worth``: on which transports a search tries it. ``values``: what
    it tries, apart from leaving it unset. ``needs_windows``: it does nothing unless the job registers its buffers as
    symmetric windows. ``together``: variables without which it does little. ``cost``: memory or threads. ``equal``:
    must be the same on all ranks. ``reorders``: with more than two ranks it can change the order of additions, hence
    the last bits of a sum. ``overrides``: what a framework may have set for one communicator, and this variable
    replaces."""

    name: str
    meaning: str
    since: str = ""
    worth: frozenset[Transport] = frozenset()
    values: tuple[str, ...] = ()
    needs_windows: bool = False
    together: tuple[str, ...] = ()
    cost: str = ""
    equal: bool = True
    reorders: bool = False
    overrides: str = ""
    source: str = ""

    def is_read_by(self, nccl: int) -> bool:
        """Whether that NCCL (2.28.9 is 22809; 0 = not known) has the variable already; torch is not asked."""
        words = self.since.split(".")
        if not nccl or not all(word.isdigit() for word in words):
            return True
        major, minor, patch = (int(word) for word in (*words, "0", "0")[:3])
        return nccl >= major * 10000 + minor * 100 + patch


_SOCKETS = ("NCCL_SOCKET_NTHREADS", "NCCL_NSOCKS_PERTHREAD", "NCCL_MIN_NCHANNELS")

#: In this order they stand in a saved config.
VARIABLES: tuple[StartVariable, ...] = (
    # -- Lagom's own
    StartVariable(
        "LAGOM_HEADROOM",
        "channels NCCL builds beyond its own, and its own number, which untuned calls keep",
        source="lagom run --headroom",
    ),
    # -- channels
    StartVariable(
        "NCCL_MIN_NCHANNELS",
        "channels NCCL builds at least",
        worth=NETWORK,
        values=("4", "8", "16"),
        together=_SOCKETS[:2],
        cost="9.2 MiB a channel, peer and direction at the default buffer size",
        reorders=True,
        overrides="maxCTAs of ncclConfig_t",
        source="nccl:src/graph/connect.cc; beats NCCL_MAX_CTAS",
    ),
    StartVariable(
        "NCCL_MAX_NCHANNELS", "channels NCCL builds at most", reorders=True, source="nccl:src/graph/connect.cc"
    ),
    StartVariable(
        "NCCL_MIN_CTAS",
        "CTAs a communicator has at least",
        "2.17",
        worth=frozenset({Transport.IB, Transport.PCI}),
        values=("4", "8", "16", "32"),
        reorders=True,
        overrides="minCTAs of ncclConfig_t",
        source="nccl:src/init.cc; the environment beats ncclConfig_t",
    ),
    StartVariable(
        "NCCL_MAX_CTAS",
        "CTAs a communicator has at most",
        "2.17",
        worth=frozenset({Transport.IB, Transport.NVLINK}),
        values=("4", "8", "16"),
        reorders=True,
        overrides="maxCTAs of ncclConfig_t",
        source="nccl:src/init.cc; the environment beats ncclConfig_t",
    ),
    StartVariable(
        "NCCL_MIN_P2P_NCHANNELS",
        "channels of send/recv and AlltoAll at least",
        worth=EVERY,
        values=("8", "16", "32"),
        source="nccl:src/graph/paths.cc",
    ),
    StartVariable(
        "NCCL_MAX_P2P_NCHANNELS",
        "channels of send/recv and AlltoAll at most",
        worth=INTRA,
        values=("8", "16"),
        source="nccl#1598",
    ),
    StartVariable(
        "NCCL_NCHANNELS_PER_NET_PEER",
        "channels of send/recv to a peer over the network",
        "2.16",
        worth=frozenset({Transport.IB}),
        values=("4",),
        source="nccl#1272; skips NCCL's halving for many peers",
    ),
    # -- chunks and buffers
    StartVariable(
        "NCCL_P2P_NVL_CHUNKSIZE",
        "chunk of send/recv over NVLink",
        "2.14",
        worth=frozenset({Transport.NVLINK}),
        values=("262144", "1048576"),
        together=("NCCL_BUFFSIZE",),
        source="nccl:src/init.cc",
    ),
    StartVariable(
        "NCCL_P2P_PCI_CHUNKSIZE",
        "chunk of send/recv over PCIe",
        "2.14",
        worth=frozenset({Transport.PCI}),
        values=("262144", "524288"),
        source="nccl:src/init.cc",
    ),
    StartVariable(
        "NCCL_P2P_NET_CHUNKSIZE",
        "chunk of send/recv over the network",
        "2.14",
        worth=NETWORK,
        values=("262144", "524288"),
        together=("NCCL_BUFFSIZE",),
        cost="p2p channels x 16 x chunk a direction and local rank",
        source="nccl:src/transport/net.cc, nccl#1496",
    ),
    StartVariable("NCCL_P2P_DISABLE", "GPUs do not use peer access", source="nccl:src/graph/paths.cc"),
    StartVariable(
        "NCCL_P2P_LEVEL", "the greatest distance of GPUs that use peer access", source="nccl:src/graph/paths.cc"
    ),
    StartVariable("NCCL_SHM_DISABLE", "no transport through host memory", source="nccl:src/transport/shm.cc"),
    StartVariable("NCCL_NVLS_ENABLE", "NVLink SHARP", "2.17", reorders=True, source="nccl#2078"),
    # -- what a running job is tuned in, too
    StartVariable(
        "NCCL_ALGO", "algorithms", reorders=True, source="nccl:src/graph/tuning.cc; since 2.24 an unknown word fails"
    ),
    StartVariable(
        "NCCL_PROTO", "protocols", reorders=True, source="nccl:src/graph/tuning.cc; forcing LL128 can corrupt data"
    ),
    StartVariable(
        "NCCL_NTHREADS",
        "threads of a CTA",
        worth=frozenset({Transport.PCI}),
        values=("512",),
        reorders=True,
        source="nccl:src/graph/tuning.cc; RING only",
    ),
    StartVariable(
        "NCCL_LL128_NTHREADS", "threads of a CTA under LL128", reorders=True, source="nccl:src/graph/tuning.cc"
    ),
    StartVariable(
        "NCCL_THREAD_THRESHOLDS",
        "from which sizes on threads and channels are used",
        reorders=True,
        source="nccl:src/graph/tuning.cc",
    ),
    StartVariable(
        "NCCL_BUFFSIZE",
        "buffer of SIMPLE, and with it the largest chunk",
        worth=EVERY,
        values=("1048576", "2097152", "8388608"),
        cost="one a channel, peer and direction",
        reorders=True,
        source="nccl:src/init.cc; not checked: a multiple of 4096",
    ),
    StartVariable("NCCL_LL_BUFFSIZE", "buffer of LL", reorders=True, source="nccl#1739: wrong sizes give wrong data"),
    StartVariable(
        "NCCL_LL128_BUFFSIZE", "buffer of LL128", reorders=True, source="nccl#1739: wrong sizes give wrong data"
    ),
    StartVariable(
        "NCCL_CTA_POLICY",
        "CTAs or copy engines",
        "2.27",
        worth=frozenset({Transport.NVLINK}),
        values=("2",),
        needs_windows=True,
        overrides="CTAPolicy of ncclConfig_t",
        source="nccl:src/init.cc; names from 2.29 on; 2 moves no reduction, 1 (NVLink SHARP) would",
    ),
    StartVariable("NCCL_CGA_CLUSTER_SIZE", "how CTAs are clustered", "2.16", source="nccl:src/init.cc"),
    StartVariable(
        "CUDA_DEVICE_MAX_CONNECTIONS",
        "hardware queues, and with them what can overlap",
        equal=False,
        source="CUDA's programming guide; Megatron asserts 1",
    ),
    # -- sockets
    StartVariable(
        "NCCL_SOCKET_NTHREADS",
        "helper threads of a socket connection",
        worth=frozenset({Transport.SOCKET}),
        values=("2", "4", "8"),
        together=_SOCKETS[1:],
        equal=False,
        cost="2 x channels x this many busy threads a rank at a border between nodes",
        source="nccl:src/transport/net_socket.cc: 0 by default, then NCCL_NSOCKS_PERTHREAD does nothing; at most 16",
    ),
    StartVariable(
        "NCCL_NSOCKS_PERTHREAD",
        "sockets of each helper thread",
        worth=frozenset({Transport.SOCKET}),
        values=("2", "4", "8"),
        together=_SOCKETS[::2],
        equal=False,
        source="nccl:src/transport/net_socket.cc: threads x sockets at most 64, 16 of them a message",
    ),
    StartVariable(
        "NCCL_SOCKET_MIN_TASKSIZE",
        "smallest part of a message that a socket gets",
        "2.27.3",
        source="nccl:src/transport/net_socket.cc; both ends must agree",
    ),
    # -- InfiniBand and RoCE, several NICs
    StartVariable(
        "NCCL_IB_QPS_PER_CONNECTION",
        "queue pairs of a connection",
        "2.10",
        worth=frozenset({Transport.IB}),
        values=("2", "4", "8"),
        together=("NCCL_IB_SPLIT_DATA_ON_QPS",),
        source="nccl#1015",
    ),
    StartVariable(
        "NCCL_IB_SPLIT_DATA_ON_QPS",
        "whether a message is split over the queue pairs",
        "2.18",
        worth=frozenset({Transport.IB}),
        values=("1",),
        together=("NCCL_IB_QPS_PER_CONNECTION",),
        source="nccl#1401",
    ),
    StartVariable(
        "NCCL_CROSS_NIC",
        "whether a ring may leave a node by another NIC than it came by",
        worth=frozenset({Transport.IB}),
        values=("0",),
        reorders=True,
        source="nccl#1411; 0 where rails are not joined",
    ),
    StartVariable(
        "NCCL_PXN_DISABLE",
        "no way to a NIC over NVLink and another GPU",
        "2.12",
        worth=frozenset({Transport.IB}),
        values=("1",),
        reorders=True,
        source="nccl#1876",
    ),
    StartVariable(
        "NCCL_P2P_PXN_LEVEL", "when send/recv go to a NIC over another GPU", "2.12", source="nccl:src/graph/paths.cc"
    ),
    StartVariable(
        "NCCL_NET_GDR_LEVEL",
        "the greatest distance of GPU and NIC for GPU Direct RDMA",
        reorders=True,
        source="nccl:src/graph/paths.cc",
    ),
    StartVariable(
        "NCCL_NET_GDR_READ", "GPU Direct RDMA for reads too", reorders=True, source="nccl:src/graph/paths.cc"
    ),
    # -- NVLink SHARP over several nodes
    StartVariable(
        "NCCL_NVLS_CHUNKSIZE",
        "chunk of NVLink SHARP",
        "2.21",
        reorders=True,
        cost="16 x chunk x NVLS channels x GPUs: 1 GiB a communicator at 512 KiB",
        source="nccl:src/transport/nvls.cc",
    ),
    StartVariable(
        "NCCL_NVLSTREE_MAX_CHUNKSIZE",
        "largest chunk of NVLS_TREE",
        "2.20.3",
        together=("NCCL_NVLS_CHUNKSIZE",),
        reorders=True,
        source="nccl:src/enqueue.cc; capped by NCCL_NVLS_CHUNKSIZE since 2.21",
    ),
    # -- torch
    StartVariable(
        "TORCH_NCCL_HIGH_PRIORITY",
        "NCCL's streams have the high priority",
        "torch 2.4",
        worth=frozenset({Transport.NVLINK}),
        values=("1",),
        equal=False,
        source="pytorch#122830",
    ),
)

#: Variables that decide one number: NCCL lets the one undo the other (NCCL_MIN_NCHANNELS beats NCCL_MAX_NCHANNELS and
#: NCCL_MAX_CTAS), so that a user who has set one of them has decided all. NRINGS: their old names, still read.
CHANNELS = ("NCCL_MIN_NCHANNELS", "NCCL_MAX_NCHANNELS", "NCCL_MIN_NRINGS", "NCCL_MAX_NRINGS", "NCCL_MIN_CTAS",
            "NCCL_MAX_CTAS")  # fmt: skip
P2P_CHANNELS = ("NCCL_MIN_P2P_NCHANNELS", "NCCL_MAX_P2P_NCHANNELS", "NCCL_NCHANNELS_PER_NET_PEER")

_BY_NAME: Mapping[str, StartVariable] = {variable.name: variable for variable in VARIABLES}


def decided_by(name: str, taken: Collection[str]) -> list[str]:
    """Which of the variables that the user has set (``taken``) would be replaced or undone if this one was set."""
    decides = next((names for names in (CHANNELS, P2P_CHANNELS) if name in names), (name,))
    return [one for one in decides if one in taken]


def find_variable(name: str) -> StartVariable:
    """The row of a variable; raises ``KeyError`` for one that is not in the table."""
    return _BY_NAME[name]
