# SPDX-License-Identifier: Apache-2.0
"""After the search: nothing is recorded, exactly as in a replay, and yet a job that has changed is noticed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lagom import journal
from lagom.demo.stage import Scene
from lagom.records import CommConfig, Function
from lagom.sim.virtual.call_log import load_configs
from lagom.sim.virtual.spec import JobSpec
from lagom.sim.virtual.virtual_job import VirtualJob
from lagom.sim.virtual.workload_events import WorkloadEvent, evaluation
from lagom.wire.layout import ffi
from lagom.wire.peek import TABLE_BYTES, peek_region
from tests.system.play import ENDS, UNHURRIED, Played, play, searches
from tests.system.support import Job

pytestmark = pytest.mark.slow

SCENE = Scene(ranks=2, layers=3, tokens=4096, noise=0.005)
CHANGES_AT = 3000  # iterations: long after a search of two seconds and the reference, at the pace of
UNHURRIED_US = 10_000.0  # real time: two hundred iterations a second at most, on any machine


def tune(spec: JobSpec, job: Job, folder: Path, until: Callable[[Played], bool]) -> Played:
    """A short search and what comes after it."""
    return play(spec, job, folder, "--search-seconds", "2", until=until)


def ring_heads(region: Path) -> tuple[list[int], list[int]]:
    """How many records have ever gone into each rank's call ring and each process's kernel ring."""
    tables = ffi.from_buffer(region.read_bytes()[:TABLE_BYTES])
    view = ffi.cast("struct lagom_region *", tables)
    return [int(view.slots[i].call_head) for i in range(2)], [int(view.processes[i].kernel_head) for i in range(2)]


@dataclass(frozen=True)
class State:
    """What of a region decides the cost of a call."""

    capture: int
    timelines_wanted: tuple[int, ...]
    plan: tuple[tuple[CommConfig, int], ...]  # of each site: config and positions
    open_ended: bool
    heads: tuple[list[int], list[int]]

    @classmethod
    def of(cls, region: Path) -> State:
        """Of a living job."""
        seen, tables = peek_region(region), ffi.from_buffer(region.read_bytes()[:TABLE_BYTES])
        processes = ffi.cast("struct lagom_region *", tables).processes
        assert seen.groups, seen
        group = seen.groups[0]
        assert group.plan is not None, seen.fault
        assert all(slot.active_epoch == group.plan.epoch for slot in group.slots)
        return cls(
            group.capture,
            tuple(int(processes[i].timeline_wanted) for i in range(2)),
            tuple((site.incumbent, site.positions) for site in group.plan.sites),
            group.plan.end_call == 0 and not group.plan.has_candidate,
            ring_heads(region),
        )


def replayed(spec: JobSpec, job: Job, folder: Path, config: Path) -> tuple[State, list[str]]:
    """The state of a job that replays, and what NCCL's log says."""
    environ = job.with_(LAGOM_MODE="replay", LAGOM_CONFIG=str(config))
    with VirtualJob(spec, folder, environ) as ranks:
        assert ranks.wait_iteration(100)
        state = State.of(job.region)
        ranks.stop()
        summaries = ranks.finish()
        assert ranks.differences() == []
    return state, [line for summary in summaries for line in summary.log]


def last_calls(folder: Path, spec: JobSpec, count: int) -> list[CommConfig]:
    return load_configs(folder, spec.communicators[0].comm_id, 0)[-count:]


def test_a_tuned_job_is_in_the_state_of_a_replay(job: Job, tmp_path: Path) -> None:
    """Capture off, CUPTI not wanted, no record of any call: the same as where no controller ever was."""
    spec = replace(SCENE.spec(), logging_every=0)
    looks: list[State] = []

    def look_twice(ranks: VirtualJob) -> None:
        for _ in range(2):
            assert ranks.wait_iteration(ranks.iteration + 200)
            looks.append(State.of(job.region))

    seen = play(spec, job, tmp_path / "tuned", *UNHURRIED, until=searches(), afterwards=look_twice)
    assert seen.of(journal.Outcome)[0].verdict == "improved", seen.of(journal.Outcome)[0].reason
    first, second = looks
    assert first == second, "something was recorded, or changed, in 200 quiet iterations"
    replay, _ = replayed(spec, job, tmp_path / "replayed", job.folder / "config.lagom")
    assert (second.capture, second.timelines_wanted) == (replay.capture, replay.timelines_wanted) == (0, (0, 0))
    assert second.open_ended == replay.open_ended is True
    assert replay.heads == ([0, 0], [0, 0])
    assert second.plan == replay.plan
    period = seen.of(journal.Program)[0].period
    tuned, again = (last_calls(tmp_path / name, spec, period) for name in ("tuned", "replayed"))
    assert tuned == again


def test_a_machine_that_slows_down_is_tuned_again(job: Job, tmp_path: Path) -> None:
    """What held before is tried first, and the log says what happened."""
    spec = replace(SCENE.spec(), events=(WorkloadEvent(CHANGES_AT, slower=1.25),), skew_us=UNHURRIED_US)
    seen = tune(spec, job, tmp_path, searches(2))
    (drift,) = seen.of(journal.Drift)
    assert "% longer than after the search" in drift.reason
    assert drift.z_now / drift.z_before == pytest.approx(1.25, abs=0.06)  # what a block of some ten iterations resolves
    before, after = seen.of(journal.Outcome)
    assert after.verdict in ENDS
    again = [move for move in seen.of(journal.Move) if move.t > drift.t]
    assert again[0].purpose == "baseline"
    if before.verdict == "improved":
        assert again[1].candidate == before.configs_chosen[: len(again[1].candidate)]
        assert "from an earlier search" in again[1].reason


def test_noise_pauses_and_evaluations_are_no_drift(job: Job, tmp_path: Path) -> None:
    gathers = ((int(Function.ALL_GATHER), 416 << 20),) * 5
    interruptions = (
        evaluation(1000, every=700, batches=30, calls=gathers, pause_s=300.0),
        WorkloadEvent(900, every=310, pause_s=60.0),
        WorkloadEvent(2500, slower=1.03),
        WorkloadEvent(3500, slower=0.98),
    )
    spec = replace(SCENE.spec(), noise=0.02, events=interruptions)
    seen = tune(spec, job, tmp_path, lambda seen: len(seen.of(journal.Outcome)) >= 1 and seen.iterations > 5000)
    assert not seen.of(journal.Drift)
    assert len(seen.of(journal.Outcome)) == 1
