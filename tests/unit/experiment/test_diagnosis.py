# SPDX-License-Identifier: Apache-2.0
"""Why a process gave nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from lagom import journal
from lagom.bench.arm_words import parse_arms
from lagom.bench.results import BenchRecord, results_of
from lagom.bench.table import remarks
from lagom.experiment.arm import Kind, Task
from lagom.experiment.diagnosis import NO_CALLS, diagnose
from lagom.experiment.job_regions import JobRegions
from lagom.experiment.metric import Metric
from lagom.experiment.process import Seen
from lagom.experiment.request import Request
from lagom.experiment.store import RunRecord
from lagom.journal.schema import Base

ARMS = {arm.name: arm for arm in parse_arms(["own:stock,own:lagom,own:static=2,guided,off"])}
METRIC = "step ([a-z0-9.]+)"
#: What a log holds, up to where it is known that the job repeats itself.
COURSE: list[Base] = [
    journal.JobStart(job="1", mode="tune"),
    journal.RankJoined(process=0, pid=7),
    journal.Communicator(communicator=0, comm_id="0x1", ranks=2, nodes=1),
    journal.Program(communicator=0, period=3, sites=()),
]
ASIDE = journal.Passthrough(reason="the communicator spans 2 nodes", communicator=0)
SAMPLES = ["step 5.0", "step 5.5"]


def read(*lines: str) -> Metric:
    metric = Metric(METRIC)
    for at, line in enumerate(lines):
        metric.read(line, float(at))
    return metric


def why(name: str, seen: Seen, *, metric: str = METRIC, rate: JobRegions | None = None) -> str:
    """Of a process of an arm, or of the comparison within one job ("")."""
    arm = ARMS.get(name)
    request = Request(("train",), Path(), metric=metric, by="" if metric or rate is not None else "wall")
    return diagnose(request, Task(Kind.IN_JOB if arm is None else arm.kind, arm), seen, rate)


def test_a_metric_that_no_line_has_is_named() -> None:
    assert why("off", Seen(metric=read())) == f"no line of its output matched --metric '{METRIC}'"
    assert why("own:lagom", Seen(events=COURSE[:1], metric=read())) == (
        f"no line of its output matched --metric '{METRIC}'"
    )
    zero = read("step 0")
    assert why("off", Seen(metric=zero)) == "--metric matched, but '0' is no number above 0"


def test_a_metric_that_is_no_number_is_named() -> None:
    assert why("off", Seen(metric=read("step 1,5"))).startswith("--metric matched, but '1,5' is no number")
    assert why("off", Seen(metric=read("step ."))) == "--metric matched, but '.' is no number above 0"


@pytest.mark.parametrize("name", ["", "guided", "own:lagom", "own:static=2"])
def test_a_job_that_does_not_call_nccl_is_told_as_one(name: str) -> None:
    assert why(name, Seen(events=COURSE[:1], metric=read(*SAMPLES))) == NO_CALLS
    assert why(name, Seen(events=[*COURSE[:3], ASIDE], metric=read(*SAMPLES))) == ASIDE.reason
    assert why(name, Seen(metric=read(*SAMPLES))) == "it wrote no event log"


def test_how_far_the_controller_came_is_told() -> None:
    assert "an iteration that repeats itself" in why("", Seen(events=COURSE[:3]))
    assert why("", Seen(events=COURSE)) == "nothing had been compared when the job ended"
    assert why("guided", Seen(events=COURSE)) == "its search had not ended when the job did"
    assert why("own:lagom", Seen(events=COURSE, metric=read(*SAMPLES))) == "its search had not ended when the job did"
    assert "had not agreed on its rules" in why("own:static=2", Seen(events=COURSE, metric=read(*SAMPLES)))


def test_calls_that_nobody_made_are_told_from_calls_that_were_too_few(tmp_path: Path) -> None:
    class Called(JobRegions):
        saw_calls = True

    named = {"LAGOM_JOB_ID": "bench", "LAGOM_SHM_DIR": str(tmp_path)}
    assert why("own:stock", Seen(), metric="", rate=JobRegions(named)) == NO_CALLS
    assert "too few NCCL calls" in why("own:stock", Seen(), metric="", rate=Called(named))


def test_wall_time_of_an_arm_that_tunes_needs_a_metric() -> None:
    assert "--metric" in why("own:lagom", Seen(events=COURSE), metric="")


def test_an_arm_that_is_not_in_the_table_is_told_why_unless_another_process_of_it_was_measured() -> None:
    def told(*runs: RunRecord) -> list[str]:
        record = BenchRecord(command=["train"], arms=["stock", "own:stock", "off"], runs=list(runs))
        return list(remarks(record, results_of(record)))

    silent = RunRecord(kind="process", arm="off", measure="metric", reason="no line matched")
    inside = RunRecord(kind="in job", reason=NO_CALLS)
    assert told(silent, inside, silent) == [
        "off: nothing could be measured: no line matched.",
        f"the comparison within one job: nothing could be measured: {NO_CALLS}.",
    ]
    measured = RunRecord(kind="process", arm="off", measure="metric", value=1.0)
    assert not any("nothing could be" in line for line in told(silent, measured))
    too_slow = silent.model_copy(update={"ended": "limit", "exit": 143, "output": ["step"]})
    assert told(too_slow) == ["a process of 'process off' ended with 143 after 0 s (limit): step; no line matched."]
    searched = RunRecord(kind="tuning", arm="guided", reason=NO_CALLS)
    assert told(searched) == [f"guided: {NO_CALLS}."], "once, beside its line of the table"
