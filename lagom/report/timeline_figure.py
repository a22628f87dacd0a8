# SPDX-License-Identifier: Apache-2.0
"""The picture of a step: communication above compute, time to the right, and what contention cost in red below.

Up to some thousands of kernels each one is a bar. Beyond, bars would be thinner than a pixel, so each lane shows how
busy it is instead: the height of a colour is the share of time its kernels run.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Patch
from numpy.typing import ArrayLike

from lagom.format import format_time
from lagom.report import style
from lagom.timeline.intervals import merge, within
from lagom.timeline.kernel_names import family, function_word, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lagom.timeline.busy_times import Floats
    from lagom.timeline.job_profile import Profile

_COMMUNICATION, _COMPUTE, _LOSS = 1.0, 0.0, -0.47
_LANE, _LOSS_LANE = 0.78, 0.11
#: In the close-up a kernel's name is written if it is at least this share of the width.
_LABEL_SHARE = 0.045
_LETTERS = 150
#: White seams between kernels only up to this many: beyond, they would drown the colour.
_MAX_SEAMS = 150
_MAX_BARS = 4000
_BINS = 700
_MAX_GROUP_MARKS = 24


@dataclass(frozen=True, slots=True)
class _Kernels:
    """Kernels of one lane in one colour; times in ns."""

    start: Floats
    end: Floats
    colour: str

    def inside(self, view: _View) -> _Kernels:
        """What of them can be seen."""
        start, end = np.maximum(self.start, view.low), np.minimum(self.end, view.high)
        return _Kernels(start[end > start], end[end > start], self.colour)


@dataclass(frozen=True, slots=True)
class _View:
    """A range of time, and the axes that show it."""

    axes: Axes
    low: int
    high: int

    @property
    def unit(self) -> tuple[str, float]:
        """Name and ns of the axis' unit."""
        span = self.high - self.low
        return ("s", 1e9) if span >= 2e10 else ("ms", 1e6) if span >= 1e6 else ("µs", 1e3)

    def at(self, times: ArrayLike) -> Floats:
        """Where times lie on the axis."""
        return (np.asarray(times, float) - self.low) / self.unit[1]


@style.styled
def draw_timeline(profile: Profile) -> Figure:
    """The typical step, and a close-up of one group of the pattern that loses most."""
    step, steps = profile.typical_step, profile.rank.steps
    near = _closest_group(profile, step)
    figure, axes = style.new_figure(12, 5.6 if near else 3.1, 2 if near else 1)
    whole = _View(axes[0], int(steps.begin[step]), int(steps.end[step]))
    _draw(whole, profile, step)
    length = format_time(whole.high - whole.low)
    axes[0].set_title(f"A typical step: {length} (rank {profile.rank.table.rank}, step {step + 1})")
    _group_marks(whole, profile, step)
    _legend(figure, profile)
    if near:
        close = _View(axes[1], *near)
        _draw(close, profile, step, names=True)
        axes[1].set_title(f"Close-up: one group, {format_time(near[1] - near[0])}")
        left, right = whole.at(np.array(near))
        axes[0].axvspan(left, right, color=style.GRID, lw=0, zorder=0)
    return figure


def _closest_group(profile: Profile, step: int) -> tuple[int, int] | None:
    """Bounds of the group with the median length within the pattern that loses most; None where nothing overlaps."""
    rank = profile.rank
    if rank.groups.count < 2:
        return None
    loss = [row.overhead if row.overhead > 0 else row.overlap * 1e-9 for row in profile.patterns]
    mine = np.flatnonzero(rank.groups.pattern_of == int(np.argmax(loss)))
    bounds = rank.groups.bounds(rank.table, rank.steps)[step]
    length = np.diff(bounds)[mine]
    group = int(mine[np.argsort(length, kind="stable")[length.size // 2]])
    return int(bounds[group]), int(bounds[group + 1])


def _draw(view: _View, profile: Profile, step: int, names: bool = False) -> None:
    table = profile.rank.table
    inside = (table.end > view.low) & (table.start < view.high)
    communication = np.flatnonzero(inside & table.is_communication)
    compute = np.flatnonzero(inside & table.is_compute)
    spoken = np.array([function_word(int(function)) for function in table.function[communication]])
    kinds = np.array([family(name) for name in table.names])[table.name[compute]]
    _lane(view, _by_colour(profile, communication, spoken, style.COMMUNICATION), _COMMUNICATION, _LANE)
    _lane(view, _by_colour(profile, compute, kinds, style.COMPUTE), _COMPUTE, _LANE)
    _lane(view, [_lost(profile, step)], _LOSS, _LOSS_LANE)
    if names:
        _write(view, profile, communication, _COMMUNICATION, spoken.tolist(), "white")
        _write(view, profile, compute, _COMPUTE, [table.names[name] for name in table.name[compute]], style.INK)
    _frame(view)


def _by_colour(profile: Profile, rows: np.ndarray, sort: np.ndarray, colours: dict[str, str]) -> list[_Kernels]:
    table = profile.rank.table
    return [
        _Kernels(table.start[rows[sort == word]], table.end[rows[sort == word]], colours[word])
        for word in dict.fromkeys(sort.tolist())
    ]


def _lost(profile: Profile, step: int) -> _Kernels:
    """The end of each compute kernel: its extra time compared with the same kernel running without communication."""
    contention = profile.contention
    end = profile.rank.table.end[profile.rank.steps.index[step, contention.places]].astype(float)
    loss = contention.extra[step]
    return _Kernels((end - loss)[loss > 0], end[loss > 0], style.LOSS)


def _lane(view: _View, kernels: list[_Kernels], middle: float, height: float) -> None:
    kernels = [part.inside(view) for part in kernels]
    if sum(len(part.start) for part in kernels) > _MAX_BARS:
        _density(view, kernels, middle - height / 2, height)
        return
    for part in kernels:
        left, right = view.at(part.start), view.at(part.end)
        bars = list(zip(left, right - left, strict=True))
        seam = 0.3 if len(bars) <= _MAX_SEAMS and height == _LANE else 0.0
        view.axes.broken_barh(
            bars, (middle - height / 2, height), facecolor=part.colour, edgecolor="white", linewidth=seam
        )


def _density(view: _View, kernels: list[_Kernels], bottom: float, height: float) -> None:
    """Stacked shares of time, one column for each of many equal slices of the view."""
    edges = np.linspace(view.low, view.high, _BINS + 1).astype(np.int64)
    base = np.full(_BINS, bottom)
    for part in kernels:
        merged = merge(part.start.astype(np.int64), part.end.astype(np.int64))
        share = within(merged, edges[:-1], edges[1:]) / np.maximum(np.diff(edges), 1)
        top = np.minimum(base + height * share, bottom + height)
        view.axes.stairs(top, view.at(edges), baseline=base, fill=True, color=part.colour, lw=0)
        base = top


def _write(view: _View, profile: Profile, rows: np.ndarray, lane: float, names: list[str], colour: str) -> None:
    table = profile.rank.table
    left, right = np.maximum(table.start[rows], view.low), np.minimum(table.end[rows], view.high)
    share = (right - left) / (view.high - view.low)
    for place in np.flatnonzero(share >= _LABEL_SHARE).tolist():
        text = label(names[place], max(4, int(share[place] * _LETTERS)))
        middle = float(view.at((left[place] + right[place]) / 2))
        view.axes.text(middle, lane, text, ha="center", va="center", fontsize=7, color=colour, clip_on=True)


def _frame(view: _View) -> None:
    axes = view.axes
    axes.set_xlim(0, float(view.at(np.array(view.high))))
    axes.set_ylim(-0.55, 1.55)
    axes.set_yticks([_COMMUNICATION, _COMPUTE], ["communication", "compute"])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel(view.unit[0])
    axes.spines["left"].set_visible(False)


def _group_marks(view: _View, profile: Profile, step: int) -> None:
    bounds = profile.rank.groups.bounds(profile.rank.table, profile.rank.steps)[step, 1:-1]
    for bound in view.at(bounds) if bounds.size <= _MAX_GROUP_MARKS else ():
        view.axes.axvline(bound, color=style.INK, lw=0.5, alpha=0.35, ymin=0.02, ymax=0.98)


def _legend(figure: Figure, profile: Profile) -> None:
    table = profile.rank.table
    used = dict.fromkeys(function_word(int(function)) for function in np.unique(table.function[table.is_communication]))
    entries = [Patch(color=style.COMMUNICATION[word], label=word) for word in used]
    entries += [Patch(color=style.COMPUTE[one.family], label=one.family) for one in profile.families[:6]]
    entries.append(Patch(color=style.LOSS, label="contention overhead"))
    figure.legend(handles=entries, loc="outside lower center", ncols=len(entries), handlelength=0.9)
