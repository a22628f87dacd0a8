"""The workloads: FSDP, Domino-style TP, two-batch EP, and the small patterns for single effects.

Every function returns a :class:`Workload` that any machine can run. Sites come in the order of their first call.
"""

from __future__ import annotations

from functools import partial

from lagom.sim.fsdp import fsdp_groups, fsdp_sites
from lagom.sim.program import Workload
from lagom.sim.shapes import SHAPES

#: Micro-batch sizes of Table 2, FSDP rows (sequences a GPU).
_FSDP_MICRO_BATCH = {"phi2_2b": 2, "llama3_8b": 1, "mpt_7b": 1}


def fsdp(model: str, ranks: int = 8, tokens: int | None = None, layers: int | None = None, head: bool = True) -> Workload:
    """FSDP2 of one micro-batch: AG(l+1) runs beside layer l, RS(l) beside the backward of layer l-1.

    ``tokens`` a GPU (default: Table 2's micro-batch times the model's context); ``layers`` to shorten the model;
    ``head=False`` leaves out embedding, head and loss. Six sites with a head, four without.
    """
    shape = SHAPES[model]
    count = tokens or _FSDP_MICRO_BATCH[model] * shape.sequence
    sites = fsdp_sites(shape, ranks, head)
    name = f"fsdp_{model}_{ranks}"
    build = partial(fsdp_groups, shape=shape, ranks=ranks, tokens=count, layers=layers or shape.layers, head=head)
    return Workload(name, ranks, sites, build, note=f"{count} tokens a GPU, {layers or shape.layers} layers")


