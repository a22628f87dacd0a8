# SPDX-License-Identifier: Apache-2.0
"""Pictures of a search: its path in the X-Y plane, how it converged and what that cost, and each site before and
after."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.lines import Line2D

from lagom.report import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lagom.journal import CommState, Step
    from lagom.report.tuning_kernels import Patterns

#: Room a label of H takes, points.
_LABEL_WIDTH, _LABEL_HEIGHT = 36.0, 11.0
#: Where a label stands beside its point, points.
_STOCK_OFF, _TUNED_OFF, _H_OFF = (8.0, 6.0), (8.0, -12.0), (6.0, 3.0)
_MAX_PATTERNS = 6
#: (step, offset of its label)
Labels = list[tuple[int, tuple[float, float]]]


@style.styled
def draw_path(search: CommState) -> Figure | None:
    """Every measured assignment by its communication (X) and compute time (Y): left of the diagonal compute-bound,
    right of it communication-bound. H is written beside the moves that were kept. ``None`` where X and Y were not
    seen."""
    steps = [step for step in search.steps() if step.settles and step.move.x and step.move.y]
    if len(steps) < 2:
        return None
    figure, (axes,) = style.new_figure(7.6, 5.6)
    x, y = (np.array([getattr(step.move, key) for step in steps], float) / 1e6 for key in ("x", "y"))
    _bounds(axes, x, y)
    verdicts = np.array([step.move.verdict for step in steps])
    kept = np.isin(verdicts, ("baseline", "better", "confirmed"))
    axes.plot(x[kept], y[kept], color=style.INK, lw=1.0, alpha=0.55, zorder=2)
    for verdict in dict.fromkeys(verdicts.tolist()):
        mine = verdicts == verdict
        colour = style.VERDICT.get(verdict, style.FAINT)
        axes.scatter(x[mine], y[mine], s=26, color=colour, label=verdict, zorder=3, lw=0)
    _h_labels(axes, steps, x, y, _ends(axes, steps, x, y))
    axes.set_title("Search path")
    axes.set_xlabel("communication time X, ms an iteration")
    axes.set_ylabel("compute time Y, ms an iteration")
    axes.legend(loc="best", handlelength=1.0)
    return figure


def _bounds(axes: Axes, x: np.ndarray, y: np.ndarray) -> None:
    """The diagonal X = Y where it crosses the picture, and the side where communication is longer shaded."""
    spread = [0.08 * max(np.ptp(values), 0.02 * values.max()) for values in (x, y)]
    left, right = x.min() - spread[0], x.max() + spread[0]
    low, high = y.min() - spread[1], y.max() + spread[1]
    axes.set_xlim(left, right)
    axes.set_ylim(low, high)
    edge = np.array([left, right])
    level = np.linspace(low, high, 200)
    axes.fill_betweenx(level, np.maximum(level, left), right, where=level < right, color=style.IDLE, zorder=0, lw=0)
    if min(right, high) > max(left, low):
        axes.plot(edge, edge, color=style.FAINT, lw=0.8, ls=(0, (4, 3)), zorder=1)
        middle = (max(left, low) + min(right, high)) / 2
        axes.text(middle, middle, "  X = Y", color=style.FAINT, fontsize=8, va="top")


def _ends(axes: Axes, steps: list[Step], x: np.ndarray, y: np.ndarray) -> Labels:
    """Marks stock and what the search ended on; where their labels stand."""
    axes.scatter(x[:1], y[:1], s=90, facecolor="none", edgecolor=style.VERDICT["baseline"], lw=1.6, zorder=4)
    axes.annotate("plain NCCL", (x[0], y[0]), xytext=_STOCK_OFF, textcoords="offset points", fontsize=9, weight="bold")
    final = [place for place, step in enumerate(steps) if step.move.purpose in ("final", "confirm")
             and step.move.verdict == "confirmed"]  # fmt: skip
    labels = [(0, _STOCK_OFF)]
    if final:
        end = final[-1]
        labels.append((end, _TUNED_OFF))
        axes.scatter(x[end], y[end], s=130, marker="*", color=style.VERDICT["confirmed"], zorder=5)
        axes.annotate(
            "tuned", (x[end], y[end]), xytext=_TUNED_OFF, textcoords="offset points", fontsize=9, weight="bold"
        )
    return labels


def _h_labels(axes: Axes, steps: list[Step], x: np.ndarray, y: np.ndarray, taken: Labels) -> None:
    """Beside the moves that were kept, as far as there is room: a label too near another one, or one that stands there
    already (``taken``), is left out."""
    kept = [place for place, step in enumerate(steps) if step.move.h is not None and step.move.verdict == "better"]
    width, height = (4.6 * 72, 4.2 * 72)  # of the axes, points
    at = np.column_stack([(x - axes.get_xlim()[0]) / np.ptp(axes.get_xlim()) * width,
                          (y - axes.get_ylim()[0]) / np.ptp(axes.get_ylim()) * height])  # fmt: skip
    labelled = [at[place] + offset for place, offset in taken]
    for place in kept:
        mine = at[place] + _H_OFF
        if all((np.abs(mine - other) > (_LABEL_WIDTH, _LABEL_HEIGHT)).any() for other in labelled):
            labelled.append(mine)
            axes.annotate(f"H {steps[place].move.h:.2g}", (x[place], y[place]), xytext=_H_OFF,
                          textcoords="offset points", fontsize=7.5, color=style.INK, zorder=6)  # fmt: skip


@style.styled
def draw_convergence(search: CommState) -> Figure | None:
    """Speed-up over stock of every trial with its 95 % interval, the incumbent's as a line, and below it the regret."""
    steps = [step for step in search.steps() if step.settles and step.speedup is not None]
    if not steps:
        return None
    figure, (above, below) = style.new_figure(12, 5.0, 2)
    figure.set_size_inches(12, 5.0)
    for step in steps:
        _trial(above, step, _when(search, step))
    line = search.incumbent_line()
    last = max(_when(search, step) for step in steps)
    times, values = zip(*line, strict=True)
    above.step([*times, last], [*values, values[-1]], where="post", color=style.VERDICT["confirmed"], lw=1.6, zorder=4)
    above.axhline(1.0, color=style.FAINT, lw=0.8, ls=(0, (4, 3)))
    above.set_title("Convergence: speed-up over plain NCCL")
    above.set_ylabel("plain NCCL / trial")
    _limits(above, steps)
    above.legend(handles=_verdict_legend(steps), loc="lower right", ncols=5, handlelength=1.0)
    _regret(below, search)
    return figure


def _trial(axes: Axes, step: Step, when: float) -> None:
    colour = style.VERDICT.get(step.move.verdict, style.FAINT)
    if step.low is not None and step.high is not None:
        axes.plot([when, when], [step.low, step.high], color=colour, lw=1.0, alpha=0.45, zorder=2)
    marker, size = ("*", 70) if step.move.purpose in ("confirm", "final") else ("o", 18)
    axes.scatter([when], [step.speedup or 0.0], s=size, marker=marker, color=colour, lw=0, zorder=3)


def _limits(axes: Axes, steps: list[Step]) -> None:
    """Show what matters: a few very bad trials may leave at the bottom, where an arrow says so."""
    values = np.array([step.speedup for step in steps], float)
    low = max(values.min(), min(np.quantile(values, 0.1), 1.0) - 0.15)
    high = max(values.max(), 1.0)
    margin = 0.12 * max(high - low, 0.02)
    axes.set_ylim(low - margin, high + margin)
    out = int((values < low - margin).sum())
    if out:
        text = f"↓ {out} trial{'s' if out > 1 else ''} below, down to {values.min():.2f}"
        axes.annotate(text, (0.01, 0.03), xycoords="axes fraction", fontsize=8, color=style.LOSS)


def _verdict_legend(steps: list[Step]) -> list[Line2D]:
    found = dict.fromkeys(step.move.verdict for step in steps)
    entries = [
        Line2D([], [], marker="o", ls="", ms=4.5, color=style.VERDICT.get(verdict, style.FAINT), label=verdict)
        for verdict in found
    ]
    return [*entries, Line2D([], [], color=style.VERDICT["confirmed"], lw=1.6, label="incumbent")]


def _regret(axes: Axes, search: CommState) -> None:
    when = [_when(search, step) for step in search.steps()]
    lost = [move.lost_iterations for move in search.moves]
    axes.fill_between(when, lost, step="post", color=style.LOSS, alpha=0.18, lw=0)
    axes.step(when, lost, where="post", color=style.LOSS, lw=1.2)
    axes.set_title(f"Regret: {search.regret:.1f} iterations lost against plain NCCL while searching")
    axes.set_ylabel("iterations")
    axes.set_xlabel("iteration of the job" if search.moves[0].iteration is not None else "window")
    axes.set_ylim(0, max([*lost, 1e-3]) * 1.25)
    axes.yaxis.grid(True, color=style.GRID)


def _when(search: CommState, step: Step) -> float:
    return float(step.move.iteration if step.move.iteration is not None else search.moves.index(step.move))


@style.styled
def draw_patterns(found: Patterns) -> Figure | None:
    """X, Y and Z of the heaviest overlap patterns under each config that was kept, over stock's: where an iteration
    got shorter, and what was paid for it. ``None`` with nothing to compare stock with."""
    if len(found.times) < 2:
        return None
    shown = found.heaviest[:_MAX_PATTERNS]
    figure, rows = style.new_figure(12, 0.9 + 1.25 * len(shown), len(shown))
    place = np.arange(len(found.labels))
    lines = (("z", style.INK, "D", 7), ("x", style.COMMUNICATION["allgather"], "o", 4.5),
             ("y", style.COMPUTE["matmul"], "s", 4))  # fmt: skip  # Y lies on Z where all of a pattern is compute
    for axes, pattern in zip(rows, shown, strict=True):
        for key, colour, marker, size in lines:
            values = np.array([getattr(one, key)[pattern] for one in found.times])
            if values[0] > 0:
                axes.plot(place, values / values[0], color=colour, marker=marker, ms=size, lw=1.2, label=key.upper())
        low, high = axes.get_ylim()
        axes.set_ylim(min(low, 0.95), max(high, 1.05))
        axes.axhline(1.0, color=style.FAINT, lw=0.8, ls=(0, (4, 3)))
        length = found.times[0].z[pattern] / 1e6
        axes.set_title(f"{found.names[pattern]}   ({length:.1f} ms under plain NCCL)", fontsize=9)
        axes.set_xticks(place, found.labels if axes is rows[-1] else [""] * len(place), fontsize=8)
        axes.set_ylabel("× plain NCCL", fontsize=8)
    figure.legend(*rows[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, handlelength=1.4)
    return figure


@style.styled
def draw_sites(search: CommState) -> Figure | None:
    """Communication time of each site under stock and under the choice; ``None`` where the log does not show it."""
    changes = [change for change in search.changes() if change.stock_ns is not None and change.tuned_ns is not None]
    if not changes:
        return None
    figure, (axes,) = style.new_figure(12, 1.1 + 0.5 * len(changes))
    place = np.arange(len(changes))[::-1]
    stock = np.array([change.stock_ns for change in changes], float) / 1e6
    tuned = np.array([change.tuned_ns for change in changes], float) / 1e6
    axes.barh(place + 0.19, stock, height=0.36, color="#b9c3cd", label="plain NCCL")
    axes.barh(place - 0.19, tuned, height=0.36, color=style.COMMUNICATION["allgather"], label="tuned")
    for at, before, after, change in zip(place.tolist(), stock, tuned, changes, strict=True):
        axes.text(max(before, after), at, f"  {change.after}   {after / before:.2f}×", va="center", fontsize=8)
    axes.set_yticks(place, [f"{change.name}  ({change.site.calls_per_iteration}×)" for change in changes])
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, 1.35 * max(stock.max(), tuned.max()))
    axes.set_xlabel("communication time, ms an iteration")
    axes.set_title("Each site before and after")
    axes.legend(loc="lower right")
    return figure
