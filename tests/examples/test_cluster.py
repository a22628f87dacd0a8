# SPDX-License-Identifier: Apache-2.0
"""The container, Slurm and Kubernetes files under their linters, and the container's entry as process 1."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from lagom.settings import SETTINGS
from tests.contract.test_packaging import RANK

ROOT = Path(__file__).resolve().parents[2]
CLUSTER = ROOT / "examples" / "cluster"
LINTERS = {
    "Dockerfile": ["hadolint"],
    "train.sbatch": ["shellcheck"],
    "train.yaml": ["kubernetes-validate", "--strict"],
}
#: Process 1 of a container, as a launcher is: it starts a rank, which starts the controller, and ends after both.
LAUNCHER = """
import os, subprocess, sys, time
from pathlib import Path
assert os.getpid() == 1, os.getpid()
rank = subprocess.Popen([sys.executable, "-c", sys.argv[1]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
assert rank.stdout.readline() == "ready\\n"
log = Path(os.environ["LAGOM_DIR"]) / "controller.log"
while not (log.exists() and "lagom controller" in log.read_text()):
    time.sleep(0.05)
rank.stdin.close()
assert rank.wait() == 0
try:
    while True:
        os.wait()  # the controller is a child of process 1 now
except ChildProcessError:
    print("all children have ended")
"""


@pytest.mark.parametrize("file", LINTERS)
def test_a_linter_finds_nothing(file: str) -> None:
    command = LINTERS[file]
    beside = Path(sys.executable).parent / command[0]  # where `make dev` puts it
    linter = str(beside) if beside.exists() else shutil.which(command[0])
    if linter is None:
        pytest.skip(f"{command[0]} is not installed: `make dev` installs it")
    done = subprocess.run(
        [linter, *command[1:], str(CLUSTER / file)], capture_output=True, text=True, check=False, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("file", LINTERS)
def test_every_variable_of_ours_exists_and_the_log_folder_is_set(file: str) -> None:
    named = set(re.findall(r"\bLAGOM_[A-Z_]+\b", (CLUSTER / file).read_text()))
    assert named <= {setting.name for setting in SETTINGS}
    assert "LAGOM_DIR" in named


def test_the_entry_of_the_container_is_a_process_1_that_ends_with_its_job(tmp_path: Path) -> None:
    namespace = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc"]
    if subprocess.run([*namespace, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("a PID namespace is not allowed here")
    (entry,) = re.findall(r"^ENTRYPOINT (.*)$", (CLUSTER / "Dockerfile").read_text(), re.MULTILINE)
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("LAGOM_", "NCCL_"))}
    environ |= {"PATH": f"{Path(sys.executable).parent}:{environ['PATH']}", "PYTHONPATH": str(ROOT)}
    environ |= {"LAGOM_DIR": str(tmp_path / "log"), "LAGOM_SHM_DIR": str(tmp_path), "LAGOM_CACHE": "off"}
    command = [*namespace, *json.loads(entry), sys.executable, "-c", LAUNCHER, RANK]
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "all children have ended\n"), done.stderr
