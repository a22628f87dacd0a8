# SPDX-License-Identifier: Apache-2.0
"""The workloads: FSDP, Domino-style TP, two-batch EP, and the small patterns for single effects.

Every function returns a :class:`Workload` that any machine can run. Sites come in the order of their first call.
``TABLE_2`` holds the paper's; it does not give sequence lengths, so each model's own training context is used.
"""

from __future__ import annotations

from functools import partial

from lagom.records import Function
from lagom.sim.fsdp import fsdp_groups, fsdp_sites
from lagom.sim.half_batches import domino_groups, domino_sites, expert_groups, expert_sites
from lagom.sim.layers import SHAPES, gemm, stream
from lagom.sim.machine import MachineModel
from lagom.sim.operations import Collective, CommOp, ComputeOp, OverlapGroup, Segment, SiteShape, Workload

MIB = 1 << 20


def side_by_side_groups(
    machine: MachineModel,
    calls: tuple[tuple[Function, int], ...],
    products: tuple[tuple[int, int, int], ...],
    ranks: int,
) -> tuple[OverlapGroup, ...]:
    """Collectives one after another beside matrix products one after another, no dependency between the queues."""
    comm = tuple(CommOp(Collective(i, f, size, ranks)) for i, (f, size) in enumerate(calls))
    compute = tuple(ComputeOp(gemm(machine, f"matmul_{i}", *p)) for i, p in enumerate(products))
    return (OverlapGroup("side by side", (Segment(compute, comm),)),)


def chain_groups(
    machine: MachineModel,
    calls: tuple[tuple[Function, int], ...],
    products: tuple[tuple[int, int, int], ...],
    ranks: int,
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


#: Micro-batch sizes of Table 2 (sequences a GPU for FSDP and EP, a TP group for TP) and the TP rows' global batch.
_FSDP_BATCH = {"phi2_2b": 2, "llama3_8b": 1, "mpt_7b": 1}
_TP_BATCH = {"phi2_2b": (8, 512), "llama3_8b": (4, 256), "mpt_7b": (2, 256)}
_EP_BATCH = {"deepseek_moe_16b": 2, "olmoe_1b_7b": 2}


def fsdp(
    model: str,
    ranks: int = 8,
    tokens: int | None = None,
    layers: int | None = None,
    head: bool = True,
    sequence: int | None = None,
) -> Workload:
    """FSDP2 of one micro-batch: AG(l+1) runs beside layer l, RS(l) beside the backward of layer l-1.

    ``tokens`` a GPU (default: Table 2's micro-batch times the model's context); ``layers`` to shorten the model;
    ``head=False`` leaves out embedding, head and loss; ``sequence`` is the attention's length (default: the model's
    context). Six sites with a head, four without.
    """
    shape = SHAPES[model]
    count, depth = tokens or _FSDP_BATCH.get(model, 1) * shape.sequence, layers or shape.layers
    sites = fsdp_sites(shape, ranks, head)
    length = min(count, sequence or shape.sequence)
    build = partial(fsdp_groups, shape=shape, ranks=ranks, tokens=count, layers=depth, head=head, sequence=length)
    return Workload(f"fsdp_{model}_{ranks}", ranks, sites, build, f"{count} tokens a GPU, {depth} layers")


def domino(
    model: str,
    replicas: int = 1,
    tokens: int | None = None,
    layers: int | None = None,
    tensor: int = 8,
    backward: bool = True,
) -> Workload:
    """TP over ``tensor`` GPUs with two half batches, on ``replicas`` hosts (DP). Sites: hidden and exposed AllReduce of
    the forward, hidden of the backward. ``tokens`` a micro-batch (default: Table 2's)."""
    shape = SHAPES[model]
    sequences, batch = _TP_BATCH.get(model, (2, 2))
    count, depth = tokens or sequences * shape.sequence, layers or shape.layers
    passes = max(1, batch // (sequences * replicas)) if backward else 1
    sites = domino_sites(shape, tensor, replicas, count, backward)
    build = partial(
        domino_groups,
        shape=shape,
        tensor=tensor,
        replicas=replicas,
        tokens=count,
        micro_batches=passes,
        layers=depth,
        backward=backward,
    )
    return Workload(
        f"tp_{model}_dp{replicas}", tensor * replicas, sites, build, f"{count} tokens, {passes} micro-batches"
    )


def expert(
    model: str, ranks: int = 8, tokens: int | None = None, layers: int | None = None, backward: bool = True
) -> Workload:
    """EP over ``ranks`` GPUs with two half batches. Its AlltoAlls are tunable only under the knob set ``fork``."""
    shape = SHAPES[model]
    count, depth = tokens or _EP_BATCH.get(model, 2) * shape.sequence, layers or shape.layers
    sites = expert_sites(shape, ranks, count)
    build = partial(expert_groups, shape=shape, ranks=ranks, tokens=count, layers=depth, backward=backward)
    return Workload(f"ep_{model}_{ranks}", ranks, sites, build, f"{count} tokens a GPU, paper's fork only")


def fig3(tokens: int = 2048, hidden: int = 2560) -> Workload:
    """The paper's Fig. 3: a 32 MB AllReduce beside an FFN. Its size is not given: Phi-2's, which ends before the
    AllReduce does, so that it runs beside it from start to end."""
    calls = ((Function.ALL_REDUCE, 32 * MIB),)
    products = ((tokens, 4 * hidden, hidden), (tokens, hidden, 4 * hidden))
    build = partial(side_by_side_groups, calls=calls, products=products, ranks=8)
    return Workload("fig3", 8, call_sites(calls, 8), build, "32 MB AllReduce beside an FFN")


def fig5() -> Workload:
    """The paper's Fig. 5: two AllReduces (sizes not given: a small and a large one) beside seven matrix products."""
    calls = ((Function.ALL_REDUCE, 8 * MIB), (Function.ALL_REDUCE, 64 * MIB))
    products = ((4096, 4096, 4096),) * 7
    build = partial(side_by_side_groups, calls=calls, products=products, ranks=8)
    return Workload("fig5", 8, call_sites(calls, 8), build, "2 AllReduce beside 7 MatMul")


def synthetic(count: int, balance: float = 1.0) -> Workload:
    """``count`` different collectives (1 to 16), each beside a matrix product; for convergence plots.

    ``balance`` scales the products' work: above 1 the pattern is compute-bound on a machine where 1 is even.
    """
    kinds = (Function.ALL_GATHER, Function.REDUCE_SCATTER, Function.ALL_REDUCE)
    calls = tuple((kinds[j % 3], (24 + 8 * (j % 5)) * MIB // (2 if j % 3 == 2 else 1)) for j in range(count))
    products = tuple((int(4096 * balance), 4096, 4096 + 1024 * (j % 3)) for j in range(count))
    build = partial(chain_groups, calls=calls, products=products, ranks=8)
    return Workload(f"synthetic_{count}", 8, call_sites(calls, 8), build, f"{count} collectives")


#: The paper's Table 2, in its order.
TABLE_2: dict[str, Workload] = {
    workload.name: workload
    for workload in (
        *(fsdp(model, ranks) for model in ("phi2_2b", "llama3_8b", "mpt_7b") for ranks in (8, 16)),
        *(domino(model, replicas) for model in ("phi2_2b", "llama3_8b", "mpt_7b") for replicas in (1, 2)),
        *(expert(model) for model in ("deepseek_moe_16b", "olmoe_1b_7b")),
    )
}
