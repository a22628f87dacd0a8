# SPDX-License-Identifier: Apache-2.0
"""How long an iteration takes under the configs that came out, and which kernels a timeline would show of it.

Two sources behind one interface: the discrete-event simulator of :mod:`lagom.sim` for a named workload and machine,
and a plain one for jobs that only want calls (agreement, faults): each collective takes its bytes over the fabric, one
after the other. Times in ns from the start of the iteration. Only here virtual ranks know the simulator's presets.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from lagom.errors import LagomError
from lagom.records import CommConfig, Function
from lagom.sim import Simulator, workloads
from lagom.sim.machine import PRESETS, MachineModel
from lagom.sim.virtual.selection import CollectiveCall, Fabric, block_threads, cost_table
from lagom.sim.virtual.spec import JobSpec
from lagom.wire.layout import KERNEL_SPAN, NO_CALL, SPAN_COLLECTIVE, SPAN_COMPUTE, SPAN_SIMULATED

KNOBS_BY_VERSION = {"2.24": "stock_2_28", "2.27": "stock_2_28", "2.28": "stock_2_28", "2.29": "stock_2_28"}


class UnknownPreset(LagomError):
    """A workload or machine that the simulator does not have."""


def machine_named(name: str) -> MachineModel:
    """A preset machine, e.g. ``a40_nvlink``."""
    if name not in PRESETS:
        raise UnknownPreset(f"no simulated machine {name!r}; choose one of {', '.join(PRESETS)}.")
    return PRESETS[name]


def fabric_of(machine: MachineModel) -> Fabric:
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


COMPUTE_STREAM, COMMUNICATION_STREAM = 7, 28


@dataclass(frozen=True, slots=True)
class Operation:
    """A collective of the iteration: which communicator makes it."""

    communicator: int
    collective: CollectiveCall


@dataclass(frozen=True, slots=True)
class IterationTimes:
    """``rows`` are KERNEL_SPAN records with times relative to the start; ``operations[i]`` is the index of the
    collective of row i, or -1 for compute."""

    z: float
    rows: NDArray[Any]
    operations: NDArray[np.int64]


class Timing(Protocol):
    """What a rank asks of its workload."""

    operations: tuple[Operation, ...]

    def of(self, configs: Sequence[CommConfig]) -> IterationTimes:
        """One iteration in which collective i ran with ``configs[i]``; cached by the configs."""


class PlainTiming:
    """Collectives one after another at the fabric's speed, no compute."""

    def __init__(self, spec: JobSpec) -> None:
        self._fabric, self._ranks = spec.fabric, spec.ranks
        self.operations = tuple(
            Operation(index, CollectiveCall(Function(function), size))
            for index, communicator in enumerate(spec.communicators)
            for function, size in communicator.calls
        )
        self._cache: dict[tuple[CommConfig, ...], IterationTimes] = {}

    def of(self, configs: Sequence[CommConfig]) -> IterationTimes:
        key = tuple(configs)
        if key not in self._cache:
            self._cache[key] = self._lay_out(key)
        return self._cache[key]

    def _lay_out(self, configs: tuple[CommConfig, ...]) -> IterationTimes:
        rows = np.zeros(len(configs), KERNEL_SPAN)
        now = 0.0
        for index, (operation, config) in enumerate(zip(self.operations, configs, strict=True)):
            length = length_alone(operation.collective, config, self._ranks, self._fabric)
            fill_collective(rows[index], operation.collective, config, now, now + length)
            now += length + 1000.0
        return IterationTimes(now, rows, np.arange(len(configs)))


class SimulatedTiming:
    """The iteration of :class:`lagom.sim.Simulator` for the spec's workload on its machine."""

    def __init__(self, spec: JobSpec) -> None:
        self._simulator = build_simulator(spec)
        self.operations = tuple(Operation(0, CollectiveCall(op.function, op.bytes)) for op in self._simulator.comm_ops)
        self._cache: dict[tuple[CommConfig, ...], IterationTimes] = {}

    def of(self, configs: Sequence[CommConfig]) -> IterationTimes:
        key = tuple(configs)
        if key not in self._cache:
            iteration = self._simulator.run_ops(key)
            self._cache[key] = self._rows(iteration, key)
        return self._cache[key]

    def _rows(self, iteration: Any, configs: tuple[CommConfig, ...]) -> IterationTimes:
        spans = sorted(iteration.kernels, key=lambda span: span.start)
        rows = np.zeros(len(spans), KERNEL_SPAN)
        operations = np.full(len(spans), -1)
        for index, span in enumerate(spans):
            if span.site >= 0:
                operations[index] = span.op
                collective = self.operations[span.op].collective
                fill_collective(rows[index], collective, configs[span.op], span.start, span.end)
            else:
                _fill_compute(rows[index], span)
            rows[index]["name"] = zlib.crc32(span.name.encode())
        return IterationTimes(iteration.z, rows, operations)


def length_alone(collective: CollectiveCall, config: CommConfig, ranks: int, fabric: Fabric) -> float:
    """How long a collective with nothing beside it takes, ns: the predicted time of the pick, scaled by the channels it
    got."""
    table = cost_table(collective.function, collective.bytes, ranks, fabric)
    assert config.algorithm is not None
    assert config.protocol is not None
    return table[config.algorithm * 3 + config.protocol] * 1e3 * fabric.channels / (config.channels or fabric.channels)


def fill_collective(row: Any, collective: CollectiveCall, config: CommConfig, start: float, end: float) -> None:
    """The span of one collective's kernel, by any clock; ``call`` and ``slot`` stay to be filled."""
    row["start_ns"], row["end_ns"] = int(start), int(end)
    row["bytes"], row["stream"], row["kind"] = collective.bytes, COMMUNICATION_STREAM, SPAN_COLLECTIVE
    row["function"], row["source"] = int(collective.function), SPAN_SIMULATED
    row["algorithm"] = -1 if config.algorithm is None else int(config.algorithm)
    row["protocol"] = -1 if config.protocol is None else int(config.protocol)
    row["channels"] = config.channels or 0
    if config.algorithm is not None and config.protocol is not None:
        row["threads"] = block_threads(config.algorithm, config.protocol, config.threads or 0)


def _fill_compute(row: Any, span: Any) -> None:
    row["start_ns"], row["end_ns"] = int(span.start), int(span.end)
    row["call"], row["slot"], row["stream"] = NO_CALL, 0xFFFFFFFF, COMPUTE_STREAM
    row["kind"], row["source"] = SPAN_COMPUTE, SPAN_SIMULATED
    row["channels"], row["threads"] = min(span.grid, 0xFFFF), span.block
    row["algorithm"] = row["protocol"] = -1


def timing_of(spec: JobSpec) -> Timing:
    """The timing a spec asks for."""
    return SimulatedTiming(spec) if spec.workload else PlainTiming(spec)
