# SPDX-License-Identifier: Apache-2.0
"""A snapshot as people read it: on a terminal a block a job, in it a table a communicator, below it the last decisions;
in a file or a pipe a line per communicator and snapshot, each decision once, each end once."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

from rich import box
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lagom.format import format_clock, format_count, format_elapsed, format_percent, format_rate, format_speedup
from lagom.records import printable
from lagom.watch.snapshot import Agreement, GroupPhase, GroupSnapshot, JobSnapshot, NodeSnapshot, SiteSnapshot

View = Callable[[NodeSnapshot], None]

DECISIONS = 5
NO_JOB = "no job of yours is running on this node"
#: Columns from which on a site's line has NCCL's pick, too.
WIDE = 90
#: During the search the config in force has not been through the final A/B.
UNPROVEN = {GroupPhase.SEARCHING, GroupPhase.CONFIRMING, GroupPhase.PROVING}
STYLES = {
    GroupPhase.TUNED: "green",
    GroupPhase.STOCK_IS_BEST: "green",
    GroupPhase.PASSTHROUGH: "yellow",
    GroupPhase.UNATTENDED: "yellow",
    GroupPhase.CUT_SHORT: "yellow",
    GroupPhase.STOPPED: "yellow",
}


@contextlib.contextmanager
def live_view(console: Console, *, leave_last: bool = True) -> Iterator[View]:
    """A screen of its own while we look; the last picture stays behind."""
    last: list[NodeSnapshot] = []
    try:
        with Live(console=console, screen=True, auto_refresh=False) as live:

            def view(node: NodeSnapshot) -> None:
                last[:] = [node]
                live.update(page(node, live=True), refresh=True)

            yield view
    finally:
        for node in last if leave_last else ():
            console.print(page(node))


def line_view(put: Callable[[str], object], *, decisions: bool = True) -> View:
    """Lines for a file or a pipe, each handed to ``put``."""
    lines = Lines(decisions=decisions)

    def view(node: NodeSnapshot) -> None:
        for line in lines.of(node):
            put(line)

    return view


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
    lines: list[RenderableType] = [*_headline(job, *list_job_facts(job, now))]
    lines += [Text(f"! {remark}", style="yellow") for remark in job.remarks]
    for group in job.groups:
        lines += [Text(""), *_group(group)]
    if not job.groups and not job.remarks:
        lines.append(Text("no communicator yet", style="dim"))
    return Group(*lines, *_decisions(job))


def _ended(job: JobSnapshot) -> RenderableType:
    return Group(*_headline(job, f"ended: {job.ended}"), *_decisions(job))


def _headline(job: JobSnapshot, *facts: str) -> Iterator[RenderableType]:
    yield _Facts(facts, f"job {job.job}  ")
    if job.folder:
        yield Text(f"log {printable(job.folder)}", style="dim")


def _group(group: GroupSnapshot) -> list[RenderableType]:
    head = Text(f"{group.name}  {group.ranks} ranks  ", style="bold")
    head.append(_headword(group), style=f"{STYLES.get(group.phase, 'magenta')} not bold")
    facts = _Facts(tuple(list_group_facts(group, gain=False)))
    rules = [Text(f"rule {rule}") for rule in group.rules]
    return [head, facts, *rules, *([_Sites(group)] if group.sites else [])]


def _headword(group: GroupSnapshot) -> str:
    """The phase with the speed-up if there is one, else with its reason; the log has both."""
    detail = format_gain(group) or group.detail
    if group.phase is GroupPhase.SEARCHING:
        detail = detail or "no gain confirmed yet"
    return format_phase(replace(group, detail=detail))


@dataclass(frozen=True)
class _Facts:
    """Facts beside each other; a line is broken between two of them, not within one that fits."""

    facts: tuple[str, ...]
    first: str = ""  # of the first line, in bold

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        line, gap = Text(self.first, style="bold cyan"), ""
        for fact in self.facts:
            if gap and len(line) + len(gap) + len(fact) > options.max_width:
                yield line
                line, gap = Text(), ""
            line.append(gap + fact, style="default not bold")
            gap = "  "
        yield line


@dataclass(frozen=True)
class _Sites:
    """A line a site; what NCCL would do where there is room for it."""

    group: GroupSnapshot

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with_pick = options.max_width >= WIDE
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        table.add_column("calls", justify="right", no_wrap=True)
        for name in ("site", *(["NCCL's pick"] if with_pick else []), "in force"):
            table.add_column(name, no_wrap=True, overflow="ellipsis")
        for site in self.group.sites:
            pick = [site.nccl or "-"] if with_pick else []
            style = "" if site.in_force == "stock" and not site.trial else "bold"
            table.add_row(str(site.calls_per_iteration), site.name, *pick, _now(site), style=style)
        yield table


def _now(site: SiteSnapshot) -> str:
    now = "as NCCL" if site.in_force == "stock" else site.in_force
    return f"{now} (trying {site.trial})" if site.trial else now


def _decisions(job: JobSnapshot) -> list[RenderableType]:
    return [
        Text(f"{format_clock(decision.t)} {decision.text}", style="dim", no_wrap=True, overflow="ellipsis")
        for decision in job.decisions[-DECISIONS:]
    ]


# -- lines


class Lines:
    """Remembers what was said."""

    def __init__(self, *, decisions: bool = True) -> None:
        self._with_decisions = decisions
        self._decided: dict[str, float] = {}
        self._ended: set[tuple[str, float]] = set()
        self._said_none = False

    def of(self, node: NodeSnapshot) -> Iterator[str]:
        """The lines of one look."""
        if not node.jobs and not self._said_none:
            yield f"{format_clock(node.t)} {NO_JOB}"
        self._said_none = not node.jobs
        for job in node.jobs:
            if self._with_decisions:
                yield from self._decisions(job)
            if not job.ended:
                yield from (f"{format_clock(node.t)} {job.job} {format_group_line(group)}" for group in job.groups)
            elif (job.region, job.started) not in self._ended:
                self._ended.add((job.region, job.started))
                yield f"{format_clock(node.t)} {job.job} ended: {job.ended}"

    def _decisions(self, job: JobSnapshot) -> Iterator[str]:
        said = self._decided.get(job.region, 0.0)
        for decision in job.decisions:
            if decision.t > said:
                yield f"{format_clock(decision.t)} {job.job} {decision.text}"
        if job.decisions:
            self._decided[job.region] = max(said, job.decisions[-1].t)


def format_group_line(group: GroupSnapshot) -> str:
    """One communicator in one line."""
    parts = [f"{group.name} {format_phase(group)}", *list_group_facts(group), *list_changed_sites(group)]
    return ", ".join(parts)


# -- words of both


def lost(group: GroupSnapshot) -> str:
    """``3.4 iterations (0.28 s)``."""
    if not group.configs_tried and not group.lost_iterations:
        return "-"
    seconds = "" if group.lost_seconds is None else f" ({group.lost_seconds:.2g} s)"
    return f"{group.lost_iterations:.1f} iterations{seconds}"


def format_gain(group: GroupSnapshot) -> str:
    """``1.143x plain NCCL [1.137, 1.151]``, with ``so far`` until it is proven; empty where nothing was confirmed."""
    if group.speedup is None:
        return ""
    gain = format_speedup(group.speedup.ratio, group.speedup.low, group.speedup.high)
    return f"{gain} so far" if group.phase in UNPROVEN else gain


def format_phase(group: GroupSnapshot) -> str:
    """The phase, with its reason, and what the ranks are about to agree on."""
    words = group.phase.value + (f": {group.detail}" if group.detail else "")
    if group.agreement is not Agreement.AGREED:
        words += f" (plan {group.agreement.value})"
    return words


def list_job_facts(job: JobSnapshot, now: float) -> list[str]:
    """What there is to say of a job beside its name."""
    who = f"controller {job.controller_pid}" if job.controller_pid else "no controller"
    facts = [" ".join(word for word in ("mode", job.mode, job.strategy) if word) if job.mode else ""]
    facts += [f"{job.ranks} ranks here", " ".join(("NCCL", *job.nccl)) if job.nccl else "", job.gpu, who]
    facts += [f"up {format_elapsed(now - job.started)}", "simulated clock" if job.simulated_clock else ""]
    return [fact for fact in facts if fact]


def list_group_facts(group: GroupSnapshot, *, gain: bool = True) -> list[str]:
    """The numbers of a communicator, those that are known."""
    facts = [format_gain(group)] if gain and group.speedup is not None else []
    if group.calls_per_second is not None:
        facts.append(f"{format_rate(group.calls_per_second)} calls/s")
    if group.iterations_per_second is not None:
        facts.append(f"{format_rate(group.iterations_per_second)} iterations/s")
    if group.stock_z_ns is not None:
        facts.append(f"stock {group.stock_z_ns / 1e6:.1f} ms")
    if group.resolvable is not None:
        facts.append(f"smallest detectable effect {format_percent(group.resolvable, 2)}")
    if group.configs_tried:
        facts.append(f"{group.configs_tried} trials, lost {lost(group)}")
    return facts + list(_troubles(group))


def _troubles(group: GroupSnapshot) -> Iterable[str]:
    if group.here < group.ranks and group.nodes > 1:
        yield f"{group.here} of its {group.ranks} ranks here"
    if group.unrecorded:
        yield f"{group.unrecorded} records dropped"
    if group.suspensions:
        yield f"a rank made other calls than the learned iteration {format_count(group.suspensions, 'time')}"
    if group.graph_captured:
        yield "CUDA graph captured"
    never = [f"{count} {kind.replace('_', ' ')}" for kind, count in group.untunable.items() if count]
    if never:
        yield f"not tunable: {', '.join(never)}"


def list_changed_sites(group: GroupSnapshot) -> list[str]:
    """``allgather 416M: nc=3`` for each site that does not run as NCCL would have it, and each pinned rule."""
    return [format_site_state(site) for site in group.sites if site.in_force != "stock" or site.trial] + list(
        group.rules
    )


def format_site_state(site: SiteSnapshot) -> str:
    """A site with what it runs under and what is tried."""
    trial = f" (trying {site.trial})" if site.trial else ""
    return f"{site.name}: {site.in_force}{trial}"
