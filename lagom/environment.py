# SPDX-License-Identifier: Apache-2.0
"""What no tuner can change after the start of a job: the variables that NCCL reads when it builds a communicator, its
configuration files, and the GPU.

A saved config may ask for these and no others (``environment`` lines, compared by the plugin and exported by
``lagom run --config``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lagom.errors import LagomError
from lagom.start.variable_table import VARIABLES


class BadEnvironment(LagomError):
    """A variable that a saved config cannot ask for."""


#: variable -> what it decides, in the words of NCCL's documentation
KNOWN: Mapping[str, str] = {variable.name: variable.meaning for variable in VARIABLES}
MAX_VALUE = 63
GPUS = Path("/proc/driver/nvidia/gpus")
PROC = Path("/proc")
#: Of ranks: variables with the number of all and of those on this node. A launcher inside another one comes first.
RANK_COUNTS = (
    ("WORLD_SIZE", "LOCAL_WORLD_SIZE"),
    ("OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ("PMI_SIZE", "MPI_LOCALNRANKS"),
)


def select_known(environ: Mapping[str, str]) -> dict[str, str]:
    """The variables of :data:`KNOWN` that are set in ``environ``, in the table's order; what a saved config cannot hold
    (longer than 63 characters, not printable) is left out."""
    found = {name: environ[name] for name in KNOWN if environ.get(name)}
    return {name: value for name, value in found.items() if fits(value)}


def fits(value: str) -> bool:
    """Whether a saved config can hold that value."""
    return 0 < len(value) <= MAX_VALUE and value.isascii() and value.isprintable() and '"' not in value


def check_start_settings(settings: dict[str, Any]) -> dict[str, Any]:
    """Settings, or lists of values, that came from elsewhere and are to be set for a job; raises ``ValueError`` where
    a saved config could not ask for them."""
    for name, value in settings.items():
        if name not in KNOWN:
            raise ValueError(f"{name} is no start setting of NCCL that lagom knows")
        if not all(map(fits, [value] if isinstance(value, str) else value)):
            raise ValueError(f"{name} has a value that no saved config can have")
    return settings


def read_process_environment(pid: int) -> dict[str, str]:
    """The environment a process was started with; empty where it cannot be read. What a script sets in itself later
    (``os.environ`` in Python) is not in there."""
    pairs = (entry.partition("=") for entry in _read_process_words(pid, "environ"))
    return {name: value for name, equals, value in pairs if equals}


def read_process_command(pid: int) -> list[str]:
    """Its command line, without empty words; empty where it cannot be read, or was cleared."""
    return [word for word in _read_process_words(pid, "cmdline") if word]


def _read_process_words(pid: int, file: str) -> list[str]:
    try:
        return (PROC / str(pid) / file).read_bytes().decode(errors="replace").split("\0")
    except OSError:
        return []


def count_nodes_told(environ: Mapping[str, str]) -> int:
    """Number of nodes by the environment of a rank; 1 where it does not say. SLURM_NNODES is that of the allocation, in
    which a job may use one node: that of the step counts."""
    for everywhere, here in RANK_COUNTS:
        if (ranks := _number(environ, everywhere)) and (of_node := _number(environ, here)):
            return -(-ranks // of_node)
    return _number(environ, "SLURM_STEP_NUM_NODES") or 1


def count_ranks_told(environ: Mapping[str, str]) -> int:
    """Number of ranks of the job by the environment of one of them; 0 where it does not say."""
    for everywhere, here in RANK_COUNTS:
        if (ranks := _number(environ, everywhere)) and _number(environ, here):
            return ranks
    return _number(environ, "SLURM_STEP_NUM_TASKS")


def _number(environ: Mapping[str, str], name: str) -> int:
    value = environ.get(name, "")
    return int(value) if value.isdecimal() and value.isascii() else 0


def describe_differences(wanted: Mapping[str, str], environ: Mapping[str, str] | None = None) -> list[str]:
    """A clause for each wanted variable that is not set, or has another value."""
    here = os.environ if environ is None else environ
    return [
        f"{name}={value} ({'not set' if name not in here else f'here {here[name]}'})"
        for name, value in wanted.items()
        if here.get(name) != value
    ]


def conf_file(environ: Mapping[str, str]) -> Path:
    """The user's file of variables. NCCL_CONF_FILE, which NCCL reads since 2.23.4, hides ``~/.nccl.conf``."""
    named = environ.get("NCCL_CONF_FILE", "")
    return Path(named) if named else Path.home() / ".nccl.conf"


def conf_files(environ: Mapping[str, str]) -> tuple[Path, ...]:
    """The files that NCCL reads variables from, the first one wins (it sets what is not set yet: ``initEnvFunc`` in
    nccl:src/misc/param.cc). None of them overrides the environment."""
    return conf_file(environ), Path("/etc/nccl.conf")


def read_conf(file: Path) -> dict[str, str]:
    """``NAME=value`` lines of an nccl.conf; empty if there is none."""
    try:
        lines = file.read_text(errors="replace").splitlines()
    except OSError:
        return {}
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.lstrip().startswith("#"))
    return {name.strip(): value.strip() for name, value in pairs}


def conf_settings(environ: Mapping[str, str]) -> dict[str, str]:
    """What NCCL would read from its files."""
    return {name: value for file in reversed(conf_files(environ)) for name, value in read_conf(file).items()}


def with_conf_files(environ: Mapping[str, str]) -> dict[str, str]:
    """All that the user has set. What stands in a file counts like a variable, and the environment would win over it:
    who exports a variable that a file sets overrides the user."""
    return {**conf_settings(environ), **environ}


def find_gpu() -> str:
    """Product name of the GPU at the smallest PCI address, as the plugin reads it; empty without a GPU."""
    try:
        first = min(entry.name for entry in GPUS.iterdir() if not entry.name.startswith("."))
        lines = (GPUS / first / "information").read_text().splitlines()
    except (OSError, ValueError):
        return ""
    return next((line.removeprefix("Model:").strip() for line in lines if line.startswith("Model:")), "")
