# SPDX-License-Identifier: Apache-2.0
"""Whole processes: the order of a round, where a process's steps begin to count, and the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import whole_runs
from benchmarks.matrix.place import JOBS as SCRIPTS
from benchmarks.matrix.place import Place
from benchmarks.whole_run_jobs import AGAIN, ARMS, BY_HAND, COST, DEFAULT_JOBS, JOBS, LOADED, PLAIN, SEARCH
from benchmarks.whole_runs import LOOK, moments, options_of, order, row_of
from benchmarks.whole_runs_page import AFTER, HALF, WHOLE, page, ratio, rounds, speedups
from lagom import journal

SLOW = 1000.0  # a step that must not count


def process(arm: str, number: int, ms: list[float], **fields: Any) -> dict[str, Any]:
    blank = {"exit": 0, "ended": "itself", "agreed_step": None, "ended_step": None, "log": []}
    return {"job": "ddp-8192", "round": number, "arm": arm, "ms": ms, **blank, **fields}


def data(*, search: float = 100.0, hand: float = 90.0) -> dict[str, Any]:
    """Two rounds; the second is twice as slow in every process. A search: 10 steps of 110, then ``search``."""
    processes = []
    for number, factor in enumerate((1.0, 2.0)):
        start_up = [SLOW] * 5
        processes += [
            process(PLAIN, number, [*start_up, *[99.0 * factor] * 4]),
            process(AGAIN, number, [*start_up, *[101.0 * factor] * 4]),
            process(BY_HAND[0], number, [*start_up, SLOW, *[hand * factor] * 4], agreed_step=2),
            process(BY_HAND[1], number, [*start_up, *[105.0 * factor] * 4], agreed_step=0),
            process(SEARCH, number, [*start_up, *[110.0 * factor] * 10, *[search * factor] * 15], ended_step=15),
        ]
    return {
        "sessions": [{"began": "2026-11-27", "gpus": 4, "gpu": "NVIDIA H100", "rehearsed": "", "arguments": []}],
        "arms": {name: arm.options and list(arm.options) for name, arm in ARMS.items()},
        "search_seconds": 40.0,
        "jobs": {"ddp-8192": {"script": "ddp.py", "options": [], "steps": {"search": 30, "others": 9}}},
        "processes": processes,
    }


def test_every_round_has_each_arm_of_each_job_once_and_an_order_of_its_own() -> None:
    jobs = DEFAULT_JOBS.split(",")
    every = [order(number, jobs) for number in range(4)]
    for one in every:
        assert sorted(one) == sorted((job, arm) for job in jobs for arm in JOBS[job].arms)
    assert every[0][0][0] != every[1][0][0], "the jobs take turns at being first"
    assert len({tuple(one) for one in every}) == 4
    assert order(2, jobs) == every[2], "a later command goes on with the same order"


def test_every_job_is_there_and_waits_at_its_gate(tmp_path: Path) -> None:
    place = Place(4, tmp_path, "/opt/libnccl.so.2")
    for name in JOBS:
        row = row_of(name, 17)
        line = place.command(row, "--turns", "gate")
        assert (line.count("--steps"), line[line.index("--steps") + 1]) == (1, "17")
        environ = place.environ(row)
        assert ("NCCL_P2P_DISABLE" in environ, "LD_PRELOAD" in environ) == (row.regime == "host", row.nccl == "2.30")
        assert environ["NCCL_NVLS_ENABLE"] == "0"
        script = (SCRIPTS / row.script).read_text()
        assert "add_options(parser)" in script or "add_turns_option(parser)" in script
        assert re.search(r"Turns\(|\brun\(|\btrain\(", script), "nothing waits"


def test_a_search_has_the_limit_of_its_job_and_its_cost_is_measured_without_one() -> None:
    assert options_of("fsdp-16384", SEARCH) == ("--mode", "tune", "--search-seconds", "40")
    assert options_of("fsdp-16384", "static") == ("--mode", "tune", "--strategy", "static", "--search-seconds", "40")
    assert options_of("fsdp-16384-120s", SEARCH) == ("--mode", "tune", "--search-seconds", "120")
    assert options_of("cost-hsdp", SEARCH) == ("--mode", "tune")
    assert options_of("cost-hsdp", LOOK) == ("--mode", "tune", "--search-seconds", "5")
    assert options_of("fsdp-16384", BY_HAND[0]) == ("--set", "any:>=1M:chunk=256K")
    assert options_of("cost-hsdp", LOADED) is options_of("cost-hsdp", PLAIN) is None
    assert ARMS[LOADED].environ["LAGOM_CONTROLLER"] == "none"


def test_steps_count_from_the_first_that_began_after_the_event() -> None:
    steps = [{"ms": 100.0, "wall_ns": (10.0 + 0.1 * number) * 1e9} for number in range(1, 9)]
    outcome = journal.Outcome(t=10.45, communicator=0, verdict="improved", reason="")
    assert moments(steps, [outcome]) == {"agreed_step": None, "ended_step": 5}
    late = journal.Outcome(t=20.0, communicator=0, verdict="improved", reason="")
    assert moments(steps, [late])["ended_step"] is None, "no step began after it"


def test_what_is_kept_of_a_log_can_be_read_as_the_log() -> None:
    move = journal.Move(communicator=0, number=1, purpose="trial", candidate=(), verdict="baseline", reason="r",
                        samples=(({"z": 2.0}, {"z": 1.0}),))  # fmt: skip
    ranks = [journal.RankJoined(process=rank, pid=rank) for rank in range(4)]
    kept = list(whole_runs.kept([*ranks, move, journal.Note(text="t")]))
    assert [one["event"] for one in kept] == ["rank_joined", "move"]
    assert journal.Move.model_validate(kept[1]) == move


def test_speed_ups_are_of_the_round_and_leave_out_what_does_not_count() -> None:
    by_round = rounds(data(), "ddp-8192")
    assert speedups(by_round, BY_HAND[0]) == pytest.approx([100 / 90] * 2)
    assert speedups(by_round, BY_HAND[1]) == pytest.approx([100 / 105] * 2)
    assert speedups(by_round, SEARCH, WHOLE) == pytest.approx([100 / 104] * 2)
    assert speedups(by_round, SEARCH, HALF) == pytest.approx([1.0] * 2)
    assert speedups(by_round, SEARCH, AFTER) == pytest.approx([1.0] * 2)
    found = ratio([1.1, 1.1])
    assert found is not None
    assert (found.value, found.has_interval) == (pytest.approx(1.1), False)


def test_a_round_without_both_plain_processes_and_a_process_that_failed_show_nothing() -> None:
    found = data()
    found["processes"][0]["exit"] = 1
    found["processes"][7]["agreed_step"] = None
    by_round = rounds(found, "ddp-8192")
    assert len(by_round) == 1
    assert speedups(by_round, BY_HAND[0]) == []
    assert "round 0, plain: exit 1" in page(found)


def test_the_page_says_which_targets_were_reached() -> None:
    slow, fast = page(data()), page(data(search=90.0, hand=90.5))
    assert (
        "last half at least 0.99 of the better setting by hand (256 KiB) | 0.900 (n = 2: no interval) | **no**" in slow
    )
    assert "(here 1.111) | 0.962 (n = 2: no interval) | **no** |" in slow
    assert "(256 KiB) | 1.006 (n = 2: no interval) | yes |" in fast
    assert "| 0 | auto | 6.1 s | 7.6 s | yes |" in slow
    assert "not asked here" in page(data(hand=99.0))
    late = data()
    for one in late["processes"]:
        one["ended_step"] = None
    assert "| 0 | auto | – | 7.6 s | no | not over |" in page(late)


def test_the_page_of_a_cost_has_the_whole_run_and_its_target() -> None:
    found = data()
    found["jobs"]["ddp-8192"] |= {"arms": COST, "regime": "nvlink", "nccl": "bundled", "search_seconds": None}
    found["processes"] = [one for one in found["processes"] if one["arm"] not in BY_HAND]
    found["processes"] += [process(LOADED, number, [SLOW] * 5 + [100.0 * (number + 1)] * 4) for number in (0, 1)]
    text = page(found)
    assert "`ddp.py`, NVLink, NCCL as torch bundles it; 30 steps with a search, 9 without; 2 rounds." in text
    assert f"| {LOADED} | 1.000 (n = 2: no interval) |" in text
    assert "| whole run at least 0.99 of plain | 0.96" in text
    assert HALF not in text.split("## ddp-8192")[1].split("| target |")[0]
