# SPDX-License-Identifier: Apache-2.0
"""Head-room: NCCL builds more channels, and every call that nobody tunes runs as if it had not, whatever becomes of
the controller; only a plan goes above stock."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest

from lagom import journal
from lagom.config_file import load_config
from lagom.headroom import Headroom
from lagom.records import CommConfig, Function
from lagom.sim.virtual.call_log import load, load_configs, unpack
from lagom.sim.virtual.job_controller import JobController
from lagom.sim.virtual.selection import Fabric
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec
from lagom.sim.virtual.virtual_job import VirtualJob
from tests.system.play import UNHURRIED
from tests.system.support import Job

BIG, SMALL = 0xB16, 0x5A11
RANKS, ITERATIONS = 2, 30
FRESH_PROCESSES = True  # the controller reads the environment in /proc
SIZES = (1 << 10, 40 << 10, 200 << 10, 700 << 10, 800 << 10, 3 << 20, 64 << 20)
FUNCTIONS = (Function.ALL_GATHER, Function.REDUCE_SCATTER, Function.ALL_REDUCE, Function.BROADCAST)
EVERY_CALL = tuple((int(function), size) for function in FUNCTIONS for size in SIZES)
SPEC = JobSpec(
    ranks=RANKS,
    communicators=(CommunicatorSpec(BIG, "big", EVERY_CALL), CommunicatorSpec(SMALL, "small", EVERY_CALL[::-1])),
    iterations=ITERATIONS,
    profiler=True,
    timeline="profiler",
    fabric=Fabric(channels=24),
)
ROOM = Headroom(32, 24).environment()


def ran(job: Job, folder: Path, spec: JobSpec, **variables: str) -> dict[tuple[int, int], list[CommConfig]]:
    """What every rank ran on every communicator, by (communicator, rank)."""
    with VirtualJob(spec, folder, job.with_(**variables)) as ranks:
        ranks.finish()
        assert ranks.differences() == []
    return {
        (one.comm_id, rank): load_configs(folder, one.comm_id, rank)
        for one in spec.communicators
        for rank in range(spec.ranks)
    }


@pytest.mark.parametrize("version", ["2.28", "2.31"])
def test_untuned_calls_run_as_without_headroom(version: str, job: Job, tmp_path: Path) -> None:
    spec = replace(SPEC, version=version)
    stock = ran(job, tmp_path / "stock", spec)
    assert max(config.channels or 0 for config in stock[BIG, 0]) == 24
    assert ran(job, tmp_path / "member", spec, **ROOM) == stock, "nobody came to tune"
    if version == "2.31":
        return  # the rest does not depend on the release
    assert ran(job, tmp_path / "off", spec, **ROOM, LAGOM_MODE="off") == stock
    assert ran(job, tmp_path / "alone", spec, **ROOM, LAGOM_SHM_DIR="/nonexistent") == stock
    bare = ran(job, tmp_path / "bare", replace(spec, plugin=False), **ROOM)
    assert max(config.channels or 0 for config in bare[BIG, 0]) == 32, "without the plugin head-room shows"


def test_a_controller_killed_in_the_first_second_leaves_stock(job: Job, tmp_path: Path) -> None:
    stock = ran(job, tmp_path / "stock", SPEC)
    spec = replace(SPEC, iterations=200, pace=False)  # nobody reads on
    # Still learning when it is killed, however late that is.
    learning = ("--stable-iterations", str(2 * spec.iterations))
    with JobController(job.with_(**ROOM), job.folder, learning) as controller:
        controller.wait_for_region()
        with VirtualJob(spec, tmp_path / "killed", job.with_(**ROOM)) as ranks:
            assert ranks.wait_iteration(3)
            controller.kill()
            ranks.finish()
            assert ranks.differences() == []
    period = len(EVERY_CALL)
    words = load(tmp_path / "killed", BIG, 0)
    assert [unpack(word) for word in words] == stock[BIG, 0][:period] * (len(words) // period)


@pytest.mark.slow
def test_nc_is_searched_above_stock_and_the_saved_config_asks_for_the_same_start(job: Job, tmp_path: Path) -> None:
    """Nothing computes here and a collective's time goes with its channels, so more than stock's is best."""
    calls = ((int(Function.ALL_GATHER), 256 << 20),) * 6
    spec = replace(SPEC, communicators=(CommunicatorSpec(BIG, "big", calls),), iterations=1 << 30, noise=0.003)
    environ = job.with_(**ROOM)
    outcome = None
    with JobController(environ, job.folder, (*UNHURRIED, "--stable-iterations", "5")) as controller:
        controller.wait_for_region()
        with VirtualJob(spec, tmp_path / "ranks", environ) as ranks:
            while outcome is None:  # pytest's own limit ends this
                time.sleep(0.2)
                controller.check()
                assert ranks.running()
                outcome = next((e for e in events(job.folder) if isinstance(e, journal.Outcome)), None)
            ranks.stop()
            ranks.finish()
            assert ranks.differences() == []
        controller.send(signal.SIGTERM)
    assert outcome is not None
    assert outcome.verdict == "improved"
    (chosen,) = outcome.configs_chosen
    assert chosen.channels is not None
    assert 24 < chosen.channels <= 32
    start = next(e for e in events(job.folder) if isinstance(e, journal.JobStart))
    assert start.headroom == "32:24"
    config = job.folder / "config.lagom"
    assert load_config(config).environment == ROOM
    (section,) = load_config(config).sections
    assert section.assignment is not None
    replayed = ran(job, tmp_path / "replay", replace(spec, iterations=80), **ROOM, LAGOM_MODE="replay",
                   LAGOM_CONFIG=str(config))  # fmt: skip
    assert {config.channels for config in replayed[BIG, 0]} == {24, chosen.channels}
    refused = ran(
        job, tmp_path / "refused", replace(spec, iterations=80), LAGOM_MODE="replay", LAGOM_CONFIG=str(config)
    )
    assert {config.channels for config in refused[BIG, 0]} == {24}
    said = json.loads((tmp_path / "refused" / "rank0.json").read_text())["log"]
    assert any("which is not set here" in line for line in said), said


def events(folder: Path) -> list[object]:
    log = folder / journal.LOG_NAME
    return list(journal.read(log)) if log.exists() and log.stat().st_size else []
