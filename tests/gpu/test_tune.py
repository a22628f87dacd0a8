# SPDX-License-Identifier: Apache-2.0
"""``lagom run`` on a small overlapping job: it comes to an end, it never makes things worse, and its log is sound."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from typing import Any

import pytest

from lagom.journal.schema import EVENT
from tests.gpu.support import JobRun, Place, Ran, torchrun, until

SEARCH_SECONDS, OUTCOME_SECONDS = 15, 100
NEVER_BELOW = 0.98


@pytest.mark.timeout(240)
def test_a_search_ends_and_never_below_stock(spot: Place, gpus: int, evidence: Callable[..., None]) -> None:
    command = [
        *spot.lagom_run("--mode", "tune", "--search-seconds", str(SEARCH_SECONDS)),
        *torchrun("overlap.py", gpus, "--until", str(spot.stop)),
    ]
    running = JobRun(command, spot.environment("host"), spot.folder)
    ended = until(lambda: bool(spot.events("outcome")), OUTCOME_SECONDS, running)
    until(lambda: False, 2, running)  # and a little on the result
    spot.stop.touch()
    ran = running.finish(60)
    moves = [(e["purpose"], e["verdict"], e["ratio"], e["reason"]) for e in spot.events("move")]
    assert ended, f"no outcome within {OUTCOME_SECONDS} s; moves {moves[-5:]}; {story(spot)}; {ran.tail()}"
    assert ran.code == 0, ran.tail()
    (outcome,) = spot.events("outcome")
    steps = ran.last("ms")["ms"]
    evidence(**shortened(outcome), moves=len(moves), ms_at_first=median(steps[10:30]), ms_at_last=median(steps[-50:]))
    assert_not_below_stock(outcome, spot, ran)
    assert_log_is_sound(spot)


def assert_not_below_stock(outcome: dict[str, Any], spot: Place, ran: Ran) -> None:
    """Stock to the end, or proven to be better than stock, and then it is in the saved config."""
    changed = [config for config in outcome["configs_chosen"] if any(value is not None for value in config.values())]
    if not changed:
        return
    assert outcome["speedup"] is not None, f"a config was kept without a proof: {outcome}"
    assert outcome["speedup"] >= NEVER_BELOW, f"kept although slower: {outcome}; {ran.tail(10)}"
    # The first confirmation is against stock and at the final's level: it is the final A/B.
    proofs = [event for event in spot.events("move") if event["purpose"] in ("confirm", "final")]
    assert any(event["verdict"] == "confirmed" for event in proofs), f"no proof of it: {[*map(shortened, proofs)]}"
    assert (spot.log / "config.lagom").exists(), "an improvement was confirmed and no saved config was written"


def assert_log_is_sound(spot: Place) -> None:
    """Every line is an event of the schema; the first and the last are what they should be."""
    lines = (spot.log / "decisions.jsonl").read_text().splitlines()
    kinds = [EVENT.validate_json(line).event for line in lines]
    assert kinds[0] == "job_start", kinds[:3]
    assert kinds[-1] == "job_end", kinds[-3:]
    assert {"rank_joined", "communicator", "program", "plan_published", "plan_committed", "move"} <= set(kinds)


def shortened(event: dict[str, Any]) -> dict[str, Any]:
    """Without the samples."""
    return {key: value for key, value in event.items() if key not in ("samples", "schema", "t", "event")}


def story(spot: Place) -> list[str]:
    """What the controller said in words."""
    return [str(e.get("text") or e.get("reason")) for e in spot.events() if e["event"] in ("note", "standing_aside")]
