# SPDX-License-Identifier: Apache-2.0
"""The table of docs/measured.md, what was measured: nothing left out, nothing called a gain that is none."""

from __future__ import annotations

from typing import Any

from benchmarks.matrix import summary


def arm(name: str, speedup: float | None, note: str = "", search: dict[str, Any] | None = None) -> dict[str, Any]:
    low, high = (None, None) if speedup is None else (speedup - 0.01, speedup + 0.01)
    return {"arm": name, "speedup": speedup, "low": low, "high": high, "pairs": 16 if speedup else 0, "note": note,
            "search": search}  # fmt: skip


SEARCH = {"configs": 7, "iterations": 120, "lost": 1.25, "speedup": None, "low": None, "high": None}
RUN = {"record": {"runs": [{"nccl": "2.30.7"}]}}


def data(gpus: int, **rows: Any) -> dict[str, Any]:
    return {"sessions": [{"gpus": gpus}], "rows": {name.replace("_", "-"): row for name, row in rows.items()}}


def test_a_gain_stands_beside_what_others_reach() -> None:
    arms = [arm("stock", 1.0), arm("lagom", 1.2, search=SEARCH), arm("autoccl", 1.1), arm("static", 1.05),
            arm("set=any:>=1M:chunk=256K", 1.15), arm("set=any:>=1M:nc=3,chunk=512K", 1.17)]  # fmt: skip
    (line,) = summary.table([data(4, host_fsdp_16384={**RUN, "results": arms})]).splitlines()[2:3]
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    assert cells[:3] == ["4", "`host-fsdp-16384`, 2.30.7", "`lagom`"]
    assert cells[3] == "**1.200 [1.190, 1.210], n = 16**"
    assert [cell[:5] for cell in cells[4:8]] == ["1.100", "1.050", "1.170", "1.000"]
    assert cells[8] == "7 configs, 120 iterations, 1.2 lost"


def test_stock_left_in_place_is_no_gain() -> None:
    kept = {**SEARCH, "verdict": "stock_is_best"}
    arms = [arm("stock", 1.0), arm("guided", None, search=kept), arm("guided:proposed", 1.01)]
    text = summary.table([data(2, nvlink_positions_4096={**RUN, "results": arms})])
    assert "| stock is best; turned down: 1.010 [1.000, 1.020], n = 16 |" in text
    assert "**" not in text


def test_a_search_that_time_ended_is_not_told_as_the_best_there_is() -> None:
    over = arm("lagom", None, search={**SEARCH, "verdict": "cut_short", "reason": ""})
    text = summary.table([data(2, host_fsdp_8192={**RUN, "results": [arm("stock", 1.0), over]})])
    assert "| cut short, nothing found |" in text
    assert "stock is best" not in text


def test_a_search_that_was_stopped_has_measured_nothing() -> None:
    stopped = arm("lagom", None, search={**SEARCH, "verdict": "stopped"})
    text = summary.table([data(2, host_fsdp_8192={**RUN, "results": [arm("stock", 1.0), stopped]})])
    assert "| `lagom` | – |" in text


def test_most_gpus_come_first_and_every_verdict_is_told() -> None:
    verdict = {"exits": [0, 1], "losses_agree": False, "apart": {"tuned": 0.0}, "standing_aside": []}
    entry = {**RUN, "results": [arm("stock", 1.0), arm("lagom", 1.1, search=SEARCH)]}
    text = summary.table([data(2, host_fsdp_8192=entry, mesh_hsdp={"verdict": verdict}), data(8, host_fsdp_8192=entry)])
    assert text.index("| 8 | `host-fsdp-8192`") < text.index("| 2 | `host-fsdp-8192`")
    assert (
        "- `mesh-hsdp`, 2 GPUs (the job runs as without Lagom): exit codes: 0, 1; losses agree: **no**; apart: tuned 0;"
        in text
    )
    assert text.endswith("fallback to NCCL: nothing.")


def test_rows_with_the_older_definition_of_z_are_marked() -> None:
    entry = {**RUN, "session": 0, "results": [arm("stock", 1.0), arm("lagom", 1.1, search=SEARCH)]}
    found = data(4, host_fsdp_8192=entry)
    assert summary.OLDER not in summary.table([found])
    found["sessions"][0]["commit"] = "7d7a349"
    text = summary.table([found])
    assert "| `host-fsdp-8192`†, 2.30.7 |" in text
    assert text.endswith(f"\n\n{summary.FOOTNOTE}")
