# SPDX-License-Identifier: Apache-2.0
"""The demo's simulated job and its processes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from lagom.settings import read
from lagom.sim.virtual.iteration_timing import fabric_of, machine_named
from lagom.sim.virtual.job_controller import JobController
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec
from lagom.sim.virtual.virtual_job import VirtualJob

ENDLESS = 1 << 40


@dataclass(frozen=True, slots=True)
class Scene:
    """What is simulated; the default is the demo's: FSDP of Llama-3-8B on 8 A40s with NVLink."""

    model: str = "llama3_8b"
    machine: str = "a40_nvlink"
    ranks: int = 8
    tokens: int = 4096  # a GPU and iteration
    layers: int | None = None
    noise: float = 0.01
    version: str = "2.30"
    seed: int = 1

    def spec(self, iterations: int = ENDLESS) -> JobSpec:
        """The job of virtual ranks."""
        return JobSpec(
            ranks=self.ranks,
            communicators=(CommunicatorSpec(0x1A60D, "default_pg"),),
            iterations=iterations,
            version=self.version,
            profiler=True,
            workload={"kind": "fsdp", "model": self.model, "tokens": self.tokens, "layers": self.layers},
            machine=self.machine,
            fabric=fabric_of(machine_named(self.machine)),
            seed=self.seed,
            noise=self.noise,
            logging_every=10,
        )


@contextlib.contextmanager
def on_stage(
    scene: Scene, job: str, log: Path, scratch: Path, arguments: Sequence[str] = ()
) -> Iterator[tuple[JobController, VirtualJob]]:
    """Controller and ranks at work. On the way out, whatever happened, no process and no region is left."""
    environ = {"LAGOM_JOB_ID": job, "LAGOM_MODE": "tune", "LAGOM_CONTROLLER": "none", "LAGOM_DIR": str(log)}
    environ["LAGOM_SHM_DIR"] = read("LAGOM_SHM_DIR")
    with JobController(environ, log, arguments) as controller:
        controller.wait_for_region()
        with VirtualJob(scene.spec(), scratch, environ) as ranks:
            yield controller, ranks
