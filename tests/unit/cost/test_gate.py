# SPDX-License-Identifier: Apache-2.0
"""The gate: lets a good model pass, and says "the model is not trusted" where the model's assumptions do not hold."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lagom.cost import fit, judge, model_of
from lagom.records import Observation

from .synthetic import HOST, NVLINK, WORKLOADS, Fsdp, observe, windows


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_model_whose_assumptions_hold_passes(name: str) -> None:
    workload = WORKLOADS[name]
    trust = judge(fit(model_of(workload.problem()), observe(workload, windows(workload, 12))))
    assert trust.trusted, trust.reason
    assert trust.error < 0.05
    assert "predicted" in trust.reason


def lawless(seed: int) -> list[Observation]:
    """Z that has nothing to do with NC and C: each config draws its own speed."""
    random = np.random.default_rng(seed)
    workload = Fsdp()
    seen = observe(workload, windows(workload, 14))
    return [
        Observation(o.assignment, o.z * math.exp(random.normal(0.0, 0.25)), o.y, o.x_by_site, 0.005) if at else o
        for at, o in enumerate(seen)
    ]


def upside_down() -> list[Observation]:
    """A landscape against physics: the more a config takes from compute and the slower it communicates, the faster."""
    workload = Fsdp(machine=HOST, stock_nc=4, kernel_ns=3e6)
    seen = observe(workload, windows(workload, 14))
    first = seen[0].z or 1.0
    return [Observation(o.assignment, first**2 / (o.z or 1.0), o.y, o.x_by_site, 0.005) for o in seen]


@pytest.mark.parametrize("seed", range(5))
def test_a_job_without_law_is_not_trusted(seed: int) -> None:
    trust = judge(fit(model_of(Fsdp().problem()), lawless(seed)))
    assert not trust.trusted
    assert trust.reason.startswith("the model is not trusted")


def test_a_job_upside_down_is_not_trusted() -> None:
    problem = Fsdp(machine=HOST, stock_nc=4, kernel_ns=3e6).problem()
    trust = judge(fit(model_of(problem), upside_down()))
    assert not trust.trusted
    assert "the model is not trusted" in trust.reason


def test_two_windows_are_too_few_to_ask() -> None:
    workload = Fsdp(machine=NVLINK)
    trust = judge(fit(model_of(workload.problem()), observe(workload, windows(workload, 3))))
    assert not trust.trusted
    assert "windows" in trust.reason


def test_where_nothing_matters_noise_is_no_reason_for_distrust() -> None:
    """All configs alike: there is no sign to get right, and an error at the level of the noise is all one can ask."""
    workload = Fsdp(kernel_ns=40e6, memory_share=0.001, blocks=10)
    seen = observe(workload, windows(workload, 12), noise=0.006)
    trust = judge(fit(model_of(workload.problem()), seen))
    assert trust.trusted, trust.reason
