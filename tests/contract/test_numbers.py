# SPDX-License-Identifier: Apache-2.0
"""Every figure in the text of README.md and docs/ is that of the raw results in benchmarks/results."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from benchmarks import claims, readme_rows
from benchmarks.readme_rows import Ratio

ROOT = Path(__file__).resolve().parents[2]
#: Pages on which each measured figure has a phrase that is computed; those without phrases must state none.
FIGURES = {
    "README.md": claims.of_readme,
    "docs/measured.md": claims.of_measured,
    "docs/guides/overlap.md": claims.of_overlap,
    **{f"docs/guides/{name}.md": lambda: iter(()) for name in ("frameworks", "launchers", "parallelism")},
}
CLAIMS = {
    **FIGURES,
    "benchmarks/results/start_settings_h200x1_202611.md": claims.of_start_page,
    "benchmarks/results/start_settings_h200x2_202611.md": claims.of_start_page_of_two,
    "benchmarks/results/start_settings_h100x2_202611.md": claims.of_start_page_of_two_h100,
    "benchmarks/results/start_settings_nodes_h200x4_202611.md": claims.of_start_page_of_nodes,
    "benchmarks/results/cost_h100x2_202611.md": claims.of_cost_page,
    "benchmarks/results/start_settings_alltoall_h200x2_202611.md": claims.of_alltoall_page,
    "benchmarks/results/strands_h200x2_202611.md": claims.of_strands_page,
    "benchmarks/results/tensor_parallel_step_h200x2_202611.md": claims.of_whole_steps_page,
    "benchmarks/results/tensor_parallel_step_h200x1_202611.md": claims.of_memory_page,
}
BLOCK = re.compile(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", re.DOTALL)
CODE = re.compile(r"^```.*?^```|`[^`]*`|\]\([^)]*\)", re.DOTALL | re.MULTILINE)
#: A value with an interval in brackets behind it.
INTERVAL = re.compile(r"(?:\*\*)?\d+\.\d+(?:\*\*)?(?: %)? \[\d+\.\d+, \d+\.\d+\]")
#: What was measured: a ratio, or a number with a unit; in words that are no number of a release.
FIGURE = re.compile(
    r"(?<![\w.,])\d[\d,]*(?:\.\d+)?(?= (?:%|ns|ms|MB|minutes|times as|billion|random|killed|calls)|×(?!H))|"
    r"(?<![\w.])\d\.\d{2,3}(?![\d.])"
)
#: Numbers that are defined, asked for, or of a release.
DEFINED = re.compile(
    r"(?:torch|NCCL|glibc|Python >=|arXiv|[Ww]ith) \d[\d.]*|95 %|1\.10 (?:means 10 %|is faster)|0\.95 is slower|"
    r"by 1 % both times|faster by 1 %|under 8 MB"
)


def flat(text: str) -> str:
    return re.sub(r"\s+", " ", text)


def text_of(page: str) -> str:
    """A page without what is made by a script."""
    return flat(BLOCK.sub("", (ROOT / page).read_text()))


@pytest.mark.parametrize("page", CLAIMS)
def test_the_numbers_of_a_page_are_those_of_the_results(page: str) -> None:
    """What the results say and the page does not; benchmarks/claims.py computes it."""
    assert [claim for claim in CLAIMS[page]() if claim not in text_of(page)] == []


@pytest.mark.parametrize("page", CLAIMS)
def test_every_interval_of_a_page_is_computed_from_results(page: str) -> None:
    claimed = list(CLAIMS[page]())
    assert [one for one in INTERVAL.findall(text_of(page)) if not any(one in claim for claim in claimed)] == []


def figures_without_results(text: str, claimed: list[str]) -> list[str]:
    """The figures of a page that are in none of the phrases."""
    text = flat(CODE.sub("", BLOCK.sub("", text)))
    for phrase in sorted(claimed, key=len, reverse=True):
        text = text.replace(flat(CODE.sub("", phrase)), "")
    return FIGURE.findall(DEFINED.sub("", text))


@pytest.mark.parametrize("page", FIGURES)
def test_every_figure_of_a_page_has_raw_results(page: str) -> None:
    assert figures_without_results((ROOT / page).read_text(), list(FIGURES[page]())) == []


def test_a_figure_that_no_results_give_is_found() -> None:
    text = "Steps were 1.24 times as fast with NCCL 2.30.7, 3.5× there, 0.9 % slower, 340 ms; twice `--budget 1.5`."
    assert figures_without_results(text, ["1.24 times as fast"]) == ["3.5", "0.9", "340"]


def test_no_page_says_that_raw_samples_are_missing() -> None:
    """What has none is not shown."""
    for page in FIGURES:
        assert "Raw samples are not" not in text_of(page)


@pytest.mark.parametrize(
    ("over", "expected"),
    [
        (Ratio(0.93, 0.90, 0.96), "by hand faster"),
        (Ratio(1.08, 1.04, 1.12), "Lagom faster"),
        (Ratio(0.996, 0.985, 1.007), "equal"),
        (Ratio(1.008, 1.002, 1.014), "equal"),
        (Ratio(0.996, 0.975, 1.017), "not resolved"),  # 2.5 % of difference are not excluded
        (Ratio(1.2, 0.8, 1.8), "not resolved"),
    ],
)
def test_equal_is_what_differs_by_less_than_the_stated_margin(over: Ratio, expected: str) -> None:
    assert readme_rows.winner(over) == expected
