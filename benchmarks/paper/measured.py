# SPDX-License-Identifier: Apache-2.0
"""What runs on GPUs left in benchmarks/results, where there is any: the outcome of each tuned or compared job."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lagom.sim import Simulator, machine, workloads
from lagom.sim.oracle import oracle

EXPERIMENTS = ("chunk", "tune")
"""Of ``first_slice_h200x4_202611.json``: configs named by hand, and the search; both on the host path, 3 layers."""


@dataclass(frozen=True, slots=True)
class Measured:
    """One job's final A/B against stock, with its 95 % interval where the log has one.

    ``simulated``: the best there is for the same job on the simulated host path. That preset was calibrated on 8 GPUs;
    fewer of them share the host's memory among less, which it does not know.
    """

    source: str
    what: str
    speedup: float
    interval: tuple[float, float] | None
    simulated: float


def measured(folder: Path) -> list[Measured]:
    """Every outcome in the folder's JSON files that the simulator has a counterpart for."""
    found: list[Measured] = []
    for path in sorted(folder.glob("*.json")):
        for part in _parts(json.loads(path.read_text())):
            for name in EXPERIMENTS:
                found += _outcomes(path.name, name, part)
    return found


def _parts(content: Any) -> Iterator[dict[str, Any]]:
    """A file holds one run's results, or several under ``parts``."""
    if isinstance(content, dict):
        yield content
        yield from (part for part in content.get("parts", []) if isinstance(part, dict))


def _outcomes(source: str, name: str, part: dict[str, Any]) -> Iterator[Measured]:
    """One experiment's outcomes that carry a speed-up."""
    experiment = part.get(name)
    log = experiment.get("log") if isinstance(experiment, dict) else None
    for event in log.get("told", []) if isinstance(log, dict) else []:
        if event.get("event") == "outcome" and event.get("speedup"):
            gpus, tokens = part.get("gpus", 8), experiment.get("tokens", 16384)  # type: ignore[union-attr]
            known = (event.get("speedup_low"), event.get("speedup_high"))
            what = f"{name}, {gpus} x H200, host path, T={tokens}"
            yield Measured(source, what, event["speedup"], None if None in known else known, best(gpus, tokens))


def best(gpus: int, tokens: int) -> float:
    """Speed-up of the best there is on the simulated host path: 3 Llama-3-8B layers, sequences of ``tokens``."""
    job = workloads.fsdp("llama3_8b", ranks=gpus, tokens=tokens, layers=3, head=False, sequence=tokens)
    simulator = Simulator(job, machine.H200_HOST)
    return simulator.run(simulator.stock()).z / oracle(simulator).z
