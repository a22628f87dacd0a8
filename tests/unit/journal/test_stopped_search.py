# SPDX-License-Identifier: Apache-2.0
"""A search that was stopped: the same clause in the log, the report and the last line of a run."""

from __future__ import annotations

import textwrap

import pytest

from lagom import journal
from lagom.demo.result import verdict as demo_verdict
from lagom.journal import ConfigRecord, RunState, describe_stopped
from lagom.report.tuning_report import describe_communicator, describe_verdict

SITES = tuple(journal.SiteRecord(index=at, function="allgather", bytes=(2 - at) << 30) for at in range(2))
FOUND, CONFIRMED = ConfigRecord(channels=6, chunk_bytes=512 << 10), ConfigRecord(channels=4)
STOCK = ConfigRecord()


def stopped(*moves: journal.Move, **fields: object) -> RunState:
    ending = {"verdict": "stopped", "reason": "the job ended", **fields}
    outcome = journal.Outcome(communicator=0, **ending)  # type: ignore[arg-type]
    return RunState([journal.Program(communicator=0, period=2, sites=SITES), *moves, outcome])


BEST = {"best": (FOUND, STOCK), "best_speedup": 1.0341, "best_low": 1.012, "best_high": 1.056, "missing_pairs": 32}
MEASURED = (
    "best, not proven: 1.034x [1.012, 1.056] by allgather 2G: nc=6 chunk=512K; missing: the final A/B (about 32 pairs)"
)


@pytest.mark.parametrize(
    ("run", "text"),
    [
        (
            stopped(configs=31, **BEST),
            f"stopped before its proof: {MEASURED}; the job was left on plain NCCL's choice",
        ),
        (
            stopped(configs=31, configs_chosen=(STOCK, CONFIRMED), **BEST),
            f"stopped before its proof: {MEASURED}; "
            "the job was left on what was confirmed while searching: allgather 1G: nc=4",
        ),
        (
            stopped(configs=3),
            "stopped before its proof: nothing faster than plain NCCL was found in 3 configs; "
            "the job was left on plain NCCL's choice",
        ),
        (
            stopped(),
            "stopped before its proof: no config was measured; the job was left on plain NCCL's choice",
        ),
        (
            stopped(verdict="cut_short", configs=31, **BEST),
            f"cut short before its proof: {MEASURED}; the job was left on plain NCCL's choice",
        ),
        (stopped(verdict="cut_short", configs=31), ""),
        (
            stopped(
                configs=31,
                configs_chosen=(STOCK, CONFIRMED),
                missing_pairs=0,
                speedup=1.05,
                speedup_low=1.02,
                speedup_high=1.08,
            ),
            "stopped after a proof: 1.050x [1.020, 1.080] by allgather 1G: nc=4, which the job was left on",
        ),
        (RunState(), ""),
    ],
)
def test_a_stopped_search_in_one_clause(run: RunState, text: str) -> None:
    assert describe_stopped(run.comm(0)) == text


def test_rules_pinned_in_mid_search_are_what_the_job_was_left_on() -> None:
    """By every reader; and no command replays them as if they had been proven."""
    run = stopped(configs=3, configs_chosen=(STOCK, CONFIRMED))
    rules = ("any:>=1M:chunk=256K",)
    run.apply(journal.PlanPublished(communicator=0, epoch=9, start_call=9, rules=rules, purpose="pin"))
    run.apply(journal.PlanCommitted(communicator=0, epoch=9, start_call=9))
    pinned = "Pinned by hand, not compared with plain NCCL: any:>=1M:chunk=256K."
    assert describe_stopped(run.comm(0)).endswith("; the job was left on the pinned rules: any:>=1M:chunk=256K")
    assert journal.verdict_of(run) == "pinned"
    assert describe_communicator(run.comm(0)) == pinned
    assert demo_verdict(run) == pinned


def test_the_verdict_has_three_lines_of_80_columns_however_many_sites_there_are() -> None:
    sites = tuple(journal.SiteRecord(index=at, function="reducescatter", bytes=416 << 20, context="hidden")
                  for at in range(6))  # fmt: skip
    found = tuple(ConfigRecord(channels=at + 2, chunk_bytes=128 << 10) for at in range(6))
    run = stopped(configs=31, **{**BEST, "best": found})
    run.comm(0).program = journal.Program(communicator=0, period=6, sites=sites)
    text = describe_verdict(run.comm(0))
    assert "by reducescatter 416M hidden: nc=2 chunk=128K and 5 more;" in text
    assert len(textwrap.wrap(text, 80)) <= 3


def test_everybody_says_it_alike() -> None:
    run = stopped(configs=31, **BEST)
    text = describe_stopped(run.comm(0))
    outcome = run.comm(0).outcome
    assert outcome is not None
    assert describe_verdict(run.comm(0)) == f"The search was {text}."
    line = journal.Formatter(state=run, verbose=True).line(outcome)
    assert line is not None
    assert f"search over: {text} (" in line


def test_a_log_that_names_no_best_claims_nothing() -> None:
    """Some trial was faster, and which one the outcome does not say."""
    faster = journal.Move(
        communicator=0, number=2, purpose="trial", candidate=(FOUND, STOCK), verdict="better",
        reason="", ratio=0.9,
    )  # fmt: skip
    assert "nothing was proven in 9 configs;" in describe_stopped(stopped(faster, configs=9).comm(0))
