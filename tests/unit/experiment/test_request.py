# SPDX-License-Identifier: Apache-2.0
"""Which variables make samples of one command line unlike."""

from __future__ import annotations

from lagom.experiment.fingerprint import env_fingerprint, fingerprint_differences


def test_what_changes_the_job_is_told_apart() -> None:
    then, now = (
        env_fingerprint({"NCCL_ALGO": "Ring", "HOME": "/root"}),
        env_fingerprint({"LD_PRELOAD": "libnccl.so.2", "HOME": "/"}),
    )
    assert list(fingerprint_differences(then, now)) == [
        "LD_PRELOAD was not set and is libnccl.so.2",
        "NCCL_ALGO was Ring and is not set",
    ]


def test_what_decides_how_many_ranks_there_are_makes_another_job() -> None:
    for name in ("PET_NPROC_PER_NODE", "WORLD_SIZE", "NNODES", "SLURM_NTASKS", "CUDA_VISIBLE_DEVICES"):
        assert env_fingerprint({name: "4", "RANK": "3"}) == {name: "4"}


def test_the_commit_that_signs_the_evidence_changes_no_job() -> None:
    """A row of the matrix that was cut short goes on after a commit."""
    assert env_fingerprint({"LAGOM_COMMIT": "e28bb08", "LAGOM_LOG_LEVEL": "debug"}) == {}


def test_what_nccl_prints_changes_no_job_that_an_older_release_has_recorded_either() -> None:
    told = dict.fromkeys(("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_TOPO_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE_RANK"), "x")
    assert env_fingerprint(told) == {}
    assert list(fingerprint_differences(told, {})) == []
    assert env_fingerprint({"NCCL_TOPO_FILE": "a", "NCCL_DEBUGGING": "b"}) == {
        "NCCL_TOPO_FILE": "a",
        "NCCL_DEBUGGING": "b",
    }
