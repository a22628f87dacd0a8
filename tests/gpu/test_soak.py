# SPDX-License-Identifier: Apache-2.0
"""Training for minutes while its configs change every few iterations: it learns as it would have without us."""

from __future__ import annotations

import math
import os
from collections.abc import Callable

import pytest

from tests.gpu.storming import Strength, judge, storm_beside
from tests.gpu.support import NCCL_230, Place, Ran, place, run, torchrun
from tests.tiers import FULL

#: LAGOM_TEST_SOAK_MINUTES=8 for the full length alone.
MINUTES = float(os.environ.get("LAGOM_TEST_SOAK_MINUTES", "8" if FULL else "0.7"))
STRENGTH = Strength(1, 60 * MINUTES + 60, 60 * MINUTES)
COMPARED_STEPS = 100
#: Chunks and channels change the order in which gradients are added, and so the last bits; the sums are float32, what
#: is sent is not more than that.
TOLERANCE = 0.02


@pytest.mark.timeout(60 * MINUTES + 500)
@pytest.mark.parametrize("regime", ["nvlink", "host"])
def test_training_goes_on_as_without_us_while_configs_change(
    regime: str, spot: Place, gpus: int, evidence: Callable[..., None]
) -> None:
    stock = stock_losses(spot, gpus, regime)
    extra = {"LD_PRELOAD": NCCL_230} if NCCL_230 and regime == "host" else {}
    command = torchrun("training.py", gpus, "--until", str(spot.stop))
    ran, report = storm_beside(spot, gpus, command, STRENGTH, regime=regime, learn=True, **extra)
    losses = losses_of(ran)
    furthest = max(abs(ours - theirs) / theirs for ours, theirs in zip(losses, stock, strict=False))
    switches = report["plans"]["committed"]
    evidence(regime=regime, steps=len(losses), largest_difference=furthest, loss=(losses[0], losses[-1]), **report)
    assert ran.last("finite").get("finite") is True, ran.tail()
    assert all(map(math.isfinite, losses))
    assert len(stock) >= COMPARED_STEPS
    assert furthest <= TOLERANCE, f"the loss differs by {furthest:.4f} from that without us"
    assert losses[-1] < losses[0], f"it does not learn: {losses[0]} to {losses[-1]}"
    judge(report, 1)
    assert len(losses) / switches < 40, f"{switches} plans in {len(losses)} steps: that is not every few iterations"


def stock_losses(spot: Place, gpus: int, regime: str) -> list[float]:
    """The same training without us, from the same seed."""
    with place(spot.folder / "stock") as alone:
        command = torchrun("training.py", gpus, "--steps", str(COMPARED_STEPS))
        ran = run(command, alone.environment(regime), alone.folder, 200)
        assert ran.code == 0, f"the job fails even without lagom: {ran.tail()}"
        return losses_of(ran)


def losses_of(ran: Ran) -> list[float]:
    """The loss of every step."""
    return [line["loss"] for line in ran.json if "loss" in line]
