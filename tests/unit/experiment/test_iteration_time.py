# SPDX-License-Identifier: Apache-2.0
"""Which part of a process counts."""

from __future__ import annotations

import subprocess
import threading
from pathlib import Path

import pytest

from lagom import journal
from lagom.bench.arm_words import parse_arms
from lagom.experiment.iteration_time import is_enough, steady, value_of
from lagom.experiment.metric import Metric
from lagom.experiment.process import Ended, ProcessStart, Seen, _read
from lagom.experiment.request import Request

ARMS = {arm.name: arm for arm in parse_arms(["own:stock,own:lagom,own:static=2"])}
STOCK, TUNED, PINNED = ARMS["own:stock"], ARMS["own:lagom"], ARMS["own:static=2"]
#: A process that begins slowly: (wall clock, ms), thirty samples of which the first ten settle.
WARMING = [(float(at), 500.0 if at < 10 else 100.0 + at % 3) for at in range(30)]


def warming() -> Metric:
    metric = Metric()
    metric.samples += WARMING
    return metric


def asked(measure: str, samples: int) -> Request:
    return Request(("train",), Path("results"), samples=samples, by=measure)


def ended(seen: Seen, exit_code: int = 0, by: str = "itself") -> Ended:
    return Ended(exit_code, 42.5, 0.0, by, seen, command_seconds=42.0)


def settled(at: float) -> journal.Outcome:
    return journal.Outcome(communicator=0, verdict="improved", reason="", t=at)


def test_the_first_third_of_a_process_does_not_count() -> None:
    assert steady(WARMING, None) == [value for _, value in WARMING[10:]]
    value, samples = value_of("metric", ended(Seen(metric=warming())), None, STOCK)
    assert value == pytest.approx(101.0)
    assert len(samples) == 20
    assert 500.0 not in samples


def test_of_a_process_that_tunes_only_what_comes_after_its_last_search_counts() -> None:
    seen = Seen(metric=warming(), events=[settled(12.0), settled(24.0)])
    value, samples = value_of("metric", ended(seen), None, TUNED)
    assert samples == [value for at, value in WARMING if at > 24.0]
    assert value is not None
    assert value_of("metric", ended(Seen(metric=warming())), None, TUNED) == (None, []), "it never came to an end"


def test_of_a_process_that_pins_rules_nothing_counts_before_the_ranks_had_agreed() -> None:
    late = Seen(metric=warming(), events=[journal.PlanCommitted(communicator=0, epoch=1, start_call=9, t=14.0)])
    value, samples = value_of("metric", ended(late), None, PINNED)
    assert samples == [value for _, value in WARMING[20:]], "of the fifteen after it, the first third settles"
    assert value is not None
    assert value_of("metric", ended(Seen(metric=warming())), None, PINNED) == (None, []), "it was stock all along"
    assert value_of("wall", ended(Seen()), None, PINNED) == (None, [])
    assert value_of("wall", ended(late), None, PINNED) == (42.0, [42.0])


def test_what_stands_aside_is_not_waited_for() -> None:
    aside = Seen(
        events=[
            journal.Communicator(communicator=0, comm_id="0x1", ranks=2, nodes=1, name="", ordinal=0),
            journal.Passthrough(reason="NCCL is too old", communicator=0),
        ]
    )
    assert is_enough(asked("metric", 5), aside, None, PINNED)
    assert is_enough(asked("metric", 5), aside, None, TUNED)
    assert not is_enough(asked("metric", 5), aside, None, STOCK), "stock runs all the same"


def test_enough_are_samples_that_count_not_samples() -> None:
    assert not is_enough(asked("metric", 21), Seen(metric=warming()), None, STOCK)
    assert is_enough(asked("metric", 20), Seen(metric=warming()), None, STOCK)
    searched = Seen(metric=warming(), events=[settled(24.0)])
    assert is_enough(asked("metric", 5), searched, None, TUNED)
    assert not is_enough(asked("metric", 6), searched, None, TUNED)
    assert not is_enough(asked("metric", 1), Seen(metric=warming()), None, TUNED)


def test_wall_time_is_that_of_a_whole_process_that_ended_well_by_itself() -> None:
    assert value_of("wall", ended(Seen()), None, STOCK) == (42.0, [42.0])
    assert not is_enough(asked("wall", 1), Seen(metric=warming()), None, STOCK)
    for bad in (ended(Seen(), 3), ended(Seen(), by="limit"), ended(Seen(), by="budget")):
        assert value_of("wall", bad, None, STOCK) == (None, [])
    assert value_of("wall", ended(Seen(events=[settled(1.0)])), None, TUNED) == (None, []), "the search is in it"


def test_a_value_that_is_no_number_is_no_sample(tmp_path: Path) -> None:
    """One NaN in the file of results, and it could never be read again."""
    words = ["step 1.5", "step nan", "step -inf", "step -3", "step 0", "step what", "step 2.5"]
    assert samples_of(words, "step (.+)", tmp_path) == [1.5, 2.5]
    assert samples_of(["step 1.5", "epoch"], "step (.+)|epoch", tmp_path) == [1.5], "a group that was not in the match"


def test_our_own_lines_between_those_of_the_job_are_no_samples(tmp_path: Path) -> None:
    words = ["lagom: job bench-29786-00-in-job-00, mode tune", "7 ms", "lagom: job bench-29786 ended with 0 after 5 s"]
    assert samples_of(words, "([0-9]+)", tmp_path) == [7.0]


def samples_of(lines: list[str], metric: str, folder: Path) -> list[float]:
    with subprocess.Popen(["printf", "%s\\n", *lines], stdout=subprocess.PIPE) as process:
        seen = Seen(metric=Metric(metric))
        assert process.stdout is not None
        _read(process.stdout, ProcessStart(["job"], folder, "job", None), seen, threading.Event())
    return [value for _, value in seen.metric.samples]
