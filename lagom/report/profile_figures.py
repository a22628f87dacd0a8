# SPDX-License-Identifier: Apache-2.0
"""Pictures of a profile beside the timeline: what each overlap group consists of, and the slowdown of each kernel."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import numpy as np

from lagom.format import format_factor, format_time
from lagom.report import style
from lagom.timeline.kernel_names import function_word, label

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from lagom.timeline.job_profile import Profile

Parts = tuple[tuple[str, np.ndarray, str], ...]

_MAX_BARS = 12
_MAX_GROUP_BARS = 100
_MAX_TICKS = 40
_SHORT = {
    "allgather": "AG",
    "reducescatter": "RS",
    "allreduce": "AR",
    "broadcast": "B",
    "reduce": "R",
    "collective": "C",
    "p2p": "p2p",
}


@style.styled
def draw_groups(profile: Profile) -> Figure:
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
        functions = [
            [function_word(found.sites[site].function) for site in found.sequence(n)] for n in range(found.count)
        ]
        names = [_abbreviated(one) for one in functions]
        axes.set_xticks(np.arange(found.count) + 1, names, fontsize=8)
        axes.tick_params(axis="x", length=0)


def _abbreviated(functions: list[str]) -> str:
    parts = [(_SHORT[word], len(list(same))) for word, same in groupby(functions)]
    text = [f"{count}{word}" if count > 1 else word for word, count in parts]
    return "\n".join(text[:3]) + ("…" if len(text) > 3 else "")


@style.styled
def draw_overhead(profile: Profile) -> Figure:
    """Kernels by extra time a step, with the slowdown of each: beside communication against without."""
    worst = [one for one in profile.slowdowns if one.extra_ns > 0][:_MAX_BARS]
    figure, (axes,) = style.new_figure(12, 0.9 + 0.3 * max(len(worst), 2))
    position = np.arange(len(worst))[::-1]
    colours = [style.COMPUTE[one.family] for one in worst]
    axes.barh(position, [one.extra_ns / 1e6 for one in worst], color=colours, height=0.7)
    axes.set_yticks(position, [f"{one.calls}×  {label(one.name)}" for one in worst], fontsize=8)
    for place, one in zip(position.tolist(), worst, strict=True):
        text = f"  {format_factor(one.slowdown)}   {format_time(one.reference_ns)} → {format_time(one.overlapped_ns)}"
        axes.text(one.extra_ns / 1e6, place, text, va="center", fontsize=8)
    axes.set_title(
        "Contention overhead by kernel: extra time compared with the same kernel running without communication"
    )
    axes.set_xlabel("ms a step")
    axes.set_xlim(0, 1.28 * max((one.extra_ns for one in worst), default=1.0) / 1e6)
    axes.tick_params(axis="y", length=0)
    if not worst:
        axes.text(0.5, 0.5, "no kernel is slower under communication", ha="center", transform=axes.transAxes)
    return figure
