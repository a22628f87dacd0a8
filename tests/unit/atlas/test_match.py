# SPDX-License-Identifier: Apache-2.0
"""Which entries of the atlas fit a communicator, and what they suggest for its sites."""

from __future__ import annotations

import pytest

from lagom.atlas import AtlasEntry, Found, Key, key_of, size_class
from lagom.atlas.match import suggest
from lagom.journal import ConfigRecord
from lagom.records import Algorithm, CommConfig, Function, Knobs, Problem, Protocol, Site

HERE = key_of(gpu="NVIDIA H200", nccl_version=23007, peer_access=False, ranks=4, nodes=1)
GATHER, SCATTER = Function.ALL_GATHER, Function.REDUCE_SCATTER
KIB, MIB = 1 << 10, 1 << 20


def problem(*sites: tuple[Function, int], contexts: tuple[str, ...] = (), knobs: Knobs = Knobs()) -> Problem:  # noqa: B008
    given = contexts or ("",) * len(sites)
    cut = tuple(Site(i, *site, context=context) for i, (site, context) in enumerate(zip(sites, given, strict=True)))
    return Problem(cut, (CommConfig(Algorithm.RING, Protocol.SIMPLE, 4),) * len(sites), 4, knobs)


def found(function: Function, size: int, context: str = "", **config: int | str) -> Found:
    record = ConfigRecord(**config)  # type: ignore[arg-type]
    return Found(function=function.word, size_class=size_class(size), context=context, config=record)


def entry(*known: Found, key: Key = HERE, speedup: float = 1.2, origin: str = "some run") -> AtlasEntry:
    return AtlasEntry(key=key, found=known, speedup=speedup, low=1.1, high=1.3, origin=origin)


def chunks(entries: list[AtlasEntry], here: Key = HERE, of: Problem | None = None) -> list[tuple[int | None, ...]]:
    """In KiB, of each suggestion."""
    given = suggest(entries, here, of or problem((GATHER, 64 * MIB), (SCATTER, 32 * MIB)))
    return [
        tuple(config.chunk_bytes and config.chunk_bytes // KIB for config in one.assignment.configs) for one in given
    ]


KNOWN = entry(found(GATHER, 64 * MIB, chunk_bytes=512 * KIB), found(SCATTER, 32 * MIB, chunk_bytes=256 * KIB))


def test_what_is_known_of_the_same_functions_and_sizes_is_suggested_with_where_it_is_from() -> None:
    (one,) = suggest([KNOWN], HERE, problem((SCATTER, 32 * MIB), (GATHER, 64 * MIB)))
    assert [config.chunk_bytes for config in one.assignment.configs] == [256 * KIB, 512 * KIB]
    assert one.origin == "the atlas (1.200x with 4 ranks: some run)"


@pytest.mark.parametrize(
    "other",
    [
        {"gpu": "NVIDIA H100"},
        {"nccl_version": 22809},
        {"peer_access": True},
        {"ranks": 8},
        {"nodes": 2},
    ],
)
def test_every_part_of_the_key_must_be_alike(other: dict[str, object]) -> None:
    here: dict[str, object] = {
        "gpu": "NVIDIA H200", "nccl_version": 23007, "peer_access": False, "ranks": 4, "nodes": 1,
    }  # fmt: skip
    assert chunks([KNOWN], key_of(**here)) == [(512, 256)]  # type: ignore[arg-type]
    assert chunks([KNOWN], key_of(**here | other)) == []  # type: ignore[arg-type]


def test_a_patch_release_of_nccl_is_the_same_nccl() -> None:
    assert HERE.nccl == "2.30"
    assert chunks([KNOWN], key_of(gpu="NVIDIA H200", nccl_version=23003, peer_access=False, ranks=4, nodes=1))


def test_where_peer_access_does_not_matter_the_transport_is_the_network() -> None:
    keys = [key_of(gpu="", nccl_version=0, peer_access=peer, ranks=8, nodes=2) for peer in (True, False)]
    assert keys[0] == keys[1]
    assert keys[0].transport == "net"


@pytest.mark.parametrize(("regime", "here"), [("hidden", "hidden"), ("bound", "bound"), ("", "bound"), ("hidden", "")])
def test_an_unknown_regime_fits_any(regime: str, here: str) -> None:
    known = KNOWN.model_copy(update={"key": HERE.model_copy(update={"regime": regime})})
    assert chunks([known], HERE.model_copy(update={"regime": here}))


def test_the_other_regime_does_not_fit() -> None:
    bound = key_of(gpu="", nccl_version=0, peer_access=True, ranks=2, nodes=1, x=2.0, y=1.0)
    hidden = key_of(gpu="", nccl_version=0, peer_access=True, ranks=2, nodes=1, x=1.0, y=1.0)
    assert (bound.regime, hidden.regime) == ("bound", "hidden")
    assert not bound.fits(hidden)
    assert not hidden.fits(bound)


@pytest.mark.parametrize(
    ("size", "chunk"),
    [(64 * MIB, 512), (127 * MIB, 512), (256 * MIB, 512), (16 * MIB, 512), (512 * MIB, None), (15 * MIB, None)],
)
def test_at_most_two_doublings_lie_between_a_site_and_what_is_known(size: int, chunk: int | None) -> None:
    known = entry(found(GATHER, 64 * MIB, chunk_bytes=512 * KIB))
    assert chunks([known], of=problem((GATHER, size), (SCATTER, MIB))) == ([(chunk, None)] if chunk else [])


def test_the_nearest_size_wins_and_another_function_does_not_count() -> None:
    known = entry(
        found(GATHER, 16 * MIB, chunk_bytes=128 * KIB),
        found(GATHER, 128 * MIB, chunk_bytes=512 * KIB),
        found(SCATTER, 64 * MIB, chunk_bytes=64 * KIB),
    )
    assert chunks([known], of=problem((GATHER, 64 * MIB), (GATHER, 32 * MIB))) == [(512, 128)]


def test_what_was_found_for_hidden_calls_is_not_for_exposed_ones() -> None:
    known = entry(
        found(GATHER, 64 * MIB, "hidden", chunk_bytes=128 * KIB), found(GATHER, 64 * MIB, "exposed", chunk_bytes=MIB)
    )
    sites = ((GATHER, 64 * MIB), (GATHER, 64 * MIB))
    assert chunks([known], of=problem(*sites, contexts=("exposed", "hidden"))) == [(1024, 128)]
    hidden_only = entry(known.found[0])
    assert chunks([hidden_only], of=problem(*sites, contexts=("exposed", "hidden"))) == [(None, 128)]
    assert chunks([hidden_only], of=problem(*sites)) == [(128, 128)], "where no context is known any fits"


def test_the_largest_speedups_come_first_and_two_are_enough() -> None:
    known = [
        entry(found(GATHER, 64 * MIB, chunk_bytes=size * KIB), speedup=speedup)
        for size, speedup in ((64, 1.1), (128, 1.3), (128, 1.05), (256, 1.2))
    ]
    assert chunks(known) == [(128, None), (256, None)]


def test_what_is_not_legal_here_or_is_stock_is_not_suggested() -> None:
    nothing = [
        entry(found(GATHER, 64 * MIB, channels=8)),  # 4 are built
        entry(found(GATHER, 64 * MIB, channels=4)),  # NCCL's own
        entry(found(GATHER, 64 * MIB)),
        entry(found(GATHER, 64 * MIB, algorithm="quantum", protocol="simple")),  # of a later lagom
    ]
    assert chunks(nothing) == []
    assert chunks([KNOWN], of=problem((GATHER, 64 * MIB), (SCATTER, 32 * MIB), knobs=Knobs(chunk=False))) == []
