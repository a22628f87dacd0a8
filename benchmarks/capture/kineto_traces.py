# SPDX-License-Identifier: Apache-2.0
"""Kineto traces small enough to keep beside the tests."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

from benchmarks.capture.training_job import torchrun

TRACED = {"nvlink": "fsdp-2048,fsdp-8192,ddp-4096,tp-4096", "host": "fsdp-2048,fsdp-8192"}


def small(path: Path, name: str, out: Path) -> dict[str, Any]:
    """A Kineto trace with its kernels alone, gzipped; what it holds."""
    document = json.loads(path.read_text())
    kept = [e for e in document["traceEvents"] if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
    wanted = {"device", "stream", "correlation", "grid", "block", "Collective name", "In msg nelems", "Out msg nelems"}
    wanted |= {"dtype", "Process Group Name"}
    for event in kept:
        event["args"] = {key: value for key, value in event.get("args", {}).items() if key in wanted}
    head = ("schemaVersion", "baseTimeNanoseconds", "distributedInfo", "deviceProperties", "displayTimeUnit")
    reduced = {key: document[key] for key in head if key in document}
    reduced["traceEvents"] = kept
    raw = gzip.compress(json.dumps(reduced, separators=(",", ":")).encode(), 9, mtime=0)
    (out / f"{name}.json.gz").write_bytes(raw)
    return {"kernels": len(kept), "bytes": len(raw)}


def traces(gpus: int, folder: Path, out: Path, wanted: dict[str, str]) -> dict[str, Any]:
    """Kineto traces of FSDP2 (two sizes, NVLink and the host path), DDP and TP: rank 0's, for tests/data/kineto."""
    found: dict[str, Any] = {}
    out.mkdir(parents=True, exist_ok=True)
    for regime, jobs in wanted.items():
        to = folder / regime
        environment = {**os.environ, **({"NCCL_P2P_DISABLE": "1"} if regime == "host" else {})}
        began = time.monotonic()
        done = subprocess.run(
            torchrun(gpus, "traces.py", "--jobs", jobs, "--to", str(to)),
            env=environment, capture_output=True, text=True, timeout=150, check=False,
        )  # fmt: skip
        found[regime] = {"exit": done.returncode, "seconds": round(time.monotonic() - began, 1)}
        if done.returncode:
            errors = [line for line in done.stderr.splitlines() if "Error" in line or "error" in line]
            found[regime]["output"] = done.stdout.splitlines()[-5:] + errors[:15]
        for name in jobs.split(","):
            path = to / f"{name}-rank0.json"
            if path.exists():
                found[f"{name}-{regime}"] = small(path, f"{name}-{regime}", out)
    return found
