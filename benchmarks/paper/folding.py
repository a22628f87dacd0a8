# SPDX-License-Identifier: Apache-2.0
"""DHelix's folded pipeline (arXiv 2411.15871, 4.1 and 6.5): the paper's figures beside ours (``lagom.sim.pipelines``).

python -m benchmarks.paper.folding        # writes benchmarks/results/folding_vs_paper_202611.md
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.template import render
from lagom.sim.pipelines import (
    Pipeline,
    folded_bubble,
    plain_bubble,
    play_folded,
    play_plain,
    published_folded_bubble,
)

PAGE = Path(__file__).parents[1] / "results" / "folding_vs_paper_202611.md"

#: What the paper says, with the section.
FIGURE_8 = (4, 12)  # 4.1, Fig. 8: stages, micro-batches
SPEEDUPS = (1.2, 1.4)  # 4.1: "typically"
OVER_MEGATRON = (1.27, 1.40)  # 6.2.1: Llama on 64 A40
LARGEST = {"Megatron-LM": 40.0, "folded": 39.0, "model states twice": 32.0}  # 6.5: 10^9 parameters
MEMORY_STAGES = 2  # 6.5
LLAMA_25B = (25.0, 28)  # Table 3: 10^9 parameters, layers

#: Ours: more stages, and micro-batches as the paper's footnote 1 has them; a speed-up for which its formula is too low.
CASES = (FIGURE_8, (4, 100), (8, 100))
BEYOND = 1.6


def page() -> str:
    """Its text. Nothing in it was fitted."""
    rows = [_row(Pipeline(*case, speedup=s)) for case in CASES for s in (1.0, *SPEEDUPS, BEYOND)]
    return render(
        "folding_vs_paper",
        rows=rows,
        memory=_memory(),
        over=OVER_MEGATRON,
        needed=tuple(map(_needed, OVER_MEGATRON)),
        largest=LARGEST,
    )


def _needed(gain: float) -> float:
    """The speed-up s for which a step of CASES[1] gains that much, by the paper's two formulas."""
    p, m = CASES[1]
    return gain * (m - 1) / (m - 1 + p - gain * p)


def _row(pipeline: Pipeline) -> dict[str, Any]:
    plain, folded = play_plain(pipeline), play_folded(pipeline)
    return {
        "pipeline": pipeline,
        "plain": plain,
        "folded": folded,
        "published": {"plain": plain_bubble(pipeline), "folded": published_folded_bubble(pipeline)},
        "formula": folded_bubble(pipeline),
        "gain": plain.total / folded.total,
        "transfers": folded.transfers / plain.transfers,
    }


def _memory() -> dict[str, float]:
    """Of 6.5. Model states twice leave room for 32 of 40: (2 states + activations) 32 = (states + activations) 40."""
    whole, twice = LARGEST["Megatron-LM"], LARGEST["model states twice"]
    states = (whole - twice) / twice  # share of the memory, where it is full
    # as many layers as fit Megatron-LM and can be folded
    layers = int(whole * LLAMA_25B[1] / LLAMA_25B[0]) // (2 * MEMORY_STAGES) * 2 * MEMORY_STAGES
    pipeline = Pipeline(MEMORY_STAGES, 100)
    found = {"states": states, "layers": layers, "published": LARGEST["folded"] / whole}
    for name, parts in (("layer", layers // (2 * MEMORY_STAGES)), ("chunk", 1)):
        more = max(play_folded(pipeline, parts).activations) / max(play_plain(pipeline).activations) - 1
        found |= {f"{name}_activations": more, f"{name}_size": 1 / (1 + (1 - states) * more)}
    return found


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
