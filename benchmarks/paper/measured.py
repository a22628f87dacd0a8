"""What runs on GPUs left in benchmarks/results, where there is any: the outcome of each tuned or compared job."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagom.records import Assignment, CommConfig
from lagom.sim import Simulator, machine, workloads
from lagom.sim.oracle import oracle

KIB = 1 << 10


@dataclass(frozen=True, slots=True)
class Measured:
    """One job's final A/B against stock, with its 95 % interval where the log has one, beside the simulator's value."""

    source: str
    what: str
    speedup: float
    interval: tuple[float, float] | None
    simulated: float


def measured(folder: Path) -> list[Measured]:
    """Every outcome in the folder's JSON files that the simulator has a counterpart for."""
    found: list[Measured] = []
    for path in sorted(folder.glob("*.json")):
        content = json.loads(path.read_text())
        for name, predict in _COUNTERPARTS.items():
            experiment = content.get(name) if isinstance(content, dict) else None
            for event in _outcomes(experiment):
                interval = (event["speedup_low"], event["speedup_high"])
                known = None if None in interval else interval
                found.append(Measured(path.name, name, event["speedup"], known, predict()))
    return found


def _outcomes(experiment: Any) -> list[dict[str, Any]]:
    """Outcome events of one experiment's log that carry a speed-up."""
    log = experiment.get("log") if isinstance(experiment, dict) else None
    told = log.get("told", []) if isinstance(log, dict) else []
    return [event for event in told if event.get("event") == "outcome" and event.get("speedup")]


def _host_job() -> Simulator:
    """The job of ``first_slice``'s tune and chunk: 3 Llama-3-8B layers, T=16384, host path, NCCL 2.30."""
    return Simulator(workloads.fsdp("llama3_8b", tokens=16384, layers=3, head=False, sequence=16384), machine.H200_HOST)


def _tuned() -> float:
    simulator = _host_job()
    return simulator.run(simulator.stock()).z / oracle(simulator).z


def _chunk() -> float:
    simulator = _host_job()
    every = Assignment((CommConfig(chunk_bytes=256 * KIB),) * len(simulator.problem().sites))
    return simulator.run(simulator.stock()).z / simulator.run(every).z


_COUNTERPARTS = {"tune": _tuned, "chunk": _chunk}
