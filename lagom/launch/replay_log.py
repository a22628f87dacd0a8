# SPDX-License-Identifier: Apache-2.0
"""Writes the log of a job that replays a saved config, or is off. Such a job has no controller, so the launcher reads
from the ranks' shared memory what they did with the config: agreed on it, or refused it and why. It takes no lock and
writes nothing to shared memory.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lagom import environment, journal
from lagom.config_file import BadConfig, Fingerprint, SavedConfig, find_evidence, load_config, read_evidence
from lagom.experiment.job_regions import JobRegions
from lagom.format import describe_rule, format_bytes
from lagom.launch.job_plan import REPLAYING_MODES, JobPlan, local_rank
from lagom.settings import read
from lagom.version import __version__
from lagom.wire.config_refusal import ConfigRefusal
from lagom.wire.job_key import job_key, region_path
from lagom.wire.library import library
from lagom.wire.peek import GroupView, PlanView, RegionView, peek_region

#: Seconds between two looks: until nothing new has come for SETTLED seconds, and then. A look costs microseconds.
SOON, LATER = 0.02, 5.0
SETTLED = 10.0
#: Seconds without another rank after which those that were seen are taken to be all of this machine.
PAUSE = 3.0
PURPOSE = "replay"
CONTEXTS = ("hidden", "exposed")
UNSEEN = (
    f"no rank of this job registered with lagom, or only for less than the {SOON * 1e3:.0f} ms between two looks, so "
    "only the job's own stderr says what became of the saved config"
)
#: The saved config is for another job if none of its iterations is seen in the calls of this many iterations, and in at
#: least this many calls (a job may broadcast its weights before its first iteration).
UNMATCHED_ITERATIONS, UNMATCHED_CALLS = 5, 200
NOT_AGREED = (
    "nothing of the saved config came into force here: it has no section for this communicator, or the job ended "
    "before all ranks had agreed"
)
NOT_BEGUN = "no iteration of the saved config's {} calls was seen before the job ended"


def replay_log(plan: JobPlan, search: Callable[[], None]) -> ReplayLog | None:
    """The log of a planned job that may replay a saved config, or is off; None if another process writes the log, or
    none is wanted. ``search``: starts a controller, which tunes the job and writes its log from then on."""
    key = job_key() if plan.mode in (*REPLAYING_MODES, "off") else None
    first = local_rank(os.environ) in (None, 0)
    may_search = plan.mode == "replay-or-tune" and plan.variables["LAGOM_CONTROLLER"] != "none"
    if key is None or not first or not plan.logs or plan.starts_controller:
        return None
    return ReplayLog(plan, key, search if may_search else None)


class ReplayLog:
    """Reads shared memory in a thread until :meth:`end`. In mode replay-or-tune the ranks start a controller if the
    saved config does not fit, and it writes the log; so this one begins only when something is replayed. Where that is
    of another program it calls ``search`` and ends.

    A plan that all ranks agreed on is said to be in force once an iteration of its program has begun, because until
    then NCCL chooses; one with rules, at once."""

    def __init__(self, plan: JobPlan, key: str, search: Callable[[], None] | None = None) -> None:
        self._plan, self._region, self._search = plan, region_path(key), search
        self._began = time.monotonic()
        self._log = journal.Journal(plan.folder)
        from lagom.controller.event_log import EventLog  # and the search with it, which other jobs start without

        self._story = EventLog(self._log, lambda: None)
        self._is_off = plan.mode == "off"
        self._started = False
        self._remarks: dict[tuple[int, int], str] = {}  # by entry and pid
        self._refusals: dict[ConfigRefusal, str] = {}  # of the saved config, and the sentence about each
        self._agreed: dict[tuple[int, int], bool] = {}  # by communicator and its id
        self._unbegun: dict[tuple[int, int], int] = {}  # agreed, and no iteration of so many calls was seen yet
        self._unmatched: set[tuple[int, int]] = set()
        self._saved = _load(plan.config)
        self._asks_only_start = not self._saved.sections and bool(self._saved.environment)
        self._starts = JobRegions(os.environ) if self._saved.environment else None
        self._start_is_written = False
        self._gave_way = False  # to a controller
        self._over = threading.Event()
        if plan.mode in ("replay", "off"):
            self._start()
        self._thread = threading.Thread(target=self._watch, daemon=True, name="lagom-replay")
        if not self._is_off:  # then no rank makes shared memory
            self._thread.start()

    def end(self, code: int | None) -> None:
        """The job has ended: ``code`` is the exit code of its command, None if it could not be started."""
        self._over.set()
        if not self._is_off:
            self._thread.join(LATER)
        if self._started and not self._gave_way:
            self._write_end("cannot be started" if code is None else f"ended with {code}")
        self._log.close()

    def _write_end(self, how: str) -> None:
        self._write_starts(at_end=True)
        if not self._remarks:
            if not self._start_is_written and not self._is_off:
                self._story.passthrough(UNSEEN, cause="no_rank")
        elif not self._refusals and not self._asks_only_start:
            for key, agreed in self._agreed.items():
                if not agreed and key not in self._unmatched:
                    calls = self._unbegun.get(key)
                    reason = NOT_AGREED if calls is None else NOT_BEGUN.format(calls)
                    self._log.write(journal.Passthrough(reason=reason, communicator=key[0], cause="not_agreed"))
        self._log.write(journal.JobEnd(reason=f"the job's command {how}", seconds=time.monotonic() - self._began))

    # -- reading shared memory

    def _watch(self) -> None:
        changed = time.monotonic()
        while not self._over.is_set():
            before = self._state()
            self._look(peek_region(self._region))
            self._write_starts()
            if self._state() != before:
                changed = time.monotonic()
            self._over.wait(LATER if before and time.monotonic() - changed > SETTLED else SOON)

    def _state(self) -> int:
        """A counter that increases with every change."""
        return (
            len(self._remarks)
            + sum(map(bool, self._remarks.values()))
            + len(self._agreed)
            + sum(self._agreed.values())
            + len(self._unmatched)
        )

    def _look(self, seen: RegionView) -> None:
        if seen.fault:
            return
        if seen.controller_alive and not self._started:  # it tunes, and writes the log itself
            self._over.set()
            return
        in_force = [group for group in seen.groups if is_in_force(group)]
        if in_force and not self._started:
            self._start()
        if self._started:
            self._write_ranks(seen)
            for group in seen.groups:
                self._write_group(group)
            self._give_way()

    def _give_way(self) -> None:
        """Where nothing of the saved config is in force and the job makes other calls, it is tuned as one without."""
        is_other = bool(self._unmatched) and self._unmatched == set(self._unbegun) and not any(self._agreed.values())
        if self._search is None or not is_other:
            return
        self._over.set()
        self._gave_way = True
        reason = "the saved config is of another program: the job is tuned instead"
        self._log.write(journal.JobEnd(reason=reason, seconds=time.monotonic() - self._began))
        self._search()

    def _start(self) -> None:
        self._started = True
        self._log.write(
            journal.JobStart(
                job=self._plan.job, mode=self._plan.mode, lagom=__version__, host=socket.gethostname(),
                folder=str(self._plan.folder.resolve()), region=str(self._region), headroom=read("LAGOM_HEADROOM"),
                config="" if self._plan.config is None else str(self._plan.config.absolute()), nodes=self._plan.nodes,
            )
        )  # fmt: skip

    # -- writing the log

    def _write_ranks(self, seen: RegionView) -> None:
        """Each rank once, and each reason once, because most ranks have the same. A refusal comes after joining."""
        for process in seen.processes:
            key = process.index, process.pid
            if key not in self._remarks:
                known = {} if self._remarks else environment.select_known(os.environ)
                self._story.rank_joined(replace(process, remark=""), None, known)
            if process.remark and process.remark not in self._remarks.values():
                cause: journal.Cause = ""
                if process.refusal is not None:
                    cause = "config_refused"
                    self._refusals.setdefault(process.refusal, process.remark)
                self._story.passthrough(process.remark, cause=cause, refusal=process.refusal)
            self._remarks[key] = process.remark

    def _write_starts(self, *, at_end: bool = False) -> None:
        """Once: whether every rank was started with the settings that the saved config asks for. The ranks of a job may
        be in several regions. How many there are is not known where no communicator can be tuned: then those count that
        came before a pause."""
        if self._starts is None or self._start_is_written or not self._started:
            return
        regions = self._starts
        if not at_end:
            regions.see_ranks()
        is_over = at_end or regions.saw_all_ranks or time.monotonic() - regions.last_new > PAUSE
        if not regions.starts or not is_over:
            return
        self._start_is_written = True
        wanted = self._saved.environment
        self._refuse_unlike(regions.unlike(wanted))
        refusal, reason = next(iter(self._refusals.items()), (None, ""))
        proof = next((one for one in self._saved.evidence if one.get("start")), {})
        low, high = _number(proof, "low"), _number(proof, "high")
        self._log.write(
            journal.StartSettings(
                settings=wanted, ranks=len(regions.starts), in_force=refusal is None, reason=reason, refusal=refusal,
                speedup=_number(proof, "speedup"), speedup_low=low, speedup_high=high,
            )
        )  # fmt: skip

    def _refuse_unlike(self, unlike: str) -> None:
        """``unlike``: a sentence on a rank of this node with other settings; empty where there is none."""
        if unlike:
            self._refusals.setdefault(ConfigRefusal("rank"), unlike)
        if unlike and self._plan.nodes:
            self._story.warn(f"not as the nodes {', '.join(self._plan.nodes)} agreed: {unlike}")

    def _write_group(self, group: GroupView) -> None:
        key = group.view.index, group.view.comm_id
        if key not in self._agreed:
            self._agreed[key] = False
            self._story.communicator(group.view)
        if group.plan is None or not is_in_force(group):
            return
        waits = group.plan.calls_per_iteration > 0 and not group.has_begun
        if not self._agreed[key] and (group.plan.rules or not waits):
            self._agreed[key] = True
            self._write_plan(group, group.plan)
        if waits and key not in self._unmatched:
            self._unbegun[key] = group.plan.calls_per_iteration
            self._write_mismatch(key, group, group.plan)

    def _write_mismatch(self, key: tuple[int, int], group: GroupView, plan: PlanView) -> None:
        """GPU, NCCL and ranks fit the saved config, but the calls of the job may differ. Then NCCL chooses for all of
        them, and this is the only message about it."""
        calls = min((slot.calls for slot in group.slots), default=0) - plan.start_call
        enough = max(UNMATCHED_CALLS, UNMATCHED_ITERATIONS * plan.calls_per_iteration)
        if calls < enough:
            return
        self._unmatched.add(key)
        reason = (
            f"saved config of another program: no iteration of its {plan.calls_per_iteration} calls in {calls} calls"
        )
        self._log.write(journal.Passthrough(reason=reason, communicator=group.view.index, cause="other_program"))

    def _write_plan(self, group: GroupView, plan: PlanView) -> None:
        contexts = _contexts(self._plan.config, group, len(plan.sites))
        sites = []
        for site, context in zip(plan.sites, contexts, strict=True):
            words = site.function.word, format_bytes(site.bytes), context
            sites.append(f"{' '.join(filter(None, words))}: {site.incumbent}")
        rules = tuple(dict.fromkeys((*sites, *map(describe_rule, plan.rules))))
        where, epoch, start = group.view.index, plan.epoch, plan.start_call
        self._log.write(
            journal.PlanPublished(communicator=where, epoch=epoch, start_call=start, purpose=PURPOSE, rules=rules)
        )
        self._log.write(journal.PlanCommitted(communicator=where, epoch=epoch, start_call=start))


def _number(evidence: Mapping[str, Any], name: str) -> float | None:
    """Evidence is a comment of the file, so anything may stand there."""
    value = evidence.get(name)
    return value if isinstance(value, float) else None


def _load(config: Path | None) -> SavedConfig:
    """The saved config; without content where there is none, or none that can be read: then the ranks say so."""
    try:
        return SavedConfig(Fingerprint(), ()) if config is None else load_config(config)
    except (OSError, BadConfig):
        return SavedConfig(Fingerprint(), ())


def is_in_force(group: GroupView) -> bool:
    """Whether every rank of a communicator on this node runs the published plan."""
    ranks = group.view.rank_count if group.view.node_count == 1 else len(group.slots)
    return (
        group.plan is not None
        and group.switch_state == library().LAGOM_COMMITTED
        and len(group.slots) == ranks > 0
        and {slot.active_epoch for slot in group.slots} == {group.plan.epoch}
    )


def _contexts(config: Path | None, group: GroupView, sites: int) -> list[str]:
    """Whether compute hides each site, as the saved config says it: shared memory does not. Empty where it says
    nothing, as one written by hand."""
    try:
        evidence = [] if config is None else read_evidence(config)
    except (OSError, ValueError):
        evidence = []
    said = find_evidence(evidence, group.view.rank_count, group.view.ordinal).get("context")
    known = said if isinstance(said, list) and len(said) == sites else [""] * sites
    return [context if context in CONTEXTS else "" for context in known]
