# SPDX-License-Identifier: Apache-2.0
"""A profile as a folder of files, as tables for a terminal, and as JSON."""

from __future__ import annotations

import math
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from lagom.format import format_factor, format_number, format_percent, format_time
from lagom.report import page
from lagom.report.profile_verdict import describe_verdict
from lagom.timeline import kineto
from lagom.timeline.groups import describe_pattern
from lagom.timeline.job_profile import PatternRow, Profile
from lagom.timeline.kernel_names import label
from lagom.timeline.load import REFERENCE_NAME, TRACE_NAME
from lagom.timeline.overlap import measure_ranks
from lagom.timeline.slowdowns import NOTEWORTHY
from lagom.timeline.trace_coverage import TIERS

SCHEMA = 3
_TERMINAL_ROWS = 8
#: A share that rounds to all of it.
_ALL = 0.995
_WIDE = 110
#: A browser shows this many kernels without complaint.
MAX_TRACE_KERNELS = 120_000


def more(profile: Profile) -> list[str]:
    """What else a reader wants to know first."""
    if not profile.own_x:
        return []
    if not profile.sees_compute:
        return [f"In the median step {format_time(profile.own_x)} of {format_time(profile.z_max)} are communication."]
    lines = [
        f"In the median step overlap hides {format_percent(profile.overlap_ratio, 0)} of {format_time(profile.own_x)} "
        f"communication; {format_time(profile.exposed)} ({format_percent(profile.exposed / profile.z_max)} of the step)"
        " stays exposed."
    ]
    if profile.y > profile.x:
        lines.append("The step is compute-bound (Y > X): communication has time to spare, so fewer channels may do.")
    else:
        lines.append("The step is communication-bound (X > Y): what slows communication down slows the step down.")
    if profile.overhead.sm is not None and profile.overhead.share > 0:
        lines.append(_by_sms(profile.overhead.sm / profile.overhead.share))
    if profile.overhead.is_lower_bound and profile.overhead.extrapolated > max(profile.overhead.share, 0):
        never = "the kernels that never run alone are slowed down as the others are"
        guess = (
            never
            if profile.overhead.unmatched > NOTEWORTHY
            else "extra time is in proportion to communication pressure"
        )
        lines.append(f"If {guess}, the overhead is {format_percent(profile.overhead.extrapolated)} of compute time.")
    return lines


def _by_sms(share: float) -> str:
    """How much of the overhead that is; an estimate, so it may come out larger than the overhead."""
    if share >= _ALL:
        return "The SMs taken from matmul and attention kernels can explain all of the overhead."
    return (
        f"Of the overhead, {format_percent(share, 0)} is what SMs taken from matmul and attention kernels can explain; "
        "the rest is memory bandwidth and cache."
    )


def how_measured(profile: Profile) -> list[str]:
    """The tier of measurement, and how kernels and calls were joined, in sentences."""
    seen = profile.coverage
    source = f" ({', '.join(seen.sources[:3])}{' …' if len(seen.sources) > 3 else ''})" if seen.sources else ""
    lines = [f"Measured: {seen.tier}{source}: {TIERS[seen.tier]}."]
    if not seen.calls_known:
        return [*lines, "Kernels were not joined with calls: no calls were recorded beside them."]
    share = "none" if math.isnan(seen.tunable_share) else format_percent(seen.tunable_share)
    lines.append(
        f"Joined with calls: {share} of the kernels that can be tuned ({seen.exact} by call number, {seen.by_order} by "
        f"order); {seen.calls_joined} of {seen.calls_joined + seen.calls_unjoined} calls have their kernels."
    )
    reasons = "; ".join(f"{count} × {reason}" for reason, count in seen.unjoined.items())
    return [*lines, f"Kernels without a call: {reasons}."] if reasons else lines


def write_folder(profile: Profile, folder: Path, source: str) -> list[Path]:
    """``profile.html``, ``timeline.png``, ``groups.png``, ``overhead.png``, ``trace.json.gz`` and, where there is a
    reference trace, ``reference.json.gz`` in ``folder``: ``lagom.overlap(folder)`` finds the same by both."""
    from lagom.report import profile_figures, style, timeline_figure

    page.make_folder(folder)
    figures = {"timeline": timeline_figure.draw_timeline(profile), "overhead": profile_figures.draw_overhead(profile)}
    if profile.patterns:
        figures["groups"] = profile_figures.draw_groups(profile)
    pictures = {name: page.picture(style.to_svg(figure)) for name, figure in figures.items()}
    text = page.render(
        "profile.html.j2", title="Lagom: overlap profile", source=source, answer=describe_verdict(profile),
        more=more(profile), how_measured=how_measured(profile), profile=profile, ranks=by_rank(profile),
        timeline=pictures["timeline"], overhead=pictures["overhead"], groups=pictures.get("groups", ""),
    )  # fmt: skip
    page.write(folder / "profile.html", text)
    for name, figure in figures.items():
        style.save_png(figure, folder / f"{name}.png")
    low, high = excerpt(profile)
    ranges = [mark for mark in marks(profile) if low <= mark[1] and mark[2] <= high]
    table = profile.rank.table
    inside = table.only((table.start >= low) & (table.end <= high))
    kineto.write(inside, folder / TRACE_NAME, ranges, len(profile.ranks))
    written = [folder / "profile.html", *(folder / f"{name}.png" for name in figures), folder / TRACE_NAME]
    if profile.reference is None:
        (folder / REFERENCE_NAME).unlink(missing_ok=True)  # of another profile
        return written
    kineto.write(profile.reference, folder / REFERENCE_NAME, (), len(profile.ranks))
    return [*written, folder / REFERENCE_NAME]


def excerpt(profile: Profile) -> tuple[int, int]:
    """The range of time that goes into the written trace: all of it, or of a long one as many steps as may be, from the
    typical one on."""
    table, steps = profile.rank.table, profile.rank.steps
    whole = int(table.start.min()), int(table.end.max())
    if len(table) <= MAX_TRACE_KERNELS:
        return whole
    first = profile.typical_step
    last = min(first + max(MAX_TRACE_KERNELS // steps.places, 1), steps.count) - 1
    return int(steps.begin[first]), int(steps.end[last])


def marks(profile: Profile) -> list[tuple[str, int, int]]:
    """Steps and overlap groups as named ranges for the trace."""
    rank = profile.rank
    ranges = [
        (f"step {number}", int(low), int(high))
        for number, (low, high) in enumerate(zip(rank.steps.begin, rank.steps.end, strict=True), start=1)
    ]
    names = [describe_pattern(rank.groups, int(pattern)) for pattern in rank.groups.pattern_of]
    for edges in rank.groups.bounds(rank.table, rank.steps).tolist() if rank.groups.count else []:
        ranges += [(name, low, high) for name, low, high in zip(names, edges[:-1], edges[1:], strict=True)]
    return ranges


def show(profile: Profile, console: Console) -> None:
    """The answer and a table per pattern and kernel, for a terminal or a pipe."""
    console.print(_unbroken(describe_verdict(profile)), style="bold", highlight=False)
    for line in [*more(profile), *(f"Note: {note}" for note in profile.notes)]:
        console.print(_unbroken(line), highlight=False)
    console.print()
    if profile.patterns:
        console.print(_pattern_table(profile, wide=console.width >= _WIDE))
    if any(one.extra_ns > 0 for one in profile.slowdowns):
        console.print(_kernel_table(profile))
    console.print()
    for line in how_measured(profile):
        console.print(_unbroken(line), highlight=False)


def _pattern_table(profile: Profile, wide: bool) -> Table:
    """One row per pattern and one for the step; X, Y and OEF only on a wide terminal."""
    table = Table(title=f"Overlap groups of a step (median of {profile.steps})", title_justify="left", box=None)
    columns = ("pattern", "groups", "Z", "X", "Y", "hidden", "exposed", "OEF", "overhead", "of Y")
    shown = [index for index, name in enumerate(columns) if wide or name not in ("X", "Y", "OEF")]
    for index in shown:
        first = index == 0
        table.add_column(columns[index], justify="left" if first else "right", no_wrap=not first, min_width=24 * first)
    for row in profile.patterns:
        cells = _pattern_cells(row)
        table.add_row(*(cells[index] for index in shown))
    cells = _step_cells(profile)
    table.add_section()
    table.add_row(*(cells[index] for index in shown), style="bold")
    return table


def _pattern_cells(row: PatternRow) -> tuple[str, ...]:
    return (
        row.name, str(row.groups), format_time(row.z), format_time(row.x), format_time(row.y),
        format_percent(row.overlap_ratio, 0), format_time(row.exposed), format_number(row.oef),
        format_time(row.overhead), format_percent(row.overhead / row.y if row.y else 0.0),
    )  # fmt: skip


def _step_cells(profile: Profile) -> tuple[str, ...]:
    overhead = profile.overhead
    return (
        "the step (Z max)", str(sum(row.groups for row in profile.patterns)), format_time(profile.z_max),
        format_time(profile.own_x), format_time(profile.y), format_percent(profile.overlap_ratio, 0),
        format_time(profile.exposed), "", format_time(overhead.ns), format_percent(overhead.share),
    )  # fmt: skip


def _unbroken(text: str) -> str:
    """Numbers stay with their units when a line is wrapped."""
    return re.sub(r"(?<=\d) (?=%|ms|µs|s\b)", "\u00a0", text)


def _kernel_table(profile: Profile) -> Table:
    table = Table(title="\nSlowdown of each kernel beside communication", title_justify="left", box=None)
    table.add_column("kernel", overflow="ellipsis", no_wrap=True, min_width=24)
    for name in ("a step", "alone", "beside", "slowdown", "extra a step"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in [one for one in profile.slowdowns if one.extra_ns > 0][:_TERMINAL_ROWS]:
        table.add_row(
            label(one.name), f"{one.calls}×", format_time(one.reference_ns), format_time(one.overlapped_ns),
            format_factor(one.slowdown), format_time(one.extra_ns),
        )  # fmt: skip
    return table


def to_json(profile: Profile, source: str) -> dict[str, Any]:
    """Everything as plain values; times in ns, shares of 1, unknown numbers null."""
    numbers = ("steps", "irregular", "z_max", "x", "y", "own_x", "overlap_ratio", "exposed", "idle")
    document = {
        "schema": SCHEMA,
        "source": source,
        "answer": describe_verdict(profile),
        "ranks": [rank.table.rank for rank in profile.ranks],
        "shown_rank": profile.rank.table.rank,
        **{name: getattr(profile, name) for name in numbers},
        "overhead": asdict(profile.overhead),
        "by_rank": by_rank(profile),
        "overhead_by_rank": [asdict(overhead) for overhead in profile.overheads],
        "patterns": [asdict(row) for row in profile.patterns],
        "groups": groups(profile),
        "sites": [asdict(row) for row in profile.sites],
        "families": [asdict(row) for row in profile.families],
        "kernels": [asdict(one) for one in profile.slowdowns],
        "straggler": profile.combined.straggler,
        "step_samples": [asdict(sample) for sample in profile.combined.samples],
        "faults": {str(rank.table.rank): asdict(rank.table.faults) for rank in profile.ranks},
        "coverage": {**asdict(profile.coverage), "tells": TIERS[profile.coverage.tier]},
        "notes": list(profile.notes),
    }
    return _without_nan(document)


def groups(profile: Profile) -> list[dict[str, Any]]:
    """Every overlap group of a step of the shown rank, in order: medians over steps."""
    rank = profile.rank
    if not rank.groups.count:
        return []
    times = rank.group_times()
    columns = {"z": times.z, "x": times.x, "y": times.y, "overlap": times.overlap, "exposed": times.exposed,
               "overlap_ratio": times.overlap_ratio, "oef": times.oef()}  # fmt: skip
    seen = columns if profile.sees_compute else {name: columns[name] for name in ("z", "x")}
    unseen = dict.fromkeys(columns.keys() - seen.keys(), [math.nan] * rank.groups.count)
    medians = {name: np.median(values, axis=0).tolist() for name, values in seen.items()} | unseen
    patterns = rank.groups.pattern_of.tolist()
    return [
        {"pattern": patterns[index], **{name: values[index] for name, values in medians.items()}}
        for index in range(rank.groups.count)
    ]


def by_rank(profile: Profile) -> list[dict[str, Any]]:
    """One row a rank: its own medians of Z, X, Y, what it waits in communication, and its contention overhead; ns."""
    return [
        {"rank": one.rank, "steps": one.iterations, "z": one.z_ns, "x": one.x_ns, "y": one.y_ns,
         "exposed": one.exposed_ns, "wait": one.wait_ns, "overhead": one.overhead_share}
        for one in measure_ranks(profile)
    ]  # fmt: skip


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(entry) for key, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
