"""The demo's last page: one table, one sentence."""

from __future__ import annotations

from rich import box
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from lagom import journal
from lagom.demo.story import Level, SiteResult, Story
from lagom.format import format_config, format_percent, format_site, format_speedup


def last_page(story: Story) -> RenderableType:
    """The table and what it comes to."""
    return Group(_table(story), Text(verdict(story)), Text(""))


def _table(story: Story) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("an iteration's calls")
    table.add_column("NCCL's pick")
    table.add_column("ours")
    for name in ("ms before", "after", "change"):
        table.add_column(name, justify="right")
    for result in story.sites():
        _add_site(table, result, improved=story.outcome is not None and story.outcome.verdict == "improved")
    levels = story.levels()
    if levels is not None:
        table.add_section()
        for name, text in (("x", "X, all communication"), ("y", "Y, all compute"), ("z", "Z, the iteration")):
            _add_total(table, name, text, *levels)
    return table


def _pick(stock: journal.ConfigRecord) -> str:
    """Without its threads, which the demo does not tune: a terminal has 100 columns."""
    return format_config(stock.model_copy(update={"threads": None}))


def _add_site(table: Table, result: SiteResult, *, improved: bool) -> None:
    after = result.x_after if improved else result.x_before
    table.add_row(
        f"{result.site.calls_per_iteration} x {format_site(result.site)}",
        _pick(result.site.stock) if result.site.stock else "-",
        _ours(result.chosen),
        *_change(result.x_before, after),
    )


def _ours(chosen: journal.ConfigRecord | None) -> str:
    text = "stock" if chosen is None else format_config(chosen)
    return "as NCCL" if text == "stock" else text


def _add_total(table: Table, name: str, text: str, before: Level, after: Level) -> None:
    table.add_row(text, "", "", *_change(getattr(before, name), getattr(after, name)), style="bold")


def _change(before: float | None, after: float | None) -> tuple[str, str, str]:
    if before is None or after is None:
        return "-", "-", "-"
    change = f"{(after / before - 1) * 100:+.1f} %" if before > 0 else "-"
    return f"{before / 1e6:.1f}", f"{after / 1e6:.1f}", change


def verdict(story: Story) -> str:
    """How it ended, in one paragraph; every number is the log's."""
    outcome = story.outcome
    if outcome is None:
        return f"The search had not ended when the time was up: {story.configs_tried} configs tried."
    spent = (
        f"{outcome.configs} configs tried in {outcome.windows} windows, {outcome.iterations} iterations; regret "
        f"{outcome.regret_iterations:.1f} iterations (time lost against stock while searching)."
    )
    if outcome.verdict != "improved":
        resolvable = (
            ""
            if outcome.resolvable is None
            else f" Smallest detectable effect: {format_percent(outcome.resolvable, 2)}."
        )
        return f"{outcome.verdict.replace('_', ' ')}: {outcome.reason}. {spent}{resolvable}"
    gain = "unknown"
    if outcome.speedup is not None:
        gain = format_speedup(outcome.speedup, outcome.speedup_low, outcome.speedup_high)
    return f"Speed-up of an iteration: {gain}. {why_faster(story)}{spent}"


def why_faster(story: Story) -> str:
    """The trade in one sentence, where X and Y were seen and moved against each other."""
    levels = story.levels()
    if levels is None or not (levels[0].x and levels[0].y and levels[1].x and levels[1].y):
        return ""
    longer, shorter = levels[1].x / levels[0].x - 1, 1 - levels[1].y / levels[0].y
    if min(longer, shorter) <= 0:
        return ""
    return (
        f"Communication got {longer:.0%} longer, which overlap hides, and takes less from compute, which got "
        f"{shorter:.1%} shorter. "
    )


def show(story: Story, console: Console) -> None:
    """Prints the last page."""
    console.print(last_page(story))
