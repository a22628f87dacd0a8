# SPDX-License-Identifier: Apache-2.0
"""A discrete-event simulator of one training iteration on N GPUs: try and test a tuner without any.

``Simulator(workloads.fsdp("llama3_8b"), machine.A40_NVLINK)`` is where to start; README.md says what is modelled, what
is not, and what every constant was calibrated on. It shares no code with :mod:`lagom.cost`.
"""

from __future__ import annotations

from lagom.sim import machine, workloads
from lagom.sim.simulator import KNOB_SETS, Iteration, OpCall, Simulator, SimulatorError

__all__ = ["KNOB_SETS", "Iteration", "OpCall", "Simulator", "SimulatorError", "machine", "workloads"]
