# SPDX-License-Identifier: Apache-2.0
"""The benchmark around the simulator: its rows have what the issue names, its page is generated from them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import figures, sim_suite
from benchmarks.paper.measured import best, measured
from benchmarks.paper.sim_vs_paper import report
from benchmarks.paper.simulated import figure_3, figure_5, figure_8_patterns
from benchmarks.suite.ablations import ORDERS, ablate, converge, slope
from benchmarks.suite.cases import Case, ablation_cases, all_cases, batches, quick_cases
from benchmarks.suite.runs import pick
from benchmarks.suite.targets import targets

COLUMNS = "workload preset knobs strategy speedup_stock speedup_autoccl speedup_static oracle_ratio configs windows"
SMALL = Case("ep_olmoe_1b_7b_8", "a40_nvlink", "fork")


@pytest.fixture(scope="module")
def finished() -> sim_suite.CaseResult:
    return sim_suite.run_case(SMALL, seeds=2)


def test_rows_have_the_columns_that_were_asked_for(finished: sim_suite.CaseResult) -> None:
    rows = finished.rows
    for row in rows:
        assert set(COLUMNS.split()) | {"regret_iterations"} <= set(row)
        for column in COLUMNS.split()[4:]:
            assert row[f"{column}_p10"] <= row[column] <= row[f"{column}_p90"]
        assert row["oracle_ratio"] >= 1.0
        assert row["label"] == "paper's fork"
    assert [row["strategy"] for row in rows] == list(SMALL.strategies)
    assert pick(rows, strategy="autoccl")[0]["speedup_autoccl"] == 1.0


def test_a_seed_gives_the_same_rows(finished: sim_suite.CaseResult) -> None:
    assert sim_suite.run_case(SMALL, seeds=2) == finished


def test_cases_are_labelled_honestly() -> None:
    cases = all_cases()
    assert len(cases) == len(set(cases))
    assert {c.knobs for c in cases if c.workload.startswith("ep")} == {"fork"}
    assert not any(c.preset.startswith("h200") and (c.workload.endswith(("16", "dp2"))) for c in cases)
    assert {c.preset for c in cases} == {"a40_nvlink", "a40_pcie", "h200_nvlink", "h200_host"}
    assert set(quick_cases()) <= set(cases)
    assert sorted(map(str, (c for batch in batches(cases) for c in batch))) == sorted(map(str, cases))
    assert all(c.knobs == "stock_2_30" for c in ablation_cases())
    assert not any(c.blind for c in cases)


def test_the_order_matters_where_contexts_are_withheld() -> None:
    """Otherwise the ablation of the order compares a run with itself."""
    blind = [case for case in ablation_cases() if case.blind]
    assert {case.workload for case in blind} == {"synthetic_6", "synthetic_4", "fsdp_llama3_8b_8"}
    for case in blind:
        assert not any(site.context for site in case.problem(case.simulator()).sites)
    rows = ablate(blind[0], seeds=1)
    assert [row["strategy"] for row in rows] == [arm.name for arm in ORDERS]
    assert {(row["contexts"], row["seeds"]) for row in rows} == {("withheld", 2)}
    for column in ("configs", "regret_iterations", "oracle_ratio"):
        assert len({row[column] for row in rows}) == len(ORDERS)
    assert rows[0]["regret_iterations"] < min(row["regret_iterations"] for row in rows[1:])


def test_targets_can_be_missed() -> None:
    row = {"workload": "w", "preset": "p", "knobs": "stock_2_30", "regret_iterations": 20.0}
    rows = [{**row, "strategy": s, "speedup_autoccl": 0.9, "speedup_static": 1.1} for s in ("lagom", "guided")]
    runs = {"lagom": [(0.9, 1.2)] * 3, "guided": [(1.1, 1.0)] * 3}
    found = targets(rows, runs, {"lagom": runs["lagom"]}, [])
    met = {t["what"]: t["met"] for t in found}
    assert met["lagom: Z over oracle, median over runs"] is False
    assert met["guided: Z over oracle, median over runs"] is True
    assert met["lagom: share of runs below 0.995 of stock, over runs"] is False
    assert met["guided: furthest behind autoccl in the median of a row"] is False
    assert met["guided: furthest behind static in the median of a row"] is True
    assert met["guided: regret in iterations, median of rows"] is False


def test_the_slope_is_that_of_the_line() -> None:
    rows = [{"strategy": "s", "preset": "p", "communications": n, "configs": 3.0 * n + 5} for n in (1, 2, 7)]
    assert slope(rows, "s", "p") == pytest.approx((3.0, 5.0, 1.0))


def test_the_page_is_made_from_the_json(finished: sim_suite.CaseResult) -> None:
    rows, points = finished.rows, finished.points
    grown = converge(Case("synthetic_1", "a40_nvlink", "stock_2_30"), seeds=2)
    suite = {
        "meta": {"seeds": 2, "noise": 0.02, "seconds": 1.0, "quick": True},
        "rows": rows,
        "ablations": rows[:1],
        "convergence": grown,
        "targets": targets(rows, points, points, grown),
    }
    data = {"fig3": figure_3(), "fig5": figure_5(), "fig8": figure_8_patterns(), "sensitivity": {"w": (1.2, 1.1)}}
    page = report(json.loads(json.dumps(suite)), data)
    assert "| EP, cluster A, NVLink, paper's fork | 1.07-1.08 |" in page
    assert "not reproduced" in page
    assert "it is the quick suite" in page
    assert "`as_printed` was not run." in page
    assert "says nothing about what the order by H is worth" in page
    assert "w 1.200 becomes 1.100" in page
    assert f"{data['fig8']['pattern_1']['autoccl_61']:.3f}" in page
    meta = {**suite["meta"], "seconds": 700.0, "processes": 2, "cpu_seconds": 1100.0, "quick": False}
    lines = [
        {"strategy": strategy, "preset": "p", "communications": n, "configs": c}
        for n, c in ((1, 5.0), (2, 9.0), (3, 7.0))
        for strategy in ("auto", "lagom", "guided", "autoccl")
    ]
    page = report({**suite, "meta": meta, "convergence": lines}, data)
    assert "700 s on 2 processes (1100 s of CPU)" in page
    assert "was **missed**" in page
    assert "| guided | p | 1.00 | 5.0 | 0.250 |" in page
    assert "is kept" in report({**suite, "meta": {**meta, "seconds": 599.0}}, data)


def test_the_quick_suite_never_takes_the_name_of_the_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(arguments: list[str]) -> int:
        assert arguments[:2] == ["--quick", "--json"]
        Path(arguments[2]).write_text('{"meta": {"quick": true}}')
        return 0

    monkeypatch.setattr(figures.sim_suite, "main", run)
    whole = tmp_path / "suite.json"
    assert figures._suite(whole)["meta"]["quick"]
    assert [path.name for path in tmp_path.iterdir()] == ["suite_quick.json"]
    whole.write_text('{"meta": {"quick": false}}')
    assert not figures._suite(whole)["meta"]["quick"]


def test_outcomes_measured_on_gpus_are_found(tmp_path: Path) -> None:
    outcome = {"event": "outcome", "speedup": 1.31, "speedup_low": 1.28, "speedup_high": 1.34}
    told = {"tune": {"tokens": 8192, "log": {"told": [{"event": "note"}, outcome]}}, "gpus": 4}
    (tmp_path / "h200.json").write_text(json.dumps({"parts": [told, {"tune": {"skipped": "no GPU"}}]}))
    (tmp_path / "other.json").write_text(json.dumps([{"rows": []}]))
    (row,) = measured(tmp_path)
    assert (row.what, row.speedup, row.interval) == ("tune, 4 x H200, host path, T=8192", 1.31, (1.28, 1.34))
    assert row.simulated == best(4, 8192) > 1.0
