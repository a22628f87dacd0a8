"""Small patterns that show one effect each: the paper's Fig. 3 and Fig. 5, and N collectives beside compute."""

from __future__ import annotations

from lagom.records import Function
from lagom.sim.kernels import gemm, stream
from lagom.sim.machine import Machine
from lagom.sim.operations import Collective, CommOp, ComputeOp, OverlapGroup, Segment, SiteShape

MIB = 1 << 20


def side_by_side_groups(
    machine: Machine, calls: tuple[tuple[Function, int], ...], products: tuple[tuple[int, int, int], ...], ranks: int
) -> tuple[OverlapGroup, ...]:
    """Collectives one after another beside matrix products one after another, no dependency between the queues."""
    comm = tuple(CommOp(Collective(i, f, size, ranks)) for i, (f, size) in enumerate(calls))
    compute = tuple(ComputeOp(gemm(machine, f"matmul_{i}", *p)) for i, p in enumerate(products))
    return (OverlapGroup("side by side", (Segment(compute, comm),)),)


def chain_groups(
    machine: Machine, calls: tuple[tuple[Function, int], ...], products: tuple[tuple[int, int, int], ...], ranks: int
) -> tuple[OverlapGroup, ...]:
    """Like an iteration: collective j is issued after stage j of compute and needed by stage j+2."""
    compute: list[ComputeOp] = []
    comm: list[CommOp] = []
    for j, ((function, size), product) in enumerate(zip(calls, products, strict=True)):
        after = j - 2 if j >= 2 else None
        compute.append(ComputeOp(stream(f"norm_{j}", 8.0 * product[0] * product[2]), after))
        comm.append(CommOp(Collective(j, function, size, ranks), len(compute) - 1))
        compute.append(ComputeOp(gemm(machine, f"matmul_{j}", *product)))
    compute.append(ComputeOp(stream("end", 1.0 * MIB), len(comm) - 1))
    return (OverlapGroup("chain", (Segment(tuple(compute), tuple(comm)),)),)


def call_sites(calls: tuple[tuple[Function, int], ...], ranks: int) -> tuple[SiteShape, ...]:
    """A site for each call."""
    return tuple(SiteShape(f"comm_{i}", f, size, ranks, "hidden") for i, (f, size) in enumerate(calls))
