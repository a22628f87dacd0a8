# SPDX-License-Identifier: Apache-2.0
"""Which launchers start every rank from here; in doubt none does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from lagom.launch.launcher_table import BY_NAME
from lagom.launch.launchers import read_command, starts_every_rank


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setitem(BY_NAME, "deepspeed", replace(BY_NAME["deepspeed"], host_file=str(tmp_path / "hostfile")))
    return tmp_path


ONE_NODE = [
    ["python", "train.py"],
    ["bash", "job.sh"],
    ["torchrun", "--nnodes=1", "--nproc-per-node", "8", "train.py"],
    ["torchrun", "--nnodes", "1:1", "train.py"],
    ["bash", "-c", "torchrun --nproc_per_node 8 train.py"],
    ["accelerate", "launch", "--num_machines", "1", "train.py"],
    ["accelerate", "launch", "train.py"],
    ["deepspeed", "--num_gpus", "8", "train.py"],
    ["mpirun", "-np", "8", "python", "train.py"],
    ["python", "train.py", "--host", "db", "-H", "8"],
]
SEVERAL_NODES = [
    ["torchrun", "--nnodes", "2", "train.py"],
    ["torchrun", "--nnodes=1:4", "train.py"],
    ["torchrun", "--nnode", "2", "train.py"],
    ["torchrun", "--nnodes", "$NNODES", "train.py"],
    ["python", "-m", "torch.distributed.run", "--nnodes=2", "train.py"],
    ["bash", "-c", "torchrun --nnodes 2 t.py"],
    ["bash", "-c", "NNODES=2 bash 'job.sh"],
    ["env", "PET_NNODES=2", "torchrun", "t.py"],
    ["accelerate", "launch", "--num_machines", "2", "train.py"],
    ["accelerate", "launch", "--num-machines=2", "train.py"],
    ["accelerate", "launch", "--config_file", "not-there.yaml", "train.py"],
    ["deepspeed", "--num_nodes", "2", "train.py"],
    ["deepspeed", "--hostfile", "hosts", "train.py"],
    ["deepspeed", "-H", "hosts", "train.py"],
    ["mpirun", "-H", "a,b", "x"],
    ["/usr/bin/mpirun", "--hostfile=hosts", "x"],
    ["mpiexec", "-f", "hosts", "x"],
    ["srun", "python", "train.py"],
    ["bash", "-c", "srun python train.py"],
]


@pytest.mark.parametrize("command", ONE_NODE, ids=" ".join)
def test_one_launcher_that_starts_all_ranks_is_enough(command: list[str]) -> None:
    assert starts_every_rank(command, {"SLURM_NNODES": "1", "WORLD_SIZE": "1", "PBS_NODEFILE": ""})


@pytest.mark.parametrize("command", SEVERAL_NODES, ids=" ".join)
def test_a_launcher_for_several_nodes_starts_only_some(command: list[str]) -> None:
    assert not starts_every_rank(command, {})


@pytest.mark.parametrize(
    "name", ["NNODES", "PET_NNODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES", "SLURM_STEP_NUM_NODES", "WORLD_SIZE"]
)
def test_the_environment_of_several_nodes_says_so(name: str) -> None:
    for command in (["torchrun", "train.py"], ["mpirun", "x"], ["bash", "job.sh"]):
        assert not starts_every_rank(command, {name: "2"})


def test_hosts_may_stand_elsewhere_than_in_the_command(home: Path) -> None:
    assert not starts_every_rank(["mpirun", "x"], {"PBS_NODEFILE": "/var/nodes"})
    assert starts_every_rank(["torchrun", "x"], {"PBS_NODEFILE": "/var/nodes"})
    (home / "hostfile").write_text("a slots=8\nb slots=8\n")
    assert not starts_every_rank(["deepspeed", "x"], {})
    config = home / ".cache" / "huggingface" / "accelerate" / "default_config.yaml"
    config.parent.mkdir(parents=True)
    config.write_text("distributed_type: MULTI_GPU\nnum_machines: 2\n")
    assert not starts_every_rank(["accelerate", "launch", "x"], {})
    assert starts_every_rank(["accelerate", "launch", "x"], {"HF_HOME": str(home / "other")})
    config.write_text("num_machines: 1\n")
    assert starts_every_rank(["accelerate", "launch", "--config_file", str(config), "x"], {})


@pytest.mark.parametrize(
    ("export", "passes"), [("NONE", False), ("NCCL_ALGO,PATH", False), ("PATH,ALL", True), ("ALL", True)]
)
def test_srun_passes_what_export_lists(export: str, passes: bool) -> None:
    lost = "" if passes else f"srun --export={export} passes nothing else of this environment"
    assert read_command(["srun", f"--export={export}", "python", "train.py"], {}).lost == lost
