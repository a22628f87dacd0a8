# SPDX-License-Identifier: Apache-2.0
"""Every example on GPUs, unchanged: it ends as without us, its iteration is learnt, and it is tuned or left alone."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from importlib.util import find_spec
from statistics import fmean, median

import pytest

from tests.examples.test_examples import EXAMPLES, FRAMEWORKS, JOBS
from tests.gpu.support import SHARED_BY, Place, Ran, run

#: Long enough for a search to end by itself; fewer where there is nothing to compare.
STEPS, PLAIN_STEPS = int(os.environ.get("LAGOM_TEST_EXAMPLE_STEPS", "1500")), 100
#: What NCCL asks no tuner about.
NOT_TUNED = ("expert_parallel",)
STEP_TIME = r"step time: ([0-9.]+)"


def example(job: str, gpus: int, steps: int) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(gpus)]
    return [*launcher, str(EXAMPLES / f"{job}.py"), "--steps", str(steps)]


@pytest.mark.timeout(400)
@pytest.mark.parametrize("job", JOBS)
def test_an_example_is_learnt_and_ends_as_without_us(
    job: str, spot: Place, gpus: int, evidence: Callable[..., None]
) -> None:
    """The environment alone, no option."""
    package = FRAMEWORKS.get(job, "torch")
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed: pip install '.[examples]'")
    if SHARED_BY and job in FRAMEWORKS:
        pytest.skip(f"{package} takes the GPU of each rank's number, and the ranks share one here")
    without = run(example(job, gpus, PLAIN_STEPS), spot.environment(), spot.folder, 90)
    ours = run(example(job, gpus, STEPS), spot.with_plugin(), spot.folder, 250)
    verdicts = [event["verdict"] for event in spot.events("outcome")]
    evidence(
        exits=[without.code, ours.code],
        learnt=bool(spot.events("program")),
        verdicts=verdicts,
        reasons=[event["reason"] for event in (*spot.events("outcome"), *spot.events("standing_aside"))],
        configs=[event["configs_chosen"] for event in spot.events("outcome")],
        speedups=[event["speedup"] for event in spot.events("outcome")],
        median_ms={"without": step_ms(without), "with": step_ms(ours)},
        mean_ms=mean_ms(ours),
        steps=STEPS,
    )
    assert ours.code == without.code == 0, f"{without.tail(15)}; {ours.tail(15)}"
    if job not in NOT_TUNED:
        assert spot.events("program"), f"no iteration was learnt: {[event['event'] for event in spot.events()]}"
        assert verdicts


def steps_of(ran: Ran) -> list[float]:
    """Milliseconds of each step that rank 0 printed, without the first ten."""
    return [1e3 * float(value) for value in re.findall(STEP_TIME, "\n".join(ran.lines))][10:]


def step_ms(ran: Ran) -> float | None:
    """The median step; None of a job that prints none (Lightning)."""
    steps = steps_of(ran)
    return round(median(steps), 3) if steps else None


def mean_ms(ran: Ran) -> float | None:
    """The mean step, search included; None of a job that prints none."""
    steps = steps_of(ran)
    return round(fmean(steps), 3) if steps else None
