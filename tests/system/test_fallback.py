# SPDX-License-Identifier: Apache-2.0
"""Before the first commit every failure is stock NCCL: cost table, nChannels and chunk byte for byte, no crash."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lagom.sim.virtual.call_log import load
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls
from lagom.sim.virtual.virtual_job import RankSummary, VirtualJob
from lagom.wire.layout import ffi
from lagom.wire.region import Region
from tests.system.support import Job
from tests.tiers import FULL
from tests.waiting import OthersWatch, skip_if_others_computed

COMM_ID = 0xA51DE
SEEDS, SECONDS = (10_000, 3000) if FULL else (150, 600)
CALLS = fsdp_like_calls(4, 64 << 20)


def spec(**changes: object) -> JobSpec:
    """Two ranks, twelve calls an iteration, thirty iterations."""
    fields: dict[str, object] = {
        "ranks": 2,
        "communicators": (CommunicatorSpec(COMM_ID, "pg", CALLS),),
        "iterations": 30,
    }
    return JobSpec(**{**fields, **changes})  # type: ignore[arg-type]


def play(job: Job, folder: Path, environ: dict[str, str], **changes: object) -> list[RankSummary]:
    """A whole job without a controller."""
    with VirtualJob(spec(**changes), folder, environ) as ranks:
        summaries = ranks.finish()
        assert ranks.differences() == []
    return summaries


def assert_stock(summaries: list[RankSummary]) -> None:
    """Every call of every rank as NCCL alone would have made it."""
    for summary in summaries:
        assert summary.calls > 0
        assert summary.was_stock, f"{summary.calls - summary.untouched} calls were changed; it said {summary.log}"


@pytest.mark.parametrize("version", ["2.21", "2.22", "2.24", "2.27", "2.28", "2.29", "2.30", "2.31"])
@pytest.mark.parametrize("profiler", [False, True])
def test_no_controller_is_stock_on_every_nccl(version: str, profiler: bool, job: Job, tmp_path: Path) -> None:
    timeline = "profiler" if profiler else "none"
    summaries = play(job, tmp_path, job.environ, version=version, profiler=profiler, timeline=timeline)
    assert_stock(summaries)
    online = version >= "2.28" or (version == "2.27" and profiler)
    assert all(summary.slots == online for summary in summaries)


def test_mode_off_joins_nothing(job: Job, tmp_path: Path) -> None:
    summaries = play(job, tmp_path, job.with_(LAGOM_MODE="off"))
    assert_stock(summaries)
    assert not any(summary.joined for summary in summaries)
    assert not job.region.exists()


def test_unplugged_nccl_runs_the_same_configs(job: Job, tmp_path: Path) -> None:
    """What a rank runs with the plugin standing aside is what it runs without any plugin."""
    play(job, tmp_path / "with", job.environ)
    play(job, tmp_path / "without", job.environ, plugin=False)
    assert load(tmp_path / "with", COMM_ID, 0) == load(tmp_path / "without", COMM_ID, 0)


# -- something is wrong with the region before anybody comes


def whole_region(job: Job) -> bytearray:
    """A good region's bytes, made and left by a controller."""
    os.environ["LAGOM_SHM_DIR"] = job.environ["LAGOM_SHM_DIR"]
    try:
        with Region.create(job.key, simulated_clock=True):
            return bytearray(job.region.read_bytes())
    finally:
        del os.environ["LAGOM_SHM_DIR"]


def spoil_header(field: str, value: int) -> Callable[[Job], None]:
    """A good region but for one field of its header."""

    def spoil(job: Job) -> None:
        content = whole_region(job)
        header = ffi.from_buffer("struct lagom_header *", content)
        setattr(header, field, value)
        job.region.unlink()
        job.region.write_bytes(content)
        job.region.chmod(0o600)

    return spoil


def truncated(job: Job) -> None:
    content = whole_region(job)
    job.region.write_bytes(content[: len(content) // 2])


def empty(job: Job) -> None:
    job.region.touch(mode=0o600)


def noise(job: Job) -> None:
    job.region.write_bytes(os.urandom(len(whole_region(job))))
    job.region.chmod(0o600)


def readable_by_all(job: Job) -> None:
    whole_region(job)
    job.region.chmod(0o644)


def owned_by_another(job: Job) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a file away")
    whole_region(job)
    os.chown(job.region, 4711, 4711)


def symbolic_link(job: Job) -> None:
    content = whole_region(job)
    job.region.unlink()
    target = job.region.with_name("target")
    target.write_bytes(content)
    target.chmod(0o600)
    job.region.symlink_to(target)


def directory(job: Job) -> None:
    job.region.mkdir()


def pipe(job: Job) -> None:
    os.mkfifo(job.region, 0o600)


SPOILT = {
    "truncated": truncated,
    "empty": empty,
    "noise": noise,
    "wrong magic": spoil_header("magic", 0x1234),
    "wrong version": spoil_header("protocol_version", 99),
    "wrong header size": spoil_header("header_bytes", 640),
    "another boot": spoil_header("boot_hash", 1),
    "another owner in the header": spoil_header("owner_uid", 4711),
    "readable by all": readable_by_all,
    "owned by another": owned_by_another,
    "symbolic link": symbolic_link,
    "directory": directory,
    "pipe": pipe,
}


@pytest.mark.parametrize("how", SPOILT)
def test_spoilt_region_is_stock(how: str, job: Job, tmp_path: Path) -> None:
    SPOILT[how](job)
    summaries = play(job, tmp_path / "ranks", job.environ)
    assert_stock(summaries)
    for summary in summaries:
        complaints = [line for line in summary.log if "NCCL runs stock" in line]
        assert summary.joined or len(complaints) == 1, f"{how}: one line should say why: {summary.log}"


@pytest.mark.parametrize("folder", ["missing", "a file"])
def test_no_place_for_a_region_is_stock(folder: str, job: Job, tmp_path: Path) -> None:
    place = tmp_path / "nowhere"
    if folder == "a file":
        place.write_text("")
    summaries = play(job, tmp_path / "ranks", job.with_(LAGOM_SHM_DIR=str(place)))
    assert_stock(summaries)
    assert not any(summary.joined for summary in summaries)


# -- something is wrong while they run


@pytest.mark.slow
def test_random_bytes_neither_crash_nor_disagree(programs: Path, plugin: Path, job: Job) -> None:
    """Rings, header and plans turn to noise, seed by seed. Before a commit stock, afterwards what was committed."""
    others = OthersWatch()
    done = subprocess.run(
        [programs / "noise", plugin, "1", str(SEEDS), str(SECONDS)],
        env={**os.environ, **job.environ},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(done.stdout)
    words = done.stdout.split()
    seeds, committed = int(words[0]), int(words[6])
    assert seeds > 0
    assert committed > 0
    ran = f"{seeds} of {SEEDS} seeds ran, {committed} plans were committed"
    if seeds < SEEDS or committed <= SEEDS:
        skip_if_others_computed(others, f"{ran} in {SECONDS} s, all of it right")
