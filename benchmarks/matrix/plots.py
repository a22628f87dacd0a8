# SPDX-License-Identifier: Apache-2.0
"""Pictures of the matrix: every arm's interval on one page, and the paper's figures 3 and 5 as measured."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from benchmarks.matrix.page_values import Data, comm_only, kept_stock, medians, points_of, result
from benchmarks.paper.draw import BLUE, GREEN, GREY, ORANGE, RED
from lagom.format import format_bytes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Arm: its colour and how far above the row's line it stands.
ARMS = {"lagom": (BLUE, 0.24), "guided": (GREEN, 0.08), "comm-only": (ORANGE, -0.08), "static": (GREY, -0.24)}


def draw(data: Data, folder: Path, stem: str) -> list[str]:
    """Every picture there are data for; names of the files."""
    folder.mkdir(parents=True, exist_ok=True)
    made = [_forest(data)]
    made += [_figure_3(data["rows"][name]) for name in ("fig3-library", "fig3-waves") if _has_visits(data, name)]
    made += [_figure_5(data["rows"]["fig5"])] if _has_visits(data, "fig5") else []
    names = []
    for number, figure in enumerate(each for each in made if each is not None):
        name = f"{stem}_{number}.png"
        figure.savefig(folder / name, dpi=120, bbox_inches="tight")
        plt.close(figure)
        names.append(name)
    return names


def _has_visits(data: Data, name: str) -> bool:
    return bool(data["rows"].get(name, {}).get("visits"))


def _forest(data: Data) -> Figure | None:
    """Speed-up over stock of the telling arms with intervals, hollow where a search left stock in place; the band is
    stock against stock."""
    names = [name for name, entry in data["rows"].items() if (result(data, name, "stock") or {}).get("speedup")]
    if not names:
        return None
    figure, axes = plt.subplots(figsize=(9, 1.2 + 0.42 * len(names)))
    for line, name in enumerate(reversed(names)):
        _noise(axes, line, result(data, name, "stock") or {})
        for arm, (colour, above) in ARMS.items():
            found = comm_only(data, name) if arm == "comm-only" else result(data, name, arm)
            if found is not None and found["speedup"] is not None:
                _interval(axes, line + above, found, colour)
            elif kept_stock(found):
                axes.plot([1.0], [line + above], "o", color=colour, markersize=5, markerfacecolor="white", zorder=3)
    axes.axvline(1.0, color="black", linewidth=0.8)
    axes.set_yticks(range(len(names)), list(reversed(names)))
    axes.set(xlabel="speed-up over stock, 95 % intervals; shaded: stock against stock")
    axes.legend(
        *_legend(), loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=len(ARMS) + 1, frameon=False, fontsize=8
    )
    return figure


def _legend() -> tuple[list[plt.Line2D], list[str]]:
    marks = [plt.Line2D([], [], color=colour, marker="o") for colour, _ in ARMS.values()]
    hollow = plt.Line2D([], [], color=GREY, marker="o", markerfacecolor="white", linestyle="")
    return [*marks, hollow], [*ARMS, "stock was kept"]


def _noise(axes: Axes, line: int, noise: Data) -> None:
    if noise["low"] is not None:
        axes.fill_betweenx([line - 0.4, line + 0.4], noise["low"], noise["high"], color=GREY, alpha=0.25, linewidth=0)


def _interval(axes: Axes, at: float, found: Data, colour: str) -> None:
    if found["low"] is not None:
        axes.plot([found["low"], found["high"]], [at, at], color=colour, linewidth=2)
    axes.plot([found["speedup"]], [at], "o", color=colour, markersize=4)


def _figure_3(entry: Data) -> Figure:
    """a: y over (NC, C); b: x and y over NC; c: over C; d: over NT."""
    figure, axes = plt.subplots(1, 4, figsize=(16, 3.4), layout="constrained")
    found = [(part, knobs, medians(samples)) for part, knobs, samples in points_of(entry)]
    _grid(axes[0], {(k["nc"], k["chunk"]): m[1] for part, k, m in found if m and part.startswith("3a")})
    for place, (part, knob) in zip(axes[1:], (("3b", "nc"), ("3c", "chunk"), ("NT", "nt")), strict=True):
        line = sorted((k[knob], sum(m[0]), m[1]) for p, k, m in found if m and p.startswith(part))
        _x_and_y(place, line, f"{part}: {knob}")
    figure.suptitle(f"{entry['row']['name']}: AllReduce 32 MB beside a feed-forward layer, ms an iteration")
    return figure


def _grid(axes: Axes, values: dict[tuple[int, int], float]) -> None:
    channels, chunks = sorted({nc for nc, _ in values}), sorted({c for _, c in values})
    if not values:
        return
    table = [[values.get((nc, c), float("nan")) for c in chunks] for nc in channels]
    axes.imshow(table, aspect="auto", origin="lower", cmap="viridis")
    axes.set_xticks(range(len(chunks)), [format_bytes(c) for c in chunks])
    axes.set_yticks(range(len(channels)), [str(nc) for nc in channels])
    light = 0.5 * (min(values.values()) + max(values.values()))
    for row, line in enumerate(table):
        for column, value in enumerate(line):
            ink = "black" if value > light else "white"
            axes.text(column, row, f"{value:.2f}", ha="center", va="center", color=ink, fontsize=8)
    axes.set(xlabel="C", ylabel="NC", title="3a: y, NT = 128")


def _x_and_y(axes: Axes, line: list[tuple[int, float, float]], title: str) -> None:
    if not line:
        return
    at, x, y = zip(*line, strict=True)
    axes.plot(at, x, "o-", color=ORANGE, label="communication x")
    axes.plot(at, y, "s-", color=BLUE, label="computation y")
    axes.set_xscale("log", base=2)
    axes.set(title=title, ylim=(0, None))
    axes.legend(fontsize=8)


def _figure_5(entry: Data) -> Figure:
    """Arrows from one channel for both to more for one of them, in the plane of communication and computation."""
    figure, axes = plt.subplots(figsize=(5, 4))
    for knob, colour in (("nc of A", BLUE), ("nc of B", RED)):
        other = "nc of B" if knob == "nc of A" else "nc of A"
        line = [
            (knobs[knob], sum(found[0]), found[1])
            for _, knobs, samples in points_of(entry)
            if knobs.get(other) == 1 and (found := medians(samples)) is not None
        ]
        line.sort()
        axes.plot([x for _, x, _ in line], [y for _, _, y in line], "o-", color=colour, label=f"more {knob}")
        for channels, x, y in line:
            axes.annotate(str(channels), (x, y), fontsize=8)
    axes.set(xlabel="communication X, ms", ylabel="computation Y, ms", title="two AllReduces beside seven products")
    axes.legend(fontsize=8)
    return figure
