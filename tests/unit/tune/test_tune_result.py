# SPDX-License-Identifier: Apache-2.0
"""What a search came to, and what it leaves."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lagom.environment import read_conf
from lagom.experiment.store import RunRecord
from lagom.tune import PLAIN, TunePlan, TuneRecord, find_result
from lagom.tune.stages import STAGES, Tried, TuneTrial
from lagom.tune.tune_result import PlainNccl, as_json, conf_text, saved_config, tried_of
from tests.unit.tune.simulated import constant, group, noisy, search

A, B = group("A"), group("B")
PLAN = TunePlan((A, B))


def test_a_group_that_is_faster_on_fresh_processes_is_an_improvement() -> None:
    done = search(PLAN, noisy(lambda one: {"A": 0.5, "B": 0.52}.get(one.name, 1.0), 0.01, 1))
    result = find_result(PLAN, done)
    assert (result.verdict, result.group) == ("improved", A)
    assert result.speedup is not None
    assert result.speedup.low < 2.0 < result.speedup.high
    assert result.speedup.count == (4, 2), "of the confirming processes alone"
    assert result.text == f"A: {result.speedup.text} over plain NCCL"


def test_what_the_screen_made_look_better_is_not_in_the_speedup() -> None:
    """The best of many looks better than it is: only fresh processes are counted."""
    lucky = constant({"A": 0.5, "B": 0.9})
    done = search(PLAN, lambda trial: lucky(trial) if trial.stage == "screen" else 0.8 if trial.group is A else 1.0)
    result = find_result(PLAN, done)
    assert result.speedup is not None
    assert result.speedup.value == pytest.approx(1.25)


def test_a_difference_within_the_noise_is_not_resolved_and_says_what_would_have_been() -> None:
    times = iter([1.0, 1.02, 0.98, 1.01, 0.99] * 20)
    done = search(PLAN, lambda trial: next(times))
    result = find_result(PLAN, done)
    assert result.verdict == "nothing_resolved"
    assert result.speedup is not None
    assert f"smallest detectable effect {result.speedup.detectable:.1%}" in result.text
    assert result.text.startswith("nothing resolved")


@pytest.mark.parametrize(("gain", "is_combined"), [(0.99, False), (0.8, True)])
def test_a_combination_has_to_be_faster_than_the_best_group_beyond_the_noise(gain: float, is_combined: bool) -> None:
    """The design shows 10 % on top of A; fresh processes differ by 10 % between rounds and show ``gain``."""
    plan = TunePlan((A,), design=1, factors=(("NCCL_BUFFSIZE", ("8388608",)),))

    def job(trial: TuneTrial) -> float:
        alone, added = 0.5 if "NCCL_MIN_NCHANNELS" in trial.group.settings else 1.0, 1.0
        if "NCCL_BUFFSIZE" in trial.group.settings:
            added = gain if trial.stage == "confirm" else 0.9
        return alone * added * (0.95, 1.05)[trial.round % 2]

    done = search(plan, job)
    confirmed = {one.group for one in done if one.stage == "confirm"}
    assert confirmed == {PLAIN.name, "A", "A with NCCL_BUFFSIZE=8388608"}
    result = find_result(plan, done)
    assert result.verdict == "improved"
    assert result.group is not None
    assert ("NCCL_BUFFSIZE" in result.group.settings) == is_combined


def test_groups_that_are_all_slower_leave_plain_nccl_as_the_best() -> None:
    done = search(PLAN, constant({"A": 1.5, "B": 1.6}))
    assert {one.stage for one in done} == {"screen"}, "nothing is left to be confirmed"
    result = find_result(PLAN, done)
    assert (result.verdict, result.group, result.speedup) == ("plain_is_best", None, None)
    assert "plain NCCL is best" in result.text


def test_a_winner_that_turns_out_slower_leaves_plain_nccl_as_the_best() -> None:
    late = {("A", "screen"): 0.9, ("A", "best two"): 0.9, ("A", "confirm"): 1.3}
    done = search(PLAN, lambda trial: late.get((trial.group.name, trial.stage), 1.0))
    assert find_result(PLAN, done).verdict == "plain_is_best"


def test_a_search_that_is_not_over_names_the_best_so_far() -> None:
    done = search(PLAN, constant({"A": 0.6, "B": 0.5}))
    assert find_result(PLAN, []).text == "the search is not finished"
    for kept in range(1, len(done)):
        result = find_result(PLAN, done[:kept])
        assert result.verdict == "unfinished"
        assert result.speedup is None, "nothing is said about how much before it is known"
    result = find_result(PLAN, done[: 2 * 4])
    assert result.group == B
    assert result.text == "the search is not finished; best so far, not confirmed: B"


def test_a_speed_becomes_a_time_and_what_failed_gives_none() -> None:
    runs = [
        RunRecord(kind="process", arm="A", stage="screen", round=0, value=4.0),
        RunRecord(kind="process", arm="A", stage="screen", round=1, value=4.0, exit=1),
        RunRecord(kind="process", arm=PLAIN.name, stage="confirm", round=2),
        RunRecord(kind="process", arm="own:stock", value=1.0),  # of lagom bench
    ]
    assert tried_of(runs, higher_is_better=True) == [
        Tried("A", "screen", 0, 0.25), Tried("A", "screen", 1, None), Tried(PLAIN.name, "confirm", 2, None),
    ]  # fmt: skip
    assert tried_of(runs, higher_is_better=False)[0].time == 4.0


def record(times: dict[str, float]) -> TuneRecord:
    """The record of a search that ended, on eight ranks of two nodes."""
    runs = [
        RunRecord(
            kind="process", arm=one.group, stage=one.stage, round=one.round, value=one.time, nccl="2.28.9", ranks=8,
            nodes=2, gpu="NVIDIA H200", peer_access=True, measure="metric",
        )
        for one in search(PLAN, constant(times))
    ]  # fmt: skip
    return TuneRecord(command=["train"], runs=runs)


def test_the_saved_config_holds_the_settings_their_evidence_and_what_they_are_for() -> None:
    found = record({"A": 0.5, "B": 0.55})
    result = find_result(PLAN, tried_of(found.runs, higher_is_better=False))
    saved = saved_config(result, found.runs, "step ([0-9.]+)")
    assert saved.environment == dict(A.settings)
    assert saved.sections == (), "the job is not tuned while it runs"
    assert (saved.fingerprint.nccl_version, saved.fingerprint.ranks, saved.fingerprint.nodes) == (22809, 8, 2)
    assert (saved.fingerprint.gpu, saved.fingerprint.p2p) == ("NVIDIA H200", True)
    evidence = saved.evidence[0]
    assert evidence["speedup"] == pytest.approx(2.0)
    assert evidence["processes"] == [4, 2]
    assert evidence["measure"] == "step ([0-9.]+)"


def test_a_process_whose_ranks_were_hardly_seen_says_nothing_of_the_machine() -> None:
    """It ended before they had described themselves: a simulated job stays one."""
    found = record({"A": 0.5, "B": 0.55})
    for place, run in enumerate(found.runs):
        is_seen = place == len(found.runs) - 1
        run.ranks_seen, run.simulated = (8, True) if is_seen else (0, False)
        run.nccl, run.gpu, run.peer_access = (run.nccl, run.gpu, True) if is_seen else ("", "", None)
    saved = saved_config(find_result(PLAN, tried_of(found.runs, higher_is_better=False)), found.runs, "step (.+)")
    assert saved is not None
    assert saved.fingerprint.simulated
    assert (saved.fingerprint.gpu, saved.fingerprint.nccl_version, saved.fingerprint.p2p) == (
        "NVIDIA H200",
        22809,
        True,
    )


def test_the_json_holds_every_process_and_can_be_written() -> None:
    found = record({"A": 0.5, "B": 0.55})
    result = find_result(PLAN, tried_of(found.runs, higher_is_better=False))
    plain = json.loads(json.dumps(as_json(PLAN, found, result)))
    assert plain["verdict"] == "improved"
    assert plain["settings"] == dict(A.settings)
    assert len(plain["processes"]) == len(found.runs) < plain["planned"]
    assert {one["stage"] for one in plain["processes"]} == set(STAGES) - {"design", "repeat"}


def test_the_environment_wins_over_files_and_the_first_file_over_the_second() -> None:
    files = {"/home/me/.nccl.conf": {"A": "1", "B": "1", "C": "1"}, "/etc/nccl.conf": {"B": "2", "D": "2"}}
    plain = PlainNccl({"C": "3"}, files)
    assert plain.settings == {"A": "1", "B": "1", "C": "3", "D": "2"}
    assert "C=3" in plain.text
    assert "D=2 (/etc/nccl.conf)" in plain.text
    assert PlainNccl().text == "plain NCCL: no NCCL_ variable is set"


def test_a_conf_file_keeps_what_it_would_hide(tmp_path: Path) -> None:
    (tmp_path / ".nccl.conf").write_text("# mine\nNCCL_IB_HCA = mlx5\nNCCL_MIN_NCHANNELS=2\n")
    written = tmp_path / "nccl.conf"
    written.write_text(conf_text({"NCCL_MIN_NCHANNELS": "8", "NCCL_SOCKET_NTHREADS": "4"}, tmp_path / ".nccl.conf"))
    assert read_conf(written) == {"NCCL_IB_HCA": "mlx5", "NCCL_MIN_NCHANNELS": "8", "NCCL_SOCKET_NTHREADS": "4"}
    written.write_text(conf_text({"NCCL_MIN_NCHANNELS": "8"}, tmp_path / "nobody"))
    assert read_conf(written) == {"NCCL_MIN_NCHANNELS": "8"}
