"""The training job that captures are taken of: started, and read as it goes."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

JOBS = Path(__file__).parent.parent / "jobs"
#: NVLink multicast stays off: where it is not set up it fails, or worse, and nothing here needs it.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}


@dataclass
class Job:
    """A running job and what its first rank printed."""

    process: subprocess.Popen[str]
    steps: list[dict[str, Any]] = field(default_factory=list)
    other: list[str] = field(default_factory=list)

    def read(self) -> None:
        """Collect its lines; runs in a thread until the job ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith('{"step"'):
                self.steps.append(json.loads(line))
            elif not line.startswith('{"'):
                self.other.append(line.rstrip())

    @property
    def runs(self) -> bool:
        """Whether it has not ended."""
        return self.process.poll() is None


def start(command: list[str], environment: dict[str, str]) -> Job:
    """Start a job and the thread that reads it."""
    pipe = subprocess.PIPE
    job = Job(subprocess.Popen(command, env=environment, stdout=pipe, stderr=subprocess.STDOUT, text=True))
    threading.Thread(target=job.read, daemon=True).start()
    return job


def torchrun(gpus: int, script: str, *arguments: str) -> list[str]:
    """The command line of a job of this folder."""
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", str(gpus), "--standalone"]
    return [*launcher, str(JOBS / script), *arguments]


def until(condition: Callable[[], bool], job: Job, seconds: float) -> bool:
    """Wait for something as long as the job runs."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and job.runs and not condition():
        time.sleep(0.002)
    return condition()


def more_steps(job: Job, count: int, seconds: float = 60) -> None:
    """Wait for some more steps."""
    target = len(job.steps) + count
    until(lambda: len(job.steps) >= target, job, seconds)
