# SPDX-License-Identifier: Apache-2.0
"""What `lagom run` says last: a line is cut at its end, so the figures that matter must come before that."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lagom import journal
from lagom.journal import RunState
from lagom.launch import status_text
from lagom.launch.job_plan import JobOptions, JobPlan, plan_job
from lagom.launch.status_text import (
    COLUMNS,
    PREFIX,
    describe_end,
    describe_in_force,
    describe_next,
    describe_plan,
    shorten,
)
from lagom.wire.config_refusal import Cause, ConfigRefusal

SPEEDUP = {"speedup": 1.0424, "speedup_low": 1.0321, "speedup_high": 1.0542}
BEST = {"best_speedup": 1.0333, "best_low": 1.0301, "best_high": 1.0371}


def plan_of(job_options: JobOptions = JobOptions()) -> JobPlan:  # noqa: B008 (frozen)
    return plan_job(job_options, {}, Path("/opt/lagom/_lib/libnccl-tuner-lagom.so"))


def state(*events: journal.Event, is_simulated: bool = False, config: str = "") -> RunState:
    start = journal.JobStart(job="j", mode="tune", simulated_clock=is_simulated)
    comm = journal.Communicator(communicator=0, comm_id="0x7", ranks=2, nodes=1)
    end = journal.JobEnd(reason="over", config=config)
    return RunState([start, journal.RankJoined(process=0, pid=1), comm, *events, end])


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where stderr is one."""
    monkeypatch.setattr(status_text, "sys", SimpleNamespace(stderr=SimpleNamespace(isatty=lambda: True)))


def test_a_line_is_cut_on_a_terminal_and_whole_in_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "in force: " + "; ".join(f"allgather {size}M: nc=4 chunk=256K" for size in range(9))
    for is_terminal in (False, True):
        stderr = SimpleNamespace(isatty=lambda is_terminal=is_terminal: is_terminal)
        monkeypatch.setattr(status_text, "sys", SimpleNamespace(stderr=stderr))
        assert (shorten(text) == text) == (not is_terminal)
    assert len(shorten(text)) <= COLUMNS - len(PREFIX)
    assert shorten(text).endswith(" …")


@pytest.mark.parametrize(
    ("fields", "figures"),
    [
        ({"verdict": "improved", **SPEEDUP, "payback_iterations": 5263.0}, "paid back after 5,300 iterations"),
        (
            {"verdict": "stopped", **BEST, "missing_pairs": 10},
            "stopped before its proof: 1.033x [1.030, 1.037], 10 pairs missing",
        ),
        ({"verdict": "stopped", **SPEEDUP, "missing_pairs": 0}, "stopped after a proof: 1.042x [1.032, 1.054]"),
    ],
)
def test_the_last_figure_is_not_cut_off(fields: dict[str, Any], figures: str, terminal: None) -> None:
    program = journal.Program(communicator=0, period=4, sites=(), tier="timeline")
    run = state(program, journal.Outcome(communicator=0, reason="", **fields))
    line = describe_end(plan_of(), run, 0, 3600.0)
    assert line.endswith(figures)
    assert len(PREFIX) + len(line) <= COLUMNS


PINNED = (
    journal.PlanPublished(communicator=0, epoch=9, start_call=9, rules=("any: nc=2",), purpose="pin"),
    journal.PlanCommitted(communicator=0, epoch=9, start_call=9),
)


@pytest.mark.parametrize(
    ("verdict", "more", "is_simulated", "following"),
    [
        ("improved", (), False, "lagom run --config log/config.lagom -- train"),
        ("improved", (), True, "lagom report log"),  # a simulated one is refused
        ("stopped", (), False, "lagom report log"),
        ("cut_short", (), False, "lagom report log"),
        ("improved", PINNED, False, "lagom report log"),
    ],
)
def test_only_a_proven_config_is_the_next_command(
    verdict: Any, more: tuple[journal.Event, ...], is_simulated: bool, following: str
) -> None:
    """A job that was stopped before its proof, or pinned by `lagom set`, has a saved config, too."""
    figures = SPEEDUP if verdict == "improved" else BEST
    found = journal.Outcome(communicator=0, reason="", verdict=verdict, **figures)
    run = state(found, *more, is_simulated=is_simulated, config="log/config.lagom")
    plan = plan_of(JobOptions(directory=Path("log")))
    assert describe_next(plan, run, ["train"]) == f"next: {following}"


def test_without_an_nccl_nothing_is_planned_or_advised_that_needs_one() -> None:
    plan = replace(plan_of(), has_nccl=False)
    (line, *_) = describe_plan(plan)
    assert line.startswith("plan: nothing, unless the job brings its own NCCL: none is found here")
    none = RunState([journal.JobStart(job="j", mode="tune"), journal.JobEnd(reason="over", config="")])
    assert describe_end(plan, none, 0, 1.0).endswith("; nothing to tune: no NCCL is found here, and no rank called one")
    advice = "next: lagom doctor, once the job has an NCCL (torch built with CUDA)"
    assert describe_next(plan, none, ["train"]) == advice
    assert describe_next(plan_of(), none, ["train"]) == "next: lagom doctor"


def test_a_job_that_spans_nodes_is_told_what_to_do_instead() -> None:
    reason = "the job spans 2 nodes; use `lagom tune`, or set LAGOM_NODES=alone"
    comm = journal.Communicator(communicator=0, comm_id="0x8", name="tensor", ranks=8, nodes=1)
    passed = journal.Passthrough(communicator=0, reason=reason, cause="several_nodes")
    run = RunState([journal.JobStart(job="j", mode="tune"), comm, passed, journal.JobEnd(reason="over", config="")])
    assert describe_in_force(run, passed) == f"not tuned tensor: {reason}"
    assert describe_next(plan_of(), run, ["train"]) == "next: lagom tune -- train"
    each = describe_next(plan_of(), run, ["torchrun", "--nnodes", "2", "train.py"])
    assert each.startswith("next: on each node: lagom tune --nnodes 2 --out SHARED-FOLDER -- ")


@pytest.mark.parametrize(
    ("code", "failed"), [(0, False), (129, False), (130, False), (143, False), (1, True), (137, True), (139, True)]
)
def test_after_a_crash_the_next_thing_is_the_jobs_own_output(
    code: int, failed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    found = journal.Outcome(communicator=0, reason="", verdict="improved", **SPEEDUP)
    run, plan = state(found, config="log/config.lagom"), plan_of(JobOptions(directory=Path("log")))
    line = describe_next(plan, run, ["train"], code)
    assert (line == "next: why the job failed: the job's own output, above") == failed
    for option in (["--log-dir=ranks"], ["--log_dir", "ranks"]):
        command = ["torchrun", *option, "train.py"]
        for attempt, text in enumerate(("", "", "CUDA out of memory")):
            file = tmp_path / f"ranks/none_x/attempt_{attempt}/1/stderr.log"
            file.parent.mkdir(parents=True, exist_ok=True)
            if not text:
                file.write_text(text)
                kept = describe_next(plan, run, command, 1)
                assert kept.endswith("above") or "attempt_2" in kept, "an empty file says nothing"
        file.write_text("CUDA out of memory")
        line = describe_next(plan, run, command, code)
        assert (line == "next: why the job failed: tail -n 40 ranks/none_x/attempt_2/*/std*.log") == failed


def test_a_job_that_was_only_to_be_recorded_did_what_was_planned() -> None:
    plan = plan_of(JobOptions(recorded=20))
    assert describe_end(plan, state(), 0, 15.0) == "ended: exit 0 after 15 s; nothing was tuned, as planned"


def test_a_job_that_is_off_names_the_folder_that_was_asked_for() -> None:
    plan = plan_of(JobOptions(mode="off", directory=Path("here")))
    assert describe_plan(plan) == ["plan: off: the plugin does nothing; NCCL chooses; log here"]


@pytest.mark.parametrize(
    ("cause", "wanted", "here", "clause"),
    [
        ("ranks", "2", "4", "made for 2 ranks, this job has 4"),
        ("peer_access", "with", "without", "made with GPU peer access, this job runs without it"),
    ],
)
def test_start_settings_of_a_config_that_the_ranks_refuse_were_in_force_all_the_same(
    cause: Cause, wanted: str, here: str, clause: str, terminal: None
) -> None:
    refusal = ConfigRefusal(cause, wanted, here)
    run = state(journal.Passthrough(reason="in any words", cause="config_refused", refusal=refusal))
    cached = replace(plan_of(), mode="replay", cached_by="lagom tune on 2026-11-25", sets_start=True)
    line = describe_end(cached, run, 0, 12.0)
    assert line.startswith("ended: exit 0 after 12 s; start settings were in force, not at the next start: made ")
    assert "NCCL chooses" not in line
    assert len(PREFIX) + len(line) <= COLUMNS
    named = describe_end(replace(cached, cached_by=""), run, 0, 12.0)
    assert named == shorten(f"ended: exit 0 after 12 s; start settings were in force: {clause}")
    unset = describe_end(replace(cached, sets_start=False), run, 0, 12.0)
    assert unset == shorten(f"ended: exit 0 after 12 s; saved config refused: {clause}; NCCL chooses")


def test_a_rank_that_lacks_the_start_settings_was_not_started_with_them() -> None:
    refusal = ConfigRefusal("setting", "4", "", "NCCL_SOCKET_NTHREADS")
    run = state(journal.Passthrough(reason="in any words", cause="config_refused", refusal=refusal))
    line = describe_end(replace(plan_of(), mode="replay", sets_start=True), run, 0, 1.0)
    assert "; saved config refused: made with NCCL_SOCKET_NTHREADS=4, which" in line


def test_what_is_wrong_with_a_saved_config_that_cannot_be_read_is_only_in_the_sentence() -> None:
    aside = journal.Passthrough(
        reason="line 3: what is this?", cause="config_refused", refusal=ConfigRefusal("unreadable")
    )
    assert describe_end(replace(plan_of(), mode="replay"), state(aside), 0, 1.0).endswith("line 3: what is this?")
