# SPDX-License-Identifier: Apache-2.0
"""One readable line an event, for ``lagom log``: when, and what was decided. Of a move, with the speed-up over plain
NCCL::

    09:31:02 #7   kept      1.045x [1.035, 1.054]  allgather 416M hidden +1: nc=3 chunk=256K

With ``verbose`` a second part says what was measured and the strategy's reason, and no line is cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lagom.format import (
    format_bytes,
    format_clock,
    format_config,
    format_interval,
    format_payback,
    format_percent,
    format_site,
    format_time,
    format_variables,
)
from lagom.journal import schema
from lagom.journal.comm_state import Step
from lagom.journal.run_state import RunState
from lagom.journal.schema import Base, ConfigRecord, SiteRecord
from lagom.journal.stopped_search import describe_stopped

COLUMNS = 100
NARROW = 80  # columns below which a config stands before its sites, and an interval is left out


class Formatter:
    """Turns events into lines. ``state`` knows what they only number: communicators, sites and plans. Whoever gives one
    applies each event to it before its line is asked for.

    Plans of trials come and go with every move, which says it all; they, windows that decided nothing and the phases of
    a tuner are lines only with ``everything``. Lines have at most ``columns`` columns; with ``verbose`` none is cut.
    """

    def __init__(
        self,
        site: str = "",
        *,
        everything: bool = False,
        verbose: bool = False,
        columns: int = COLUMNS,
        state: RunState | None = None,
    ) -> None:
        self.site = site.strip().lower()
        self.columns = columns
        self.everything = everything
        self.verbose = verbose
        self.state = state or RunState(keep_samples=False)
        self._applies = state is None
        #: Every site seen so far, of earlier jobs in the log too, as ``--site`` takes them.
        self.sites_known: list[str] = []
        self.site_is_known = False  # whether any of them answers to the ``site`` asked for

    def line(self, event: Base) -> str | None:
        """The line of an event; None if it is not about the ``site`` asked for, or decides nothing."""
        if self._applies:
            self.state.apply(event)
        if isinstance(event, schema.Program):
            self.sites_known += [f"{record.index} ({format_site(record)})" for record in event.sites]
            self.site_is_known |= any(self._matches(record) for record in event.sites)
        if (self.site and not self._is_about_site(event)) or (self._is_routine(event) and not self.everything):
            return None
        say: Callable[[Any], str] = getattr(self, f"_{event.kind}", str)
        line = f"{format_clock(event.t)} {say(event)}"
        return line if self.verbose or len(line) <= self.columns else f"{line[: self.columns - 1].rstrip()}…"

    def _plan(self, event: schema.PlanCommitted) -> schema.PlanPublished | None:
        return self.state.comm(event.communicator).plans.get(event.epoch)

    def _is_routine(self, event: Base) -> bool:
        if isinstance(event, schema.PlanCommitted):
            plan = self._plan(event)
            return plan is not None and plan.end_call is not None
        if isinstance(event, schema.RankJoined):
            return any(_alike(event, other) for other in self.state.ranks if other is not event)
        if isinstance(event, schema.Move):
            return event.verdict == "more"
        return isinstance(event, schema.PlanPublished | schema.Phase)

    @property
    def _is_narrow(self) -> bool:
        return self.columns < NARROW and not self.verbose

    # -- naming things

    def name(self, communicator: int | None) -> str:
        """What to call a communicator."""
        return "" if communicator is None else self.state.comm(communicator).name

    def site_name(self, communicator: int, site: int) -> str:
        """What to call a site."""
        for record in self.state.comm(communicator).sites:
            if record.index == site:
                return format_site(record)
        return f"site {site}"

    def configs(self, communicator: int, configs: tuple[ConfigRecord, ...] | None) -> str:
        """The sites that are changed, each with its config; ``stock`` if none is."""
        changed = [(i, config) for i, config in enumerate(configs or ()) if config != ConfigRecord()]
        named = ((self.site_name(communicator, i), format_config(config)) for i, config in changed)
        return "; ".join(f"{c} at {site}" if self._is_narrow else f"{site}: {c}" for site, c in named) or "stock"

    # -- the --site filter

    def _is_about_site(self, event: Base) -> bool:
        if isinstance(event, schema.Program):
            return any(self._matches(record) for record in event.sites)
        if not isinstance(event, schema.Move | schema.Outcome | schema.PlanPublished):
            return False
        wanted = [record.index for record in self.state.comm(event.communicator).sites if self._matches(record)]
        if isinstance(event, schema.Move):
            if event.site is not None:
                return event.site in wanted or self.site == str(event.site)
            return _touches(event.candidate, wanted)
        configs = event.configs_chosen if isinstance(event, schema.Outcome) else event.candidate or event.incumbent
        return _touches(configs, wanted)

    def _matches(self, record: SiteRecord) -> bool:
        return self.site == str(record.index) or format_site(record).lower().startswith(self.site)

    # -- one method a kind of event

    def _job_start(self, e: schema.JobStart) -> str:
        rules = f", pinned: {'; '.join(e.rules)}" if e.rules else ""
        strategy = f", strategy {e.strategy}" if e.strategy else ""
        nodes = f", agreed by nodes {', '.join(e.nodes)}" if e.nodes else ""
        return f"job {e.job} starts: mode {e.mode}{strategy}{nodes}{rules}{f'; log in {e.folder}' if e.folder else ''}"

    def _rank_joined(self, e: schema.RankJoined) -> str:
        rank = f"rank {e.rank}" if e.rank is not None else f"process {e.process}"
        who = f"{rank} joined (pid {e.pid})" if self.everything or e.remark else "ranks join"
        nccl = [f"NCCL {e.nccl}"] if e.nccl else []
        profiler = f" + profiler v{e.profiler_api}" if e.profiler_api else ""
        facts = [*nccl, f"tuner v{e.tuner_api}{profiler}", f"knobs: {', '.join(e.knobs) or 'none'}"]
        return f"{who}: {', '.join(facts)}{f'; {e.remark}' if e.remark else ''}"

    def _start_settings(self, e: schema.StartSettings) -> str:
        what = e.reason or format_variables(e.settings)
        return f"start settings {'in force' if e.in_force else 'not in force'} on {e.ranks} ranks: {what}"

    def _communicator(self, e: schema.Communicator) -> str:
        return f"communicator {self.name(e.communicator)} ({e.comm_id}): {e.ranks} ranks on {e.nodes} node(s)"

    def _program(self, e: schema.Program) -> str:
        sites = "; ".join(f"{s.index} {format_site(s)} x{s.calls_per_iteration}" for s in e.sites)
        return f"program of {self.name(e.communicator)}: {e.period} calls an iteration, {len(e.sites)} sites: {sites}"

    def _plan_published(self, e: schema.PlanPublished) -> str:
        until = f" until call {e.end_call}" if e.end_call else ""
        where = f"{self.name(e.communicator)} epoch {e.epoch} from call {e.start_call}{until}"
        return f"plan published: {where}: {self._plan_text(e)}"

    def _plan_committed(self, e: schema.PlanCommitted) -> str:
        waited = f" after {e.waited_ms:.0f} ms" if e.waited_ms is not None else ""
        plan = self._plan(e)
        if plan is not None and plan.end_call is None and not self.verbose:
            return f"in force on every rank: {self._plan_text(plan)}"
        where = f"{self.name(e.communicator)} epoch {e.epoch}"
        what = f": {self._plan_text(plan)}" if plan else ""
        return f"plan committed: {where}, from call {e.start_call} on every rank{waited}{what}"

    def _plan_text(self, plan: schema.PlanPublished) -> str:
        configs = plan.candidate or plan.incumbent
        what = [self.configs(plan.communicator, configs)] if configs or not plan.rules else []
        return f"{'; '.join([*what, *plan.rules])} ({plan.purpose or 'open-ended'})"

    def _plan_aborted(self, e: schema.PlanAborted) -> str:
        return f"plan aborted: {self.name(e.communicator)} epoch {e.epoch}: {e.reason}"

    def _phase(self, e: schema.Phase) -> str:
        purpose = f", {e.purpose}" if e.purpose else ""
        return f"{self.name(e.communicator)}: {e.phase}{purpose}{f' ({e.why})' if e.why else ''}"

    def _move(self, e: schema.Move) -> str:
        step = self.state.comm(e.communicator).last_step
        gain = f"{_gain(step, with_interval=not self._is_narrow):<{6 if self._is_narrow else 21}}"
        what = self._where(e.communicator) + _what(step, config_first=self._is_narrow)
        line = f"{f'#{e.number}':<4} {step.decision:<9} {gain}  {what}"
        if not self.verbose:
            return line
        again = " (the reference config ran once more)" if e.ran else ""
        at = "" if e.iteration is None else f"iteration {e.iteration}, "
        return f"{line}; {at}{format_measurements(e)}{again}; {e.reason}"

    def _where(self, communicator: int) -> str:
        """Where there are several."""
        return f"{self.name(communicator)}: " if len(self.state.comms) > 1 else ""

    def _outcome(self, e: schema.Outcome) -> str:
        interval = format_interval(e.speedup_low, e.speedup_high)
        gain = "" if e.speedup is None else f" {e.speedup:.3f}x {interval}".rstrip()
        lost = f"{e.regret_iterations:.1f} iterations lost{format_payback(e.payback_iterations)}"
        gain_of_more = e.expected_gain  # where a limit ended the search
        more = "" if gain_of_more is None else f"; the next config was expected to gain {format_percent(gain_of_more)}"
        cost = f"{lost}; {e.configs} configs{more}"
        stopped = describe_stopped(self.state.comm(e.communicator))
        line = f"{self._where(e.communicator)}search over: {stopped or e.verdict.replace('_', ' ') + gain} ({cost})"
        return f"{line}: {self.configs(e.communicator, e.configs_chosen)}: {e.reason}" if self.verbose else line

    def _drift(self, e: schema.Drift) -> str:
        times = "" if e.z_before is None else f" (Z {e.z_before / 1e6:.2f} to {(e.z_now or 0.0) / 1e6:.2f} ms)"
        which = f"search again, {e.search} of {e.searches_at_most} at most"
        return f"drift of {self.name(e.communicator)}: {e.reason}{times}: {which}"

    def _standing_aside(self, e: schema.Passthrough) -> str:
        who = f" rank {e.rank}" if e.rank is not None else ""
        where = f" {self.name(e.communicator)}" if e.communicator is not None else ""
        return f"not tuned{where}{who}: {e.reason}"

    def _note(self, e: schema.Note) -> str:
        return f"{'warning: ' if e.level == 'warning' else ''}{e.text}"

    def _dropped(self, e: schema.Dropped) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(e.counts.items()))
        return f"log full at {format_bytes(e.limit_bytes)}: left out {counts}"

    def _job_end(self, e: schema.JobEnd) -> str:
        took = f" after {e.seconds:.0f} s" if e.seconds is not None else ""
        calls = "" if e.calls is None else f", {e.calls} calls recorded, {e.calls_dropped or 0} dropped"
        config = f", saved config {e.config}" if e.config else ""
        return f"job ends{took}: {e.reason}{f'{calls}{config}' if self.verbose else ''}"


def _alike(one: schema.RankJoined, other: schema.RankJoined) -> bool:
    """Whether there is nothing to say of the one rank that was not said of the other."""
    said = "nccl", "tuner_api", "profiler_api", "knobs"
    return not one.remark and not other.remark and all(getattr(one, name) == getattr(other, name) for name in said)


def _gain(step: Step, *, with_interval: bool) -> str:
    """Over plain NCCL."""
    if step.move.purpose == "baseline" and step.move.z is not None:
        return format_time(step.move.z)
    if step.speedup is None:
        return ""
    interval = format_interval(step.low, step.high) if with_interval else ""
    return f"{step.speedup:.3f}x {interval}".rstrip()


def _what(step: Step, *, config_first: bool) -> str:
    return (
        "an iteration under plain NCCL"
        if step.move.purpose == "baseline"
        else step.describe_moved(config_first=config_first)
    )


def format_measurements(move: schema.Move) -> str:
    """H, X, Y, Z (± one standard error), pairs, the smallest effect these data could show, and the iterations lost so
    far, as far as they were measured."""
    h = _known("H", move.h, "{:.3g}".format)
    times = [*_known("X", move.x, _in_ms), *_known("Y", move.y, _in_ms), *_known("Z", move.z, _in_ms)]
    if times:
        times[-1] += (f" ±{_in_ms(move.z_error)}" if move.z is not None and move.z_error is not None else "") + " ms"
    pairs = [f"{move.pairs} pairs" + (f" (-{move.discarded})" if move.discarded else "")] if move.pairs else []
    sees = _known("smallest detectable effect", move.resolvable, format_percent)
    lost = [f"lost {move.lost_iterations:.1f}"] if move.pairs and move.purpose != "baseline" else []
    return " ".join(h + times + pairs + sees + lost) or "not measured"


def _known(what: str, value: float | None, form: Callable[[float], str]) -> list[str]:
    return [] if value is None else [f"{what} {form(value)}"]


def _in_ms(ns: float) -> str:
    return f"{ns / 1e6:.2f}"


def _touches(configs: tuple[ConfigRecord, ...], wanted: list[int]) -> bool:
    return any(i < len(configs) and configs[i] != ConfigRecord() for i in wanted)
