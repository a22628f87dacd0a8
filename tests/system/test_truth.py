# SPDX-License-Identifier: Apache-2.0
"""What a window says of a config is what that config costs, whatever else the job does meanwhile."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from lagom import journal
from lagom.demo.stage import Scene
from lagom.records import Function
from lagom.sim.virtual.spec import JobSpec
from lagom.sim.virtual.workload_events import WorkloadEvent, checkpoint, evaluation
from tests.system.play import Played, play, searches
from tests.system.support import Job
from tests.system.truth import ENOUGH, judge
from tests.tiers import amount

pytestmark = pytest.mark.slow

GATHER, REDUCE = int(Function.ALL_GATHER), int(Function.ALL_REDUCE)
TOLERANCE = 0.03  # six standard deviations of an iteration's length
BLOCK_TOLERANCE = 0.01
SEEDS = range(amount(1, 60))
PAIRS = amount(100, 2000)  # of samples


def restless_job(dice: random.Random, timeline: str) -> JobSpec:
    """Some layers of a model on some machine, interrupted every now and then by something."""
    scene = Scene(
        ranks=dice.choice([2, 4]),
        layers=dice.choice([2, 3, 4]),
        tokens=dice.choice([2048, 4096, 8192]),
        machine=dice.choice(["a40_nvlink", "a40_pcie", "h200_host"]),
        noise=0.005,
    )
    size = dice.choice([64, 100, 416]) << 20
    kinds = [
        lambda at, every: evaluation(at, every=every, batches=2, calls=((GATHER, size),) * 5, pause_s=20.0),
        lambda at, every: checkpoint(at, every=every, pause_s=dice.choice([0.01, 20.0])),
        lambda at, every: WorkloadEvent(at, every=every, pause_s=0.5),
        lambda at, every: WorkloadEvent(at, every=every, calls=((REDUCE, 2 << 20),)),
        lambda at, every: WorkloadEvent(at, every=every, calls=((GATHER, size),)),
        lambda at, every: WorkloadEvent(at, every=every, calls=((REDUCE, 512),) * 3),
    ]
    interruptions = [dice.choice(kinds)(dice.randrange(5, 300), dice.choice([29, 47, 90, 153])) for _ in range(3)]
    return replace(
        scene.spec(),
        timeline=timeline,
        events=tuple(interruptions),
        logging_every=dice.choice([0, 7, 10]),
        run_ahead=dice.choice([1, 2, 3]),
        seed=dice.randrange(1000),
        keep_plans=True,
    )


def measured(played: Played) -> bool:
    """Whether there is enough to judge, or no more to come."""
    return sum(len(move.samples) for move in played.of(journal.Move)) >= PAIRS or searches()(played)


@pytest.mark.parametrize("timeline", ["spans", "profiler"])
@pytest.mark.parametrize("seed", SEEDS)
def test_every_sample_is_what_its_config_costs(seed: int, timeline: str, job: Job, tmp_path: Path) -> None:
    dice = random.Random(seed)
    spec = restless_job(dice, timeline)
    strategy = dice.choice(["lagom", "guided"])
    played = play(spec, job, tmp_path, "--strategy", strategy, until=measured)
    judged, wrong = judge(played, spec, tmp_path, tolerance=TOLERANCE)
    assert wrong == []
    if not judged:
        pytest.skip("what repeats here is more than an iteration, so the simulator cannot say what it costs")
    assert judged > ENOUGH, "next to nothing was measured"


@pytest.mark.parametrize("seed", SEEDS)
def test_every_block_of_calls_is_what_its_config_costs(seed: int, job: Job, tmp_path: Path) -> None:
    """Only the host's calls are seen, and each rank is late with them by up to 6 % of an iteration: over a block that
    is 1 % at most. Of a job that pauses the host's clock tells less: its run-ahead fills up again behind each pause."""
    spec = replace(restless_job(random.Random(seed), "none"), late=0.06, events=(), logging_every=0)
    played = play(spec, job, tmp_path, until=measured)
    judged, wrong = judge(played, spec, tmp_path, tolerance=BLOCK_TOLERANCE)
    assert wrong == []
    assert judged > ENOUGH, "next to nothing was measured"
