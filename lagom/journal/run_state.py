# SPDX-License-Identifier: Apache-2.0
"""The state of the newest job of a log, built from its events; nothing else combines events.

:class:`RunState` takes the events in order. The progress of ``lagom run``, ``watch``, ``report``, the demo and the
evidence in a saved config read it; none of them keeps a state of its own. Times are nanoseconds, losses are iterations
under stock NCCL. What the log does not hold (X and Y without kernel times, the outcome of a search that goes on) is
``None``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from lagom.journal import schema
from lagom.journal.comm_state import CommState
from lagom.journal.schema import Base
from lagom.wire.config_refusal import ConfigRefusal


class RunState:
    """The newest job of a log. A log may hold several, one after the other: each ``job_start`` begins anew.

    ``keep_samples`` False: moves without the pairs of their windows, which are most of a log, for those who follow a
    job for days.
    """

    def __init__(self, events: Iterable[Any] = (), *, keep_samples: bool = True) -> None:
        self._keep_samples = keep_samples
        self.jobs = 0  # job_start events so far
        self._begin(None)
        self.read(events)

    def _begin(self, start: schema.JobStart | None) -> None:
        self.start = start
        self.end: schema.JobEnd | None = None
        self.last: Base | None = None
        self.ranks: list[schema.RankJoined] = []
        self.start_settings: schema.StartSettings | None = None
        self.refusal: ConfigRefusal | None = None  # of the saved config
        self.comms: dict[int, CommState] = {}
        self.not_tuned: list[str] = []  # why nothing is tuned, or a rank is not
        self.causes: set[schema.Cause] = set()  # the same, as far as a reader decides by it
        self.remarks: list[str] = []  # each sentence once
        self.warnings: list[str] = []

    @property
    def earlier_jobs(self) -> int:
        """How many jobs the log holds before this one."""
        return max(0, self.jobs - 1)

    @property
    def is_simulated(self) -> bool:
        """Whether ranks or clock were virtual: what was found is of no real job."""
        return (self.start is not None and self.start.simulated_clock) or any(rank.simulated for rank in self.ranks)

    @property
    def no_rank_joined(self) -> bool:
        """Whether the job ended, by its controller's log, without one rank that loaded the plugin."""
        return not self.ranks and self.end is not None and self.end.calls == 0

    @property
    def searched(self) -> list[CommState]:
        """Communicators whose search has something to show."""
        return [comm for comm in self.comms.values() if comm.was_searched]

    @property
    def plans_aborted(self) -> int:
        return sum(comm.plans_aborted for comm in self.comms.values())

    @property
    def first_rank(self) -> schema.RankJoined | None:
        """Of those that joined, the one that says with which settings of NCCL it was started; else any."""
        return next((rank for rank in self.ranks if rank.environment), self.ranks[0] if self.ranks else None)

    def comm(self, index: int) -> CommState:
        """The state of a communicator, made on first mention."""
        return self.comms.setdefault(index, CommState(index))

    def read(self, events: Iterable[Any]) -> RunState:
        """More of the log; returns itself."""
        for event in events:
            self.apply(event)
        return self

    def apply(self, event: Any) -> None:
        """One more event; a kind that it does not know is passed over."""
        if isinstance(event, schema.JobStart):
            self.jobs += 1
            self._begin(event)
        self.last = event
        take: Callable[[Any], None] | None = _TAKERS.get(type(event))
        if take is not None:
            take(self, event)  # type: ignore[call-arg]

    def _remark(self, text: str) -> None:
        if text and text not in self.remarks:
            self.remarks.append(text)

    def _rank_joined(self, event: schema.RankJoined) -> None:
        self.ranks.append(event)
        self._remark(event.remark)

    def _start_settings(self, event: schema.StartSettings) -> None:
        self.start_settings = event
        self.refusal = self.refusal or event.refusal

    def _communicator(self, event: schema.Communicator) -> None:
        known = self.comms.get(event.communicator)
        if known is None or (known.communicator is not None and known.communicator.comm_id != event.comm_id):
            known = self.comms[event.communicator] = CommState(event.communicator)
        known.communicator = event

    def _program(self, event: schema.Program) -> None:
        comm = self.comm(event.communicator)
        if comm.moves:
            self._remark(
                f"{comm.name} was searched more than once; this is the last search, `lagom log` prints all of them."
            )
        comm.begin_search(event)

    def _phase(self, event: schema.Phase) -> None:
        self.comm(event.communicator).phase = event

    def _move(self, event: schema.Move) -> None:
        kept = event if self._keep_samples else event.model_copy(update={"samples": ()})
        self.comm(event.communicator).add_move(kept)

    def _outcome(self, event: schema.Outcome) -> None:
        self.comm(event.communicator).outcome = event

    def _drift(self, event: schema.Drift) -> None:
        comm = self.comm(event.communicator)
        comm.drifts, comm.drift = comm.drifts + 1, event.reason

    def _plan_published(self, event: schema.PlanPublished) -> None:
        self.comm(event.communicator).offer_plan(event)

    def _plan_committed(self, event: schema.PlanCommitted) -> None:
        self.comm(event.communicator).commit_plan(event.epoch)

    def _plan_aborted(self, event: schema.PlanAborted) -> None:
        self.comm(event.communicator).plans_aborted += 1

    def _standing_aside(self, event: schema.Passthrough) -> None:
        where = self if event.communicator is None else self.comm(event.communicator)
        if event.reason not in where.not_tuned:
            where.not_tuned.append(event.reason)
        where.causes.add(event.cause)
        self.refusal = self.refusal or event.refusal
        self._remark(f"not tuned: {event.reason}")

    def _note(self, event: schema.Note) -> None:
        if event.level == "warning":
            self.warnings.append(event.text)
            self._remark(event.text)
        self.refusal = self.refusal or event.refusal

    def _job_end(self, event: schema.JobEnd) -> None:
        self.end = event


_TAKERS: dict[type, Any] = {
    schema.RankJoined: RunState._rank_joined,
    schema.StartSettings: RunState._start_settings,
    schema.Communicator: RunState._communicator,
    schema.Program: RunState._program,
    schema.Phase: RunState._phase,
    schema.Move: RunState._move,
    schema.Outcome: RunState._outcome,
    schema.Drift: RunState._drift,
    schema.PlanPublished: RunState._plan_published,
    schema.PlanCommitted: RunState._plan_committed,
    schema.PlanAborted: RunState._plan_aborted,
    schema.Passthrough: RunState._standing_aside,
    schema.Note: RunState._note,
    schema.JobEnd: RunState._job_end,
}
