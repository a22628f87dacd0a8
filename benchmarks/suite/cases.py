# SPDX-License-Identifier: Apache-2.0
"""What is run: every workload of the paper's Table 2 on every preset under the knob sets that make sense there."""

from __future__ import annotations

from dataclasses import dataclass, replace

from lagom.records import Problem
from lagom.sim import Simulator, machine, workloads

HEADLINE = "stock_2_30"
STRATEGIES = ("auto", "lagom", "guided", "autoccl", "static")
LESSER = ("random", "as_printed")
"""Run under the headline knob set only."""


@dataclass(frozen=True, slots=True)
class Case:
    """One landscape: a workload on a preset under a knob set.

    ``blind`` withholds what runs beside each site (``Site.context``), so that a strategy cannot tell which sites are
    alike: each is a unit of its own, and there is an order in which to grow them.
    """

    workload: str
    preset: str
    knobs: str
    blind: bool = False

    def simulator(self) -> Simulator:
        """A fresh simulator of it; ``synthetic_N`` names the convergence pattern of N collectives."""
        return Simulator(_workload(self.workload), machine.PRESETS[self.preset], self.knobs)

    def problem(self, simulator: Simulator) -> Problem:
        """What a strategy knows of ``simulator``, which is this case's."""
        known = simulator.problem()
        return replace(known, sites=tuple(replace(site, context="") for site in known.sites)) if self.blind else known

    @property
    def strategies(self) -> tuple[str, ...]:
        """What is run on it."""
        return STRATEGIES + LESSER if self.knobs == HEADLINE else STRATEGIES

    @property
    def fork_only(self) -> bool:
        """True if only the paper's fork of NCCL could do this (AlltoAll, or more channels than were built)."""
        return self.knobs == "fork"

    def __str__(self) -> str:
        return f"{self.workload} on {self.preset}, {self.knobs}" + (", contexts withheld" if self.blind else "")


def _workload(name: str) -> workloads.Workload:
    if name.startswith("synthetic_"):
        return workloads.synthetic(int(name.removeprefix("synthetic_")))
    return workloads.TABLE_2[name]


def all_cases() -> list[Case]:
    """Two hosts only where a network was given (A40). ``fork`` on the A40 presets, the paper's machines, and for EP
    everywhere, since no stock NCCL shows an AlltoAll to a tuner. Dear ones first: two processes end together."""
    cases = [
        Case(name, preset, knobs)
        for knobs in ("fork", "stock_2_30", "stock_2_28")
        for name, workload in workloads.TABLE_2.items()
        for preset, host in machine.PRESETS.items()
        if _sensible(name, preset, knobs) and (workload.ranks <= host.gpus_per_node or host.between_nodes)
    ]
    return sorted(
        cases, key=lambda case: (case.knobs != "fork", not case.workload.startswith("tp"), case.workload[:12])
    )


def batches(cases: list[Case]) -> list[list[Case]]:
    """Cases that differ only in the number of replicas, together: they share the oracle's work within one process."""
    found: dict[tuple[str, str, str], list[Case]] = {}
    for case in cases:
        found.setdefault((case.workload.split("_dp")[0], case.preset, case.knobs), []).append(case)
    return list(found.values())


def _sensible(workload: str, preset: str, knobs: str) -> bool:
    if workload.startswith("ep"):
        return knobs == "fork"
    return knobs != "fork" or preset.startswith("a40")


def quick_cases() -> list[Case]:
    """One of each kind."""
    return [
        Case("fsdp_llama3_8b_8", "a40_nvlink", HEADLINE),
        Case("fsdp_llama3_8b_8", "h200_host", HEADLINE),
        Case("fsdp_llama3_8b_8", "h200_nvlink", "stock_2_28"),
        Case("tp_mpt_7b_dp1", "a40_pcie", HEADLINE),
        Case("ep_olmoe_1b_7b_8", "a40_nvlink", "fork"),
    ]


def ablation_cases() -> list[Case]:
    """Landscapes with something to gain (FSDP and TP on NVLink, the host path) and one with little; then three with
    contexts withheld, for the order by H: with contexts known the others have too few units to put in an order."""
    return [
        Case("fsdp_llama3_8b_8", "a40_nvlink", HEADLINE),
        Case("fsdp_mpt_7b_8", "a40_nvlink", HEADLINE),
        Case("tp_llama3_8b_dp1", "a40_nvlink", HEADLINE),
        Case("fsdp_llama3_8b_8", "h200_host", HEADLINE),
        Case("fsdp_llama3_8b_8", "h200_nvlink", HEADLINE),
        Case("synthetic_6", "a40_nvlink", HEADLINE, blind=True),
        Case("synthetic_4", "a40_nvlink", HEADLINE, blind=True),
        Case("fsdp_llama3_8b_8", "a40_nvlink", HEADLINE, blind=True),
    ]
