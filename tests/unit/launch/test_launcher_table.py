# SPDX-License-Identifier: Apache-2.0
"""Commands as users write them: which ranks they start, on how many nodes, and which of their words stay the same."""

from __future__ import annotations

import os
import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from lagom.environment import count_nodes_told
from lagom.errors import UsageError
from lagom.launch.launcher_table import BY_NAME, LAUNCHERS
from lagom.launch.launchers import (
    Ranks,
    check_node_count,
    log_folders,
    names_of_job,
    read_command,
    spans_nodes,
    starts_every_rank,
    words_that_stay,
)

SLURM_TASK = {"SLURM_NNODES": "2", "SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setitem(BY_NAME, "deepspeed", replace(BY_NAME["deepspeed"], host_file=str(tmp_path / "hostfile")))


#: (every rank is surely started from here, command, environment): a list made by hand, with commands from the
#: documentation of launchers and clouds, when the first version of launchers.py was reviewed (28 of 59 differed).
REVIEWED: list[tuple[bool, str, dict[str, str]]] = [
    (True, "torchrun --standalone --nproc_per_node=8 train.py", {}),
    (
        False,
        "torchrun --nnodes=2 --nproc_per_node=8 --rdzv_id=100 --rdzv_backend=c10d --rdzv_endpoint=h:29400 t.py",
        {},
    ),
    (False, "torchrun --nnodes 1:4 --nproc-per-node 8 t.py", {}),
    (True, "python -m torch.distributed.run --nproc_per_node 8 t.py", {}),
    (False, "python -m torch.distributed.launch --nnodes=2 --node_rank=0 --master_addr=1.2.3.4 t.py", {}),
    (False, "accelerate launch --multi_gpu --num_machines 2 --machine_rank 0 t.py", {}),
    (False, "deepspeed --hostfile=hosts --num_gpus 8 t.py", {}),
    (False, "deepspeed --include worker-0:0,1@worker-1:0 t.py", {}),
    (True, "deepspeed --include localhost:0,1 t.py", {}),
    (False, "srun --ntasks-per-node=8 python t.py", {}),
    (False, "nsys profile -t cuda,nvtx -o rep torchrun --nnodes 4 t.py", {}),
    (True, "nsys profile -t cuda,nvtx -o rep torchrun --nproc-per-node 8 t.py", {}),
    (True, "numactl --cpunodebind=0 torchrun --nproc-per-node 8 t.py", {}),
    (False, "docker run --gpus all --rm img torchrun --nproc-per-node 8 t.py", {}),
    (False, "docker exec ctr torchrun --nproc-per-node 8 t.py", {}),
    (False, "podman run img torchrun --nproc-per-node 8 t.py", {}),
    (False, "kubectl exec pod -- torchrun --nproc-per-node 8 t.py", {}),
    (False, "sudo torchrun --nproc-per-node 8 t.py", {}),
    (False, "env -i PATH=/bin torchrun --nproc-per-node 8 t.py", {}),
    (False, "sbatch job.sh", {}),
    (False, "ray job submit -- python t.py", {}),
    (False, "colossalai run --nproc_per_node 8 --host h1,h2 t.py", {}),
    (False, "colossalai run --nproc_per_node 8 --hostfile h t.py", {}),
    (False, "torchx run -s slurm dist.ddp -j 2x8 --script t.py", {}),
    (False, "sky launch -c c task.yaml", {}),
    (False, "python pretrain.py trainer.devices=8 trainer.num_nodes=4", {}),
    (False, "python t.py --trainer.num_nodes=4", {}),
    (False, "fabric run --num-nodes 2 t.py", {}),
    (False, "lightning run model --num-nodes=2 t.py", {}),
    (False, "mpirun -np 16 -H a:8,b:8 -x NCCL_DEBUG=INFO python t.py", {}),
    (False, "mpirun -np 16 --host a:8,b:8 python t.py", {}),
    (False, "mpirun -np 16 --hostfile h python t.py", {}),
    (False, "mpiexec -n 16 -ppn 8 -f hosts python t.py", {}),
    (False, "mpirun -np 16 -N 8 python t.py", {"PRTE_MCA_plm_slurm": "x", "SLURM_JOB_NUM_NODES": "2"}),
    (False, "/opt/amazon/openmpi/bin/mpirun --hostfile my-hosts -n 16 -N 8 python t.py", {}),
    (False, "bash -c 'NNODES=2; torchrun --nnodes $NNODES t.py'", {}),
    (False, "bash -lc 'torchrun --nnodes=${SLURM_NNODES} t.py'", {}),
    (False, "torchrun --nnodes=${PET_NNODES} t.py", {}),
    (False, "pdsh -w n[1-2] torchrun t.py", {}),
    (False, "parallel-ssh -h hosts torchrun t.py", {}),
    (False, "dsh -a torchrun t.py", {}),
    (False, "mpirun.openmpi -np 16 -hostfile h python t.py", {}),
    (False, "flux run -N2 -n16 python t.py", {}),
    (False, "dask-mpi x", {}),
    (False, "torchrun --nproc_per_node 8 t.py", {"SKYPILOT_NUM_NODES": "2"}),
    (False, "python t.py", {"SM_HOSTS": '["algo-1","algo-2"]'}),
    (False, "python t.py", {"AZUREML_NODE_COUNT": "2"}),
    (False, "python t.py", {"WORLD_SIZE": "16", "RANK": "0"}),
    (True, "python t.py", {"WORLD_SIZE": "1", "RANK": "0", "LOCAL_RANK": ""}),
    (True, "singularity exec --nv img.sif torchrun --nproc-per-node 8 t.py", {}),
    (True, "conda run -n env torchrun --nproc-per-node 8 t.py", {}),
    (True, "uv run torchrun --nproc-per-node 8 t.py", {}),
    (True, "python -u train_ray_free.py --name ray", {}),
    (True, "torchrun --nproc-per-node 8 ray", {}),
    (True, "torchrun --nproc-per-node 8 t.py --num_neighbors 8", {}),
    (True, "torchrun --nproc-per-node 8 t.py --num-negatives 64", {}),
    (True, "torchrun --nproc-per-node 8 t.py --nn-hidden 64", {}),
    (True, "torchrun --nproc-per-node 8 t.py --num_nodes 2708", {}),
    (True, "deepspeed --num_gpus 8 t.py --deepspeed ds.json", {}),
]
EVERY, UNCLEAR, AWAY, SOME = Ranks.EVERY, Ranks.UNCLEAR, Ranks.AWAY, Ranks.SOME
#: (which ranks, nodes as far as the command says and 0 where that cannot be read, command, environment)
READ: list[tuple[Ranks, int, str, dict[str, str]]] = [
    # texts of shells
    (SOME, 2, "bash -c \"bash -c 'torchrun --nnodes 2 t.py'\"", {}),
    (SOME, 2, "bash -c 'cd x && export PET_NNODES=2 && exec torchrun t.py > log 2>&1'", {}),
    (SOME, 2, "bash -ec 'torchrun --nproc-per-node $(nvidia-smi -L | wc -l) --nnodes 2 t.py'", {}),
    (SOME, 2, "bash -c 'for i in 1 2; do torchrun --nnodes 2 t.py; done'", {}),
    (SOME, 2, "bash -c '(srun x); torchrun --nnodes 2 t.py'", {}),
    (SOME, 2, "bash -c 'torchrun --nnodes 2 \"t.py'", {}),
    (SOME, 2, "eval 'torchrun --nnodes 2 t.py'", {}),
    (SOME, 2, "bash -ce 'torchrun --nnodes 2 t.py'", {}),
    (UNCLEAR, 0, "bash -c 'torchrun --nnodes $(cat n) t.py'", {}),
    (EVERY, 1, "bash -c 'torchrun --nnodes=${NNODES:-1} t.py'", {}),
    (SOME, 4, "bash -c 'torchrun --nnodes=${NNODES:-1} t.py'", {"NNODES": "4"}),
    (SOME, 2, "bash -c 'torchrun 2>err --nnodes 2 t.py'", {}),
    (SOME, 2, "bash -c 'torchrun --role \"\" --nnodes 2 t.py'", {}),
    (EVERY, 1, "python t.py --note 'torchrun --nnodes 2'", {}),
    (EVERY, 1, "python -c 'import x; x.y(nnodes = 2)'", {}),
    # arguments and variables in texts of shells
    (SOME, 2, "bash -c 'torchrun \"$@\"' -- --nnodes 2 train.py", {}),
    (SOME, 2, "bash -c 'torchrun \"${@}\"' -- --nnodes 2 train.py", {}),
    (SOME, 2, "sh -c 'exec \"$@\"' _ torchrun --nnodes 2 t.py", {}),
    (SOME, 2, "sh -c '$*' _ torchrun --nnodes 2 t.py", {}),
    (SOME, 3, "sh -c 'torchrun --nnodes=${2:-1} $1' _ t.py 3", {}),
    (EVERY, 1, "sh -c 'torchrun --nnodes ${2:-1} $1' _ t.py", {}),
    (EVERY, 1, "sh -c 'torchrun t.py \"$@\"' _ --nnodes 2", {}),
    (EVERY, 1, "bash -c 'torchrun \"$@\" t.py'", {}),
    (UNCLEAR, 0, "bash -c 'shift; torchrun \"$@\"' _ x --nnodes 2 t.py", {}),
    (UNCLEAR, 0, "bash -c 'f() { torchrun \"$@\"; }; f --nnodes 2 t.py'", {}),
    (UNCLEAR, 0, "bash -c '$LAUNCH t.py'", {}),
    (UNCLEAR, 0, "bash -c '${LAUNCH:-/bin/torchrun} t.py'", {}),
    (UNCLEAR, 0, "bash -c '\"${LAUNCH[@]}\" t.py'", {}),
    (UNCLEAR, 0, "bash -c '$0 t.py' torchrun", {}),
    (UNCLEAR, 0, "bash -c 'torchrun $OPTIONS t.py'", {}),
    (UNCLEAR, 0, "bash -c 'python $(cat options) t.py'", {}),
    (UNCLEAR, 0, "bash -c 'mpirun $HOSTS python t.py'", {}),
    (UNCLEAR, 0, 'eval "$CMD"', {}),
    (EVERY, 1, "bash -c 'torchrun --nproc-per-node $N train.py $ARGS'", {}),
    (EVERY, 1, "bash -c 'cd $DIR && torchrun $DIR/train.py'", {}),
    (EVERY, 1, "bash -c '${CONDA_PREFIX}/bin/torchrun train.py'", {}),
    # wrappers
    (SOME, 2, "env A=1 torchrun --nnodes 2 t.py", {}),
    (SOME, 2, "timeout 5 torchrun --nnodes 2 t.py", {}),
    (EVERY, 1, "timeout -k 9 5 torchrun t.py", {}),
    (SOME, 2, "numactl --membind 0 torchrun --nnodes=2 t.py", {}),
    (SOME, 2, "nsys profile -o rep --stats=true torchrun --nnodes=2 t.py", {}),
    (SOME, 2, "uv run torchrun --nnodes 2 t.py", {}),
    (SOME, 2, "conda run -n e --no-capture-output torchrun --nnodes 2 t.py", {}),
    (SOME, 2, "docker run --gpus all -e A=1 img torchrun --nnodes 2 t.py", {}),
    (EVERY, 1, "sudo -nE torchrun t.py", {}),
    (SOME, 2, "kubectl exec pod -- torchrun --nnodes 2 t.py", {}),
    (AWAY, 2, "ssh head srun -N2 python t.py", {}),
    (SOME, 2, "./with_modules.sh torchrun --nnodes 2 t.py", {}),
    (AWAY, 1, "bash with_modules.sh srun python t.py", {}),
    # a letter that has a value for one wrapper and is a flag of another
    (SOME, 2, "/usr/bin/time -p torchrun --nnodes 2 t.py", {}),
    (SOME, 2, "strace -f /opt/bin/torchrun --nnodes 2 t.py", {}),
    (SOME, 2, "strace -qf python3 -m torch.distributed.run --nnodes 2 t.py", {}),
    (SOME, 2, "dumb-init -c torchrun --nnodes 2 t.py", {}),
    (SOME, 2, "tini -s torchrun --nnodes 2 t.py", {}),
    (AWAY, 1, "setsid -c srun python t.py", {}),
    (SOME, 2, "unbuffer -p bash -c 'torchrun --nnodes 2 t.py'", {}),
    (AWAY, 0, "exec -c mpirun -H a,b x", {}),
    (SOME, 2, "ncu -f torchrun --nnodes 2 t.py", {}),
    (SOME, 2, "strace -f -o torchrun torchrun --nnodes 2 t.py", {}),
    (SOME, 2, "numactl -N 0 -m 0 torchrun --nnodes 2 t.py", {}),
    (SOME, 2, "conda run -n deepspeed torchrun --nnodes 2 t.py", {}),
    (EVERY, 1, "conda run -n ray python t.py", {}),
    (SOME, 2, 'flock -n lock -c "torchrun --nnodes 2 t.py"', {}),
    (SOME, 2, "flock lock torchrun --nnodes 2 t.py", {}),
    (SOME, 2, "taskset -c 0-3 torchrun --nnodes 2 t.py", {}),
    (SOME, 2, 'script -qec "torchrun --nnodes 2 t.py" /dev/null', {}),
    (AWAY, 1, 'tmux new-session "torchrun --nnodes 2 t.py"', {}),
    (AWAY, 2, "screen -S x -dm bash -c 'torchrun --nnodes 2 t.py'", {}),
    # launchers of ranks
    (UNCLEAR, 0, "torchrun --nnodes=1:4 t.py", {}),
    (SOME, 2, "torchrun --nnodes=2:4 t.py", {}),
    (UNCLEAR, 0, "torchrun --nnodes", {}),
    (SOME, 2, "torchrun '--nnodes' '2' 't with space.py'", {}),
    (EVERY, 1, "torchrun --standalone --nproc-per-node gpu t.py --nnodes 4", {}),
    (SOME, 2, "python3.11 -m torch.distributed.run --nnodes 2 t.py", {}),
    (SOME, 2, "python -m accelerate.commands.launch --num_machines 2 t.py", {}),
    (AWAY, 2, "deepspeed --num_nodes 2 t.py", {}),
    (SOME, 2, "deepspeed --no_ssh --node_rank 1 --num_nodes 2 t.py", {}),
    (UNCLEAR, 4, "uv run --with torch t.py --num-nodes 4", {}),
    (UNCLEAR, 0, "composer --world_size 16 --node_rank 0 t.py", {}),
    (EVERY, 1, "composer -n 8 t.py --world_size 4", {}),
    (UNCLEAR, 2, "axolotl train x.yaml --num-machines 2", {}),
    # MPI and Slurm
    (AWAY, 0, "mpirun.actual -H a,b x", {}),
    (AWAY, 0, "mpiexec_hydra -f hosts x", {}),
    (EVERY, 1, "mpirun -H localhost:8 -np 8 x", {}),
    (AWAY, 0, "mpirun -np 8 --mca btl tcp,self --bind-to none -H a,b x", {}),
    (UNCLEAR, 0, "mpirun --some-new thing -H a,b x", {}),
    (AWAY, 0, "mpirun -np 1 a : -np 1 -H b c", {}),
    (AWAY, 2, "mpirun -np 2 torchrun --nnodes 2 t.py", {}),
    (AWAY, 2, "srun -N 2 torchrun --nnodes 2 t.py", {}),
    (AWAY, 2, "srun -N2 python t.py", {}),
    (AWAY, 2, "srun -n 8 python t.py", {"SLURM_NNODES": "2"}),
    (UNCLEAR, 2, "torchrun t.py", {"SLURM_NNODES": "2"}),
    (SOME, 2, "python t.py", {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "0"}),
    # nothing to start
    (EVERY, 1, "", {}),
    (EVERY, 1, "--", {}),
    (EVERY, 1, "env", {}),
    (EVERY, 1, "bash -c ''", {}),
]


@pytest.mark.parametrize(("every", "command", "environ"), REVIEWED, ids=lambda value: str(value)[:60])
def test_reviewed_commands(every: bool, command: str, environ: dict[str, str]) -> None:
    assert starts_every_rank(shlex.split(command), environ) is every


@pytest.mark.parametrize(("ranks", "nodes", "command", "environ"), READ, ids=lambda value: str(value)[:60])
def test_commands_that_are_harder_to_read(ranks: Ranks, nodes: int, command: str, environ: dict[str, str]) -> None:
    started = read_command(shlex.split(command), environ)
    assert (started.ranks, started.nodes) == (ranks, nodes)
    assert bool(started.why) is (ranks is not EVERY)


@pytest.mark.parametrize(
    ("command", "lost"),
    [
        ("env -i torchrun t.py", True),
        ("env -iu A torchrun t.py", True),
        ("singularity exec --cleanenv img torchrun t.py", True),
        ("sudo --preserve-env=PATH torchrun t.py", True),
        ("sudo -nE torchrun t.py", False),
        ("podman run --env-host img torchrun --nnodes 2 t.py", False),
        ("docker run -e A img torchrun --nnodes 2 t.py", True),
        ("bash -c 'cd x; sudo torchrun --nnodes 2 t.py'", True),
        ("doas -u a torchrun t.py", True),
        ("docker-compose -f x.yml run svc torchrun t.py", True),
        ("docker compose run svc torchrun t.py", True),
        ("mpiexec -genvnone -n 8 python t.py", True),
        ("mpiexec -envnone -n 8 python t.py", True),
        ("mpiexec -genvlist A -n 8 python t.py", True),
        ("mpiexec -envlist A,B -n 8 python t.py", True),
        ("mpiexec -genvall -n 8 python t.py", False),
        ("bwrap --ro-bind / / --clearenv torchrun t.py", True),
        ("bwrap --ro-bind / / torchrun t.py", False),
        ("ch-run --unset-env='*' img -- torchrun t.py", True),
        ("ch-run img -- torchrun t.py", False),
    ],
)
def test_whether_the_environment_is_lost_whichever_ranks_are_started(command: str, lost: bool) -> None:
    assert bool(read_command(shlex.split(command), {}).lost) is lost


def test_a_job_of_one_node_in_a_rank_spans_none() -> None:
    assert not spans_nodes(["python", "t.py"], {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "LOCAL_RANK": "0"})
    assert spans_nodes(["bash", "-c", "torchrun --nnodes 2 t.py"], {})
    assert not spans_nodes(["docker", "run", "img", "torchrun", "t.py"], {})


@pytest.mark.parametrize(
    ("nodes", "environ"),
    [
        (1, {}),
        (1, {"WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "8", "SLURM_STEP_NUM_NODES": "2"}),  # torchrun within a step
        (2, {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}),
        (2, {"WORLD_SIZE": "12", "LOCAL_WORLD_SIZE": "8"}),
        (4, {"OMPI_COMM_WORLD_SIZE": "8", "OMPI_COMM_WORLD_LOCAL_SIZE": "2"}),
        (2, {"PMI_SIZE": "8", "MPI_LOCALNRANKS": "4"}),
        (3, {"SLURM_STEP_NUM_NODES": "3", "SLURM_NNODES": "4"}),
        (1, {"SLURM_NNODES": "4"}),  # of the allocation
        (1, {"WORLD_SIZE": "16"}),
        (1, {"WORLD_SIZE": "x", "LOCAL_WORLD_SIZE": "²"}),
    ],
)
def test_a_ranks_environment_tells_the_number_of_nodes(nodes: int, environ: dict[str, str]) -> None:
    assert count_nodes_told(environ) == nodes


@pytest.mark.parametrize(
    ("command", "stay"),
    [
        (
            "torchrun --nproc_per=8 --no_such=a_b ./t.py --x_y=1 ./d",
            "torchrun --nproc-per-node 8 --no-such=a_b t.py --x_y=1 ./d",
        ),
        ("python -mtorch.distributed.run --nnodes=1 ./t.py", "python -m torch.distributed.run --nnodes 1 t.py"),
        ("python -um torch.distributed.run t.py", "python -um torch.distributed.run t.py"),
        ("uv run --module=train ./d", "uv run --module train ./d"),
        ("bash -c 'cd d && torchrun --nnodes=1 ./t.py'", "bash -c 'cd d ; torchrun --nnodes 1 t.py'"),
        ("strace -f -o log python ./a//./t.py", "strace -f -o log python a/t.py"),
        # programs, which are looked for in PATH without the folder, and arguments of code
        ("numactl -N 0 ./train ./d", "numactl -N 0 ./train ./d"),
        ("torchrun --no_python ./train", "torchrun --no-python ./train"),
        ("python -c code ./d", "python -c code ./d"),
        ("python - ./d", "python - ./d"),
        # what NCCL prints
        ("NCCL_DEBUG=INFO mpirun -x NCCL_DEBUG -x A python t.py", "mpirun -x A python t.py"),
        ("srun --export=NCCL_DEBUG=INFO,A=1 python t.py", "srun --export NCCL_DEBUG=INFO,A=1 python t.py"),
    ],
)
def test_words_that_stay_have_one_spelling(command: str, stay: str) -> None:
    assert words_that_stay(shlex.split(command)) == shlex.split(stay)
    assert words_that_stay(shlex.split(stay)) == shlex.split(stay)


@pytest.mark.parametrize(
    ("command", "stay"),
    [
        (
            "torchrun --rdzv-id=7 --rdzv_endpoint h:1 --nnodes=2 t.py --rdzv-id 3",
            "torchrun --nnodes 2 t.py --rdzv-id 3",
        ),
        ("bash -c 'MASTER_PORT=1 torchrun --master-port $P --log_dir l t.py > log'", "bash -c 'torchrun t.py'"),
        ("docker run --name x img torchrun --master_port=1 t.py", "docker run img torchrun t.py"),
        ("srun -J n -N2 --output=x python t.py -o y", "srun -N 2 python t.py -o y"),
        ("nsys profile -o rep-7 -t cuda deepspeed --master_port 5 t.py", "nsys profile -t cuda deepspeed t.py"),
        ("env NODE_RANK=1 A=2 accelerate launch --machine_rank 1 t.py", "env A=2 accelerate launch t.py"),
        ("python -m torch.distributed.run --node-rank 1 t.py", "python -m torch.distributed.run t.py"),
        ("bash -c 'torchrun $@ t.py' _ --nnodes 2", "bash -c 'torchrun $@ t.py' _ --nnodes 2"),
        ("python t.py --master_port 5", "python t.py --master_port 5"),
        ("torchrun --nnodes 2 --local-addr 10.0.0.7 t.py --local-addr 3", "torchrun --nnodes 2 t.py --local-addr 3"),
        ("torchrun --local_addr=10.0.0.7 --nnodes 2 t.py", "torchrun --nnodes 2 t.py"),
        ("PET_LOCAL_ADDR=10.0.0.7 torchrun --local-ad 10.0.0.7 t.py", "torchrun t.py"),
        ("torchrun --rdzv_conf=is_host=1,timeout=900 --nnodes 2 t.py", "torchrun --nnodes 2 t.py"),
        ("accelerate launch --rdzv_conf is_host=1 t.py", "accelerate launch t.py"),
    ],
)
def test_words_that_differ_at_each_start_are_left_out(command: str, stay: str) -> None:
    assert words_that_stay(shlex.split(command)) == shlex.split(stay)


@pytest.mark.parametrize(
    ("said", "command", "environ"),
    [
        ("torchrun without --nnodes", "torchrun --nproc-per-node 8 t.py", {}),
        ("torchrun without --nnodes", "numactl -N 0 torchrun t.py", SLURM_TASK),
        ("torchrun without --nnodes", "bash -c 'cd x && torchrun --nproc-per-node $N t.py'", {}),
        ("torch.distributed.run --nnodes 1", "python -m torch.distributed.run --nnodes=1:1 t.py", {}),
        ("torchrun with PET_NNODES=1", "torchrun t.py", {"PET_NNODES": "1"}),
        ("accelerate without --num-machines", "accelerate launch --num_processes 8 t.py", {}),
        ("deepspeed without --num-nodes", "deepspeed t.py", {}),
        ("torchrun --nnodes 3", "torchrun --nnodes 3 t.py", {}),
        ("srun may start ranks elsewhere", "srun -N3 python t.py", {}),
    ],
)
def test_a_command_of_another_number_of_nodes_is_refused(said: str, command: str, environ: dict[str, str]) -> None:
    with pytest.raises(UsageError, match=rf"^{said}.*, and --nnodes 2 is another number; make both the same\.$"):
        check_node_count(shlex.split(command), 2, environ)


@pytest.mark.parametrize(
    ("command", "environ"),
    [
        ("torchrun --nnodes 2 t.py", {}),
        ("torchrun --nnodes 1:4 t.py", {}),
        ("torchrun --nnodes $NNODES t.py", {}),
        ("torchrun t.py", {"PET_NNODES": "2"}),
        ("torchrun t.py --trainer.num_nodes 2", {}),
        ("torchrun --later-option 2 --nnodes 2 t.py", {}),
        ("bash job.sh", {}),
        ("bash job.sh", {"SLURM_NNODES": "4"}),  # of the allocation
        ("bash job.sh", {"WORLD_SIZE": "16"}),  # of ranks
        ("./wrapper torchrun t.py", {}),
        ("bash -c 'torchrun $OPTIONS t.py'", {}),
        ("mpirun -np 8 ./train", {}),
        ("docker run img torchrun t.py", {}),
    ],
)
def test_a_command_that_may_be_of_so_many_nodes_is_not_refused(command: str, environ: dict[str, str]) -> None:
    check_node_count(shlex.split(command), 2, environ)


@pytest.mark.parametrize(
    ("ranks", "nodes", "command", "text"),
    [
        (SOME, 2, "bash {}", "cd x\ntorchrun --nnodes 2 t.py"),
        (SOME, 2, "bash -e {} --nnodes 2 t.py", 'torchrun "$@"\n'),
        (SOME, 2, "env A=1 {} 2", "#!/usr/bin/env bash\nset -e  # torchrun t.py\nexec torchrun --nnodes=$1 t.py"),
        (SOME, 2, "{}", "#!/bin/sh\nexport PET_NNODES=2\ntorchrun \\\n  --nproc-per-node 8 t.py\n"),
        (AWAY, 2, "bash {}", "#SBATCH --nodes 2\nsrun -N 2 python t.py"),
        (UNCLEAR, 0, "sh {}", "$LAUNCH t.py"),
        (EVERY, 1, "sh {}", "# torchrun --nnodes 2 t.py\ntorchrun t.py  # --nnodes 2"),
        (EVERY, 1, "sh {}", "sh {0}; sh {0}"),  # starts itself
        (EVERY, 1, "{}", "#!/usr/bin/python\ntorchrun --nnodes 2 t.py"),
        (EVERY, 1, "python {}", "torchrun --nnodes 2 t.py"),
        (EVERY, 1, "bash {}", "torchrun --nnodes 2 t.py \0"),
        (EVERY, 1, "bash {}", "torchrun --nnodes 2 t.py #" + "x" * 65536),
    ],
)
def test_scripts_of_shells_are_read(ranks: Ranks, nodes: int, command: str, text: str, tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    words = shlex.split(command.format(script))
    before = words_that_stay(words)
    script.write_text(text.replace("{0}", str(script)))
    started = read_command(words, {})
    assert (started.ranks, started.nodes) == (ranks, nodes)
    assert words_that_stay(words) == before


def test_the_environment_is_lost_in_a_script(tmp_path: Path) -> None:
    (tmp_path / "run.sh").write_text("docker run img torchrun t.py")
    assert read_command(["bash", str(tmp_path / "run.sh")], {}).lost


def test_a_file_that_is_no_script_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    (tmp_path / "binary").write_bytes(b"\xff\xfe#!/bin/sh")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("fifo", "binary", "loop", ".", "missing", "x" * 5000, "\0"):
        for command in (["bash", f"{tmp_path}/{name}"], [f"{tmp_path}/{name}"]):
            assert starts_every_rank(command, {})


def test_jobs_of_one_port_are_told_apart_by_their_masters() -> None:
    pods = ({"PET_NNODES": "2", "MASTER_PORT": "23456", "MASTER_ADDR": f"{job}-0"} for job in ("train", "other"))
    train, other = (names_of_job(["torchrun", "t.py"], pod) for pod in pods)
    assert train != other


def test_the_options_of_torchrun_are_those_of_torchs_own_parser() -> None:
    """One that is not in the table may hide where the script begins; what has a value there, has one here."""
    parser = pytest.importorskip("torch.distributed.run").get_args_parser()
    torchrun = BY_NAME["torchrun"]
    with_value = {*torchrun.values, *torchrun.nodes, *torchrun.differing}
    options = [action for action in parser._actions if action.option_strings and action.dest != "help"]
    assert len(options) > 20
    for action in options:
        names = {name.replace("_", "-") for name in action.option_strings}
        assert names <= (set(torchrun.flags) if action.nargs == 0 else with_value), action.option_strings


def test_log_folders_are_found_behind_wrappers() -> None:
    command = shlex.split("bash -c 'cd x; torchrun --log-dir=logs --tee 3 t.py --log-dir other'")
    assert log_folders(command) == [Path("logs")]


def test_each_name_is_that_of_one_launcher() -> None:
    names = [name for launcher in LAUNCHERS for name in launcher.names]
    assert len(names) == len(set(names))
