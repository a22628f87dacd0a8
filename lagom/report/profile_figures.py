"""Pictures of a profile: the timeline of a typical step, what each group consists of, and who pays the tax."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Patch

from lagom.records import Function
from lagom.report import style, words
from lagom.timeline.classify import NO_FUNCTION
from lagom.timeline.intervals import merge
from lagom.timeline.names import family, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lagom.timeline.profile import Profile

Parts = tuple[tuple[str, np.ndarray, str], ...]

_LANE = 0.78
#: In the close-up a kernel's name is written if it is at least this share of the width.
_LABEL_SHARE = 0.045
_MAX_BARS = 12
#: White seams between kernels only up to this many: beyond, they would drown the colour.
_MAX_SEAMS = 150
_MAX_PATCHES = 2000
_MAX_GROUP_BARS = 100
_MAX_TICKS = 40
_SHORT = {"allgather": "AG", "reducescatter": "RS", "allreduce": "AR", "broadcast": "B", "reduce": "R", "p2p": "p2p"}


@style.styled
def timeline(profile: Profile) -> Figure:
    """The typical step in two lanes, communication above compute, and a close-up of one group of the heaviest
    pattern."""
    step = profile.typical_step
    steps = profile.rank.steps
    low, high = int(steps.begin[step]), int(steps.end[step])
    near = _closest_group(profile, step)
    figure, axes = style.new_figure(12, 5.6 if near else 3.1, 2 if near else 1)
    _lanes(axes[0], profile, step, low, high)
    axes[0].set_title(f"A typical step: {words.time(high - low)} (rank {profile.rank.table.rank}, step {step + 1})")
    _group_marks(axes[0], profile, step, low)
    _legend(figure, profile)
    if near:
        _lanes(axes[1], profile, step, *near, names=True)
        axes[1].set_title(f"Close-up: one group, {words.time(near[1] - near[0])}")
        axes[0].axvspan((near[0] - low) / 1e6, (near[1] - low) / 1e6, color=style.GRID, lw=0, zorder=0)
    return figure


def _closest_group(profile: Profile, step: int) -> tuple[int, int] | None:
    """Bounds of the group with the median length within the pattern that loses most; None where nothing overlaps."""
    rank = profile.rank
    if rank.groups.count < 2:
        return None
    loss = [row.tax if row.tax > 0 else row.overlap * 1e-9 for row in profile.patterns]
    mine = np.flatnonzero(rank.groups.pattern_of == int(np.argmax(loss)))
    bounds = rank.groups.bounds(rank.table, rank.steps)[step]
    length = np.diff(bounds)[mine]
    group = int(mine[np.argsort(length, kind="stable")[length.size // 2]])
    return int(bounds[group]), int(bounds[group + 1])


def _lanes(axes: Axes, profile: Profile, step: int, low: int, high: int, names: bool = False) -> None:
    table = profile.rank.table
    inside = (table.end > low) & (table.start < high)
    _communication(axes, profile, np.flatnonzero(inside & table.is_communication), low, high, names)
    _compute(axes, profile, np.flatnonzero(inside & table.is_compute), low, high, names)
    _lost(axes, profile, step, low, high)
    axes.set_xlim(0, (high - low) / 1e6)
    axes.set_ylim(-0.55, 1.55)
    axes.set_yticks([1, 0], ["communication", "compute"])
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("ms")
    axes.spines["left"].set_visible(False)


def _communication(axes: Axes, profile: Profile, rows: np.ndarray, low: int, high: int, names: bool) -> None:
    table = profile.rank.table
    words_of = [_word(int(function)) for function in table.function[rows]]
    for word in dict.fromkeys(words_of):
        mine = rows[np.array([one == word for one in words_of])]
        _bars(axes, table.start[mine], table.end[mine], low, 1, style.COMMUNICATION[word])
    if names:
        _write(axes, rows, table.start, table.end, low, high, 1, words_of, "white")


def _compute(axes: Axes, profile: Profile, rows: np.ndarray, low: int, high: int, names: bool) -> None:
    table = profile.rank.table
    kinds = [family(table.names[name]) for name in table.name[rows]]
    for kind in dict.fromkeys(kinds):
        mine = rows[np.array([one == kind for one in kinds])]
        _bars(axes, table.start[mine], table.end[mine], low, 0, style.COMPUTE[kind])
    if names:
        spelled = [table.names[name] for name in table.name[rows]]
        _write(axes, rows, table.start, table.end, low, high, 0, spelled, style.INK)


def _lost(axes: Axes, profile: Profile, step: int, low: int, high: int) -> None:
    """The end of each compute kernel that its quiet like would not have needed, in red along the lane's lower edge."""
    contention = profile.contention
    rows = profile.rank.steps.index[step, contention.places]
    loss = contention.loss[step]
    end = profile.rank.table.end[rows].astype(float)
    mine = (loss > 0) & (end > low) & (end - loss < high)
    left = np.maximum(end[mine] - loss[mine], low)
    _bars(axes, left, np.minimum(end[mine], high), low, -0.47, style.LOSS, height=0.11)


def _bars(
    axes: Axes, start: np.ndarray, end: np.ndarray, low: int, lane: float, colour: str, height: float = _LANE
) -> None:
    if len(start) > _MAX_PATCHES:  # what is closer than a pixel cannot be seen apart
        start, end = merge(start.astype(np.int64), end.astype(np.int64), int(np.ptp(end)) // _MAX_PATCHES)
    ranges = [((left - low) / 1e6, (right - left) / 1e6) for left, right in zip(start, end, strict=True)]
    seam = 0.3 if len(ranges) <= _MAX_SEAMS and height == _LANE else 0.0
    axes.broken_barh(ranges, (lane - height / 2, height), facecolor=colour, edgecolor="white", linewidth=seam)


def _write(
    axes: Axes, rows: np.ndarray, start: np.ndarray, end: np.ndarray, low: int, high: int, lane: float,
    names: Iterable[str], colour: str,
) -> None:  # fmt: skip
    for row, name in zip(rows.tolist(), names, strict=True):
        left, right = max(int(start[row]), low), min(int(end[row]), high)
        share = (right - left) / (high - low)
        if share >= _LABEL_SHARE:
            text = label(name, max(4, int(share * 150)))
            middle = ((left + right) / 2 - low) / 1e6
            axes.text(middle, lane, text, ha="center", va="center", fontsize=7, color=colour, clip_on=True)


def _group_marks(axes: Axes, profile: Profile, step: int, low: int) -> None:
    bounds = profile.rank.groups.bounds(profile.rank.table, profile.rank.steps)[step]
    for bound in bounds[1:-1] if bounds.size <= 60 else ():
        axes.axvline((bound - low) / 1e6, color=style.INK, lw=0.5, alpha=0.35, ymin=0.02, ymax=0.98)


def _legend(figure: Figure, profile: Profile) -> None:
    table = profile.rank.table
    used = np.unique(table.function[table.is_communication])
    entries = [Patch(color=style.COMMUNICATION[word], label=word) for word in dict.fromkeys(map(_word, used.tolist()))]
    kinds = [one.family for one in profile.families][:6]
    entries += [Patch(color=style.COMPUTE[kind], label=kind) for kind in kinds]
    entries.append(Patch(color=style.LOSS, label="lost to contention"))
    figure.legend(handles=entries, loc="outside lower center", ncols=len(entries), handlelength=0.9)


def _word(function: int) -> str:
    return "p2p" if function == NO_FUNCTION else Function(function).word


@style.styled
def groups(profile: Profile) -> Figure:
    """What the time of each group consists of, in order: both, compute alone, exposed communication, idle; medians. A
    step with very many groups is shown by pattern."""
    times = profile.rank.group_times().typical()
    if times.z.size > _MAX_GROUP_BARS:
        return _pattern_bars(profile)
    figure, (axes,) = style.new_figure(12, 3.3)
    base = np.zeros(times.z.size)
    for name, part, colour in _parts(times.overlap, times.y, times.exposed, times.idle):
        axes.bar(np.arange(times.z.size) + 1, part / 1e6, bottom=base, width=0.82, color=colour, label=name)
        base += part / 1e6
    axes.set_title("Overlap groups of a step")
    _group_ticks(axes, profile)
    axes.set_ylabel("ms")
    axes.set_xlim(0.3, max(times.z.size, 1) + 0.7)
    axes.yaxis.grid(True, color=style.GRID)
    axes.set_axisbelow(True)
    figure.legend(loc="outside lower center", ncols=4, handlelength=0.9)
    return figure


def _parts(overlap: np.ndarray, y: np.ndarray, exposed: np.ndarray, idle: np.ndarray) -> Parts:
    """What a stretch of time consists of, with name and colour."""
    return (
        ("compute beside communication", overlap, style.BOTH),
        ("compute alone", y - overlap, style.COMPUTE["matmul"]),
        ("exposed communication", exposed, style.EXPOSED),
        ("idle", np.maximum(idle, 0.0), "#d7dbe0"),
    )


def _pattern_bars(profile: Profile) -> Figure:
    rows = sorted(profile.patterns, key=lambda row: -row.z)[:_MAX_BARS]
    figure, (axes,) = style.new_figure(12, 1.3 + 0.32 * len(rows))
    z, y, overlap, exposed = (np.array([getattr(row, key) for row in rows]) for key in ("z", "y", "overlap", "exposed"))
    position = np.arange(len(rows))[::-1]
    base = np.zeros(len(rows))
    for name, part, colour in _parts(overlap, y, exposed, z - y - exposed):
        axes.barh(position, part / 1e6, left=base, height=0.7, color=colour, label=name)
        base += part / 1e6
    axes.set_yticks(position, [f"{row.groups}×  {row.name}" for row in rows], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_title(f"Overlap groups of a step, by pattern ({profile.rank.groups.count} groups)")
    axes.set_xlabel("ms a step")
    figure.legend(loc="outside lower center", ncols=4, handlelength=0.9)
    return figure


def _group_ticks(axes: Axes, profile: Profile) -> None:
    """Under each bar what its group communicates, as long as that can be read."""
    found = profile.rank.groups
    axes.set_xlabel("group, in order of time")
    if found.count <= _MAX_TICKS:
        functions = [[_word(found.sites[site].function) for site in found.sequence(n)] for n in range(found.count)]
        names = [_abbreviated(one) for one in functions]
        axes.set_xticks(np.arange(found.count) + 1, names, fontsize=8)
        axes.tick_params(axis="x", length=0)


def _abbreviated(functions: list[str]) -> str:
    parts = [(_SHORT[word], len(list(same))) for word, same in groupby(functions)]
    text = [f"{count}{word}" if count > 1 else word for word, count in parts]
    return "\n".join(text[:3]) + ("…" if len(text) > 3 else "")


@style.styled
def tax(profile: Profile) -> Figure:
    """Kernels by contention tax a step, with how much slower each is under communication than its like when quiet."""
    worst = [one for one in profile.sufferers if one.tax_ns > 0][:_MAX_BARS]
    figure, (axes,) = style.new_figure(12, 0.9 + 0.3 * max(len(worst), 2))
    position = np.arange(len(worst))[::-1]
    colours = [style.COMPUTE[one.family] for one in worst]
    axes.barh(position, [one.tax_ns / 1e6 for one in worst], color=colours, height=0.7)
    axes.set_yticks(position, [f"{one.calls}×  {label(one.name)}" for one in worst], fontsize=8)
    for place, one in zip(position.tolist(), worst, strict=True):
        text = f"  {words.times(one.slowdown)}   {words.time(one.quiet_ns)} → {words.time(one.loud_ns)}"
        axes.text(one.tax_ns / 1e6, place, text, va="center", fontsize=8)
    axes.set_title("Contention tax by kernel: slow-down against its like when quiet")
    axes.set_xlabel("ms a step")
    axes.set_xlim(0, 1.28 * max((one.tax_ns for one in worst), default=1.0) / 1e6)
    axes.tick_params(axis="y", length=0)
    if not worst:
        axes.text(0.5, 0.5, "no kernel is slower under communication", ha="center", transform=axes.transAxes)
    return figure
