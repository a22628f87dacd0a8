# SPDX-License-Identifier: Apache-2.0
"""From what lies in shared memory and in the log to what a watcher is shown."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from lagom import journal
from lagom.journal.schema import Base, ConfigRecord
from lagom.records import CommConfig
from lagom.watch import screen
from lagom.watch.build import build_ended, build_job, read_counters
from lagom.watch.log_view import LogView
from lagom.watch.screen import Lines, list_group_facts, list_job_facts, page
from lagom.watch.snapshot import Agreement, GroupPhase, GroupSnapshot, JobSnapshot, NodeSnapshot
from lagom.wire.peek import RegionView
from tests.unit.watch.pictures import (
    BASELINE,
    OUTCOME,
    PATH,
    PROGRAM,
    SEARCH,
    START,
    at,
    group,
    move,
    plan,
    region,
    slot,
)


def told(*events: Base) -> LogView:
    return LogView(events)


def built(seen: RegionView, *events: Base, before: RegionView | None = None) -> GroupSnapshot:
    counts = read_counters(before, 10.0) if before is not None else {}
    return build_job(seen, told(*events), "", counts, read_counters(seen, 12.0)).groups[0]


DRIFT = journal.Drift(t=6.0, communicator=0, reason="Z has been 9 % longer")
BOTH = (slot(0, calls=60), slot(1, calls=61))
AT_EPOCH_7 = (slot(0, calls=60, epoch=7, iterations=3), slot(1, calls=61, epoch=7, iterations=3))


def in_phase(name: journal.PhaseName, purpose: str = "") -> journal.Phase:
    return journal.Phase(communicator=0, phase=name, purpose=purpose)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("seen", "events", "phase"),
    [
        (region(group(slot(0))), (START,), GroupPhase.JOINING),
        (region(group(*BOTH)), (START,), GroupPhase.LEARNING),
        (region(group(*BOTH)), (START, in_phase("joining")), GroupPhase.LEARNING),
        (region(group(*BOTH)), (START, PROGRAM, in_phase("searching", "baseline")), GroupPhase.BASELINE),
        (region(group(*BOTH)), (START, PROGRAM, BASELINE, in_phase("searching", "trial")), GroupPhase.SEARCHING),
        (region(group(*BOTH)), (START, PROGRAM, BASELINE, in_phase("searching", "confirm")), GroupPhase.CONFIRMING),
        (region(group(*BOTH)), (START, PROGRAM, BASELINE, in_phase("searching", "final")), GroupPhase.PROVING),
        (region(group(*BOTH)), (START, PROGRAM, BASELINE, in_phase("finalizing")), GroupPhase.SEARCHING),
        (region(group(*BOTH)), SEARCH, GroupPhase.TUNED),
        (
            region(group(*BOTH)),
            (*SEARCH[:-1], OUTCOME.model_copy(update={"verdict": "stock_is_best"})),
            GroupPhase.STOCK_IS_BEST,
        ),
        (
            region(group(*BOTH)),
            (*SEARCH[:-1], OUTCOME.model_copy(update={"verdict": "cut_short"})),
            GroupPhase.CUT_SHORT,
        ),
        (region(group(*BOTH)), (*SEARCH[:-1], OUTCOME.model_copy(update={"verdict": "stopped"})), GroupPhase.STOPPED),
        (region(group(*BOTH)), (*SEARCH, PROGRAM, in_phase("searching", "baseline")), GroupPhase.BASELINE),
        (region(group(*BOTH)), (*SEARCH, DRIFT), GroupPhase.LEARNING),
        (region(group(*BOTH)), (*SEARCH, DRIFT, PROGRAM, in_phase("searching", "baseline")), GroupPhase.BASELINE),
        (region(group(*BOTH)), (START, journal.Passthrough(communicator=0, reason="graphs")), GroupPhase.PASSTHROUGH),
        (region(group(*BOTH), controller=False), SEARCH[:-1], GroupPhase.UNATTENDED),
        (region(group(*BOTH), controller=False), (), GroupPhase.STOCK),
        (region(group(*AT_EPOCH_7), controller=False), (), GroupPhase.REPLAYING),
        (region(group(*BOTH, nodes=2, ranks=4)), (START,), GroupPhase.LEARNING),
    ],
)
def test_every_phase_is_told_from_the_others(seen: RegionView, events: tuple[Base, ...], phase: GroupPhase) -> None:
    assert built(seen, *events).phase is phase


def test_pinned_rules_are_a_phase_once_they_are_agreed() -> None:
    published = journal.PlanPublished(communicator=0, epoch=7, start_call=9, purpose="pin", rules=("any: nc=3",))
    committed = journal.PlanCommitted(communicator=0, epoch=7, start_call=9)
    assert built(region(group(*BOTH)), START, published).phase is GroupPhase.LEARNING
    pinned = built(region(group(*AT_EPOCH_7)), START, published, committed)
    assert (pinned.phase, pinned.rules) == (GroupPhase.PINNED, ("any: nc=3",))


def test_what_is_in_force_is_what_the_ranks_say_they_run() -> None:
    lying = plan(7, end_call=100, candidate=CommConfig(channels=6))
    during = built(region(group(*AT_EPOCH_7, epoch=7, held=lying)), START, PROGRAM)
    assert [(site.in_force, site.trial) for site in during.sites] == [("nc=3", "nc=6"), ("stock", "")]
    assert during.sites[0].channels == 3
    over = (slot(0, calls=100, epoch=7, iterations=5), slot(1, calls=101, epoch=7, iterations=5))
    after = built(region(group(*over, epoch=7, held=lying)), START, PROGRAM)
    assert [(site.in_force, site.trial) for site in after.sites] == [("nc=3", ""), ("stock", "")]


def test_where_the_region_holds_a_later_plan_the_log_knows_the_one_in_force() -> None:
    older = journal.PlanPublished(
        communicator=0, epoch=7, start_call=9, incumbent=(ConfigRecord(channels=2), ConfigRecord())
    )
    seen = region(group(*AT_EPOCH_7, epoch=8, state=1, held=plan(8)))
    assert [site.in_force for site in built(seen, START, PROGRAM, older).sites] == ["nc=2", "stock"]
    assert [site.in_force for site in built(seen, START, PROGRAM).sites] == ["?", "?"]
    assert built(seen, START, PROGRAM, older).agreement is Agreement.OFFERED
    committed = region(group(*AT_EPOCH_7, epoch=8, state=0, held=plan(8)))
    assert built(committed, START, PROGRAM, older).agreement is Agreement.COMING
    aborted = region(group(*AT_EPOCH_7, epoch=8, state=2, held=plan(8)))
    assert built(aborted, START, PROGRAM, older).agreement is Agreement.AGREED


def test_a_program_that_never_came_up_is_in_force_nowhere() -> None:
    waiting = (slot(0, calls=60, epoch=7), slot(1, calls=61, epoch=7))
    shown = built(region(group(*waiting, epoch=7, held=plan(7)), controller=False))
    assert [site.in_force for site in shown.sites] == ["stock", "stock"]


def test_in_replay_the_plan_names_the_sites() -> None:
    shown = built(region(group(*AT_EPOCH_7, epoch=7, held=plan(7)), controller=False))
    assert [(site.name, site.calls_per_iteration, site.in_force) for site in shown.sites] == [
        ("allgather 416M", 2, "nc=3"),
        ("reducescatter 416M", 1, "stock"),
    ]


def test_rates_are_differences_of_two_looks_under_one_plan() -> None:
    before = region(group(slot(0, calls=10, epoch=7, iterations=3), slot(1, calls=12, epoch=7, iterations=4)))
    now = region(group(slot(0, calls=70, epoch=7, iterations=23), slot(1, calls=69, epoch=7, iterations=23)))
    shown = built(now, START, PROGRAM, before=before)
    assert shown.calls_per_second == (69 - 10) / 2
    assert shown.iterations_per_second == 10.0
    assert [site.calls_per_second for site in shown.sites] == [20.0, 10.0]
    other_plan = region(group(slot(0, calls=70, epoch=8, iterations=23), slot(1, calls=69, epoch=8, iterations=23)))
    assert built(other_plan, START, PROGRAM, before=before).iterations_per_second is None
    assert built(now, START, PROGRAM).calls_per_second is None


def test_a_communicator_that_took_anothers_place_has_no_rate() -> None:
    before = region(group(slot(0, calls=10), slot(1, calls=10)))
    now = region(group(slot(0, calls=3), slot(1, calls=3)))
    assert built(now, START, before=before).calls_per_second is None


def test_the_search_in_numbers() -> None:
    shown = built(region(group(*BOTH)), *SEARCH)
    assert (shown.configs_tried, shown.resolvable, shown.lost_iterations) == (1, 0.01, 2.5)
    assert shown.lost_seconds == pytest.approx(0.25)
    assert shown.speedup is not None
    assert screen.format_gain(shown) == "1.100x plain NCCL [1.080, 1.120]"
    again = built(region(group(*BOTH)), *SEARCH, PROGRAM, BASELINE, move("trial", lost_iterations=1.0))
    assert (again.lost_iterations, again.configs_tried, again.speedup) == (3.5, 1, None)
    drifted = built(region(group(*BOTH)), *SEARCH, DRIFT)
    assert (drifted.lost_iterations, drifted.drifts, drifted.detail) == (2.5, 1, "Z has been 9 % longer")


def test_a_log_begins_anew_with_each_job_in_it() -> None:
    log = told(*SEARCH, journal.JobEnd(reason="over"), at(START, 9.0))
    assert (log.state.end, log.state.comms, list(log.decisions)) == (None, {}, [])


def node(job: JobSnapshot, t: float = 100.0) -> NodeSnapshot:
    return NodeSnapshot(t, "host", (job,))


def shown_on_screen(snapshot: NodeSnapshot, width: int = 140) -> str:
    out = io.StringIO()
    Console(file=out, width=width).print(page(snapshot))
    return out.getvalue()


def job(*events: Base) -> JobSnapshot:
    seen = region(group(*AT_EPOCH_7, epoch=7, held=plan(7)))
    return build_job(seen, told(*events), "/logs/lagom-myjob", {}, read_counters(seen, 1.0))


def test_a_screen_says_all_of_it() -> None:
    picture = shown_on_screen(node(job(*SEARCH)))
    for words in (
        "job myjob",
        "mode tune lagom",
        "2 ranks here",
        "NCCL 2.30.7",
        "controller 42",
        "log /logs/lagom-myjob",
        "fsdp  2 ranks  tuned: 1.100x plain NCCL",
        "stock 100.0 ms",
        "1.100x plain NCCL",
        "smallest detectable effect 1.00 %",
        "1 trials, lost 2.5 iterations (0.25 s)",
        "not tunable: 4 p2p",
        "allgather 416M hidden",
        "ring simple nc=24",
        "search over: improved",
    ):
        assert words in picture
    assert "no job of yours" in shown_on_screen(NodeSnapshot(1.0, "host", ()))


@pytest.mark.parametrize("width", [60, 80])
def test_no_fact_is_broken_on_a_narrow_screen(width: int) -> None:
    picture = shown_on_screen(node(job(*SEARCH)), width)
    assert all(len(line) <= width for line in picture.splitlines())
    for fact in ("controller 42", "smallest detectable effect 1.00 %", "1 trials, lost 2.5 iterations (0.25 s)"):
        assert fact in picture


def test_a_search_without_a_gain_says_so_and_a_remark_is_shown_once() -> None:
    searching = replace(job(*SEARCH).groups[0], phase=GroupPhase.SEARCHING, speedup=None, detail="")
    shown = replace(job(*SEARCH), groups=(searching,), remarks=("saved config refused: another NCCL",))
    picture = shown_on_screen(node(shown))
    assert "searching: no gain confirmed yet" in picture
    refused = shown_on_screen(node(replace(shown, groups=())))
    assert refused.count("saved config refused") == 1
    assert "no communicator yet" not in refused


def test_a_job_started_with_pinned_rules_is_not_called_one_that_tunes() -> None:
    start = START.model_copy(update={"rules": ("any:>=1M:chunk=256K",)})
    facts = list_job_facts(job(start, *SEARCH[1:]), 1.0)
    assert "mode pin" in facts
    assert not any("tune" in fact for fact in facts)


def test_calls_outside_the_learned_iteration_are_a_plain_sentence() -> None:
    one = replace(job(*SEARCH).groups[0], suspensions=1)
    assert "a rank made other calls than the learned iteration 1 time" in list_group_facts(one)
    assert "a rank made other calls than the learned iteration 8 times" in list_group_facts(replace(one, suspensions=8))


def test_a_screen_says_how_a_job_ended() -> None:
    ended = build_ended(told(*SEARCH), "/logs/lagom-myjob", str(PATH), "the launcher has gone", None)
    assert "ended: the launcher has gone" in shown_on_screen(node(ended))
    assert not node(ended).running


def test_lines_repeat_numbers_but_neither_decisions_nor_ends() -> None:
    lines = Lines()
    first, second = list(lines.of(node(job(*SEARCH)))), list(lines.of(node(job(*SEARCH))))
    assert len(first) == 1 + 4  # program, two moves, outcome; then the group's numbers
    assert len(second) == 1
    assert "myjob fsdp tuned: proven" in second[0]
    assert "allgather 416M hidden: nc=3" in second[0]
    ended = build_ended(told(*SEARCH), "", str(PATH), "over", None)
    assert [line.split(" ", 1)[1] for line in lines.of(node(ended))] == ["myjob ended: over"]
    assert list(lines.of(node(ended))) == []


def test_the_json_is_json_with_its_version() -> None:
    data = json.loads(json.dumps(node(job(*SEARCH)).as_json()))
    assert data["schema"] == 1
    assert data["jobs"][0]["groups"][0]["phase"] == "tuned"
