# SPDX-License-Identifier: Apache-2.0
"""The one reading of a log: what its newest job has come to."""

from __future__ import annotations

import pytest

from lagom import journal
from lagom.journal import ConfigRecord, RunState
from lagom.journal.comm_state import PLANS_KEPT, median_of
from lagom.journal.schema import Base, SampleRecord

STOCK, FEWER, BEST = (ConfigRecord(),), (ConfigRecord(channels=4),), (ConfigRecord(channels=2),)
PROGRAM = journal.Program(
    communicator=0, period=2, sites=(journal.SiteRecord(index=0, function="allgather", bytes=1 << 20),)
)


def comm(name: str = "fsdp", comm_id: str = "0x1") -> journal.Communicator:
    return journal.Communicator(communicator=0, comm_id=comm_id, name=name, ranks=2, nodes=1)


def move(number: int, purpose: str, candidate: tuple[ConfigRecord, ...], **fields: object) -> journal.Move:
    known: dict[str, object] = {"verdict": "tie", "reason": "", "z": 1e8}
    return journal.Move(  # type: ignore[arg-type]
        communicator=0, number=number, purpose=purpose, candidate=candidate, **{**known, **fields}
    )


def pair(before: float, after: float) -> tuple[SampleRecord, SampleRecord]:
    return SampleRecord(z=before, x_by_site=(before / 2,)), SampleRecord(z=after, x_by_site=(after / 2,))


SEARCH: tuple[Base, ...] = (
    journal.JobStart(job="j", mode="tune"),
    comm(),
    PROGRAM,
    move(1, "baseline", STOCK, z=1e8),
    move(2, "trial", FEWER, verdict="better", ratio=0.9, ratio_low=0.8, ratio_high=1.0),
    move(3, "confirm", FEWER, verdict="confirmed", ratio=0.9, lost_iterations=2.0),
    move(4, "trial", BEST, verdict="better", ratio=0.5, lost_iterations=3.0),
    move(5, "final", FEWER, verdict="confirmed", ratio=0.8, lost_iterations=4.0, samples=(pair(100.0, 80.0),)),
)
OUTCOME = journal.Outcome(
    communicator=0, verdict="improved", reason="", configs_chosen=FEWER, speedup=1.25, regret_iterations=5.0
)


def test_speed_ups_are_over_stock_whatever_the_incumbent_was() -> None:
    found = RunState(SEARCH).comm(0)
    assert [step.speedup for step in found.steps()] == pytest.approx(
        [None, 1 / 0.9, 1 / 0.9, 2 / 0.9, 1.25], nan_ok=True
    )
    assert found.best_speedup == pytest.approx(2 / 0.9)
    assert (found.steps()[1].low, found.steps()[1].high) == (1.0, pytest.approx(1.25))
    assert (found.windows, found.configs_tried, found.stock_z) == (4, 2, 1e8)


def test_times_before_and_after_are_those_of_the_last_candidate_of_the_final_ab() -> None:
    other = move(4, "final", BEST, samples=(pair(300.0, 300.0),))
    (change,) = RunState([*SEARCH[:-1], other, SEARCH[-1], OUTCOME]).comm(0).changes()
    assert (change.name, change.after, change.stock_ns, change.tuned_ns) == ("allgather 1M", "nc=4", 50.0, 40.0)


def test_what_was_lost_in_searches_before_counts_on() -> None:
    drift = journal.Drift(communicator=0, reason="Z has been 9 % longer")
    found = RunState([*SEARCH, OUTCOME, drift]).comm(0)
    assert (found.drift, found.drifts, found.lost_iterations) == ("Z has been 9 % longer", 1, 5.0)
    again = RunState([*SEARCH, OUTCOME, drift, PROGRAM, move(1, "baseline", STOCK, lost_iterations=0.5)])
    found = again.comm(0)
    assert (found.drift, found.outcome, found.regret, found.lost_iterations) == ("", None, 0.5, 5.5)
    assert again.remarks == [
        "fsdp was searched more than once; this is the last search, `lagom log` prints all of them."
    ]


def test_the_newest_job_of_a_log_is_told() -> None:
    state = RunState([*SEARCH, OUTCOME, journal.JobEnd(reason="over"), *SEARCH[:2]])
    assert (state.earlier_jobs, state.end, state.searched) == (1, None, [])
    assert RunState(SEARCH).earlier_jobs == RunState(SEARCH[1:]).earlier_jobs == 0


def test_a_communicator_made_anew_under_an_old_number_begins_anew() -> None:
    state = RunState([*SEARCH, comm(name="fsdp")])
    assert state.comm(0).was_searched, "the same one, told again"
    state.apply(comm(name="tp", comm_id="0x2"))
    assert (state.comm(0).name, state.comm(0).moves) == ("tp", [])


def test_a_plan_is_in_force_once_it_is_agreed_and_has_no_end() -> None:
    def offered(epoch: int, purpose: str, end_call: int | None = None) -> journal.PlanPublished:
        return journal.PlanPublished(
            communicator=0, epoch=epoch, start_call=9, end_call=end_call, purpose=purpose, rules=("any: nc=3",)
        )

    def agreed(epoch: int) -> journal.PlanCommitted:
        return journal.PlanCommitted(communicator=0, epoch=epoch, start_call=9)

    state = RunState([comm(), offered(1, "pin")])
    assert (state.comm(0).in_force, state.comm(0).pinned) == (None, ())
    state.read([agreed(1), offered(2, "trial", end_call=20), agreed(2)])
    assert (state.comm(0).pinned, state.comm(0).plans_committed) == (("any: nc=3",), 2)
    state.read(offered(epoch, "trial", end_call=20) for epoch in range(3, 200))
    assert len(state.comm(0).plans) == PLANS_KEPT


def test_each_reason_is_told_once_and_where_it_belongs() -> None:
    aside = journal.Passthrough(reason="graphs", communicator=0)
    state = RunState([aside, aside, journal.Passthrough(reason="no rank"), journal.Note(text="n", level="warning")])
    assert (state.comm(0).not_tuned, state.not_tuned) == (["graphs"], ["no rank"])
    assert state.remarks == ["not tuned: graphs", "not tuned: no rank", "n"]


def test_who_follows_for_days_keeps_no_samples() -> None:
    assert not any(kept.samples for kept in RunState(SEARCH, keep_samples=False).comm(0).moves)


def test_a_median_leaves_out_what_is_not_known() -> None:
    assert median_of([3.0, None, 1.0, 8.0]) == 3.0
    assert median_of([None, None]) is None
