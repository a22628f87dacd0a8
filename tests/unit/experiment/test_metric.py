# SPDX-License-Identifier: Apache-2.0
"""A job's own metric: numbers read whole or refused by name, one sample a step, no line that holds up the search."""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from lagom.errors import UsageError
from lagom.experiment.metric import LONGEST_LINE, SLOW_SEARCHES, Metric, compile_metric, looks_like_throughput

STEPS = 60


def read(expression: str, lines: Iterable[str], ranks: int = 1, **options: Any) -> Metric:
    """A second a step; the lines of the ranks a millisecond apart."""
    metric = Metric(expression, **options)
    for place, line in enumerate(lines):
        metric.read(line, place // ranks + place % ranks / 1000)
    return metric


def values(metric: Metric) -> list[float]:
    return [value for _, value in metric.samples]


# -- numbers


@pytest.mark.parametrize(
    ("text", "group", "value"),
    [
        ("9,876", "[0-9.]+", 9876.0),
        ("1,234,567.5", "[0-9.]+", 1234567.5),
        ("9,876", r"\S+", 9876.0),
        ("3.4e-1", "[0-9.]+", 0.34),
        ("1.2k", "[0-9.]+", 1200.0),
        ("1.2k", r"\S+", 1200.0),
        (".5", r"\S+", 0.5),
        ("1.", r"\S+", 1.0),
        ("1.0, loss", "[0-9.]+", 1.0),
        ("12.", "[0-9]+", 12.0),
    ],
)
def test_a_number_is_read_whole(text: str, group: str, value: float) -> None:
    assert values(read(f"tps: ({group})", [f"step 1 tps: {text}"])) == [pytest.approx(value)]


@pytest.mark.parametrize("text", ["1,5", "0,104", "1.234,5", "12,34", "1.2.3", "nan", "inf", "1e999", "N/A", "1,2345"])
def test_what_is_no_number_is_named(text: str) -> None:
    metric = read(r"tps: (\S+)", [f"step 1 tps: {text} x"])
    assert metric.matched
    assert metric.samples == []
    assert metric.refused == text


@pytest.mark.parametrize(
    ("expression", "line"),
    [
        (r"(\d+) ?ms", "loss 1.0, time 103.99ms"),
        (r"(\d+) ms", "time 1,234 ms"),
        (r"time.*([0-9.]+)", "step time: 12.34"),
        (r"t: ([0-9.]+)", "t: 1:02"),
        (r"t: ([0-9.]+)", "t: 1m02s"),
        (r"t: ([0-9.]+)", "t: 1min 2s"),
        (r"t: ([0-9.]+)", "t: 9_876"),
        (r"t: ([0-9.]+)", "t: 9'876"),
        (r"^\d+,(\d+),", "12,345,987"),
        (r"time.*?([0-9.]+)", "time: -3"),
    ],
)
def test_a_part_of_a_number_is_no_number(expression: str, line: str) -> None:
    metric = read(expression, [line])
    assert metric.samples == []
    assert metric.refused


def test_a_number_that_the_end_of_a_long_line_may_have_cut_is_left_out() -> None:
    assert read("time: ([0-9.]+)", ["x" * (LONGEST_LINE - 8) + "time: 123.45 s"]).samples == []


@pytest.mark.parametrize("text", ["0", "-3", "0.0"])
def test_what_is_not_above_zero_gives_nothing(text: str) -> None:
    metric = read(r"tps: (\S+)", [f"tps: {text}"])
    assert (metric.samples, metric.matched, metric.refused) == ([], True, text)
    assert metric.without_samples == f"--metric matched, but '{text}' is no number above 0"


def test_commas_that_once_were_decimal_are_read_as_nothing() -> None:
    """0,999 and 1,001: the second alone would be a thousand times the first."""
    for lines in (["t: 1,001", "t: 0,999"], ["t: 0,999", "t: 1,001"]):
        metric = read(r"t: (\S+)", lines)
        assert metric.samples == []
        assert metric.fault == "--metric matched, but '0,999' is no number: a comma may only separate thousands"


def test_a_text_now_and_then_does_not_spoil_the_numbers() -> None:
    metric = read(r"t: (\S+)", ["t: warming", "t: 1.5", "t: nan", "t: 1.6"])
    assert values(metric) == [1.5, 1.6]
    assert metric.fault == ""


# -- units


def test_milliseconds_and_seconds_are_one_unit() -> None:
    metric = read(r"took ([0-9.]+)", ["step 1 took 101.0ms", "step 2 took 0.103s", "step 3 took 99 ms"])
    assert values(metric) == [pytest.approx(one) for one in (101.0, 103.0, 99.0)]
    assert metric.unit == "ms"
    later = read(r"took ([0-9.]+)", ["step 1 took 0.103s"], unit=metric.unit)
    assert values(later) == [pytest.approx(103.0)], "another process may begin with the other unit"


@pytest.mark.parametrize("expression", ["([0-9.]+)it/s", r"([0-9.]+)(?:it/s|s/it)"])
def test_tqdm_prints_rates_and_times_and_both_are_read(expression: str) -> None:
    lines = [" 1%|# | 1/100 [00:01<01:00,  2.00it/s]", " 2%|# | 2/100 [00:02<01:00,  1.25s/it]"]
    metric = read(expression, lines)
    assert values(metric) == [2.0, 0.8]
    assert metric.unit == "it/s"


@pytest.mark.parametrize(
    ("first", "later", "value"),
    [
        ("800.0 msec", "1.200 sec", 1200.0),
        ("800.0 milliseconds", "1.200 seconds", 1200.0),
        ("950.0ms/step", "1.020s/step", 1020.0),
        ("10 [ms]", "0.02 [s]", 20.0),
        ("990 tok/s", "1.1 ktok/s", 1100.0),
        ("990 GFLOPS", "1.1 TFLOPS", 1100.0),
        ("990 tokens/s/gpu", "1.1 ktokens/s/gpu", 1100.0),
        ("950", "1.2k", 1200.0),
        ("950", "1.2 k", 1200.0),
    ],
)
def test_units_of_one_kind_are_read_as_the_first_one(first: str, later: str, value: float) -> None:
    metric = read("took ([0-9.]+)", [f"took {first}", f"took {later}"])
    assert values(metric)[1:] == [pytest.approx(value)], metric.fault


@pytest.mark.parametrize(
    ("first", "later"),
    [("800 tok/s", "1.2 it/s"), ("800", "1.2 ms"), ("58s", "1 h/s"), ("950", "1.2B"), ("0.5s", "7.1 ms/step")],
)
def test_a_unit_that_changes_into_another_kind_ends_the_reading(first: str, later: str) -> None:
    metric = read("took ([0-9.]+)", [f"took {first}", f"took {later}"])
    assert metric.samples == []
    assert metric.fault.startswith("the unit of --metric's number changes from ")


def test_a_word_behind_the_number_is_no_unit() -> None:
    assert len(read("took ([0-9.]+)", ["took 1.0 good", "took 1.1 bad", "took 1.2"]).samples) == 3


@pytest.mark.parametrize("lines", [["1.30s/it", "2.00it/s"], ["2.00it/s", "1.25s/it"]])
def test_the_unit_is_that_of_the_expression_whichever_line_is_first(lines: list[str]) -> None:
    assert read("([0-9.]+)it/s", [f"| 1/9 {one}" for one in lines], higher_is_better=True).unit == "it/s"
    assert read("([0-9.]+)s/it", [f"| 1/9 {one}" for one in lines]).unit == "s/it"
    assert read("([0-9.]+)(?:it/s|s/it)", [f"| 1/9 {one}" for one in lines], higher_is_better=True).unit == "it/s"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tps: ([0-9.]+)", True),
        ("samples/s ([0-9.]+)", True),
        ("([0-9.]+)it/s", True),
        ("CurrSamplesPerSec=([0-9.]+)", True),
        (r"throughput per GPU \(TFLOP/s/GPU\): ([0-9.]+)", True),
        ("step time: ([0-9.]+)", False),
        ("([0-9.]+)s/it", False),
        ("time/step ([0-9.]+)", False),
    ],
)
def test_a_throughput_is_known_by_its_words(text: str, expected: bool) -> None:
    assert looks_like_throughput(text) == expected


def test_the_words_beside_the_number_tell_a_throughput_too() -> None:
    assert read("([0-9.]+) ", ["step time: 1.0 tps: 3"]).looks_like_throughput is False
    assert read("= ([0-9.]+)", ["tps = 3.0"]).looks_like_throughput
    assert read("speed ([0-9.]+)", ["speed 3.0 samples/s"]).looks_like_throughput


# -- lines of one step

#: Lines of trainers: step, seconds, rank.
TRAINERS: dict[str, tuple[str, Callable[[int, float, int], str]]] = {
    "torchtitan": (
        r"tps: ([0-9,]+)",
        lambda i, t, r: f"[rank{r}]:[titan] 2026-01-01 00:00:{i % 60:02d},0{r:02d} - root - INFO - "
        f"\x1b[31mstep: {i:2}  \x1b[32mloss: {9 / i:8.5f}  "
        f"\x1b[34mtps: {round(1000 / t):,}  \x1b[36mtflops: {31 / t:,.2f}\x1b[0m",
    ),
    "megatron": (
        r"elapsed time per iteration \(ms\): ([0-9.]+)",
        lambda i, t, r: f" [2026-01-01 00:00:00] iteration {i:8}/ 100 | consumed samples: {i * 128:12} | "
        f"elapsed time per iteration (ms): {t * 1000:.1f} | learning rate: 1.0E-05 | rank {r}",
    ),
    "nanogpt": (
        r"time ([0-9.]+)ms",
        lambda i, t, r: f"iter {i}: loss {9 / i + r / 100:.4f}, time {t * 1000:.2f}ms, mfu 40.00%",
    ),
    "deepspeed": (
        r"CurrSamplesPerSec=([0-9.]+)",
        lambda i, t, r: f"[2026-01-01 00:00:00,1{r}3] [INFO] [timer.py:260:stop] "
        f"epoch=0/micro_step={i}/global_step={i}, RunningAvgSamplesPerSec={8 / t:.2f}, "
        f"CurrSamplesPerSec={8 / t:.2f}, MemAllocated=1.0GB",
    ),
    "lightning": (
        r"([0-9.]+)it/s",
        lambda i, t, r: f"Epoch 0:   {i}%|#   | {i}/100 [00:{i:02d}<01:00,  {1 / t:.2f}it/s, v_num={r}]",
    ),
    "hugging face": (
        r"([0-9.]+)s/it",
        lambda i, t, r: f" {i}%|#         | {i}/100 [00:{i:02d}<01:00,  {10 * t:.2f}s/it]",
    ),
    "nemo": (
        r"train_step_timing in s: ([0-9.]+)",
        lambda i, t, r: f"[default{r}]:Training epoch 0, iteration {i}/99 | lr: 3e-05 | global_batch_size: 128 | "
        f"global_step: {i} | reduced_train_loss: {9 / i:.2f} | train_step_timing in s: {t:.4f}",
    ),
    "ranks without steps": (
        r"took ([0-9.]+) s",
        lambda i, t, r: f"[rank{r}]: took {t:.4f} s",
    ),
}  # fmt: skip


@pytest.mark.parametrize("ranks", [1, 8])
@pytest.mark.parametrize("trainer", TRAINERS)
def test_the_lines_of_one_step_are_one_sample(trainer: str, ranks: int) -> None:
    """Ranks print in any order and their times differ a little; where they name the step, one may be a step late."""
    expression, line = TRAINERS[trainer]
    rng, metric = random.Random(3), Metric(expression)
    is_named = trainer not in ("ranks without steps", "lightning", "hugging face")
    printed: list[tuple[float, str]] = []
    for step, rank in itertools.product(range(1, STEPS + 1), range(ranks)):
        late = 1.0 if is_named and rank and 9 < step < STEPS and rng.random() < 0.05 else 0.0
        printed.append((step + late + rng.random() / 100, line(step, 0.1 + rng.random() * 0.004, rank)))
    for at, text in sorted(printed):
        metric.read(text, at)
    assert len(metric.samples) == STEPS, metric.fault
    assert max(values(metric)) / min(values(metric)) < 1.05
    assert [at for at, _ in metric.samples] == sorted(at for at, _ in metric.samples)


@pytest.mark.parametrize(
    "line",
    [
        "4/8 GPUs, took {} s", "2026/01/01 12:00 took {} s", "[11/27 04:10:35] took {} s", "Epoch 1/3 took {} s",
        "rank 0/8 took {} s", "step size 8, took {} s", "epoch 3: 2/2 took {} s",
    ],
)  # fmt: skip
def test_what_only_looks_like_the_number_of_a_step_is_none(line: str) -> None:
    """The same in every line, a step apart: each line counts."""
    assert len(read(r"took ([0-9.]+)", [line.format(1.0 + n / 100) for n in range(100)]).samples) == 100


def test_the_value_is_not_taken_for_the_number_of_the_step() -> None:
    assert len(read(r"step: (\d+)", ["step: 100 ms"] * 9 + ["step: 200 ms"]).samples) == 10


def test_a_step_above_a_thousand_is_told_from_the_next_one() -> None:
    lines = [f"step {n:,} took 1.0 s" for n in range(1001, 1031)]
    assert len(read("took ([0-9.]+)", lines).samples) == 30


# -- lines and expressions that cost too much


def test_an_expression_that_backtracks_is_given_up_and_named() -> None:
    metric = Metric(r"(?:x+x+)+y|step time: ([0-9.]+)")
    for _ in range(SLOW_SEARCHES):
        assert metric.fault == ""
        metric.read("x" * 4000, 0.0)
    assert "nested repetition" in metric.fault


@pytest.mark.parametrize("filler", ["_", "/", " ", "[", "-", "1,", "step ", "1/", "rank-", "\x1b["])
def test_what_we_search_a_line_for_ourselves_takes_no_time(filler: str) -> None:
    """In steps of the processor, so that a busy machine makes no difference."""
    line = f"{filler * LONGEST_LINE} a step time: 1.0 "[-LONGEST_LINE:]
    began = time.process_time()
    for _ in range(3):
        read("step time: ([0-9.]+)", [line])
    assert time.process_time() - began < 5.0, "0.01 s; where it grows as the cube, minutes"


def test_only_the_beginning_of_a_long_line_is_searched() -> None:
    long = "x" * LONGEST_LINE + "step time: 1.0"
    assert read("step time: ([0-9.]+)", [long]).samples == []
    assert len(read("step time: ([0-9.]+)", ["step time: 1.0" + long]).samples) == 1


@pytest.mark.parametrize(
    ("expression", "why"), [("step (", "no regular expression"), ("step time", "needs one group"), ("(a)(b)", "has 2")]
)
def test_what_is_no_metric_is_refused(expression: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        compile_metric(expression)


def test_a_group_that_was_not_in_what_matched_gives_nothing() -> None:
    metric = read("warm-up|step time: ([0-9.]+)", ["warm-up", "step time: 2.0"])
    assert values(metric) == [2.0]
