# SPDX-License-Identifier: Apache-2.0
"""Start settings that are known to help only together, by transport: what a search tries first."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from lagom.format import format_variables
from lagom.start.variable_table import VARIABLES, Transport, decided_by, find_variable


@dataclass(frozen=True, slots=True)
class StartGroup:
    """``settings`` are exported together. ``rank_threads``: helper threads that busy-poll for each rank of a node."""

    name: str
    settings: Mapping[str, str] = field(default_factory=dict)
    rank_threads: int = field(default=0, compare=False)

    @property
    def text(self) -> str:
        """``A=1 B=2``, as a shell takes it."""
        return format_variables(self.settings)

    def remarks(self, ranks: int) -> list[str]:
        """Remarks for the user of this group in a job of so many ranks (0 = unknown)."""
        rows = [find_variable(name) for name in self.settings]
        found = [f"{row.name} replaces {row.overrides} where a framework set it." for row in rows if row.overrides]
        if ranks != 2 and any(row.reorders for row in rows):
            found.append("with more than two ranks the order of additions changes: sums differ in their last bits.")
        return found


def _sockets(threads: int, per_thread: int, channels: int) -> StartGroup:
    settings = {"NCCL_SOCKET_NTHREADS": str(threads), "NCCL_NSOCKS_PERTHREAD": str(per_thread)}
    name = f"{threads}x{per_thread} sockets"
    if channels:
        settings["NCCL_MIN_NCHANNELS"] = str(channels)
        name += f", {channels} channels"
    # a ring enters and leaves a node once: that rank sends on every channel, and receives on every channel
    return StartGroup(name, settings, 2 * max(channels, 2) * threads)


#: Most promising first: sockets alone can lose where sockets with channels are the fastest of all, so that a search
#: begins with both. More channels without more sockets gain nothing (measured on two nodes and on one).
SOCKETS = (
    _sockets(4, 4, 8), _sockets(2, 2, 8), _sockets(4, 4, 4), _sockets(8, 2, 8), _sockets(4, 4, 16), _sockets(2, 2, 4),
    _sockets(4, 4, 0),
)  # fmt: skip


#: Copies instead of kernels that take SMs, for collectives that add nothing up. NCCL 2.29 and later know the number,
#: too; 2.28 does not know the name ZERO.
COPY_ENGINES = StartGroup("copy engines", {"NCCL_CTA_POLICY": "2"})

MOST_THREADS_A_CORE = 8


def known_groups(transport: Transport | None, cores: int = 0, *, has_windows: bool = False) -> tuple[StartGroup, ...]:
    """The groups for a transport (None = not seen), most promising first; empty where none is known.

    ``cores`` of this machine: a group with more than eight helper threads a core for one rank is left out, since they
    busy-poll while data moves (64 on 16 cores, two ranks, was the fastest measured). 0 = no limit. ``has_windows``: the
    job registers its buffers as symmetric windows, without which NCCL's copy engines are not used.
    """
    if transport is Transport.NVLINK and has_windows:
        return (COPY_ENGINES,)
    if transport is not Transport.SOCKET:
        return ()
    return tuple(group for group in SOCKETS if not cores or group.rank_threads <= MOST_THREADS_A_CORE * cores)


def known_factors(
    transport: Transport | None, groups: Iterable[StartGroup] = (), taken: Collection[str] = (), nccl: int = 0
) -> dict[str, tuple[str, ...]]:
    """The other variables that are worth trying on a transport (None = not seen), with their values: those that no
    group sets, that are not decided by what the user has set (``taken``), and that this NCCL reads (its version code;
    0 = not known). What needs windows is tried as a group."""
    grouped = {name for group in groups for name in group.settings}
    return {
        row.name: row.values
        for row in VARIABLES
        if transport in row.worth and row.values and not row.needs_windows and row.name not in grouped
        and not decided_by(row.name, taken) and row.is_read_by(nccl)
    }  # fmt: skip
