# SPDX-License-Identifier: Apache-2.0
"""The gate on landscapes that share no formula with the cost model: what it trusts predicts configs it has not seen."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from benchmarks.second_family import KINDS, NOISES, draw_landscape
from lagom.cost import FittedModel
from lagom.cost.gate import LARGEST_ERROR
from lagom.records import Assignment, Observation
from lagom.search.space import Space
from lagom.search.strategies.guided import Guided

WINDOWS, UNSEEN, PAIRS = 10, 40, 8
SEEDS = range(2 * len(KINDS) * len(NOISES))


def below_stock(space: Space, draw: random.Random) -> Assignment:
    """Each knob of each site up to three rungs below stock."""
    config = space.stock
    for unit in space.units:
        for knob in space.dims:
            config = space.moved(config, unit, knob, -draw.choice((0, 1, 2, 3))) or config
    return config


def others(space: Space, known: list[Assignment], count: int, draw: random.Random) -> list[Assignment]:
    """So many more that are not among the known ones."""
    found: list[Assignment] = []
    while len(found) < count:
        config = below_stock(space, draw)
        if config not in known and config not in found:
            found.append(config)
    return found


def unseen_error(seed: int, visible: bool) -> float | None:
    """Median error of ln(Z / Z of stock) over unseen configs, if the model is trusted."""
    landscape, noise = draw_landscape(seed, visible=visible)
    strategy, draw = Guided(landscape.problem(), seed, model=FittedModel), random.Random(seed)
    windows = [strategy.space.stock, *strategy._design()]
    windows += others(strategy.space, windows, WINDOWS - len(windows), draw)
    error, seen = noise * math.sqrt(2.0 / PAIRS), []
    for config in windows:
        sample = landscape.truth(config).scaled(math.exp(draw.gauss(0.0, error)))
        seen.append(Observation(config, sample.z, sample.y, sample.x_by_site, error))
    trusted, _ = strategy._model.refit(seen)
    if not trusted:
        return None
    unseen = others(strategy.space, windows, UNSEEN, draw)
    changes = strategy._model.compare(unseen, strategy.space.stock)
    true = [landscape.truth(config).z / landscape.truth(strategy.space.stock).z for config in unseen]
    return float(np.median([abs(math.log(change.ratio / z)) for change, z in zip(changes, true, strict=True)]))


@pytest.mark.parametrize("visible", [True, False], ids=["XYZ", "Z"])
def test_a_trusted_model_predicts_what_it_has_not_seen(visible: bool) -> None:
    errors = {seed: unseen_error(seed, visible) for seed in SEEDS}
    trusted = {seed: error for seed, error in errors.items() if error is not None}
    assert len(trusted) > 0.75 * len(errors), "the gate refuses models that would have been of use"
    wrong = {seed: error for seed, error in trusted.items() if error > LARGEST_ERROR}
    assert not wrong, "trusted and wrong"
