# SPDX-License-Identifier: Apache-2.0
"""What a search of one job proved is tried first by the search of another one with like communicators."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

from lagom import journal
from lagom.atlas import load_atlas
from tests.system.launched import launch
from tests.system.test_candidates import after, moves_of

#: Whose search improves it within seconds; the other job has another number of layers and of tokens.
FIRST = (sys.executable, "-m", "lagom.demo.job", "--ranks", "2", "--layers", "4")
SECOND = (sys.executable, "-m", "lagom.demo.job", "--ranks", "2", "--layers", "3", "--tokens", "4096")


@pytest.mark.slow
def test_another_job_tries_first_what_was_proven_for_a_like_one(tmp_path: Path) -> None:
    cache = {"LAGOM_CACHE": str(tmp_path / "cache")}
    events, done = launch(tmp_path, until=journal.Outcome, job=FIRST, **cache)
    assert done.returncode == 0, done.stderr
    (outcome,) = [event for event in events if isinstance(event, journal.Outcome)]
    assert outcome.verdict == "improved", "or there is nothing to be tried"
    (entry,) = load_atlas(cache).own
    assert (entry.key.ranks, entry.key.nodes, entry.speedup) == (2, 1, outcome.speedup)
    assert entry.key.regime, "virtual ranks show X and Y"

    shutil.rmtree(tmp_path / "log")
    events, _ = launch(tmp_path, until=after(2), job=SECOND, **cache)
    baseline, tried, *_ = moves_of(events)
    assert (baseline.purpose, tried.phase) == ("baseline", "candidate")
    assert f"from the atlas ({entry.speedup:.3f}x with 2 ranks: lagom run on 2" in tried.reason

    for options, variables in ((("--no-atlas",), {}), ((), {"LAGOM_ATLAS": "off"}), (("--fresh",), {})):
        shutil.rmtree(tmp_path / "log")
        events, _ = launch(tmp_path, *options, until=after(2), job=SECOND, **cache, **variables)
        assert len(moves_of(events)) >= 2
        assert not [move for move in moves_of(events) if "the atlas" in move.reason], "but what the last one had left"
