# SPDX-License-Identifier: Apache-2.0
"""1F1B and the folded model: small steps worked out by hand, and every formula against the played step."""

from __future__ import annotations

import itertools

import pytest

from lagom.sim import pipelines
from lagom.sim.pipelines import (
    Pipeline,
    PipelineBlock,
    folded_activations,
    folded_bubble,
    folded_order,
    plain_activations,
    plain_bubble,
    play_folded,
    play_plain,
    published_folded_bubble,
)

#: Backward over forward, and speed-up. A bubble is a share, so the forward takes 1.
TIMES = tuple(itertools.product((0.5, 1.0, 2.0, 3.0), (0.9, 1.0, 1.2, 1.4, 1.6, 2.0)))
GRID = [
    Pipeline(p, m, 1.0, backward, speedup)
    for p, m in itertools.product((1, 2, 3, 4, 7), (1, 2, 3, 4, 5, 8, 9, 12, 14, 25))
    for backward, speedup in TIMES
]


def test_1f1b_by_hand() -> None:
    """Device 0: F0 0-1, F1 1-2, B0 4-6, B1 7-9. Device 1: F0 1-2, B0 2-4, F1 4-5, B1 5-7."""
    run = play_plain(Pipeline(2, 2))
    assert (run.total, run.busy, run.activations, run.transfers) == (9.0, (6.0, 6.0), (2, 1), 4)


def test_the_fold_by_hand() -> None:
    """One device holds the whole model: each pass goes down and up on it, and passes 1 and 2 are co-executed."""
    run = play_folded(Pipeline(1, 3, speedup=1.5))
    assert (run.total, run.busy, run.transfers) == (1.0 + 2 * 2.0 + 2.0, (7.0,), 0)
    assert (run.activations, play_folded(Pipeline(1, 3), layers=4).activations) == ((1.5,), (1.125,))


def test_the_fold_of_the_papers_figure_8() -> None:
    """Four devices, twelve micro-batches (numbered from 0): the first block of two strands is the forward of
    micro-batch 4 beside the backward of micro-batch 0, at the first and the last chunk, both on device 0."""
    order = folded_order(Pipeline(4, 12))
    both = [[block for block in blocks if block.forward and block.backward] for blocks in order]
    assert both[0][0] == PipelineBlock((4, 0), (0, 7))
    assert [len(blocks) for blocks in both] == [2 * 8] * 4
    for device, blocks in enumerate(order):
        assert {part[1] for block in blocks for part in block if part} == {device, 7 - device}
    alone = [[block for block in blocks if block not in pairs] for blocks, pairs in zip(order, both, strict=True)]
    assert [sum(bool(block.forward) for block in blocks) for blocks in alone] == [2 * 4] * 4


@pytest.mark.parametrize("play", [play_plain, play_folded])
def test_every_pass_is_played_once(play: object) -> None:
    for pipeline in GRID:
        order = (pipelines.plain_order if play is play_plain else folded_order)(pipeline)
        chunks = pipeline.stages * (1 if play is play_plain else 2)
        expected = sorted(itertools.product(range(pipeline.micro_batches), range(chunks)))
        for side in ("forward", "backward"):
            found = [getattr(block, side) for blocks in order for block in blocks if getattr(block, side)]
            assert sorted(found) == expected, (pipeline, side)


def test_1f1b_is_as_its_formulas_say() -> None:
    for pipeline in GRID:
        run = play_plain(pipeline)
        assert run.bubble == pytest.approx(plain_bubble(pipeline)), pipeline
        assert run.activations == plain_activations(pipeline)
        assert run.transfers == 2 * (pipeline.stages - 1) * pipeline.micro_batches


def test_the_bubble_of_the_fold_is_as_both_formulas_say() -> None:
    beyond = 0
    for pipeline in GRID:
        if pipeline.micro_batches <= pipeline.stages:
            continue
        bubble = play_folded(pipeline).bubble
        if pipeline.together >= max(pipeline.forward, pipeline.backward):
            assert bubble == pytest.approx(published_folded_bubble(pipeline)), pipeline
        elif pipeline.stages > 1:
            beyond += 1
            assert bubble > published_folded_bubble(pipeline) + 1e-3, pipeline
        if pipeline.micro_batches >= 2 * pipeline.stages:
            assert bubble == pytest.approx(folded_bubble(pipeline)), pipeline
        assert bubble <= folded_bubble(pipeline) + 1e-9
    assert beyond > 100


@pytest.mark.parametrize("layers", [1, 2, 7])
def test_the_memory_of_the_fold_is_as_its_formula_says(layers: int) -> None:
    for pipeline in GRID:
        p, m, expected = pipeline.stages, pipeline.micro_batches, folded_activations(pipeline, layers)
        run = play_folded(pipeline, layers)
        assert run.transfers == 4 * (p - 1) * m
        if m > p:
            assert max(run.activations) == pytest.approx(expected), pipeline
        if m >= 2 * p:
            assert run.activations == pytest.approx((expected,) * p), pipeline


def test_what_cannot_be_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for values in ((0, 1), (1, 0), (1, 1, 0.0), (1, 1, 1.0, -1.0), (1, 1, 1.0, 1.0, 0.0)):
        with pytest.raises(ValueError, match="above 0"):
            Pipeline(*values)
    waits = [[PipelineBlock(backward=(0, 0)), PipelineBlock(forward=(0, 0))]]
    monkeypatch.setattr(pipelines, "plain_order", lambda _: waits)
    with pytest.raises(ValueError, match="wait for each other"):
        play_plain(Pipeline(1, 1))
