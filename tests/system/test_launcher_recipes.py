# SPDX-License-Identifier: Apache-2.0
"""The commands of docs/guides/launchers.md for several nodes, as they stand there, tried on one machine: stand-ins of
srun, mpirun and a pod start what follows once a node, with the variables that the real ones set, and the job is a few
virtual ranks on each node."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lagom.cli.measured_job import check_job
from lagom.cli.tune_nodes import EXCHANGE
from lagom.experiment.store import read_record
from lagom.tune.stages import TuneRecord
from tests.forked_commands import Lagom
from tests.system.launched import bare_environment
from tests.system.test_start_agreement import ended, environ_of, keep
from tests.system.test_tune import METRIC
from tests.tiers import FULL

ROOT = Path(__file__).resolve().parents[2]
GUIDE = (ROOT / "docs" / "guides" / "launchers.md").read_text()
#: Skips a launcher's own options, as its manual has them: `--name value`, `--name=value` and `-Nvalue`.
SKIP = """
while [[ $1 == -* ]]; do
  case $1 in *=*|-[A-Za-z]?*) [[ $1 == -np ]] && shift; shift;; *) shift 2;; esac
done
"""
#: Starts what follows on both nodes at the same time, and ends with the larger exit code. `$node` is 0 and 1.
BOTH = """
for node in 0 1; do
  env NCCL_HOSTID=node$node {variables} "$@" & started[node]=$!
done
code=0
for one in "${{started[@]}}"; do wait $one; last=$?; (( last > code )) && code=$last; done
exit $code
"""
#: Of srun(1), "output environment variables", and of slurmstepd for each task; one task a node.
SLURM = (
    "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NNODES=2 SLURM_JOB_NUM_NODES=2 SLURM_STEP_NUM_NODES=2 SLURM_NTASKS=2 "
    "SLURM_STEP_NUM_TASKS=2 SLURM_STEP_TASKS_PER_NODE='1(x2)' SLURM_PROCID=$node SLURM_NODEID=$node SLURM_LOCALID=0 "
    "SLURMD_NODENAME=node$node SLURM_JOB_NODELIST='node[0-1]' SLURM_LAUNCH_NODE_IPADDR=127.0.0.1 SLURM_TASK_PID=$$"
)
#: Of Open MPI 5, "environment variables set for MPI applications", and of PMIx.
OPEN_MPI = (
    "OMPI_COMM_WORLD_SIZE=2 OMPI_COMM_WORLD_RANK=$node OMPI_COMM_WORLD_LOCAL_SIZE=1 OMPI_COMM_WORLD_LOCAL_RANK=0 "
    "OMPI_COMM_WORLD_NODE_RANK=0 OMPI_UNIVERSE_SIZE=2 PMIX_NAMESPACE=prterun-node0-7@1 PMIX_RANK=$node "
    "PMIX_HOSTNAME=node$node"
)
#: Of an Indexed Job and of the PyTorchJob of Kubeflow's training operator.
POD = (
    "HOSTNAME=train-$node JOB_COMPLETION_INDEX=$node KUBERNETES_SERVICE_HOST=10.0.0.1 MASTER_ADDR=train-0 "
    "MASTER_PORT=23456 PET_NNODES=2 PET_NODE_RANK=$node"
)
#: `torchrun`, or the task that srun starts on a node. The second process ends the search.
RANKS = f"""#!/bin/bash
echo "$LAGOM_TRIAL $NCCL_HOSTID ${{NCCL_SOCKET_NTHREADS-plain}}" >> "$PLACE/started"
if [[ $LAGOM_TRIAL != 1 ]]; then
  kill -TERM $(cat "$PLACE/launchers")
  exec sleep 600
fi
exec {sys.executable} {ROOT}/tests/system/forked_job.py --ranks 2 --layers 2 --sockets --iterations 8
"""


def block_with(words: str) -> str:
    """The fenced block of the guide that has these words."""
    (found,) = [one for one in re.findall(r"^```\w*\n(.*?)^```", GUIDE, re.DOTALL | re.MULTILINE) if words in one]
    return str(found)


def of_pod() -> str:
    """What the container of a pod runs."""
    (words,) = re.findall(r"command: (\[[^]]*\])", block_with("/shared/lagom-cache"))
    return shlex.join(json.loads(words))


#: What the command is started by, and the command; of `srun` and `mpirun` the launcher is in it.
RECIPES = {
    "torchrun": ("each_node", block_with("lagom tune --nnodes 2 --out /shared/tune -- $JOB")),
    "srun": ("", block_with("srun --nodes 2 --ntasks-per-node 8")),
    "srun + torchrun": ("", block_with("srun --nodes 2 --ntasks-per-node 1")),
    "mpirun": ("", block_with("mpirun -np 2 --map-by")),
    "Kubernetes": ("each_pod", of_pod()),
}


VARIABLES = {"srun + torchrun": SLURM, "mpirun": OPEN_MPI, "Kubernetes": POD}


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder with the stand-ins on PATH, and what both nodes share."""
    scripts = {
        "srun": SKIP + BOTH.format(variables=SLURM),
        "mpirun": SKIP + BOTH.format(variables=OPEN_MPI),
        "each_pod": BOTH.format(variables=POD),
        "each_node": BOTH.format(variables=""),
        "lagom": f'echo $$ >> "$PLACE/launchers"\nexec {sys.executable} -m lagom "$@"\n',
    }
    (tmp_path / "bin").mkdir()
    (tmp_path / "shared").mkdir()
    (tmp_path / "shm").mkdir()
    for name, text in scripts.items():
        (tmp_path / "bin" / name).write_text(f"#!/bin/bash\n{text}")
    for name in ("torchrun", "python"):
        (tmp_path / "bin" / name).write_text(RANKS)
    for script in (tmp_path / "bin").iterdir():
        script.chmod(0o755)
    return tmp_path


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("node", ["0", "1"])
def test_no_launcher_refuses_its_recipe(name: str, node: str, monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Where it is started, with what is set there."""
    for variable in set(os.environ) - set(bare_environment()):
        monkeypatch.delenv(variable)
    for assignment in shlex.split(VARIABLES.get(name, "").replace("$node", node).replace("$$", "1")):
        monkeypatch.setenv(*assignment.split("=", 1))
    monkeypatch.setenv("PATH", f"{place}/bin:{os.environ['PATH']}")
    command = RECIPES[name][1].replace("\\\n", " ").replace("$JOB", "torchrun --nnodes 2 train.py")
    words = shlex.split(command[command.index("lagom tune") :])
    nnodes = int(words[words.index("--nnodes") + 1]) if "--nnodes" in words[: words.index("--")] else 1
    said: list[str] = []
    check_job(words[words.index("--") + 1 :], "", said.append, nnodes)
    assert nnodes == (1 if name == "srun" else 2)
    assert not said


def test_the_start_after_a_search_is_that_of_the_command_which_was_tuned(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The guide's line on both nodes, with the config that `lagom tune` keeps of its line above: it is found there, and
    what is printed stands in the guide."""
    monkeypatch.chdir(place)
    tuned, start = RECIPES["torchrun"][1], block_with("lagom: start settings agreed")
    (job,) = re.findall(r'JOB="(.*)"', tuned)
    out, command = re.findall(r"lagom tune --nnodes 2 --out (\S+) -- (.*)", tuned)[0]
    line, *printed = start.replace("/shared", f"{place}/shared").splitlines()
    (place / "bin" / "torchrun").write_text("#!/bin/bash\n")
    monkeypatch.setenv("PATH", f"{place}/bin:{os.environ['PATH']}")
    Path(f"{place}{out}").mkdir()
    for node in ("node0", "node1"):
        keep(place, node, shlex.split(command.replace("$JOB", job)), exchange=f"{place}{out}/{EXCHANGE}")
    _, *words = shlex.split(line.replace("$JOB", job))
    started = [Lagom(*words, cwd=place, env=environ_of(place, node)) for node in ("node0", "node1")]
    for lines in map(ended, started):
        told = [one for one in lines if "enrolled, but silent for" not in one]  # one launcher may be that much later
        in_order = [one.replace("(node1, node0)", "(node0, node1)") for one in told]
        assert in_order[: len(printed) - 1] == printed[1:]


@pytest.mark.slow
@pytest.mark.skipif(not FULL, reason="two launchers and two jobs of virtual ranks for each recipe: make test-full")
@pytest.mark.parametrize("name", RECIPES)
def test_the_launchers_of_both_nodes_agree_and_run_a_round(name: str, place: Path) -> None:
    by, command = RECIPES[name]
    options = f"--metric {shlex.quote(METRIC)} --samples 3 --transport sockets"
    command = command.replace("/shared", f"{place}/shared").replace("lagom tune", f"lagom tune {options}")
    (place / "recipe").write_text(command)
    ours = {"PATH": f"{place}/bin:{os.environ['PATH']}", "PLACE": str(place), "HOST": "node0", "HOME": str(place)}
    more = {"PYTHONPATH": str(ROOT), "LAGOM_SHM_DIR": str(place / "shm"), "LAGOM_CLOCK": "simulated"}
    done = subprocess.run(
        ["bash", "-c", f"{by} bash recipe"], cwd=place, env={**bare_environment(), **more, **ours},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    is_once = name == "srun"
    launchers = (place / "launchers").read_text().split()
    assert len(launchers) == (1 if is_once else 2), done.stderr
    started = (place / "started").read_text().splitlines()
    assert sorted(started)[:2] == ["1 node0 plain", "1 node1 plain"], done.stderr
    out = place / "lagom-tune" if is_once else place / "shared" / "tune"
    (run, *_) = read_record(out / "bench.json", TuneRecord).runs
    assert run.counted, done.stderr
    if not is_once:
        assert done.stderr.count("lagom tune: 2 nodes (node") == 2
        assert len(re.findall(r"lagom tune: process 1: plain NCCL: .* \(ended by node ", done.stderr)) == 1
