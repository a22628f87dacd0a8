# SPDX-License-Identifier: Apache-2.0
"""What `lagom bench` prints: the verdict first, nothing cut on a narrow terminal."""

from __future__ import annotations

import io
import random
from pathlib import Path

import pytest
from rich.console import Console

from lagom.bench.results import BenchRecord, results_of
from lagom.bench.table import show, verdict
from lagom.experiment.store import ArmWindow, RunRecord

RULE = "set=allgather:>=64M:nc=4,chunk=512K"


def benchmark(speedups: dict[str, float], *, pairs: int = 24) -> BenchRecord:
    draw = random.Random(1)
    windows = [
        ArmWindow(arm=arm, z=[(1e8 * draw.gauss(1, 0.01), 1e8 / speedup * draw.gauss(1, 0.01))])
        for _ in range(pairs)
        for arm, speedup in {"stock": 1.0, **speedups}.items()
    ]
    run = RunRecord(kind="in job", windows=windows, measured_by="call intervals")
    return BenchRecord.model_validate({"command": ["train"], "arms": ["stock", *speedups], "runs": [run]})


def printed(record: BenchRecord, width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width)
    show(record, results_of(record), Path("lagom-bench/bench.json"), console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue().splitlines()


@pytest.mark.parametrize("width", [60, 80, 120])
def test_verdict_first_and_every_value_whole_at_any_width(width: int) -> None:
    lines = printed(benchmark({"static=2": 1.25, RULE: 0.8}), width)
    text = "\n".join(lines)
    assert lines[0].startswith("Fastest: static=2, 1.2")
    assert all(len(line) <= width for line in lines)
    assert "\u2026" not in text
    for result in results_of(benchmark({"static=2": 1.25, RULE: 0.8})):
        assert result.ratio is not None
        assert f"{result.ratio.value:.3f}x" in text
        assert f"[{result.ratio.low:.3f}, {result.ratio.high:.3f}]" in text
    assert "24" in text
    assert " ms" in text


@pytest.mark.parametrize("width", [60, 80])
def test_no_sentence_is_broken_within_a_word(width: int) -> None:
    record = benchmark({"static=2": 1.25})
    record.runs[0].notes = ["the log could not be written, because the disk is full and nobody has made room for it"]
    words = " ".join(" ".join(printed(record, width)).split())
    assert record.runs[0].notes[0] in words


def test_verdict_where_nothing_is_faster_or_nothing_is_known() -> None:
    assert (
        verdict(results_of(benchmark({"static=2": 0.8}))) == "No arm is faster than stock: no 95 % interval is above 1."
    )
    assert verdict(results_of(benchmark({"static=2": 2.0}, pairs=3))).startswith("Too few pairs")
    assert verdict(results_of(benchmark({}))) == "No arm could be compared with stock."
    assert verdict([]) == "Nothing could be measured."
