# SPDX-License-Identifier: Apache-2.0
"""The process groups that Megatron-core makes for one job, in its order of creation (``parallel_state.py``, 2025)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product


@dataclass(frozen=True)
class Layout:
    """How ``world`` ranks are divided; ``etp`` 0 = as ``tp``. Sizes in ranks."""

    tp: int = 1
    pp: int = 1
    cp: int = 1
    ep: int = 1
    etp: int = 0
    optimizer_instances: int = 1
    hierarchical_cp: tuple[int, ...] = ()
    hybrid_cp: bool = False
    all_gather_group: bool = False
    pairs: bool = True  # torch makes a communicator for each pair of ranks that send without a batch
    world: int = 1024

    def __str__(self) -> str:
        sizes = (f"{name}{getattr(self, name)}" for name in ("tp", "pp", "cp", "ep", "etp") if getattr(self, name) > 1)
        return "-".join(sizes) or "dp"


@dataclass(frozen=True)
class Group:
    """One process group of two or more ranks."""

    name: str
    ranks: tuple[int, ...]


class _Grid:
    """Ranks numbered in the order tp, cp, ep, dp, pp: the first changes fastest."""

    def __init__(self, layout: Layout, tp: int, cp: int, ep: int) -> None:
        dp = layout.world // (tp * cp * ep * layout.pp)
        if tp * cp * ep * dp * layout.pp != layout.world:
            raise ValueError(f"{layout.world} ranks cannot be divided so")
        self.sizes = {"tp": tp, "cp": cp, "ep": ep, "dp": dp, "pp": layout.pp}

    def groups(self, axes: str) -> list[tuple[int, ...]]:
        """Every group along ``axes`` (joined by "-"), by its smallest rank."""
        strides, stride = {}, 1
        for axis, size in self.sizes.items():
            strides[axis] = stride
            stride *= size

        def offsets(chosen: list[str]) -> list[int]:
            steps = [[strides[axis] * i for i in range(self.sizes[axis])] for axis in reversed(chosen)]
            return [sum(step) for step in product(*steps)]

        inside = axes.split("-")
        along = offsets([axis for axis in self.sizes if axis in inside])
        return [tuple(first + o for o in along) for first in offsets([a for a in self.sizes if a not in inside])]


def groups_of(layout: Layout) -> Iterator[Group]:
    """All of them, for all ranks of the job; those of a single rank are left out."""
    return (Group(name, ranks) for name, ranks in _all_groups(layout) if len(ranks) > 1)


def _blocks(ranks: tuple[int, ...], size: int) -> list[tuple[int, ...]]:
    return [ranks[i : i + size] for i in range(0, len(ranks), size)]


def _all_groups(layout: Layout) -> Iterator[tuple[str, tuple[int, ...]]]:
    dense = _Grid(layout, layout.tp, layout.cp, 1)
    yield "default_pg", tuple(range(layout.world))
    yield from _dense_groups(layout, dense)
    yield from _expert_groups(layout, _Grid(layout, layout.etp or layout.tp, 1, layout.ep))
    if layout.pairs and layout.pp > 1:
        for ranks in dense.groups("pp"):
            neighbours = zip(ranks, ranks[1:] + ranks[:1], strict=True)
            yield from (("pair", pair) for pair in dict.fromkeys((min(p), max(p)) for p in neighbours))


def _dense_groups(layout: Layout, dense: _Grid) -> Iterator[tuple[str, tuple[int, ...]]]:
    shard = dense.sizes["dp"] * layout.cp // layout.optimizer_instances
    for ranks in dense.groups("dp-cp"):
        yield "DATA_PARALLEL_GROUP_WITH_CP", ranks
        if layout.all_gather_group:
            yield "DATA_PARALLEL_GROUP_WITH_CP_AG", ranks
        if layout.optimizer_instances > 1:
            yield from (("INTRA_PARTIAL_DATA_PARALLEL_GROUP_WITH_CP", block) for block in _blocks(ranks, shard))
    if layout.hybrid_cp:
        for ranks in dense.groups("dp-cp"):
            sizes = [2**i for i in range(2, len(ranks).bit_length())]
            yield from (
                (f"HYBRID_DP_CP_GROUP_{size}", b) for size in sizes if size < len(ranks) for b in _blocks(ranks, size)
            )
    yield from (("DATA_PARALLEL_GROUP", ranks) for ranks in dense.groups("dp"))
    for ranks in dense.groups("cp"):
        yield "CONTEXT_PARALLEL_GROUP", ranks
        yield from _hierarchical("CONTEXT_PARALLEL_GROUP", ranks, layout.hierarchical_cp)
    yield from (("MODEL_PARALLEL_GROUP", ranks) for ranks in dense.groups("tp-pp"))
    yield from (("TENSOR_MODEL_PARALLEL_GROUP", ranks) for ranks in dense.groups("tp"))
    for ranks in dense.groups("pp"):
        yield "PIPELINE_MODEL_PARALLEL_GROUP", ranks
        yield "EMBEDDING_GROUP", (ranks[0], ranks[-1])[: len(ranks)]
    for axes, name in (
        ("tp-dp-cp", "TENSOR_AND_DATA_PARALLEL_GROUP_WITH_CP"),
        ("tp-dp", "TENSOR_AND_DATA_PARALLEL_GROUP"),
        ("tp-cp", "TENSOR_AND_CONTEXT_PARALLEL_GROUP"),
    ):
        yield from ((name, ranks) for ranks in dense.groups(axes))


def _expert_groups(layout: Layout, expert: _Grid) -> Iterator[tuple[str, tuple[int, ...]]]:
    expert_shard = expert.sizes["dp"] // layout.optimizer_instances
    for axes, name in (
        ("ep", "EXPERT_MODEL_PARALLEL_GROUP"),
        ("tp", "EXPERT_TENSOR_PARALLEL_GROUP"),
        ("tp-ep", "EXPERT_TENSOR_AND_MODEL_PARALLEL_GROUP"),
        ("tp-ep-pp", "EXPERT_TENSOR_MODEL_PIPELINE_PARALLEL_GROUP"),
    ):
        yield from ((name, ranks) for ranks in expert.groups(axes))
    for ranks in expert.groups("dp"):
        yield "EXPERT_DATA_PARALLEL_GROUP", ranks
        if layout.optimizer_instances > 1:
            yield from _hierarchical("EXPERT_DATA_PARALLEL_GROUP", ranks, (expert_shard, layout.optimizer_instances))
    models = expert.groups("tp-ep-pp")
    for i in range(0, len(models), expert_shard):
        together = tuple(rank for ranks in models[i : i + expert_shard] for rank in ranks)
        yield "INTRA_DISTRIBUTED_OPTIMIZER_INSTANCE_GROUP", together


def _hierarchical(name: str, ranks: tuple[int, ...], sizes: tuple[int, ...]) -> Iterator[tuple[str, tuple[int, ...]]]:
    """``sizes`` from the innermost level out; each level's groups are strided by those inside it."""
    inner = 1
    for level, size in enumerate(sizes):
        for start in range(0, len(ranks), inner * size):
            for offset in range(inner):
                yield f"HIERARCHICAL_{name}_L{level}", ranks[start + offset : start + inner * size : inner]
        inner *= size
