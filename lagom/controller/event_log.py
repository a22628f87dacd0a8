# SPDX-License-Identifier: Apache-2.0
"""What the controller tells: every event of the log, from the controller's own words to the schema's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from lagom import journal
from lagom.controller.measure import Tier
from lagom.controller.stock_observations import StockObservations
from lagom.format import describe_rule, format_version
from lagom.journal.schema import records_of
from lagom.program import TunedProgram
from lagom.records import Problem
from lagom.search import SearchMove, SearchOutcome
from lagom.wire.config_refusal import ConfigRefusal
from lagom.wire.library import library
from lagom.wire.plan import Plan
from lagom.wire.views import CommunicatorView, ProcessView

SearchEvent = journal.Program | journal.Move | journal.Outcome


class EventLog:
    """Writes the journal. ``on_config`` is called when the saved config should be written anew."""

    def __init__(self, log: journal.Journal, on_config: Callable[[], None]) -> None:
        self.log = log
        self.config_changed = on_config
        self._said: set[str] = set()
        self.run = journal.RunState(keep_samples=False)
        self.listeners: list[Callable[[SearchEvent], None]] = [self.run.apply]  # those that get what a search does

    def note(self, text: str, *, level: journal.Level = "info", refusal: ConfigRefusal | None = None) -> None:
        """Anything a reader should know; the same sentence is written once."""
        if text not in self._said:
            self._said.add(text)
            self.log.write(journal.Note(text=text, level=level, refusal=refusal))

    def warn(self, text: str) -> None:
        """A note that asks for attention."""
        self.note(text, level="warning")

    def _emit(self, event: SearchEvent) -> None:
        self.log.write(event)
        for on_event in self.listeners:
            on_event(event)

    def passthrough(
        self,
        reason: str,
        view: CommunicatorView | None = None,
        cause: journal.Cause = "",
        refusal: ConfigRefusal | None = None,
    ) -> None:
        """Something is not tuned, and why."""
        where = None if view is None else view.index
        self.log.write(journal.Passthrough(reason=reason, communicator=where, cause=cause, refusal=refusal))

    def rank_joined(self, process: ProcessView, rank: int | None, environment: Mapping[str, str]) -> None:
        """A rank process has registered. ``environment``: what of it bears on NCCL, told of the first rank only."""
        self.log.write(
            journal.RankJoined(
                process=process.index,
                pid=process.pid,
                rank=rank,
                nccl=format_version(process.nccl_version),
                libnccl=process.libnccl,
                gpu=process.gpu,
                tuner_api=process.tuner_api,
                profiler_api=process.profiler_api,
                knobs=knob_words(process.knobs),
                remark=process.remark,
                environment=dict(environment),
                simulated=process.simulated,
            )
        )

    def communicator(self, view: CommunicatorView) -> None:
        """A communicator is known."""
        self.log.write(
            journal.Communicator(
                communicator=view.index,
                comm_id=f"{view.comm_id:#x}",
                name=view.name,
                ranks=view.rank_count,
                nodes=view.node_count,
                ordinal=view.ordinal,
            )
        )

    def program(
        self,
        view: CommunicatorView,
        tuned: TunedProgram,
        problem: Problem,
        tier: Tier,
        observations: StockObservations,
        *,
        simulated_clock: bool = False,
    ) -> None:
        """The iteration was found. ``simulated_clock``: the kernels' times are not the host's, by which it was found,
        so how long it takes is not known yet."""
        iteration_ns = None if simulated_clock else tuned.program.iteration_ns
        sites = tuple(journal.SiteRecord.of(site, observations.seen(site)) for site in tuned.sites)
        self._emit(
            journal.Program(
                communicator=view.index,
                period=len(tuned.positions),
                sites=sites,
                channels_built=observations.channels_built(),
                tier=tier.value,
                iteration_ns=iteration_ns,
            )
        )
        takes = "" if iteration_ns is None else f" and takes {iteration_ns / 1e6:.1f} ms"
        self.note(
            f"communicator {view.index}: an iteration is {len(tuned.positions)} calls "
            f"({tuned.program.calls_per_iteration} with small ones){takes}; "
            f"{tuned.tuned} of {len(tuned.sites)} sites are worth tuning, channels up to {problem.channels_ceiling}; "
            f"measured by {tier.value}"
        )

    def plan(
        self, view: CommunicatorView, kind: str, purpose: str, *, plan: Plan, epoch: int, reason: str = ""
    ) -> None:
        """A plan was offered, agreed or aborted."""
        if kind == "plan_published":
            self.log.write(_published(view, plan, epoch, purpose))
        elif kind == "plan_committed":
            self.log.write(journal.PlanCommitted(communicator=view.index, epoch=epoch, start_call=plan.start_call))
        else:
            self.log.write(journal.PlanAborted(communicator=view.index, epoch=epoch, reason=reason))

    def phase(self, view: CommunicatorView, phase: journal.PhaseName, purpose: str = "", why: str = "") -> None:
        """The tuner of a communicator is in another phase from now on."""
        self.log.write(journal.Phase(communicator=view.index, phase=phase, purpose=purpose, why=why))  # type: ignore[arg-type]

    def move(self, view: CommunicatorView, move: SearchMove, iteration: int | None, failure: str) -> None:
        """One step of the search."""
        if failure:
            self.log.write(journal.Note(text=f"window {move.number}: {failure}", level="warning"))
        self._emit(journal.Move.of(move, communicator=view.index, iteration=iteration))

    def drift(
        self, view: CommunicatorView, reason: str, before: float | None, now: float | None, search: int, most: int
    ) -> None:
        """The job is no longer as the search left it: it is tuned again. Times in ns."""
        self.log.write(
            journal.Drift(
                communicator=view.index,
                reason=reason,
                z_before=before if before is not None and math.isfinite(before) else None,
                z_now=now,
                search=search,
                searches_at_most=most,
            )
        )

    def outcome(self, view: CommunicatorView, outcome: SearchOutcome) -> None:
        """How the search of a communicator ended."""
        self._emit(journal.Outcome.of(outcome, communicator=view.index))


def _published(view: CommunicatorView, plan: Plan, epoch: int, purpose: str) -> journal.PlanPublished:
    return journal.PlanPublished(
        communicator=view.index,
        epoch=epoch,
        start_call=plan.start_call,
        end_call=plan.end_call or None,
        alternate_iterations=plan.alternate_iterations,
        purpose=purpose,
        incumbent=records_of(plan.incumbent),
        candidate=None if plan.candidate is None else records_of(plan.candidate),
        rules=tuple(map(describe_rule, plan.rules)),
    )


def knob_words(knobs: int) -> tuple[str, ...]:
    """The words of ``enum lagom_knobs``."""
    flags = library()
    names = ("channels", "algorithm", "chunk", "threads", "online")
    return tuple(name for name in names if knobs & getattr(flags, f"LAGOM_KNOB_{name.upper()}"))
