# SPDX-License-Identifier: Apache-2.0
"""Every event reads as one line, and --site keeps what touches that site."""

from __future__ import annotations

import pytest

from lagom.journal import (
    COLUMNS,
    Communicator,
    ConfigRecord,
    Dropped,
    Formatter,
    JobEnd,
    JobStart,
    Move,
    Note,
    Outcome,
    Passthrough,
    Phase,
    PlanAborted,
    PlanCommitted,
    PlanPublished,
    Program,
    RankJoined,
    SiteRecord,
)
from lagom.journal.schema import Base

GATHER, SCATTER = (
    SiteRecord(index=0, function="allgather", bytes=416 << 20),
    SiteRecord(index=1, function="reducescatter", bytes=416 << 20, context="hidden"),
)
NC3 = ConfigRecord(channels=3, chunk_bytes=256 << 10)
STORY: list[tuple[Base, str]] = [
    (
        JobStart(job="j", mode="tune", strategy="lagom", rules=("any:any:nc=2",)),
        "job j starts: mode tune, strategy lagom, pinned",
    ),
    (
        RankJoined(process=0, pid=9, nccl="2.30.7", tuner_api=6, profiler_api=6, knobs=("channels",)),
        "tuner v6 + profiler v6",
    ),
    (
        Communicator(communicator=0, comm_id="ab", name="fsdp", ranks=8, nodes=1),
        "communicator fsdp (ab): 8 ranks on 1 node",
    ),
    (Program(communicator=0, period=96, sites=(GATHER, SCATTER)), "program of fsdp: 96 calls an iteration, 2 sites"),
    (
        PlanPublished(communicator=0, epoch=1, start_call=960, end_call=1920, candidate=(NC3,)),
        "from call 960 until call 1920",
    ),
    (Phase(communicator=0, phase="learning"), "fsdp: learning"),
    (PlanCommitted(communicator=0, epoch=1, start_call=960, waited_ms=3), "from call 960 on every rank after 3 ms"),
    (PlanAborted(communicator=0, epoch=2, reason="a rank was late"), "plan aborted: fsdp epoch 2: a rank was late"),
    (
        Move(
            communicator=0,
            iteration=1240,
            number=7,
            purpose="trial",
            candidate=(NC3, ConfigRecord()),
            verdict="better",
            reason="X fell more than Y rose",
            site=0,
            ratio=0.957,
            ratio_low=0.949,
            ratio_high=0.966,
            h=0.12,
            x=45e6,
            y=60e6,
            z=68.6e6,
            z_error=0.3e6,
            pairs=8,
            discarded=1,
            resolvable=0.0125,
            lost_iterations=3.41,
        ),
        "#7   measured  1.045x [1.035, 1.054]  allgather 416M: nc=3 chunk=256K",
    ),
    (
        Outcome(communicator=0, verdict="improved", reason="A/B", configs_chosen=(NC3,), speedup=1.25),
        "search over: improved 1.250x (",
    ),
    (
        Outcome(
            communicator=0,
            verdict="improved",
            reason="A/B",
            speedup=1.2,
            regret_iterations=21.3,
            payback_iterations=5263,
        ),
        "1.200x (21.3 iterations lost, paid back after 5,300 iterations; ",
    ),
    (Passthrough(reason="a graph capture was seen", communicator=0), "not tuned fsdp: a graph capture was seen"),
    (Note(text="careful", level="warning"), "warning: careful"),
    (Dropped(counts={"move": 3}, limit_bytes=64 << 20), "log full at 64M: left out 3 move"),
    (
        JobEnd(reason="all ranks left", seconds=61, calls=10, calls_dropped=0),
        "job ends after 61 s: all ranks left",
    ),
]


def test_every_event_reads_as_one_line() -> None:
    formatter = Formatter(everything=True)
    for event, wanted in STORY:
        line = formatter.line(event)
        assert line is not None
        assert wanted in line
        assert "\n" not in line
        assert len(line) <= COLUMNS


def test_a_narrow_terminal_shows_the_config_of_a_decision() -> None:
    formatter = Formatter(columns=60)
    lines = [formatter.line(event) or "" for event, _ in STORY]
    move = next(line for line in lines if " #7 " in line)
    assert move.endswith("#7   measured  1.045x  nc=3 chunk=256K at allgathe…")
    assert all(len(line) <= 60 for line in lines)


def test_verbose_lines_are_never_cut_and_say_what_was_measured_and_why() -> None:
    formatter = Formatter(verbose=True)
    lines = [formatter.line(event) or "" for event, _ in STORY]
    move = next(line for line in lines if " #7 " in line)
    assert "; iteration 1240, H 0.12 X 45.00 Y 60.00 Z 68.60 ±0.30 ms 8 pairs (-1) " in move
    assert move.endswith("smallest detectable effect 1.2 % lost 3.4; X fell more than Y rose")
    assert not any("…" in line for line in lines)


def test_ranks_that_join_alike_are_one_line() -> None:
    formatter = Formatter()
    ranks = [RankJoined(process=at, pid=at, tuner_api=6, remark="two copies" * (at == 5)) for at in range(8)]
    lines = [line for rank in ranks if (line := formatter.line(rank)) is not None]
    assert [line.split(" ", 1)[1] for line in lines] == [
        "ranks join: tuner v6, knobs: none",
        "process 5 joined (pid 5): tuner v6, knobs: none; two copies",
    ]


def test_a_move_is_told_by_what_it_changes_at_the_search_s_last_point() -> None:
    """Its speed-up is over stock, though what was measured was the incumbent."""
    formatter = Formatter()
    formatter.line(Program(communicator=0, period=96, sites=(GATHER, SCATTER)))
    low, high = ConfigRecord(channels=1), ConfigRecord(channels=3)
    common = {"communicator": 0, "purpose": "trial", "reason": "r"}
    moves = [
        Move(number=1, candidate=(low, low), verdict="worse", ratio=1.25, **common),
        Move(number=2, candidate=(high, low), verdict="better", against="point", kept=True, ratio=0.5, **common),
        Move(number=3, candidate=(high, high), verdict="more", against="point", ratio=0.5, **common),
        Move(number=4, candidate=(high, high), verdict="confirmed", kept=True, ratio=0.5, **common),
        Move(number=5, candidate=(high, low), incumbent=(high, high), verdict="tie", ratio=1.0, **common),
    ]
    lines = [line.split(" ", 1)[1] for move in moves if (line := formatter.line(move)) is not None]
    assert [" ".join(line.split()) for line in lines] == [
        "#1 not kept 0.800x all 2 sites: nc=1",
        "#2 kept 2.000x allgather 416M: nc=3",
        "#4 confirmed 2.000x all 2 sites: nc=3",
        "#5 measured 2.000x reducescatter 416M hidden: nc=1",
    ]


@pytest.mark.parametrize(
    ("site", "kinds"),
    [
        ("0", {"Program", "PlanPublished", "Move", "Outcome"}),
        ("reducescatter", {"Program"}),
        ("allgather 416M", 4),
        ("9", set()),
    ],
)
def test_site_keeps_what_touches_it(site: str, kinds: set[str] | int) -> None:
    formatter = Formatter(site, everything=True)
    kept = {type(event).__name__ for event, _ in STORY if formatter.line(event) is not None}
    assert len(kept) == kinds if isinstance(kinds, int) else kept == kinds


def test_a_config_with_a_name_unknown_to_nccl_is_shown_as_recorded() -> None:
    move = Move(
        communicator=5,
        number=1,
        purpose="trial",
        verdict="tie",
        reason="r",
        candidate=(ConfigRecord(algorithm="teleport"),),
    )
    assert "site 0: teleport" in str(Formatter().line(move))
    assert "site 0: teleport; not measured; r" in str(Formatter(verbose=True).line(move))


def test_what_is_proven_later_was_not_called_not_kept() -> None:
    """A strategy may choose a config whose own trial was a tie."""
    formatter = Formatter()
    common = {"communicator": 0, "candidate": (NC3,), "reason": "r", "ratio": 0.9}
    trial = Move(number=12, purpose="trial", verdict="tie", **common)
    final = Move(number=13, purpose="final", verdict="confirmed", against="stock", **common)
    tried, proven = (str(formatter.line(move)) for move in (trial, final))
    assert "#12  measured" in tried
    assert "#13  proven" in proven


def test_plans_of_trials_are_lines_only_on_request_and_a_lasting_one_says_what_it_brings() -> None:
    trial = PlanPublished(communicator=0, epoch=1, start_call=9, end_call=99, candidate=(NC3,))
    lasting = PlanPublished(communicator=0, epoch=2, start_call=100, incumbent=(NC3,))
    events = [trial, PlanCommitted(communicator=0, epoch=1, start_call=9), lasting]
    events.append(PlanCommitted(communicator=0, epoch=2, start_call=100))
    formatter = Formatter()
    lines = [line for event in events if (line := formatter.line(event)) is not None]
    assert len(lines) == 1
    assert lines[0].endswith("in force on every rank: site 0: nc=3 chunk=256K (open-ended)")


def test_pinned_rules_are_not_called_stock() -> None:
    plan = PlanPublished(communicator=0, epoch=1, start_call=9, rules=("allgather:any:nc=2",), purpose="pin")
    assert str(Formatter(everything=True).line(plan)).endswith("from call 9: allgather:any:nc=2 (pin)")
