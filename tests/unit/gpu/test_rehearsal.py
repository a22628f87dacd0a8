# SPDX-License-Identifier: Apache-2.0
"""What tests/gpu is made of, on virtual ranks, so that it does not rot between runs on GPUs."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from lagom.records import Function
from lagom.sim.virtual.nccl import VirtualNccl
from lagom.sim.virtual.selection import CollectiveCall, nccl_version
from lagom.wire.layout import CALL_RECORD
from lagom.wire.library import plugin_path
from tests.gpu.jobs.operations import OPERATIONS, VALUES, shift
from tests.gpu.storm import BY_WORD, Witness
from tests.gpu.support import ROOT, Kernel, Place, Ran, kernels, place, runs_of

COMM_ID, WORLD, SECONDS = 0xABC, 2, 90
PLANS = 100


MIXED = [(BY_WORD[operation.function], operation.bytes(WORLD)) for operation in OPERATIONS]
#: Two gathers forward, two gathers and two scatters backward, and the ranks agree to go on: training.py in small.
TRAINING = [(Function.ALL_GATHER, 32 << 20)] * 3 + [
    (Function.REDUCE_SCATTER, 64 << 20),
    (Function.ALL_GATHER, 32 << 20),
    (Function.REDUCE_SCATTER, 64 << 20),
    (Function.ALL_REDUCE, 4),
]
JOBS = {"mixed": MIXED, "training": TRAINING}


def play(rank: int, stop: Path, job: str) -> None:
    """One virtual rank that makes the calls of mixed.py, or of training.py, until ``stop`` exists."""
    communicator = VirtualNccl(plugin_path(), nccl_version("2.30")).communicator(COMM_ID, WORLD, rank=rank)
    while not stop.exists():
        for function, size in JOBS[job]:
            communicator.run([CollectiveCall(function, size)])
            sys.stdin.readline()  # in step with the other rank, as a GPU's queue would keep them
            print("called", flush=True)
    communicator.destroy()


def in_step(ranks: list[subprocess.Popen[str]]) -> None:
    """Lets every rank make its next call, until the first of them ends."""
    while all(rank.poll() is None for rank in ranks):
        for rank in ranks:
            assert rank.stdin is not None
            try:
                rank.stdin.write("\n")
                rank.stdin.flush()
            except BrokenPipeError:
                return
        for rank in ranks:
            assert rank.stdout is not None
            rank.stdout.readline()


@pytest.mark.slow
@pytest.mark.parametrize("job", [*JOBS])
def test_the_storm_finds_virtual_ranks_equal_at_every_call(job: str, tmp_path: Path) -> None:
    with place(tmp_path) as spot:
        environment = spot.with_plugin(LAGOM_MODE="tune", LAGOM_CONTROLLER="none")
        line = [sys.executable, "-m", "tests.gpu.storm", str(spot.folder), "--world", str(WORLD)]
        line += ["--learn"] * (job == "training")
        storm = subprocess.Popen([*line, "--plans", str(PLANS), "--seconds", "600"], env=environment, cwd=ROOT)
        ranks = [_start(rank, spot, environment, job) for rank in range(WORLD)]
        try:
            in_step(ranks)
            assert storm.wait() == 0
        finally:
            for process in (storm, *ranks):
                process.kill()
                process.wait()
        report = json.loads((spot.folder / "report.json").read_text())
        assert report["differing"] == []
        assert report["refusals"] == {}
        assert report["plans"]["committed"] >= PLANS // 4, report
        assert report["calls"]["candidate"] > 0, report
        assert report["distinct function-size-config combinations run"] > PLANS // 4, report
        assert (spot.folder / "plans.jsonl").read_text().count("\n") == report["plans"]["committed"]


def _start(rank: int, spot: Place, environment: dict[str, str], job: str) -> subprocess.Popen[str]:
    line = [sys.executable, "-m", "tests.unit.gpu.test_rehearsal", str(rank), str(spot.stop), job]
    pipe = subprocess.PIPE
    return subprocess.Popen(line, env=environment, cwd=ROOT, stdin=pipe, stdout=pipe, text=True)


def test_the_storm_notices_two_ranks_that_differ() -> None:
    records, witness = np.zeros(2, CALL_RECORD), Witness()
    records["call"], records["chosen"]["channels"] = [5, 5], [3, 4]
    for record in records:
        witness.note(record)
    assert witness.differing == [5]


def test_operations_are_what_nccl_is_told() -> None:
    largest = OPERATIONS[0]
    assert largest.bytes(4) == 4 * largest.bytes(1) >= 1 << 20, "the rules of test_pinned.py begin at 1M"
    assert {BY_WORD[operation.function] for operation in OPERATIONS} == set(Function)
    assert OPERATIONS[2].function == "allreduce"
    assert OPERATIONS[2].bytes(4) == OPERATIONS[2].bytes(1)
    assert {shift(0, 0, iteration) for iteration in range(VALUES)} == set(range(VALUES))


def test_kernels_are_read_in_order_and_only_those_that_ask_a_tuner(tmp_path: Path) -> None:
    def event(name: str, at: float, grid: int) -> dict[str, object]:
        return {"cat": "kernel", "name": name, "ts": at, "args": {"grid": [grid, 1, 1], "block": [544, 1, 1]}}

    events = [
        event("ncclDevKernel_Reduce_Sum_f32_RING_LL(ncclDevKernelArgs)", 9.0, 2),
        event("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", 1.0, 24),
        event("ncclDevKernel_SendRecv(ncclDevKernelArgs)", 2.0, 8),
        event("nvjet_tst_128x256", 3.0, 132),
        {"name": "process_name", "ph": "M"},
        event("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgs)", 4.0, 24),
    ]
    (tmp_path / "rank0.json").write_text(json.dumps({"traceEvents": events}))
    launched = kernels(tmp_path)["rank0"]
    assert launched == [Kernel("AllGather", 24, 544), Kernel("AllGather", 24, 544), Kernel("Reduce", 2, 544)]
    assert runs_of(launched) == [(0, "AllGather", 24, 544), (2, "Reduce", 2, 544)]


def test_a_failed_job_is_quoted_with_its_first_error() -> None:
    ran = Ran(1, ["rank 0: ncclInternalError: it broke", *["noise"] * 100, '{"exact": false}'], 3.0)
    assert "it broke" in ran.tail(5)
    assert ran.last("exact") == {"exact": False}
    assert ran.last("nothing") == {}


if __name__ == "__main__":
    play(int(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])
