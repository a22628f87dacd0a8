# SPDX-License-Identifier: Apache-2.0
"""Where the rows run: GPUs, regimes, which NCCL, which Python, and what a job's command line is there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.matrix.rows import ASSETS, ENDLESS, METRIC, Row

JOBS = Path(__file__).parent.parent / "jobs"
#: NVLink multicast stays off: where it is not set up it fails, and no row needs it.
NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
PIPES = os.environ.get("CUDA_MPS_PIPE_DIRECTORY", "/tmp/mps")  # of the MPS server, which the caller starts
REGIMES: dict[str, dict[str, str]] = {
    "nvlink": {},
    "host": {"NCCL_P2P_DISABLE": "1"},
    "sockets": {"NCCL_IB_DISABLE": "1", "NCCL_SOCKET_IFNAME": "lo"},
    "shared": {"NCCL_MULTI_RANK_GPU_ENABLE": "1", "CUDA_MPS_PIPE_DIRECTORY": PIPES},
}
#: Narrow models and few tokens: the same calls, in seconds, on a machine without GPUs.
TINY = {
    "fsdp.py": ("--shape", "tiny_llama", "--layers", "2", "--tokens", "128", "--sequence", "64", "--vocab", "512"),
    "two_nodes.py": ("--shape", "tiny_llama", "--layers", "2", "--tokens", "128", "--sequence", "64", "--vocab", "512"),
    "trainer.py": ("--shape", "tiny_llama", "--layers", "2", "--tokens", "64", "--sequence", "64", "--vocab", "512"),
    "tp_domino.py": ("--shape", "tiny", "--layers", "2", "--tokens", "256"),
    "tp_strands.py": ("--model", "tiny", "--layers", "1", "--tokens", "32", "--micro", "2"),
    "ep_two_batch.py": ("--shape", "tiny", "--layers", "2", "--tokens", "256"),
    "launches.py": ("--tokens", "64"),
    "ddp.py": ("--layers", "1", "--tokens", "64"),
    "transformer_ddp.py": ("--layers", "1", "--batch", "1", "--length", "16", "--accumulate", "2"),
    "fsdp_nodes.py": ("--layers", "1", "--tokens", "64"),
    "contention.py": ("--bytes", "65536", "--tokens", "64", "--width", "64", "--inner", "128", "--gemm", "library"),
}
REHEARSED_STEPS = 6


@dataclass(frozen=True, slots=True)
class Place:
    """This machine. ``rehearse``: empty on GPUs; ``gloo``: the real jobs, tiny, without NCCL; ``virtual``: virtual
    ranks under the real plugin in place of every job."""

    gpus: int
    folder: Path
    nccl_230: str | None = None
    python: str = sys.executable
    rehearse: str = ""

    def why_not(self, row: Row) -> str:
        """Why a row cannot be run here; empty if it can."""
        if self.rehearse == "virtual":
            return "" if row.kind in ("bench", "sweep") else "virtual ranks print nothing while they run"
        if self.rehearse and row.assets:
            return "trains on GPUs alone"
        if row.nccl == "2.30" and self.nccl_230 is None and not self.rehearse:
            return "needs --nccl-230"
        if row.least_gpus > self.gpus:
            return f"needs {row.least_gpus} GPUs"
        return ""

    def command(self, row: Row, *more: str) -> tuple[str, ...]:
        """The job's command line; without ``more`` it runs until it is ended."""
        if self.rehearse == "virtual":
            return (self.python, "-m", "lagom.demo.job", "--layers", "2")
        launcher = (
            self.python,
            "-m",
            "torch.distributed.run",
            "--nproc-per-node",
            str(row.ranks or self.gpus),
            "--standalone",
        )
        if row.script.startswith("-m "):
            options = (option.replace(ASSETS, str(self._assets(row))) for option in row.options)
            return (*launcher, *row.script.split(), *options)
        given = (*row.options, *(TINY[row.script] if self.rehearse else ()), *self._steps(row), *more)
        return (*launcher, str(JOBS / row.script), *given)

    def prepare(self, row: Row) -> None:
        """Make what the row's own job reads; raises CalledProcessError where that fails."""
        if row.assets and not self.rehearse:
            subprocess.run([self.python, str(JOBS / row.assets), str(self._assets(row))], check=True)

    def _assets(self, row: Row) -> Path:
        return self.folder / Path(row.assets).stem

    def _steps(self, row: Row) -> tuple[str, ...]:
        if self.rehearse:
            return ("--steps", str(REHEARSED_STEPS))
        return () if "--steps" in row.options else ("--steps", str(ENDLESS))

    def environ(self, row: Row) -> dict[str, str]:
        """What every process of a row gets on top of the caller's environment."""
        multicast = {name: os.environ.get(name, value) for name, value in NO_MULTICAST.items()}
        quiet = {"TOKENIZERS_PARALLELISM": "false", "OMP_NUM_THREADS": "1"}
        preload = {"LD_PRELOAD": self.nccl_230} if row.nccl == "2.30" and self.nccl_230 else {}
        return {**quiet, **multicast, **REGIMES[row.regime], **preload, **row.environ}

    def metric(self) -> str:
        """The regular expression for an iteration's time."""
        return r"iteration \d+: ([0-9.]+)" if self.rehearse == "virtual" else METRIC

    def versions(self) -> dict[str, str]:
        """What the jobs run with, as their Python tells."""
        asked = (
            "import json, platform, torch; gpu = torch.cuda.is_available();"
            "print(json.dumps({'torch': torch.__version__,"
            " 'nccl': '.'.join(map(str, torch.cuda.nccl.version())) if gpu else '',"
            " 'gpu': torch.cuda.get_device_name() if gpu else '', 'python': platform.python_version()}))"
        )
        done = subprocess.run([self.python, "-c", asked], capture_output=True, text=True, check=False)
        found: dict[str, str] = json.loads(done.stdout) if done.returncode == 0 else {}
        return {**found, "nccl_230": self._preloaded(), "commit": os.environ.get("LAGOM_COMMIT", "")}

    def _preloaded(self) -> str:
        """The release of the library to preload, as it tells itself; empty without one."""
        if self.nccl_230 is None:
            return ""
        asked = (
            "import ctypes, sys; n = ctypes.c_int(); ctypes.CDLL(sys.argv[1]).ncclGetVersion(ctypes.byref(n));"
            "print(f'{n.value // 10000}.{n.value // 100 % 100}.{n.value % 100}')"
        )
        done = subprocess.run([self.python, "-c", asked, self.nccl_230], capture_output=True, text=True, check=False)
        return done.stdout.strip()
