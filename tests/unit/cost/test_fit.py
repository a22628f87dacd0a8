# SPDX-License-Identifier: Apache-2.0
"""Fitting: known parameters come back, half of the windows predict the other half, errors are honest."""

from __future__ import annotations

import math
import subprocess
import sys
from itertools import product

import numpy as np
import pytest

from lagom.cost import FitError, fit, model_of
from lagom.cost.fit import starting_point
from lagom.cost.parameters import INDEX
from lagom.records import Assignment, CommConfig, Observation, Sample

from .synthetic import STOCK, WORKLOADS, Fsdp, configs, observe, windows


@pytest.mark.parametrize("name", WORKLOADS)
def test_half_of_the_windows_predict_the_other_half(name: str) -> None:
    """Issue: median error <= 5 % where the assumptions hold."""
    workload = WORKLOADS[name]
    seen = observe(workload, windows(workload, 25))
    fitted = fit(model_of(workload.problem()), seen[:13])
    z = fitted.model.times(fitted.theta[None], fitted.model.resources([o.assignment for o in seen[13:]])).z[0]
    truth = np.array([workload.truth(o.assignment).z for o in seen[13:]])
    assert np.median(np.abs(np.log(z / truth))) < 0.05


def test_parameters_that_made_the_data_come_back() -> None:
    """Data from the model itself: the link's parameters are found again, within the stated uncertainty."""
    workload = Fsdp()
    model = model_of(workload.problem())
    first = workload.truth(STOCK)
    truth = starting_point(model, [Observation(STOCK, first.z, first.y, first.x_by_site)]).mean.copy()
    truth[INDEX["link"]] += 0.25
    truth[INDEX["channel"]] -= 0.4
    truth[INDEX["half_chunk"]] += 0.5
    assignments = [STOCK, *(Assignment(pair) for pair in list(product(configs(24), repeat=2))[::97])]
    times = model.times(truth[None], model.resources(assignments))
    seen = [
        Observation(a, z, y, tuple(x), 0.001)
        for a, z, y, x in zip(assignments, times.z[0], times.y[0], times.x[0], strict=True)
    ]
    fitted = fit(model, seen)
    assert fitted.misfit < 0.1
    for name in ("link", "channel", "half_chunk"):
        value, error = fitted.value(name)
        assert abs(math.log(value) - truth[INDEX[name]]) < max(0.1, 2.0 * error), name


def test_it_works_where_only_z_is_seen_and_is_less_sure() -> None:
    workload = WORKLOADS["host"]
    seen = observe(workload, windows(workload, 12))
    blind = [Observation(o.assignment, o.z, None, None, o.error) for o in seen]
    full, poor = (fit(model_of(workload.problem()), each) for each in (seen, blind))
    assert poor.value("half_chunk")[1] > full.value("half_chunk")[1]
    assert np.median(np.abs(poor.left_out[1:])) < 0.1


def test_without_y_it_still_predicts() -> None:
    workload = WORKLOADS["compute-bound"]
    full = observe(workload, windows(workload, 12))
    seen = [Observation(o.assignment, o.z, None, o.x_by_site, o.error) for o in full]
    assert np.median(np.abs(fit(model_of(workload.problem()), seen).left_out[1:])) < 0.05


def test_left_out_errors_are_those_of_a_refit_without_the_window() -> None:
    """The linearised figure against the real thing, on median and on rank order."""
    workload = WORKLOADS["host"]
    seen = observe(workload, windows(workload, 12), noise=0.01)
    model = model_of(workload.problem())
    fitted = fit(model, seen)
    real = []
    for out in range(1, len(seen)):
        without = fit(model, seen[:out] + seen[out + 1 :], fitted.theta)
        z = model.times(without.theta[None], model.resources([seen[out].assignment])).z[0, 0]
        real.append(math.log(z / (seen[out].z or 0.0)))
    assert np.median(np.abs(fitted.left_out[1:])) == pytest.approx(np.median(np.abs(real)), rel=0.5)
    assert np.corrcoef(fitted.left_out[1:], real)[0, 1] > 0.8


def test_a_start_from_the_last_fit_ends_in_the_same_place() -> None:
    workload = Fsdp()
    seen = observe(workload, windows(workload, 10))
    model = model_of(workload.problem())
    warm = fit(model, seen, fit(model, seen[:6]).theta)
    cold = fit(model, seen)
    assert warm.misfit == pytest.approx(cold.misfit, abs=0.05)


def test_nonsense_is_refused() -> None:
    model = model_of(Fsdp().problem())
    with pytest.raises(FitError, match="nothing to fit"):
        fit(model, [])
    for bad in (Observation(STOCK, -1.0), Observation(STOCK, math.nan), Observation(STOCK, None)):
        with pytest.raises(FitError):
            fit(model, [bad])


def test_scipy_is_loaded_only_by_a_fit() -> None:
    """The controller must start small: 40 MB and 0.3 s are paid when the first model is fitted, not before."""
    code = "import sys, lagom.cost, lagom.search.strategies.guided as _; sys.exit('scipy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_stock_knobs_left_open_mean_nccls_own_pick() -> None:
    model = model_of(Fsdp().problem())
    said = Assignment((CommConfig(channels=24, chunk_bytes=2 << 20),) * 2)
    assert (model.resources([STOCK]).nc == model.resources([said]).nc).all()
    beyond = Assignment((CommConfig(channels=64, chunk_bytes=64 << 20),) * 2)
    assert model.resources([beyond]).nc.max() == 24
    assert model.resources([beyond]).chunk.max() == 2 << 20


def test_samples_of_the_generator_are_self_consistent() -> None:
    """A guard of the test's own machine: fewer channels cost communication and spare compute."""
    few = Assignment((CommConfig(channels=2),) * 2)
    stock, starved = Fsdp().truth(STOCK), Fsdp().truth(few)
    assert isinstance(stock, Sample)
    assert starved.x > stock.x
    assert starved.y < stock.y
