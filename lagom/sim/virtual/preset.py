"""From names in a job's spec to a simulator: the one place where virtual ranks know :mod:`lagom.sim`'s presets."""

from __future__ import annotations

from typing import Any

from lagom.errors import LagomError
from lagom.sim import Simulator, workloads
from lagom.sim.machine import PRESETS, Machine
from lagom.sim.virtual.selection import Fabric
from lagom.sim.virtual.spec import JobSpec

KNOBS_BY_VERSION = {"2.24": "stock_2_28", "2.27": "stock_2_28", "2.28": "stock_2_28", "2.29": "stock_2_28"}


class UnknownPreset(LagomError):
    """A workload or machine that the simulator does not have."""


def machine_named(name: str) -> Machine:
    """A preset machine, e.g. ``a40_nvlink``."""
    if name not in PRESETS:
        raise UnknownPreset(f"no simulated machine {name!r}; choose one of {', '.join(PRESETS)}.")
    return PRESETS[name]


def fabric_of(machine: Machine) -> Fabric:
    """What NCCL builds on a simulated machine. One host of A40s or H200s without NVLink SHARP."""
    return Fabric(
        channels=machine.built_channels,
        bandwidth_gbs=machine.link.gbps,
        hop_us=machine.link.hop_ns / 1e3,
        ll128=machine.ll128,
    )


def build_simulator(spec: JobSpec) -> Simulator:
    """The simulator of a spec's workload: ``{"kind": "fsdp", "model": "llama3_8b", ...}``, other keys are arguments."""
    arguments: dict[str, Any] = dict(spec.workload)
    kind = arguments.pop("kind")
    if not hasattr(workloads, kind):
        raise UnknownPreset(f"no simulated workload {kind!r} in lagom.sim.workloads.")
    workload = getattr(workloads, kind)(**arguments, ranks=spec.ranks)
    return Simulator(workload, machine_named(spec.machine), KNOBS_BY_VERSION.get(spec.version, "stock_2_30"))
