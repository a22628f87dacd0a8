# SPDX-License-Identifier: Apache-2.0
"""Every example in plain torch runs on gloo, and with the environment that `lagom env` and `lagom run` give it."""

from __future__ import annotations

import ast
import itertools
import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests import torch_jobs
from tests.processor_time import shared
from tests.tiers import amount

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"
GUIDE_JOB = Path(__file__).with_name("strands_guide_job.py")
PLAIN = ("ddp", "fsdp2", "tensor_parallel", "expert_parallel")
FRAMEWORKS = {"accelerate_ddp": "accelerate", "lightning_ddp": "lightning", "deepspeed_zero": "deepspeed"}
JOBS = (*PLAIN, *FRAMEWORKS)
WAYS = ("without us", "lagom env", "lagom run")
GUIDE = ROOT / "docs" / "guides" / "overlap.md"
LONGEST = 40
OPTIONS = ["--width", "64", "--steps", "3"]


def missing(job: str) -> str:
    """The package that a job needs and that is not installed."""
    needed = ("torch", FRAMEWORKS.get(job, "torch"))
    return next((name for name in needed if find_spec(name) is None), "")


def torchrun(job: str) -> list[str]:
    launcher = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    return [*launcher, "-m", torch_jobs.__name__, str(EXAMPLES / f"{job}.py"), *OPTIONS]


def environment(folder: Path) -> dict[str, str]:
    """Of a job that looks for nothing of ours outside this folder."""
    environ = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "DS_ACCELERATOR": "cpu"}
    return environ | {"PYTHONPATH": str(ROOT), "LAGOM_SHM_DIR": str(folder), "LAGOM_DIR": str(folder / "log")}


def exported(environ: dict[str, str]) -> dict[str, str]:
    """The environment of a shell after ``eval $(lagom env)``."""
    script = f'eval $("{sys.executable}" -m lagom env) && exec env -0'
    done = subprocess.run(["bash", "-c", script], cwd=ROOT, env=environ, stdout=subprocess.PIPE, text=True, check=True)
    return dict(line.split("=", 1) for line in done.stdout.split("\0") if line)


@pytest.fixture(scope="module")
def ended(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch_jobs.Done]:
    """Every job in plain torch in each way; of the ways, `lagom run` starts them all."""
    folder = tmp_path_factory.mktemp("jobs")
    environ = environment(folder)
    ways = {"without us": environ, "lagom env": exported(environ), "lagom run": None}
    assert Path(ways["lagom env"]["NCCL_TUNER_PLUGIN"]).exists()
    jobs = [
        torch_jobs.Job(f"{job}, {way}", [str(EXAMPLES / f"{job}.py"), *OPTIONS], f"{folder}/{job}, {way}", 2, variables)
        for job in PLAIN
        for way, variables in ways.items()
    ]
    jobs.append(torch_jobs.Job(GUIDE_JOB.stem, [str(GUIDE_JOB)], f"{folder}/{GUIDE_JOB.stem}", 2, environ))
    with shared("the examples"):
        return torch_jobs.run(jobs, folder, environ, [sys.executable, "-m", "lagom", "run", "--"])


@pytest.mark.skipif(bool(missing("ddp")), reason="torch is not installed")
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("job", PLAIN)
def test_an_example_runs(job: str, way: str, ended: dict[str, torch_jobs.Done]) -> None:
    code, said = ended[f"{job}, {way}"]
    assert code == 0, said[-3000:]
    assert "step 2 loss" in said, said[-3000:]


@pytest.mark.skipif(bool(missing("ddp")), reason="torch is not installed")
def test_the_block_of_the_guide_runs_in_strands(ended: dict[str, torch_jobs.Done]) -> None:
    code, said = ended[GUIDE_JOB.stem]
    assert code == 0, said[-3000:]
    assert "the guide's block is the whole model's" in said, said[-3000:]
    strands = GUIDE.read_text().partition("\n## Strands")[2]
    blocks = re.findall(r"^```python\n(.*?)^```", strands, re.MULTILINE | re.DOTALL)
    assert [block.count("\n") <= 30 for block in blocks] == [True] * 2


@pytest.mark.slow
@pytest.mark.parametrize(("job", "way"), amount([("ddp", "lagom run")], list(itertools.product(JOBS, WAYS))))
def test_an_example_runs_under_torchrun(job: str, way: str, tmp_path: Path) -> None:
    if package := missing(job):
        pytest.skip(f"{package} is not installed: pip install '.[examples]'")
    environ = environment(tmp_path)
    command = torchrun(job)
    if way == "lagom env":
        environ = exported(environ)
    elif way == "lagom run":
        command = [sys.executable, "-m", "lagom", "run", "--", *command]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    last_line = "rank 0: 3 steps" if job == "lightning_ddp" else "step 2 loss"
    assert last_line in done.stdout, done.stdout[-3000:]


@pytest.mark.parametrize("job", JOBS)
def test_an_example_is_short_and_knows_nothing_of_us(job: str) -> None:
    text = (EXAMPLES / f"{job}.py").read_text()
    assert len(text.splitlines()) <= LONGEST
    imported = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module or "" for node in imported if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in imported if isinstance(node, ast.Import) for alias in node.names}
    assert not [name for name in names if name.split(".")[0] in ("lagom", "benchmarks", "tests")]


def test_every_job_has_its_row_in_the_readme() -> None:
    rows = set(re.findall(r"^\| `(\w+)\.py`", (EXAMPLES / "README.md").read_text(), re.MULTILINE))
    assert rows == {path.stem for path in EXAMPLES.glob("*.py")}
    assert rows == {*JOBS, "own_strategy"}
