# SPDX-License-Identifier: Apache-2.0
"""Not one call on which two ranks differ: 8 ranks x 4 communicators, random skew, plans as fast as they are taken,
ranks paused, the publisher killed and a second one meddling in between.

`make agreement` (LAGOM_TEST_FULL=1) does 100,000 committed plans; LAGOM_AGREEMENT_PLANS names another number.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.system.storm import CELLS, CELLS_START, Control, Site, Storm, Weather, blow, held
from tests.system.support import Job
from tests.tiers import FULL
from tests.waiting import OthersWatch, skip_if_others_computed, wait_until

PLANS = int(os.environ.get("LAGOM_AGREEMENT_PLANS", "100000" if FULL else "400"))
SECONDS = 3000 if FULL else 600  # at most; the 400 plans take two on two quiet cores
KILLS = 100 if FULL else 40
KILL_EVERY, PAUSE_EVERY = (0.5, 0.05) if FULL else (0.03, 0.02)  # seconds, on average


@pytest.fixture
def site(programs: Path, plugin: Path, job: Job, tmp_path: Path) -> Site:
    """Where the storm takes place."""
    return Site(programs, plugin, job.key, job.region, job.environ, tmp_path / "control")


@pytest.mark.slow
def test_agreement_of_all_ranks_at_every_call(site: Site) -> None:
    weather = Weather(PLANS, SECONDS, kills=KILLS, kill_every=KILL_EVERY, pause_every=PAUSE_EVERY)
    others = OthersWatch()
    report, faults = blow(weather, site)
    print(json.dumps(report))
    if name := os.environ.get("LAGOM_AGREEMENT_REPORT"):
        Path(name).write_text(json.dumps(report, indent=1) + "\n")
    assert faults == [], report
    done = f"{report['committed']} plans and {report['publisher_kills']} kills"
    if report["committed"] < PLANS or report["publisher_kills"] < weather.kills:
        skip_if_others_computed(others, f"{done} in {SECONDS} s, all of them right")
    assert report["intruder"]["torn"] > 0, "the intruder did nothing"
    assert report["intruder"]["stale"] > 0, "no stale word was tried"


def test_agreement_referee_sees_a_disagreement(site: Site) -> None:
    """The test above can fail: a word that no rank ran, in the referee's memory, is found and named."""
    control, storm = Control(site.page, Weather(20, 20, seed=1)), Storm(site)
    with storm.running(control, intruder=False):
        wait_until(lambda: control.count("committed") >= 20, "20 plans")
        # A call already compared cannot be changed; tamper with what the referee holds of calls still to come.
        with held(storm.ranks):
            ahead = max(control.calls()[0]) + 300
            for call in range(ahead, ahead + 50):
                control.words[CELLS_START + call % CELLS] = (call + 1) << 32 | 0x3FF
        wait_until(lambda: control["difference"], "the referee")
        control["stop"] = 1
    assert control["difference"] == 1
    assert control["communicator"] == 0
    assert ahead <= control["call"] < ahead + 50
