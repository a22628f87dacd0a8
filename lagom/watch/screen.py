"""A snapshot as a terminal shows it: a block a job, in it a table a communicator, below it the last decisions."""

from __future__ import annotations

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from lagom.format import format_clock, format_rate
from lagom.records import printable
from lagom.watch import text
from lagom.watch.snapshot import GroupSnapshot, JobSnapshot, NodeSnapshot, Phase

DECISIONS = 5
NO_JOB = "no job of yours is running on this node"
STYLES = {
    Phase.TUNED: "green",
    Phase.STOCK_IS_BEST: "green",
    Phase.ASIDE: "yellow",
    Phase.UNATTENDED: "yellow",
    Phase.CUT_SHORT: "yellow",
    Phase.STOPPED: "yellow",
}


def page(node: NodeSnapshot, *, live: bool = False) -> RenderableType:
    """Everything, top to bottom."""
    title = Text(f"lagom watch  {node.host}  {format_clock(node.t)}  {len(node.running)} job(s)", style="bold")
    if live:
        title.append("   Ctrl-C leaves; the job is not touched", style="dim")
    blocks: list[RenderableType] = [title]
    for job in node.jobs:
        blocks += [Text(""), _ended(job) if job.ended else _running(job, node.t)]
    if not node.jobs:
        blocks += [Text(""), Text(NO_JOB)]
    return Group(*blocks)


def _running(job: JobSnapshot, now: float) -> RenderableType:
    lines: list[RenderableType] = [_headline(job, "  ".join(text.job_facts(job, now)))]
    lines += [Text(f"! {remark}", style="yellow") for remark in job.remarks]
    for group in job.groups:
        lines += [Text(""), *_group(group)]
    if not job.groups:
        lines.append(Text("no communicator yet", style="dim"))
    return Group(*lines, *_decisions(job))


def _ended(job: JobSnapshot) -> RenderableType:
    return Group(_headline(job, f"ended: {job.ended}"), *_decisions(job))


def _headline(job: JobSnapshot, facts: str) -> Text:
    line = Text(f"job {job.job}  ", style="bold cyan")
    line.append(facts, style="default not bold")
    if job.folder:
        line.append(f"\nlog {printable(job.folder)}", style="dim not bold")
    return line


def _group(group: GroupSnapshot) -> list[RenderableType]:
    head = Text(f"{group.name}  {group.ranks} ranks  ", style="bold")
    head.append(text.phase(group), style=f"{STYLES.get(group.phase, 'magenta')} not bold")
    facts = Text("  ".join(text.group_facts(group)))
    rules = [Text(f"rule {rule}") for rule in group.rules]
    return [head, facts, *rules, *([_sites(group)] if group.sites else [])]


def _sites(group: GroupSnapshot) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("site", no_wrap=True)
    for name in ("calls/iteration", "calls/s"):
        table.add_column(name, justify="right")
    for name in ("NCCL's pick", "in force", "tried now"):
        table.add_column(name)
    for site in group.sites:
        table.add_row(
            site.name,
            str(site.calls_per_iteration),
            format_rate(site.calls_per_second),
            site.nccl or "-",
            "as NCCL" if site.in_force == "stock" else site.in_force,
            site.trial,
            style="" if site.in_force == "stock" and not site.trial else "bold",
        )
    return table


def _decisions(job: JobSnapshot) -> list[RenderableType]:
    return [
        Text(f"{format_clock(decision.t)} {decision.text}", style="dim", no_wrap=True, overflow="ellipsis")
        for decision in job.decisions[-DECISIONS:]
    ]
