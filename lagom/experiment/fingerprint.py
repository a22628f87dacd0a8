# SPDX-License-Identifier: Apache-2.0
"""The environment variables by which two processes of one command line are told apart.

Apart from the rest of the benchmark because every ``lagom run`` asks it, and starts faster without the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

#: Variables of the caller that would be the job's: each process is given its own.
OURS = (
    "LAGOM_MODE", "LAGOM_CONFIG", "LAGOM_DIR", "LAGOM_JOB_ID", "LAGOM_SET", "LAGOM_STRATEGY",
    "LAGOM_CONTROLLER", "LAGOM_LAUNCHER",
)  # fmt: skip
PLUGINS = ("NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN")
#: Variables that make another job of the same command line.
FINGERPRINTED = ("NCCL_", "LAGOM_", "TORCH_NCCL_", "CUDA_DEVICE_MAX_CONNECTIONS", "LD_PRELOAD")
#: So do these, by which launchers and job scripts decide how many ranks there are, and on which GPUs and nodes.
WORLD = frozenset({
    "PET_NPROC_PER_NODE", "PET_NNODES", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NPROC_PER_NODE", "NNODES", "NUM_NODES",
    "NPROC", "NGPUS", "GPUS_PER_NODE", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_NNODES", "SLURM_JOB_NUM_NODES",
    "SLURM_STEP_NUM_NODES", "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE", "SLURM_GPUS",
    "SLURM_GPUS_ON_NODE", "SLURM_GPUS_PER_NODE", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "PMI_SIZE",
    "MPI_LOCALNRANKS", "CUDA_VISIBLE_DEVICES",
})  # fmt: skip
#: What NCCL and torch print about a job, where they write it, and where NCCL can be asked. By their documentation (on
#: environment variables and logging, and on ProcessGroupNCCL) nothing of it changes communication.
#: NCCL_GRAPH_DUMP_FILE, and which rank dumps, are in the source of NCCL alone (``src/init.cc``, ``src/graph``).
DIAGNOSTIC = (
    "NCCL_DEBUG", "NCCL_DEBUG_FILE", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_TIMESTAMP_FORMAT", "NCCL_DEBUG_TIMESTAMP_LEVELS",
    "NCCL_TOPO_DUMP_FILE", "NCCL_TOPO_DUMP_FILE_RANK", "NCCL_GRAPH_DUMP_FILE", "NCCL_GRAPH_DUMP_FILE_RANK",
    "NCCL_SET_THREAD_NAME", "NCCL_RAS_ADDR", "TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "TORCH_NCCL_DEBUG_INFO_PIPE_FILE",
)  # fmt: skip
#: Of these, what every process gets anew, and what only sets a path, how much is printed, or which commit the evidence
#: is signed with (``tests/evidence.py``); and how NVIDIA's images call a package of theirs, which NCCL does not read.
NOT_FINGERPRINTED = (
    *OURS,
    *PLUGINS,
    *DIAGNOSTIC,
    "NCCL_VERSION",
    "LAGOM_SHM_DIR",
    "LAGOM_PYTHON",
    "LAGOM_LOG_LEVEL",
    "LAGOM_CACHE",
    "LAGOM_ATLAS",
    "LAGOM_NODES",
    "LAGOM_EXCHANGE",
    "LAGOM_COMMIT",
    "LAGOM_TRIAL",
)


def env_fingerprint(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables that must be the same for two samples to be compared."""
    return {
        name: value
        for name, value in sorted(environ.items())
        if (name.startswith(FINGERPRINTED) or name in WORLD) and name not in NOT_FINGERPRINTED
    }


def fingerprint_differences(then: Mapping[str, str], now: Mapping[str, str]) -> Iterator[str]:
    """``NCCL_ALGO was Ring and is not set``, of each variable that is not the same. Either may be the fingerprint of an
    older release, which held more."""
    then, now = env_fingerprint(then), env_fingerprint(now)
    for name in sorted({*then, *now}):
        if then.get(name) != now.get(name):
            yield f"{name} was {_value_text(then.get(name))} and is {_value_text(now.get(name))}"


def _value_text(value: str | None) -> str:
    return "not set" if value is None else value or "empty"
