# SPDX-License-Identifier: Apache-2.0
"""Ranks that come and end between two looks of `lagom tune` are seen all the same, with what they were started with."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from lagom.demo.stage import Scene
from lagom.experiment.job_regions import JobRegions
from lagom.sim.virtual.virtual_job import Process, VirtualJob, spawned
from tests.waiting import wait_until


def environment(place: Path) -> dict[str, str]:
    return {
        "LAGOM_JOB_ID": "short",
        "LAGOM_MODE": "tune",
        "LAGOM_CONTROLLER": "none",
        "LAGOM_DIR": str(place),
        "LAGOM_SHM_DIR": str(place),
    }


def test_ranks_that_come_and_end_between_two_looks_are_seen(tmp_path: Path) -> None:
    """Nobody looks; the region is opened as it appears. The second rank comes as soon as that has happened."""

    def begin(arguments: Sequence[str], environ: Mapping[str, str], said: Path, fd: int) -> Process:
        if arguments[1] == "1":
            wait_until(lambda: str(regions.region) in Path("/proc/self/maps").read_text(), "the region to be opened")
        return spawned(arguments, environ, said, fd)

    def run_job() -> None:
        with VirtualJob(Scene(ranks=2, layers=2).spec(4), tmp_path / "job", environment(tmp_path), begin) as job:
            job.finish()

    with JobRegions(environment(tmp_path), is_new=True) as regions, ThreadPoolExecutor(1) as pool:
        running = pool.submit(run_job)
        while not running.done():
            regions.sleep(0.1)
        running.result()
        assert not regions.region.exists()
        assert regions.was_made() is True
        assert (regions.ranks, len(regions.starts), regions.saw_all_ranks) == (2, 2, True)


def test_who_comes_after_the_last_look_and_ends_before_the_next_is_seen(tmp_path: Path) -> None:
    """A look falls between two ranks, and the next one after both: the last of them has removed the region by then."""
    environ = environment(tmp_path)
    pids: list[int] = []

    def begin(arguments: Sequence[str], environ: Mapping[str, str], said: Path, fd: int) -> Process:
        if arguments[1] == "1":
            wait_until(lambda: regions.see_ranks() and pids[-1] in seen(), "a look at rank 0")
        pids.append((process := spawned(arguments, environ, said, fd)).pid)
        return process

    def seen() -> set[int]:
        return {start.pid for start in regions.starts.values()}

    with JobRegions(environ, is_new=True) as regions:
        for launch in range(2):  # a script may start two launchers, one after the other
            with VirtualJob(Scene(ranks=2, layers=2).spec(4), tmp_path / f"{launch}", environ, begin) as job:
                job.finish()
            regions.see_ranks()
            assert seen() == set(pids[-2:])
            assert regions.saw_all_ranks
            assert regions.unlike({"NCCL_MIN_NCHANNELS": "8"}).endswith("set it for every rank.")
    assert not any(str(tmp_path) in line for line in Path(f"/proc/{os.getpid()}/maps").read_text().splitlines())
