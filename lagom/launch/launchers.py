# SPDX-License-Identifier: Apache-2.0
"""Whether a job's launcher starts every rank from here, as far as its command and environment say.

Start settings reach the ranks that inherit the environment of this process, and NCCL needs most of them to be the same
on every rank without checking that. So in doubt the answer is no: then a cached config is only named.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from lagom.launch.job_plan import local_rank

#: Number of nodes or ranks; more than one of these, or what is no number, may be a job of several starts.
SEVERAL = (
    "WORLD_SIZE", "PET_NNODES", "NNODES", "NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES",
    "OMPI_MCA_orte_num_nodes",
)  # fmt: skip
ONE = ("", "1", "1:1")
#: These start ranks elsewhere, with an environment of their own choice.
REMOTE = {"srun", "jsrun", "aprun", "ibrun", "pdsh", "clush", "ssh", "horovodrun", "ray"}
MPI = {"mpirun", "mpiexec", "mpiexec.hydra", "orterun", "prun", "prterun"}
#: Variables in which a batch system or the user passes the hosts to mpirun, so that the command does not show them.
HOSTS_OF_MPI = ("PBS_NODEFILE", "LSB_HOSTS", "LSB_MCPU_HOSTS", "PE_HOSTFILE", "OMPI_MCA_orte_default_hostfile",
                "OMPI_MCA_rmaps_default_hostfile", "PRTE_MCA_prte_default_hostfile", "HYDRA_HOST_FILE")  # fmt: skip
HOSTS = {"-H", "-f", "-host", "-hosts", "-hostfile", "-machinefile", "-configfile", "--host", "--hosts", "--hostfile",
         "--machinefile", "--default-hostfile", "--include", "--app"}  # fmt: skip
#: As argparse takes them, which is satisfied with the beginning of a name.
NODES = re.compile(r"--(nn|num-n|num-mach)[a-z-]*")
DEEPSPEED_HOSTS = Path("/job/hostfile")  # read unasked


def starts_every_rank(command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether this launcher starts all ranks of the job."""
    if local_rank(environ) is not None or any(environ.get(name, "") not in ONE for name in SEVERAL):
        return False
    words = list(_words(command))
    if any(count not in ONE for count in _node_counts(words)):
        return False
    programs = {Path(word).name for word in words}
    return not any(programs & launchers and elsewhere(words, environ) for launchers, elsewhere in _ELSEWHERE)


def _words(command: Sequence[str]) -> Iterator[str]:
    """Those of scripts in a word, too: ``bash -c "torchrun --nnodes 2 train.py"``."""
    for word in command:
        if any(map(str.isspace, word)):
            try:
                yield from shlex.split(word)
            except ValueError:
                yield from word.split()
        else:
            yield word


def _values(words: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Options with their values: ``--a=b`` and ``--a b``."""
    for place, word in enumerate(words):
        name, equals, value = word.partition("=")
        if name.startswith("-"):
            yield name.replace("_", "-"), value if equals else next(iter(words[place + 1 : place + 2]), "")


def _node_counts(words: Sequence[str]) -> Iterator[str]:
    """``--nnodes`` of torchrun, ``--num_machines`` of accelerate, ``--num_nodes`` of deepspeed; and what a script sets
    for itself, ``NNODES=2 torchrun ...``."""
    yield from (value for name, value in _values(words) if NODES.fullmatch(name))
    for name, _, value in (word.partition("=") for word in words):
        if name in SEVERAL:
            yield value


def _names_hosts(words: Sequence[str]) -> bool:
    return any(name in HOSTS for name, _ in _values(words))


def _accelerate_may_use_several(words: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Its config file says how many machines there are, where the command does not."""
    options = dict(_values(words))
    if "--num-machines" in options:
        return False  # looked at already
    caches = environ.get("HF_HOME") or Path(environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "huggingface"
    named = options.get("--config-file", "")
    file = Path(named) if named else Path(caches) / "accelerate" / "default_config.yaml"
    try:
        count = re.search(r"^num_machines:\s*(\d+)", file.read_text(errors="replace"), re.MULTILINE)
    except OSError:
        return bool(named)
    return count is not None and count[1] != "1"


#: Launchers, and whether they may start ranks elsewhere, by the words of the command and the environment.
_ELSEWHERE: tuple[tuple[set[str], Callable[[Sequence[str], Mapping[str, str]], bool]], ...] = (
    (REMOTE, lambda words, environ: True),
    (MPI, lambda words, environ: _names_hosts(words) or any(map(environ.get, HOSTS_OF_MPI))),
    ({"deepspeed"}, lambda words, environ: _names_hosts(words) or DEEPSPEED_HOSTS.exists()),
    ({"accelerate"}, _accelerate_may_use_several),
)
