# SPDX-License-Identifier: Apache-2.0
"""A search whose job runs on several nodes: each of its processes is a round, in which every node starts its part of
the job (:mod:`lagom.nodes`). The coordinator chooses and keeps what comes out; the other nodes follow."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from lagom.config_file import Fingerprint, SavedConfig
from lagom.experiment.arm import Kind, Task, arm_with
from lagom.experiment.process import LEAST_GRACE, Ended, ProcessStart, run_process
from lagom.experiment.request import TRIAL, Request
from lagom.experiment.store import RunRecord, Store
from lagom.experiment.trial import RunProcess, Say, run_task
from lagom.nodes.enrolment import Session
from lagom.nodes.exchange import MOST_LINE, Done, FoundStart, to_line
from lagom.nodes.rounds import IsOver, RoundResult, Rounds
from lagom.tune.stages import TuneRecord
from lagom.tune.tune_result import evidence_of

MOST_SAMPLES = 2000
#: Exit codes of processes that signals ended, as Python and as shells write them, lie within.
MOST_EXIT = 256


class Coordinator:
    """Runs the processes of a search, each on all nodes of the session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._rounds = Rounds(session, self._run)
        self._waiting: ProcessStart | None = None
        self._ended: Ended | None = None
        self._result: RoundResult | None = None

    def run_task(
        self, request: Request, task: Task, store: Store[TuneRecord], time_left: float | None, say: Say
    ) -> RunRecord:
        """As :func:`lagom.experiment.trial.run_task`. Raises :class:`lagom.nodes.rounds.NodesEnded`."""
        assert task.arm is not None
        run = run_task(request, task, store, time_left, say, self.process_with(task.arm.settings))
        assert self._result is not None
        return joined(run, self._result, self.session.node)

    def process_with(self, settings: Mapping[str, str]) -> RunProcess:
        """Runs a process on all nodes; what the coordinator's own gave is returned."""

        def run(start: ProcessStart) -> Ended:
            self._waiting = start
            self._result = self._rounds.run(settings, int(start.environ[TRIAL]), start.limit)
            assert self._ended is not None
            return self._ended

        return run

    def _run(self, settings: Mapping[str, str], number: int, limit: float | None, is_over: IsOver) -> Done:
        assert self._waiting is not None
        self._ended = run_process(until_over(self._waiting, is_over))
        return Done.model_validate(_how(self._ended.exit, self._ended.ended, self._ended.seconds))

    def finish(self, verdict: str, saved: SavedConfig | None = None, text: str = "") -> None:
        """Say on all nodes what came out. ``saved``: the config that each of them keeps."""
        self._rounds.finish(verdict, None if saved is None else found_of(saved, text))


def follow(session: Session, request: Request, store: Store[TuneRecord], say: Say) -> tuple[str, FoundStart | None]:
    """Take part until the coordinator has finished; returns the verdict, and what was found. Raises
    :class:`lagom.nodes.rounds.NodesEnded`."""

    def run(settings: Mapping[str, str], number: int, limit: float | None, is_over: IsOver) -> Done:
        task = Task(Kind.PROCESS, arm_with(f"process {number}", settings))
        asked = replace(request.numbered(number), run_limit=limit, budget=None)
        runs.append(run_task(asked, task, store, None, say, lambda start: run_process(until_over(start, is_over))))
        return done_of(runs[-1])

    runs: list[RunRecord] = []
    rounds = Rounds(session, run)
    for go, stop, done in rounds.follow():
        store.add(runs[-1])  # not that of a round which was interrupted: the coordinator does not keep it either
        variables = " ".join(f"{name}={value}" for name, value in go.settings.items()) or "plain NCCL"
        is_elsewhere = stop.why == "enough" and stop.by != session.seat  # another node has printed what was wanted
        why = done.unlike or ("" if is_elsewhere else done.reason) or "no value on this node"
        said = f"{done.value:.4g}" if done.value is not None else why
        say(f"process {go.number}: {variables}: {said} (ended by node {session.nodes[stop.by]}: {stop.why})")
    assert rounds.verdict is not None
    return rounds.verdict.verdict, rounds.verdict.found


def until_over(start: ProcessStart, is_over: IsOver) -> ProcessStart:
    """The same process, ended as soon as some node has seen enough. With the least time to end: a torchrun whose
    rendezvous was on a node that has ended waits for it in vain."""
    is_enough: Callable[[Any], bool] = start.enough
    return replace(start, enough=lambda seen: is_over(is_enough(seen)), grace=min(start.grace, LEAST_GRACE))


def done_of(run: RunRecord) -> Done:
    """What the other nodes are told of a process."""
    return Done.model_validate({
        **_how(run.exit, run.ended, run.seconds),
        "value": run.value, "samples": run.samples[:MOST_SAMPLES], "unit": _line(run.unit, 40),
        "ranks": run.ranks, "ranks_seen": run.ranks_seen, "unlike": _line(run.unlike),
        "reason": _line(run.reason if run.gave_nothing else ""),
    })  # fmt: skip


def _how(code: int, ended: str, seconds: float) -> dict[str, Any]:
    kept = max(-MOST_EXIT, min(MOST_EXIT, code))
    return {"exit": kept, "ended": "limit" if ended == "budget" else ended, "seconds": seconds}


def _line(text: str | None, most: int = MOST_LINE) -> str | None:
    return None if text is None else to_line(text, most)


def joined(run: RunRecord, result: RoundResult, own: str) -> RunRecord:
    """The coordinator's record of a process with what the other nodes saw: a value where it has none, ranks whose
    settings were compared, and what speaks against it."""
    others = {node: done for node, done in result.done.items() if node != own}
    run.ranks_seen += sum(done.ranks_seen for done in others.values())
    run.ranks = max(run.ranks, *(done.ranks for done in others.values()))
    run.node = own
    if run.ended == "itself" and result.done[own].ended == "us":  # its launcher failed because the round was over
        run.ended = "us"
    if not _is_refuted(run, others, result.failed):
        _take_value(run, others)
    return run


def _is_refuted(run: RunRecord, others: Mapping[str, Done], failed: Sequence[str]) -> bool:
    """Whether ranks of another node had other settings, or its process failed: then the run gives no value."""
    for node, done in others.items():
        if done.unlike:
            run.value, run.unlike = None, f"{node}: {done.unlike}"
            run.reason = run.unlike
            return True
        if node in failed:
            run.value, run.exit, run.ended = None, done.exit, "itself"
            run.reason = f"node {node} failed with {done.exit}" + (f": {done.reason}" if done.reason else "")
            return True
    return False


def _take_value(run: RunRecord, others: Mapping[str, Done]) -> None:
    """Of the first other node that has one, where this one has none."""
    given = next(((node, done) for node, done in others.items() if done.value is not None), None)
    if run.value is None and not run.unlike and given is not None:
        run.node, run.reason = given[0], ""
        run.value, run.samples, run.unit = given[1].value, list(given[1].samples), given[1].unit


def found_of(saved: SavedConfig, text: str) -> FoundStart:
    """A saved config of start settings as what the nodes are told."""
    made, proof = saved.fingerprint, saved.evidence[0]
    return FoundStart(
        settings=dict(saved.environment), nccl=made.nccl_version, ranks=made.ranks, nodes=made.nodes,
        gpu=to_line(made.gpu), p2p=made.p2p, simulated=made.simulated, speedup=proof["speedup"], low=proof["low"],
        high=proof["high"], processes=list(proof["processes"]), measure=to_line(proof["measure"]),
        text=to_line(text),
    )  # fmt: skip


def saved_of(found: FoundStart) -> SavedConfig:
    """And back: the same on every node."""
    made = Fingerprint(found.nccl, found.ranks, found.nodes, found.gpu, found.p2p, found.simulated)
    gain = (found.speedup, found.low, found.high)
    proof = evidence_of(found.settings, gain, found.processes, found.measure, found.ranks)
    return SavedConfig(made, (), dict(found.settings), (proof,))
