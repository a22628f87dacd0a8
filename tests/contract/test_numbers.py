# SPDX-License-Identifier: Apache-2.0
"""Every speed-up in the text of the pages in CLAIMS is that of the raw results in benchmarks/results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import claims, readme_rows
from benchmarks.readme_rows import Ratio

ROOT = Path(__file__).resolve().parents[2]
CLAIMS = {
    "README.md": claims.of_readme,
    "docs/measured.md": claims.of_measured,
    "benchmarks/results/start_settings_h200x1_202611.md": claims.of_start_page,
    "benchmarks/results/start_settings_h200x2_202611.md": claims.of_start_page_of_two,
    "benchmarks/results/start_settings_h100x2_202611.md": claims.of_start_page_of_two_h100,
    "benchmarks/results/start_settings_nodes_h200x2_202611.md": claims.of_start_page_of_nodes,
    "benchmarks/results/cost_h100x2_202611.md": claims.of_cost_page,
}
BLOCK = re.compile(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", re.DOTALL)
#: A value with an interval in brackets behind it.
INTERVAL = re.compile(r"(?:\*\*)?\d+\.\d+(?:\*\*)?(?: %)? \[\d+\.\d+, \d+\.\d+\]")
UNKEPT = "Raw samples are not in this repository"


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def text_of(page: str) -> str:
    """A page without what is made by a script, and without the sections that say that they have no raw samples."""
    sections = re.split(r"(?m)^(?=## )", BLOCK.sub("", (ROOT / page).read_text()))
    return flat(" ".join(section for section in sections if UNKEPT not in flat(section)))


@pytest.mark.parametrize("page", CLAIMS)
def test_the_numbers_of_a_page_are_those_of_the_results(page: str) -> None:
    """What the results say and the page does not; benchmarks/claims.py computes it."""
    claimed = list(CLAIMS[page]())
    assert claimed
    assert [claim for claim in claimed if claim not in text_of(page)] == []


@pytest.mark.parametrize("page", CLAIMS)
def test_every_interval_of_a_page_is_computed_from_results(page: str) -> None:
    stated = INTERVAL.findall(text_of(page))
    assert stated
    claimed = list(CLAIMS[page]())
    assert [one for one in stated if not any(one in claim for claim in claimed)] == []


@pytest.mark.parametrize(
    ("ours", "by_hand", "expected"),
    [
        (Ratio(1.2, 1.18, 1.22), Ratio(1.3, 1.25, 1.35), "by hand"),
        (Ratio(1.3, 1.25, 1.35), Ratio(1.2, 1.18, 1.22), "Lagom"),
        (Ratio(1.2, 1.19, 1.21), Ratio(1.205, 1.195, 1.215), "equal"),
        (Ratio(1.2, 1.18, 1.22), Ratio(1.205, 1.18, 1.23), "not resolved"),  # 3 % of difference are not excluded
        (Ratio(2.6, 2.5, 2.7), Ratio(2.2, 1.4, 3.5), "not resolved"),
    ],
)
def test_equal_is_what_differs_by_less_than_the_stated_margin(ours: Ratio, by_hand: Ratio, expected: str) -> None:
    assert readme_rows.winner(ours, by_hand) == expected
