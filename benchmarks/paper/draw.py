# SPDX-License-Identifier: Apache-2.0
"""The paper's figures from our data. One function a figure; each saves one PNG."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np

from benchmarks import paper as published
from benchmarks.paper.simulated import CHANNELS, CHUNKS, KIB
from benchmarks.suite.cases import HEADLINE
from benchmarks.suite.runs import Row, pick
from lagom.format import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Data = dict[str, Any]
BLUE, ORANGE, GREEN, RED, GREY = "#2b6cb0", "#dd8b1d", "#2f855a", "#c53030", "#718096"
COLOURS = {"lagom": BLUE, "guided": GREEN, "autoccl": ORANGE, "static": GREY, "oracle": "#111111"}


def figure_3(data: Data, folder: Path) -> Path:
    """a: Y over (NC, C). b: X and Y over NC at C=16 KB. c: over C at NC=4."""
    fig, (heat, left, right) = plt.subplots(1, 3, figsize=(13, 3.6))
    image = heat.imshow(np.array(data["y"]), aspect="auto", origin="lower", cmap="viridis")
    heat.set_xticks(range(len(CHUNKS)), [format_bytes(c) for c in CHUNKS], rotation=45)
    heat.set_yticks(range(len(CHANNELS)), [str(c) for c in CHANNELS])
    heat.set(xlabel="C", ylabel="NC", title="3a  FFN beside AllReduce, ms")
    fig.colorbar(image, ax=heat)
    _x_and_y(left, list(data["by_channels"]), list(data["by_channels"].values()), "NC (C=16 KB)", "3b")
    ratio = data["compute_ratio"]
    left.annotate(
        f"Y, NC 32 over 16: {ratio:.3f}\n(paper {published.FIG3_COMPUTE_RATIO})", (0.32, 0.68), xycoords="axes fraction"
    )
    chunks = [chunk / KIB for chunk in data["by_chunk"]]
    _x_and_y(right, chunks, list(data["by_chunk"].values()), "C in KB (NC=4)", "3c")
    return _save(fig, folder / "fig3_contention.png")


def _x_and_y(axes: Axes, at: Sequence[float], values: Sequence[tuple[float, float]], label: str, name: str) -> None:
    x, y = zip(*values, strict=True)
    axes.plot(at, x, "o-", color=ORANGE, label="communication X")
    axes.plot(at, y, "s-", color=BLUE, label="compute Y")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
    axes.set(xlabel=label, ylabel="ms", title=f"{name}  8 x A40, PCIe (simulated)")
    axes.legend(loc="upper right", fontsize=8)


def figure_5(data: Data, folder: Path) -> Path:
    """Arrows in the X-Y plane: what growing one of two AllReduces from NC=1 to 16 buys and costs."""
    fig, axes = plt.subplots(figsize=(5.4, 4.2))
    for (name, path), colour in zip(data["paths"].items(), (ORANGE, BLUE), strict=True):
        points = np.array(path)[:, :2]
        axes.plot(*points.T, "o", color=colour, markersize=3, label=f"{name}: H = {data['h'][name]:.3f}")
        for start, end in pairwise(points):
            axes.annotate("", end, start, arrowprops={"arrowstyle": "->", "color": colour})
    axes.set(
        xlabel="communication X, ms", ylabel="compute Y, ms", title="5  2 AllReduce, 7 MatMul: NC 1 to 16 (simulated)"
    )
    axes.legend(fontsize=8)
    return _save(fig, folder / "fig5_priority.png")


_BANDS = {"fsdp": published.FSDP, "tp": published.TP, "ep": published.EP}


def figure_7(rows: list[Row], folder: Path) -> list[Path]:
    """Speed-up over NCCL by workload: ours and AutoCCL's own choice, best there is, the paper's range as a band. With
    stock NCCL's knobs, and with the paper's fork's; EP exists under the fork alone."""
    stock = [r for r in rows if r["knobs"] == HEADLINE or r["workload"].startswith("ep")]
    fork = [r for r in rows if r["knobs"] == "fork"]
    made = []
    for name, mine, knobs in (
        ("", stock, "stock NCCL 2.30"),
        ("_fork", fork, "the paper's fork"),
    ):
        made.append(_bars(mine, ("fsdp",), f"7a  FSDP, {knobs}", folder / f"fig7a_fsdp{name}.png"))
        made.append(
            _bars(mine, ("tp", "ep"), f"7b  TP, {knobs}; EP, the paper's fork", folder / f"fig7b_tp_ep{name}.png")
        )
    return made


def _bars(rows: list[Row], kinds: tuple[str, ...], title: str, path: Path) -> Path:
    fig, both = plt.subplots(2, 1, figsize=(11, 6.6), sharey=True)
    for axes, preset, cluster in zip(both, ("a40_nvlink", "a40_pcie"), ("A (NVLink)", "B (PCIe)"), strict=True):
        mine = [r for r in rows if r["preset"] == preset and r["workload"].startswith(kinds)]
        names = sorted({r["workload"] for r in mine}, key=lambda name: (kinds.index(name.split("_")[0]), name))
        _cluster(axes, mine, names)
        for kind in kinds:
            inside = [i for i, name in enumerate(names) if name.startswith(kind)]
            if inside:
                span = (inside[0] - 0.5, inside[-1] + 0.5)
                axes.fill_between(span, *_BANDS[kind], color=RED, alpha=0.12, label=f"paper's range, {kind.upper()}")
        axes.set(ylabel="speed-up over NCCL", title=f"{title}, cluster {cluster} (simulated)")
        axes.axhline(1.0, color="black", linewidth=0.8)
        axes.legend(fontsize=7, ncol=6, loc="upper right")
    both[0].set_ylim(0.8, 1.4)
    return _save(fig, path)


def _cluster(axes: Axes, rows: list[Row], names: list[str]) -> None:
    series = {"autoccl": "speedup_proposed", "lagom": "speedup_stock", "guided": "speedup_stock"}
    width = 0.8 / (len(series) + 1)
    for number, (strategy, column) in enumerate(series.items()):
        found = [pick(rows, workload=name, strategy=strategy)[0] for name in names]
        heights = [r[column] for r in found]
        spread = [[max(0.0, h - r[column + "_p10"]) for h, r in zip(heights, found, strict=True)]]
        spread.append([max(0.0, r[column + "_p90"] - h) for h, r in zip(heights, found, strict=True)])
        at = np.arange(len(names)) + (number - 1.5) * width
        axes.bar(at, heights, width, yerr=spread, color=COLOURS[strategy], label=strategy, error_kw={"linewidth": 0.7})
    best = [pick(rows, workload=name, strategy="lagom")[0]["oracle_speedup"] for name in names]
    axes.bar(np.arange(len(names)) + 1.5 * width, best, width, color="#cbd5e0", label="best there is")
    axes.set_xticks(range(len(names)), names, fontsize=7, rotation=10)


_PATTERN_LABELS = {
    "paper_config": "paper's config",
    "both_paper_configs": "AG as in 8a as well",
    "autoccl_61": "AutoCCL's 61 channels",
    "sm_term": "SM term alone, NC 8 to 2",
    "best": "best there is",
}


def figure_8_patterns(data: Data, folder: Path) -> Path:
    """Phi-2's two patterns: the paper's speed-ups and the simulator's for the paper's own configs and the best."""
    fig, both = plt.subplots(1, 2, figsize=(11, 3.4))
    paper = {
        "pattern_1": {"paper: Lagom": published.PATTERN_1, "paper: AutoCCL": published.PATTERN_1_AUTOCCL},
        "pattern_2": {"paper: Lagom": published.PATTERN_2},
    }
    for axes, (name, title) in zip(
        both, (("pattern_1", "8a  forward, AG"), ("pattern_2", "8b  backward, AG + RS")), strict=True
    ):
        ours = {label: data[name][key] for key, label in _PATTERN_LABELS.items() if key in data[name]}
        bars = {**paper[name], **ours}
        colours = [RED] * len(paper[name]) + [GREY if "SM term" in label else BLUE for label in ours]
        axes.barh(list(bars), list(bars.values()), color=colours)
        for row, value in enumerate(bars.values()):
            axes.annotate(f" {value:.2f}", (value, row), va="center", fontsize=8)
        axes.axvline(1.0, color="black", linewidth=0.8)
        axes.set(title=f"{title} (red: paper, blue: simulated)", xlabel="speed-up over NCCL", xlim=(0, 1.6))
        axes.tick_params(labelsize=8)
    return _save(fig, folder / "fig8ab_patterns.png")


def figure_8_convergence(curves: dict[str, list[float]], rows: list[Row], folder: Path) -> Path:
    """Left: best Z so far for two communications. Right: configs over the number of communications."""
    fig, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8))
    for name, curve in curves.items():
        left.step(
            range(len(curve)), curve, where="post", color=COLOURS[name], label=f"{name}: {len(curve) - 1} configs"
        )
    left.set(xlabel="configs tried", ylabel="best Z so far over stock", title="8c  two communications, A40 NVLink")
    left.legend(fontsize=8)
    for preset, marker in (("a40_nvlink", "o"), ("h200_host", "x")):
        for name in curves:
            points = [
                (r["communications"], r["configs"]) for r in rows if (r["strategy"], r["preset"]) == (name, preset)
            ]
            if points:
                right.plot(
                    *zip(*sorted(points), strict=True),
                    marker + "-",
                    color=COLOURS[name],
                    markersize=4,
                    label=f"{name}, {preset}",
                )
    for name, configs in published.CONFIGS_TWO.items():
        right.plot(2, configs, "*", color=COLOURS[name], markersize=12, markeredgecolor=RED, label=f"paper: {name}")
    right.set(xlabel="communications", ylabel="configs to the end", title="growth with N")
    right.legend(fontsize=7)
    return _save(fig, folder / "fig8c_convergence.png")


def _save(fig: Any, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    fig.tight_layout()
    fig.savefig(path, dpi=100)
    plt.close(fig)
    return path
