# SPDX-License-Identifier: Apache-2.0
"""The second family of landscapes holds what its table claims to be measured on, and the page is that of its runs."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks.provenance import RESULTS
from benchmarks.search_table import SEEDS, page
from benchmarks.second_family import KINDS, SecondJob, draw_landscape, gains, worst_over_stock
from lagom.records import Assignment
from lagom.search.space import Space

PAGE = RESULTS / "search_second_family_202611.json"


def test_some_landscapes_have_nothing_to_gain_and_the_others_at_least_one_percent() -> None:
    for kind, found in gains(SEEDS).items():
        assert all(gain == pytest.approx(0.0, abs=1e-9) if kind == "nothing" else gain > 0.01 for gain in found), kind


def test_the_steep_kind_has_configs_that_are_ten_times_slower() -> None:
    steep = [draw_landscape(seed)[0] for seed in range(KINDS.index("steep"), 48, len(KINDS))]
    assert all(worst_over_stock(landscape) > 5.0 for landscape in steep)
    assert max(map(worst_over_stock, steep)) > 30.0


def test_iterations_scatter_as_they_say_with_tails_and_drift() -> None:
    landscape, _ = draw_landscape(0)
    job = SecondJob(landscape, 1, 0.02)
    stock = Space(landscape.problem()).stock
    logs = np.log([job._iteration(stock).z / job.truth(stock).z for _ in range(20_000)])
    steps = np.diff(logs) / np.sqrt(2.0)
    assert 1.4826 * np.median(np.abs(steps)) == pytest.approx(0.02, rel=0.25)
    assert np.mean(np.abs(steps) > 0.08) > 0.005  # four sigma: 0.006 % of a normal distribution
    blocks = logs.reshape(-1, 100)
    assert np.std(np.median(blocks, axis=1)) > 0.02


def test_z_alone_is_the_same_landscape() -> None:
    (seen, _), (unseen, _) = draw_landscape(9), draw_landscape(9, visible=False)
    assert seen.truth(Assignment.stock(len(seen.valleys))).z == unseen.truth(Assignment.stock(len(seen.valleys))).z
    assert unseen.truth(Assignment.stock(len(seen.valleys))).x is None


def test_the_page_is_that_of_its_runs() -> None:
    assert PAGE.with_suffix(".md").read_text() == page(json.loads(PAGE.read_text()))
