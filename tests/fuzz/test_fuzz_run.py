# SPDX-License-Identifier: Apache-2.0
"""``make fuzz`` as whoever calls it meets it: it fuzzes, and says what it did. The fuzzer itself is a stand-in here."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest

from tests.fuzz import run
from tests.fuzz.build import TARGETS

SHIPPED = run.ROOT / "benchmarks" / "results" / "fuzz_202611.json"


class Fuzzer:
    """Takes the place of libFuzzer: a slice is over at once, and has used all of its time."""

    def __init__(self) -> None:
        self.slices: list[tuple[str, int]] = []
        self.codes: dict[str, int] = {}

    def __call__(self, target: str, program: Path, seconds: int) -> run.Slice:
        self.slices.append((target, seconds))
        return run.Slice(self.codes.get(target, 0), seconds, 1000, 1, 1, "SUMMARY: it broke")

    def seconds(self, target: str) -> int:
        """How long it was fuzzed."""
        return sum(seconds for name, seconds in self.slices if name == target)


@pytest.fixture
def fuzzer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Fuzzer:
    stand_in = Fuzzer()
    monkeypatch.setattr(run, "run_slice", stand_in)
    monkeypatch.setattr(run, "build", lambda target, engine: tmp_path / target)
    monkeypatch.setattr(run, "have_libfuzzer", lambda: True)
    monkeypatch.delenv("FUZZ_SECONDS", raising=False)
    (run.ROOT / "build" / "fuzz").mkdir(parents=True, exist_ok=True)
    return stand_in


def fuzz(monkeypatch: pytest.MonkeyPatch, *words: str | Path) -> int:
    monkeypatch.setattr(sys, "argv", ["run.py", *map(str, words)])
    return run.main()


def test_whoever_calls_it_gets_fuzzing_whatever_the_shipped_evidence_has(
    fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = SHIPPED.read_bytes()
    for _ in range(2):
        fuzzer.slices.clear()
        assert fuzz(monkeypatch) == 0
        assert all(fuzzer.seconds(target) >= 1440 for target in TARGETS)
        assert {target for target, _ in fuzzer.slices[: len(TARGETS)]} == set(TARGETS), "they take turns"
        said = capsys.readouterr().out
        assert all(f"{target}: 1440 CPU s, 24,000 executions, 0 crash(es)" in said for target in TARGETS)
    assert SHIPPED.read_bytes() == before


def test_the_time_and_the_targets_can_be_named(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
    assert fuzz(monkeypatch, "--seconds", "5", "text") == 0
    assert {target for target, _ in fuzzer.slices} == {"text"}
    assert 5 <= fuzzer.seconds("text") <= 6
    monkeypatch.setenv("FUZZ_SECONDS", "7")
    assert fuzz(monkeypatch, "region") == 0
    assert 7 <= fuzzer.seconds("region") <= 8


def test_an_empty_variable_is_none(fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FUZZ_SECONDS", "")
    assert fuzz(monkeypatch, "text") == 0
    assert fuzzer.seconds("text") >= 1440


def test_evidence_that_was_named_is_gone_on_with(
    fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "fuzz.json"
    assert fuzz(monkeypatch, "--seconds", "40", "--evidence", file, "text") == 0
    assert fuzz(monkeypatch, "--seconds", "100", "--evidence", file, "text", "region") == 0
    assert 100 <= fuzzer.seconds("text") <= 102
    noted = json.loads(file.read_text())["targets"]
    assert noted["text"]["cpu_seconds"] == fuzzer.seconds("text")
    assert noted["text"]["executions"] == 1000 * sum(target == "text" for target, _ in fuzzer.slices)
    fuzzer.slices.clear()
    assert fuzz(monkeypatch, "--seconds", "100", "--evidence", file, "text") == 0
    assert not fuzzer.slices
    assert "text: nothing: the evidence has all" in capsys.readouterr().out


def test_a_crash_ends_the_run_and_begins_the_count_anew(
    fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    file = tmp_path / "fuzz.json"
    assert fuzz(monkeypatch, "--seconds", "40", "--evidence", file, "text") == 0
    fuzzer.codes["text"] = 77
    assert fuzz(monkeypatch, "--seconds", "50", "--evidence", file, "text") == 1
    said = capsys.readouterr().out
    assert "1,000 executions, 1 crash(es)" in said
    assert "text: crashed; the input lies in" in said
    noted = json.loads(file.read_text())["targets"]["text"]
    assert noted["cpu_seconds"] == 0
    assert [crash["summary"] for crash in noted["crashes_found_and_repaired"]] == ["SUMMARY: it broke"]


def test_an_interruption_is_no_crash_and_no_success(
    fuzzer: Fuzzer, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fuzzer.codes["text"] = -signal.SIGTERM
    assert fuzz(monkeypatch, "text") == 1
    assert "0 crash(es)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "variable", "sentence"),
    [
        (("profile",), "", "there is no target 'profile'; choose one of: text, agreement, region, timeline."),
        (("--seconds", "soon"), "", "'soon' is no number of seconds above 0."),
        (("--seconds", "0"), "", "'0' is no number of seconds above 0."),
        (("--seconds", "nan"), "", "'nan' is no number of seconds above 0."),
        ((), "inf", "'inf' is no number of seconds above 0."),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    words: tuple[str, ...],
    variable: str,
    sentence: str,
    fuzzer: Fuzzer,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("FUZZ_SECONDS", variable)
    with pytest.raises(SystemExit) as left:
        fuzz(monkeypatch, *words)
    assert left.value.code == 2
    assert sentence in capsys.readouterr().err
    assert not fuzzer.slices
