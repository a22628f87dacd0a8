# SPDX-License-Identifier: Apache-2.0
"""The demo's last page, of the state of its run: one table, one sentence; the same for programs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from lagom.format import format_config, format_payback, format_percent, format_site, format_speedup, format_time
from lagom.journal import CommState, RunState, SiteChange, describe_pinned, describe_stopped
from lagom.journal.comm_state import median_of

#: Whose windows decide: the final A/B against stock, else the last confirmation, else stock against itself.
DECIDING = ("final", "confirm", "baseline")
PICK, TIMES = "NCCL's pick", ("before", "after")
NUMBERS = (*TIMES, "change")
COLUMNS = ("an iteration's calls", PICK, "ours", *NUMBERS)
#: Width of the terminal from which on the table has NCCL's picks, and from which on times.
WIDE, NARROW = 90, 80


@dataclass(frozen=True, slots=True)
class ConfigTimes:
    """Medians of one config's iterations in the deciding windows, ns."""

    x: float | None
    y: float | None
    z: float


def the_comm(run: RunState) -> CommState:
    """The demo's only communicator."""
    return next(iter(run.comms.values()), CommState(0))


def levels(run: RunState) -> tuple[ConfigTimes, ConfigTimes] | None:
    """X, Y, Z under NCCL's own picks and under ours; ``None`` before anything was measured."""
    comm = the_comm(run)
    sides = comm.sides(*DECIDING)
    if not sides[1]:
        return None
    before, after = (
        ConfigTimes(
            median_of(sample.x for sample in side),
            median_of(sample.y for sample in side),
            median_of(sample.z for sample in side) or 0.0,
        )
        for side in sides
    )
    return before, after if comm.outcome is None or comm.outcome.verdict == "improved" else before


def as_json(run: RunState) -> dict[str, Any]:
    """Everything above, for ``--json``. Times in ns."""
    comm, found = the_comm(run), levels(run)
    return {
        "ranks": len(run.ranks),
        "configs": comm.configs_tried,
        "plans_committed": comm.plans_committed,
        "plans_aborted": comm.plans_aborted,
        "before": None if found is None else asdict(found[0]),
        "after": None if found is None else asdict(found[1]),
        "outcome": None if comm.outcome is None else comm.outcome.model_dump(by_alias=True),
        "sites": [
            {
                "site": change.site.model_dump(),
                "chosen": None if change.chosen is None else change.chosen.model_dump(),
                "x_before": change.stock_ns,
                "x_after": change.tuned_ns,
            }
            for change in comm.changes(*DECIDING)
        ],
    }


def last_page(run: RunState) -> RenderableType:
    """What it came to, and the table of it; none of pinned rules, under which nothing was measured."""
    table = [] if the_comm(run).pinned else [_SiteTable(run)]
    return Group(Text(""), Text(verdict(run), style="bold"), *table)


@dataclass(frozen=True, slots=True)
class _SiteTable:
    """The table; NCCL's picks, and the times that a change comes from, where there is room for them."""

    run: RunState

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        left_out = {PICK} if options.max_width < WIDE else set()
        left_out |= set(TIMES) if options.max_width < NARROW else set()
        yield _table(self.run, [name for name in COLUMNS if name not in left_out])


def _table(run: RunState, columns: Sequence[str]) -> Table:
    """With these of :data:`COLUMNS` only: a column that is deleted later would still take its width."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        if name in NUMBERS:
            table.add_column(name, justify="right", no_wrap=True)
        else:
            table.add_column(name, no_wrap=True, overflow="ellipsis")

    def add_row(*cells: str, style: str = "") -> None:
        table.add_row(*(cell for name, cell in zip(COLUMNS, cells, strict=True) if name in columns), style=style)

    outcome = the_comm(run).outcome
    for change in the_comm(run).changes(*DECIDING):
        add_row(*_site_cells(change, improved=outcome is not None and outcome.verdict == "improved"))
    found = levels(run)
    if found is not None:
        table.add_section()
        for name, text in (("x", "X, all communication"), ("y", "Y, all compute"), ("z", "Z, the iteration")):
            times = (getattr(side, name) for side in found)
            add_row(text, "", "", *_change(*times), style="bold")
    return table


def _site_cells(change: SiteChange, *, improved: bool) -> tuple[str, ...]:
    after = change.tuned_ns if improved else change.stock_ns
    stock = change.site.stock  # shown without its threads, which the demo does not tune: a terminal has 100 columns
    return (
        f"{change.site.calls_per_iteration} x {format_site(change.site)}",
        format_config(stock.model_copy(update={"threads": None})) if stock else "-",
        change.after if change.changed else "as NCCL",
        *_change(change.stock_ns, after),
    )


def _change(before: float | None, after: float | None) -> tuple[str, str, str]:
    if before is None or after is None:
        return "-", "-", "-"
    change = f"{(after / before - 1) * 100:+.1f} %" if before > 0 else "-"
    return format_time(before), format_time(after), change


def verdict(run: RunState) -> str:
    """How it ended, in one paragraph; every number is the log's."""
    outcome = the_comm(run).outcome
    if pinned := describe_pinned(the_comm(run)):
        return pinned
    if outcome is None:
        return f"The search had not ended when the time was up: {the_comm(run).configs_tried} configs tried."
    spent = (
        f"{outcome.configs} configs tried in {outcome.windows} windows, {outcome.iterations} iterations; regret "
        f"{outcome.regret_iterations:.1f} iterations (time lost against plain NCCL while searching)"
        f"{format_payback(outcome.payback_iterations)}."
    )
    if outcome.verdict != "improved":
        seen = format_percent(outcome.resolvable, 2)
        resolvable = "" if outcome.resolvable is None else f" Smallest detectable effect: {seen}."
        how = describe_stopped(the_comm(run)) or outcome.verdict.replace("_", " ")
        return f"{how}: {outcome.reason}. {spent}{resolvable}"
    gain = "unknown"
    if outcome.speedup is not None:
        gain = format_speedup(outcome.speedup, outcome.speedup_low, outcome.speedup_high)
    return f"Speed-up of an iteration: {gain}. {why_faster(run)}{spent}"


def why_faster(run: RunState) -> str:
    """The trade in one sentence, where X and Y were seen and moved against each other."""
    found = levels(run)
    if found is None or not (found[0].x and found[0].y and found[1].x and found[1].y):
        return ""
    longer, shorter = found[1].x / found[0].x - 1, 1 - found[1].y / found[0].y
    if min(longer, shorter) <= 0:
        return ""
    return (
        f"Communication got {longer:.0%} longer, which overlap hides, and takes less from compute, which got "
        f"{shorter:.1%} shorter. "
    )
