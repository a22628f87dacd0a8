# SPDX-License-Identifier: Apache-2.0
"""Replay without a controller, ranks that start when they like: all follow it from one call on, or none."""

from __future__ import annotations

import os
import random
import subprocess
import time
from pathlib import Path

import pytest

from tests.system.storm import CELLS, Control, Weather, difference_text
from tests.system.support import Job
from tests.tiers import FULL
from tests.waiting import wait_until

ROUNDS = 40 if FULL else 10
RANKS = Weather.ranks
COMMUNICATORS = Weather.communicators
CALLS = 3 * CELLS  # of every rank on every communicator


def config_text(channels: int) -> str:
    """A saved config for each of the storm's communicators: size rules, for the programs need not be known here."""
    lines = ["lagom-config 1", f"fingerprint ranks {RANKS}"]
    for ordinal in range(COMMUNICATORS):
        lines.append(f"communicator ranks={RANKS} nodes=1 ordinal={ordinal}")
        lines.append(f"rule allgather 1M - nc={channels + ordinal} chunk={64 << 10}")
        lines.append(f"rule any 64K - nc={channels + 8}")
        lines.append("end")
    return "\n".join(lines) + "\n"


def play(programs: Path, plugin: Path, job: Job, folder: Path, configs: list[Path | None], seed: int) -> Control:
    """One job: ranks start a random moment apart, and run until all have made enough calls."""
    control_path, dice = folder / f"control-{seed}", random.Random(seed)
    control, ranks = Control(control_path, Weather(0, 0, seed=seed)), []
    for rank, config in enumerate(configs):
        environ = {**os.environ, **job.with_(LAGOM_MODE="replay", LAGOM_JOB_ID=f"{job.key[6:18]}-{seed}")}
        if config is not None:
            environ["LAGOM_CONFIG"] = str(config)
        line = [str(programs / "storm_rank"), str(plugin), str(control_path), str(rank)]
        ranks.append(subprocess.Popen(line, env=environ, stderr=subprocess.DEVNULL))
        time.sleep(dice.random() * 0.02)
    try:
        wait_until(lambda: min(map(min, control.calls())) >= CALLS or control["stop"], "enough calls", pause=0.005)
        control["stop"] = 1
        assert [rank.wait() for rank in ranks] == [0] * RANKS
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    return control


def test_agreement_of_a_replayed_saved_config(programs: Path, plugin: Path, job: Job, tmp_path: Path) -> None:
    """One saved config for all: in force on every communicator, from the same call on every rank."""
    config = tmp_path / "config"
    config.write_text(config_text(4))
    for seed in range(ROUNDS):
        control = play(programs, plugin, job, tmp_path, [config] * RANKS, seed)
        assert control["difference"] == 0, difference_text(control)
        assert control.changed() > sum(map(sum, control.calls())) // 4, "hardly a call was changed"


@pytest.mark.parametrize("odd_one", ["another saved config", "no saved config", "a damaged saved config"])
def test_agreement_where_one_rank_differs(odd_one: str, programs: Path, plugin: Path, job: Job, tmp_path: Path) -> None:
    """One rank has another saved config, none, or half of one: then nobody replays."""
    config, other = tmp_path / "config", tmp_path / "other"
    config.write_text(config_text(4))
    other.write_text(config_text(5) if odd_one == "another saved config" else config_text(4)[:-40])
    dice = random.Random(odd_one)
    for seed in range(max(1, ROUNDS // 2)):
        configs: list[Path | None] = [config] * RANKS
        configs[dice.randrange(RANKS)] = None if odd_one == "no saved config" else other
        control = play(programs, plugin, job, tmp_path, configs, seed)
        assert control["difference"] == 0, difference_text(control)
        assert control.changed() == 0
