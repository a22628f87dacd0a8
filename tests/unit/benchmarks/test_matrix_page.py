# SPDX-License-Identifier: Apache-2.0
"""What the matrix's results amount to: targets, words, the page and its figures."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import matrix_page
from benchmarks.matrix import sweep, verdicts
from benchmarks.matrix.page_values import page, twins
from benchmarks.matrix.plots import draw
from benchmarks.matrix.results_file import written
from benchmarks.matrix.rows import Row, rows
from lagom.experiment.estimate import SpeedupEstimate

ROWS = rows()


def row(name: str, **fields: Any) -> Row:
    return Row(name, "asks", "bench", "fsdp.py", **fields)


def result(arm: str, value: float | None, **fields: Any) -> dict[str, Any]:
    known = {"low": None, "high": None} if value is None else {"low": value - 0.01, "high": value + 0.01}
    base = {"pairing": "within one job", "measured_by": "nccl kernels", "pairs": 24, "resolvable": 0.004, "note": ""}
    return {"arm": arm, "speedup": value, "iteration": 1e8, "search": None, **base, **known, **fields}


def entry(name: str, *results: dict[str, Any], **fields: Any) -> dict[str, Any]:
    told = next(row for row in ROWS if row.name == name)
    known = {"script": told.script, "options": told.options, "regime": told.regime, "nccl": told.nccl, "name": name}
    return {"row": {**known, "environ": told.environ}, "session": 0, "complete": True, "results": results, **fields}


def fake_results() -> dict[str, Any]:
    search = {"verdict": "improved", "speedup": 1.41, "low": 1.4, "high": 1.42, "configs": 12, "iterations": 150,
              "lost": 4.2, "reason": ""}  # fmt: skip
    stock_best = result("lagom", None, search={**search, "verdict": "stock_is_best", "speedup": None, "low": None})
    visit = [{"part": point.part, "knobs": point.knobs, "samples": [[[1.0], 2.0, 2.5]] * 3, "rules": point.rules,
              "cycle": 0} for point in sweep.points(row("fig3-library"))]  # fmt: skip
    slow = [{"part": name, "knobs": {}, "samples": [[[1.0, 4.0], y, z]], "rules": [], "cycle": cycle}
            for cycle in range(6) for name, y, z in (("stock", 2.5, 3.125), ("by cycle", 2.0, 2.5))]  # fmt: skip
    windows = [{"arm": arm, "z": [(100.0, z)] * 2} for _ in range(6) for arm, z in
               (("stock", 100.0), ("lagom", 50.0), ("autoccl:proposed", 55.0),
                ("set=any:>=1M:nt=256", 100.0))]  # fmt: skip
    record = {"command": ["x"], "arms": ["stock", "lagom", "autoccl"], "runs": [{"kind": "in job", "windows": windows}]}
    processes = [{"kind": "process", "arm": arm, "round": n, "value": 1.0, "measure": "metric"} for n in range(6)
                 for arm in ("own:stock", "own:stock", "own:replay=/a/found.lagom", "own:lagom")]  # fmt: skip
    two = [{**one, "samples": [[[1.0, 4.0], 2.0, 5.0]]} for one in
           ({"part": p.part, "knobs": p.knobs, "rules": p.rules} for p in sweep.points(row("fig5")))]  # fmt: skip
    return {
        "format": 1,
        "sessions": [{"began": "2026-11-20", "gpus": 8, "arguments": ["--gpus", "8"], "rehearsed": "", "gpu": "G"}],
        "rows": {
            "host-fsdp-16384": entry(
                "host-fsdp-16384", result("stock", 1.0), result("lagom", 1.42, search=search), result("static", 1.16),
                result("autoccl:proposed", 1.2), record=record,
            ),
            "nt-host-16384": entry("nt-host-16384", record=record),
            "steady": entry(
                "steady", result("own:replay=/a/found.lagom", 1.0), result("own:lagom", 1.0),
                record={"command": ["x"], "arms": ["stock"], "runs": processes},
            ),
            "host-fsdp-32768": entry(
                "host-fsdp-32768", result("stock", 1.0), result("lagom", 1.03), result("autoccl:proposed", 0.87)
            ),
            "nvlink-fsdp-4096": entry("nvlink-fsdp-4096", result("stock", 0.999), stock_best),
            "cell-tp-mpt_7b-host": entry("cell-tp-mpt_7b-host", result("stock", 1.0), result("lagom", 1.1)),
            "fig3-library": entry("fig3-library", visits=visit),
            "fig5": entry("fig5", visits=[*two, *slow]),
            "numerics": entry("numerics", verdict={"tuned_within_two_stock_settings": True}),
        },
    }  # fmt: skip


def test_the_page_says_what_was_reached_what_was_not_and_what_is_missing(tmp_path: Path) -> None:
    data = fake_results()
    pictures = draw(data, tmp_path, "matrix")
    assert len(pictures) == 3
    assert all((tmp_path / name).stat().st_size > 5000 for name in pictures)
    text = page(data, pictures)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    targets = {line.split(" | ")[0].strip("| "): line for line in reversed(lines)}  # the first table wins
    assert targets["host-fsdp-16384"].endswith("| yes |")
    assert targets["host-fsdp-32768"].endswith("| **no**, 1.030 |")
    assert "`lagom` stock is best |" in targets["nvlink-fsdp-4096"], "stock against stock is no measurement of it"
    assert targets["nvlink-fsdp-4096"].endswith("no job without Lagom ran for comparison |")
    assert "Reproduced in 1 of 2 rows: host-fsdp-32768 0.870 [0.860, 0.880]" in text
    assert "| MPT-7B | TP | host path | 1.100 [1.090, 1.110] |" in text
    assert "| MPT-7B | TP | NVLink | not measured |" in text
    assert "tuned within two stock settings: yes" in text
    assert re.search(r"Rows without a measurement: .*nvlink-zero-cta-4096", text)
    assert "| 3b: NC at C = 16 KiB | nc = 1, chunk = 16384 | 1.000 | 2.000 | 2.500 | 3 |" in text
    assert "| host-fsdp-16384 | 1.100 [1.100, 1.100], n = 12 | ahead |" in text
    assert "1.250 [1.250, 1.250], n = 6 | 1.250 [1.250, 1.250], n = 6 |" in text, "a sweep has intervals, by cycle"
    assert "| nt-host-16384 | any:>=1M:nt=256 | 1.000 [1.000, 1.000], n = 12 over stock | the same within 1% |" in text
    assert "| steady | own:replay | 1.000 [1.000, 1.000], n = 6 | 6 | the same within 1% |" in text


@pytest.mark.parametrize(
    ("target", "low", "high", "noise", "said"),
    [
        (0.995, 0.996, 1.004, 1.004, "yes"),
        (0.995, 0.990, 1.020, 1.004, "not resolved, 1.005"),  # noise does not reach a target
        (0.995, 0.980, 0.990, 1.004, "**no**, 0.985"),
        (1.10, 1.11, 1.13, 1.004, "yes"),
        (1.10, 1.09, 1.13, 1.004, "not resolved, 1.110"),
        (1.10, 1.11, 1.13, 1.12, "**no**: within stock against stock"),
    ],
)
def test_a_target_is_reached_with_the_whole_interval_and_beyond_the_noise(
    target: float, low: float, high: float, noise: float, said: str
) -> None:
    found = result("lagom", (low + high) / 2, low=low, high=high)
    assert verdicts.reached(row("r", target=target), found, result("stock", 1.0, low=0.99, high=noise)) == said
    assert verdicts.reached(row("r", target=target), {**found, "low": None, "high": None}, None) == "too few pairs"


def test_an_arm_that_is_another_by_its_own_name_is_on_the_page() -> None:
    found = entry("host-fsdp-16384", result("stock", 1.0), result("static=2", 0.87), remarks=[
        "arm dhelix is left out: here it is the same as static=2.",
        "arm liger is left out: here it is the same as stock"
    ])  # fmt: skip
    shown = list(twins(found))
    assert shown[0][:2] == ("dhelix (here the same as static=2)", "0.870 [0.860, 0.880]")
    assert shown[1][0] == "liger (here the same as stock)"
    assert shown[1][1].startswith("1.000")


def test_what_two_arms_are_to_each_other() -> None:
    def ratio(low: float, high: float) -> SpeedupEstimate:
        return SpeedupEstimate((low + high) / 2, low, high, 0.01, (12, 12))

    assert verdicts.ahead(ratio(1.01, 1.1)) == "ahead"
    assert verdicts.ahead(ratio(0.9, 0.99)) == "**behind**"
    assert verdicts.ahead(ratio(0.99, 1.1)) == verdicts.same(ratio(0.99, 1.1)) == "not resolved"
    assert verdicts.same(ratio(0.995, 1.005)) == "the same within 1%"
    assert verdicts.same(ratio(1.02, 1.05)) == "**differs**"
    assert verdicts.same(None) == verdicts.ahead(None) == "–"


def test_a_rehearsal_is_called_one(tmp_path: Path) -> None:
    data = fake_results()
    data["sessions"][0]["rehearsed"] = "gloo"
    assert "none of these numbers is of a GPU" in page(data, [])


def test_parts_become_one_and_what_is_complete_stays(tmp_path: Path) -> None:
    first, second = fake_results(), fake_results()
    second["rows"] = {
        "host-fsdp-16384": {**second["rows"]["host-fsdp-16384"], "complete": False},
        "nvlink-fsdp-2048": {**entry("nvlink-fsdp-2048", result("stock", 1.0)), "complete": False},
    }
    first["superseded"] = [{"row": "of another definition", "record": [1.0]}]
    for name, data in (("a.json", first), ("b.json", second)):
        (tmp_path / name).write_text(json.dumps(data))
    whole = matrix_page.merge([tmp_path / "a.json", tmp_path / "b.json"])
    second["sessions"][0]["rehearsed"] = "virtual"
    (tmp_path / "c.json").write_text(json.dumps(second))
    with pytest.raises(SystemExit, match="rehearsal"):
        matrix_page.merge([tmp_path / "a.json", tmp_path / "c.json"])
    assert whole["rows"]["host-fsdp-16384"]["complete"]
    assert whole["rows"]["nvlink-fsdp-2048"]["session"] == 1
    assert len(whole["sessions"]) == 2
    assert whole["superseded"] == first["superseded"], "no raw sample is lost"


def test_samples_lie_on_one_line_and_lose_nothing() -> None:
    whole = {"rows": {"a": {"samples": [[[1.5, -2e-9], 3], []], "said": "1.0 [0.9, 1.1]", "of": [None, 1, {"x": [1]}]}}}
    text = written(whole)
    assert json.loads(text) == whole
    assert '"samples": [[[1.5,-2e-09],3],[]],' in text
    assert '"1.0 [0.9, 1.1]"' in text
