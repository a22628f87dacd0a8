# SPDX-License-Identifier: Apache-2.0
"""When a question is dropped before its windows are all there: Z leans half a standard error to the wrong side."""

from __future__ import annotations

import math

import pytest

from lagom.records import Assignment, CommConfig
from lagom.search import Policy
from lagom.search.base import BETTER, NOT_WORSE, Comparison, Proposal, compare
from lagom.search.measurements import Measurements, Trial
from lagom.search.stopping_rule import StoppingRule

STOCK = Assignment.stock(1)
OTHER = Assignment((CommConfig(channels=2),))
SE = 0.05  # of the ratio; far from 1, so that times and by are not the same


def answer(leans: float) -> Comparison:
    """One whose Z differs by ``leans`` standard errors of the ratio."""
    each = SE / math.sqrt(2)
    old, new = Trial(STOCK, 100.0, each), Trial(OTHER, 100.0 * math.exp(leans * SE), each)
    return compare(new, old, 0.002, 2.0)


@pytest.mark.parametrize(
    ("asks", "leans", "dropped"),
    [
        (BETTER, 0.4, True),
        (BETTER, -0.4, True),
        (BETTER, -0.6, False),
        (NOT_WORSE, 0.6, True),
        (NOT_WORSE, 0.4, False),
        (NOT_WORSE, -0.4, False),
        (NOT_WORSE, -1.2, True),  # a whole standard error below: surely not worse
    ],
)
def test_a_question_is_dropped_where_the_answer_leans_away(asks: str, leans: float, dropped: bool) -> None:
    rule = StoppingRule(Measurements(STOCK), Policy())
    proposal = Proposal(OTHER, "of a test", 0, STOCK, asks=asks)
    assert rule._leaning(answer(leans), proposal) == dropped
