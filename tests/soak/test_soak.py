# SPDX-License-Identifier: Apache-2.0
"""The soak for a few seconds, and its judge put to the test: what it is for, it must find."""

from __future__ import annotations

import json
import subprocess
import sys
from array import array
from pathlib import Path

import pytest

from lagom.records import Assignment, CommConfig, Function, Site
from lagom.sim.virtual.call_log import FUNCTION_SHIFT, pack
from lagom.sim.virtual.nccl import VirtualNccl
from lagom.sim.virtual.selection import CollectiveCall, nccl_version
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec
from lagom.wire.layout import ffi
from lagom.wire.plan import Plan, Rule, fill_plan
from tests.soak.__main__ import LEAST_INJECTED, Wanted, soak
from tests.soak.judge import Judge, Verdict
from tests.soak.oracle import Schedule
from tests.tiers import amount

COMM_ID, EPOCH, START, END, RANKS = 0xC0, 5, 8, 24, 2
CALLS = [(Function.ALL_GATHER, 64 << 20), (Function.REDUCE_SCATTER, 64 << 20)]
CANDIDATE = CommConfig(channels=4)
SECONDS = amount(6, 12)


@pytest.mark.slow
def test_short_soak(tmp_path: Path) -> None:
    """In a process of its own: pytest's has threads, and what forks here must have none."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.soak.test_soak", str(tmp_path / "state")],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    summary = json.loads(done.stdout)
    assert summary["violations"] == []
    assert summary["seen"]["generations"] >= 2
    assert sum(summary["injected"].values()) > LEAST_INJECTED


def plan() -> Plan:
    """Stock against four channels: blocks of one iteration, two calls each, eight iterations."""
    sites = tuple(Site(index, *call) for index, call in enumerate(CALLS))
    incumbent, candidate = (Assignment((config,) * 2) for config in (CommConfig(), CANDIDATE))
    rules = (Rule(None, 0, 1024, CommConfig(channels=1)),)
    return Plan(START, sites, (0, 1), incumbent, candidate, rules, END, alternate_iterations=1)


def plan_bytes() -> bytes:
    struct = ffi.new("struct lagom_plan *")
    fill_plan(plan(), struct)
    return bytes(ffi.buffer(struct))


def in_turn(call: int) -> bool:
    """Incumbent, candidate, candidate, incumbent, in iterations of two calls."""
    return START <= call < END and (call - START) // 2 % 4 in (1, 2)


def ran(call: int) -> int:
    """What a call of ours must have run."""
    return pack(CANDIDATE) if in_turn(call) else stock(call)


def stock(call: int) -> int:
    """What NCCL does by itself."""
    alone = VirtualNccl(None, nccl_version("2.30")).communicator(1, RANKS)
    function, size = CALLS[call % 2]
    return pack(alone.run([CollectiveCall(function, size)])[0].config)


def left_behind(folder: Path, calls: int = 60) -> Judge:
    """The files of two ranks that did everything right."""
    judge = Judge()
    folder.mkdir(exist_ok=True)
    (folder / f"{COMM_ID:x}.{EPOCH}.plan").write_bytes(plan_bytes())
    for rank in range(RANKS):
        write(folder, rank, [ran(call) for call in range(calls)])
        (folder / f"{COMM_ID:x}.{rank}.plans").write_text(f"{EPOCH} {START}\n")
        shapes = array("Q", [int(f) << FUNCTION_SHIFT | size for f, size in CALLS] * (calls // 2))
        (folder / f"{COMM_ID:x}.{rank}.shapes").write_bytes(shapes.tobytes())
    return judge


def write(folder: Path, rank: int, words: list[int]) -> None:
    (folder / f"{COMM_ID:x}.{rank}.calls").write_bytes(array("Q", words).tobytes())


def judged(folder: Path, judge: Judge) -> Verdict:
    spec = JobSpec(ranks=RANKS, communicators=(CommunicatorSpec(COMM_ID),), iterations=1)
    return judge.generation(folder, spec)


def test_judge_finds_nothing_where_nothing_is_wrong(tmp_path: Path) -> None:
    verdict = judged(tmp_path, left_behind(tmp_path))
    assert verdict.faults == []
    assert verdict.counts["calls as named"] == 60
    assert verdict.counts["calls on a candidate"] == 8
    assert verdict.counts["calls past the end of a lease"] == 60 - END


def test_judge_sees_a_candidate_that_outlives_its_lease_on_every_rank(tmp_path: Path) -> None:
    judge = left_behind(tmp_path)
    words = [pack(CANDIDATE) if call in (26, 27) else ran(call) for call in range(60)]
    for rank in range(RANKS):
        write(tmp_path, rank, words)
    (fault,) = judged(tmp_path, judge).faults
    assert "call 26" in fault
    assert "incumbent" in fault


def test_judge_sees_a_change_before_the_first_plan(tmp_path: Path) -> None:
    judge = left_behind(tmp_path)
    for rank in range(RANKS):
        write(tmp_path, rank, [pack(CANDIDATE) if call == 3 else ran(call) for call in range(60)])
    (fault,) = judged(tmp_path, judge).faults
    assert "call 3 under no plan" in fault


def test_judge_sees_two_ranks_that_differ_and_the_shorter_log_counts(tmp_path: Path) -> None:
    judge = left_behind(tmp_path)
    write(tmp_path, 1, [pack(CANDIDATE) if call == 40 else ran(call) for call in range(42)])
    (fault,) = judged(tmp_path, judge).faults
    assert "ranks differ" in fault
    assert "call 40" in fault


def test_judge_sees_ranks_that_switched_at_different_calls(tmp_path: Path) -> None:
    judge = left_behind(tmp_path)
    (tmp_path / f"{COMM_ID:x}.1.plans").write_text(f"{EPOCH} {START + 2}\n")
    assert "other plans" in judged(tmp_path, judge).faults[0]


def test_oracle_leaves_the_program_at_a_strange_call_and_finds_back(tmp_path: Path) -> None:
    """A call that the program does not expect suspends it; one whole iteration later it is in force again."""
    strange, tiny = (Function.ALL_REDUCE, 1 << 20), (Function.ALL_REDUCE, 8)
    shapes = [CALLS[0], tiny, CALLS[1], CALLS[0], strange, CALLS[1], CALLS[0], CALLS[1], CALLS[0], CALLS[1]]
    named = list(Schedule(plan_bytes()).names([(int(f), size) for f, size in shapes]))
    assert [one.candidate for one in named] == [False, False, False, True, False, False, False, False, True, True]
    assert named[1].config == CommConfig(channels=1)  # the rule for small calls
    assert named[3].config == CANDIDATE
    assert named[4].config == CommConfig()


if __name__ == "__main__":
    asked = Wanted(SECONDS, seed=11, ranks=4, haste=2.0, life=amount((1.5, 3.0), (3.0, 6.0)), small=True)
    result = soak(asked, Path(sys.argv[1]))
    print(json.dumps(result, indent=1))
    sys.exit(bool(result["violations"]))
