# SPDX-License-Identifier: Apache-2.0
"""The watch after the search: Z from two counters and a clock, and what does not count."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lagom.controller.drift import REFERENCE_BLOCKS, VOTES
from lagom.controller.learning import Learning
from lagom.controller.measure import Tier
from lagom.controller.monitoring import AWAY_NS, MAX_RETUNES, Monitoring
from lagom.controller.options import Options
from lagom.controller.tuner_state import TunerState
from lagom.records import Assignment

MS = 1_000_000
CALLS = 20  # an iteration


@dataclass
class Job:
    """A region that shows one rank's counters, and a clock of its own."""

    now: int = 0
    iterations: int = 0
    calls: int = 0
    suspensions: int = 0
    epoch: int = 3
    times_refuted: bool = False
    drifts: list[tuple[Any, ...]] = field(default_factory=list)

    def slots(self, communicator: int) -> list[Any]:
        return [
            SimpleNamespace(
                process=0,
                calls=self.calls,
                iterations=self.iterations,
                active_epoch=self.epoch,
                suspensions=self.suspensions,
                capturing=False,
                times_refuted=self.times_refuted,
            )
        ]

    def now_ns(self, process: int) -> int:
        return self.now

    def run(self, monitoring: Monitoring, iterations: int, z_ms: float = 200.0) -> str:
        """So many iterations of so many ms, looked at in the middle of each; the phase that follows."""
        for _ in range(iterations):
            self.now += int(z_ms * MS)
            self.iterations += 1
            self.calls += CALLS
            if (phase := monitoring.step(self.now * 1e-9)) is not None:
                return phase.name
        return monitoring.name

    def elsewhere(self, monitoring: Monitoring, seconds: float) -> str:
        """Calls that are not the program's."""
        self.suspensions += 1
        for _ in range(int(seconds)):
            self.now += 1000 * MS
            self.calls += 7
            if (phase := monitoring.step(self.now * 1e-9)) is not None:
                return phase.name
        return monitoring.name


def monitoring_of(job: Job, retunes: int = 0, compare: tuple[str, ...] = ()) -> tuple[Monitoring, TunerState]:
    events = SimpleNamespace(drift=lambda *facts: job.drifts.append(facts), warn=lambda text: None, config_changed=int)
    view: Any = SimpleNamespace(index=0)
    options = Options(Path(), compare=compare)
    state = TunerState(job, view, options, events, retunes=retunes, learn=lambda _: Learning.__new__(Learning))  # type: ignore[arg-type]
    state.best = Assignment.stock(2)
    return Monitoring(state), state


def reference(job: Job, monitoring: Monitoring, z_ms: float = 200.0) -> None:
    assert job.run(monitoring, 50 * (REFERENCE_BLOCKS + 5), z_ms) == "monitoring"


def test_a_slower_machine_is_noticed_and_said() -> None:
    job = Job()
    monitoring, state = monitoring_of(job)
    reference(job, monitoring)
    assert job.run(monitoring, 60 * 3 * VOTES, 240.0) == "learning"
    _, reason, before, now, search, most = job.drifts[0]
    assert "20.0 % longer" in reason
    assert abs(before / (200 * MS) - 1) < 0.01
    assert abs(now / (240 * MS) - 1) < 0.01
    assert (search, most) == (1, MAX_RETUNES)
    assert state.known == state.best
    assert not state.history.numbers


@pytest.mark.parametrize(
    ("tier", "phase"), [(Tier.KERNELS, "learning"), (Tier.TIMELINE, "learning"), (Tier.HOST, "monitoring")]
)
def test_what_was_found_by_other_kernels_times_does_not_stand(tier: Tier, phase: str) -> None:
    """They were refuted just as the search ended. What the host's calls have shown stands."""
    job = Job(times_refuted=True)
    monitoring, state = monitoring_of(job)
    state.learned = SimpleNamespace(tier=tier)  # type: ignore[assignment]
    assert job.run(monitoring, 3) == phase
    assert (state.best is None) == (phase == "learning")
    assert state.observations.times_refuted


def test_evaluations_do_not_count_however_long_they_are() -> None:
    job = Job()
    monitoring, _ = monitoring_of(job)
    reference(job, monitoring)
    for _ in range(3 * VOTES):
        assert job.elsewhere(monitoring, 600.0) == "monitoring"
        assert job.run(monitoring, 20) == "monitoring"  # no whole block between two of them
    assert job.run(monitoring, 5000) == "monitoring"


def test_a_job_that_makes_other_calls_for_good_is_learnt_again() -> None:
    job = Job()
    monitoring, _ = monitoring_of(job)
    reference(job, monitoring)
    assert job.elsewhere(monitoring, AWAY_NS * 0.9e-9) == "monitoring"
    assert job.elsewhere(monitoring, AWAY_NS * 0.2e-9) == "learning"
    assert "other calls" in job.drifts[0][1]


def test_a_job_that_only_stands_still_is_left_alone() -> None:
    job = Job()
    monitoring, _ = monitoring_of(job)
    reference(job, monitoring)
    for _ in range(3):
        job.now += 2 * AWAY_NS
        assert monitoring.step(job.now * 1e-9) is None


def test_each_further_search_needs_twice_the_evidence_and_there_are_few() -> None:
    seen = []
    for retunes in (0, 1, 2):
        job = Job()
        monitoring, _ = monitoring_of(job, retunes)
        reference(job, monitoring)
        began = job.iterations
        assert job.run(monitoring, 100_000, 240.0) == "learning"
        seen.append(job.iterations - began)
    assert 1.7 < seen[1] / seen[0] < 2.3
    assert 1.7 < seen[2] / seen[1] < 2.3
    for options in ({"retunes": MAX_RETUNES}, {"compare": ("any:any:nc=2",)}):
        job = Job()
        monitoring, _ = monitoring_of(job, **options)  # type: ignore[arg-type]
        assert job.run(monitoring, 10_000) == job.run(monitoring, 10_000, 300.0) == "monitoring"


def test_short_and_long_iterations_are_measured_alike() -> None:
    """20 ms and 12 s: blocks of ten seconds, or of twenty iterations."""
    for z_ms in (20.0, 12_000.0):
        job = Job()
        monitoring, _ = monitoring_of(job)
        assert job.run(monitoring, int(REFERENCE_BLOCKS * max(10_500 / z_ms, 21)) + 60, z_ms) == "monitoring"
        assert abs(monitoring._drift.reference / (z_ms * MS) - 1) < 0.01
