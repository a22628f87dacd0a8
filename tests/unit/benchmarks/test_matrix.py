# SPDX-License-Identifier: Apache-2.0
"""The matrix without GPUs: its rows can be run, stop in time, go on later, and what was measured is kept."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks.matrix import __main__ as matrix
from benchmarks.matrix import compared, foreign_jobs, numerics, replay_check, single_runs, sweep
from benchmarks.matrix.place import JOBS, Place
from benchmarks.matrix.results_file import OtherSetup, Results
from benchmarks.matrix.rows import METRIC, QUICK, Row, rows
from lagom import journal
from lagom.bench.arm_words import parse_arms
from lagom.experiment import runner
from lagom.experiment.arm import Kind

ROWS = rows()
#: What has been asked for by name.
WANTED = (
    "host-fsdp-16384", "host-fsdp-32768", "host228-fsdp-16384", "host228-fsdp-32768", "nvlink-fsdp-2048",
    "nvlink-fsdp-4096", "nvlink-fsdp-8192", "nvlink-tp-8192", "nvlink-ep-16384", "nvlink-ddp-8192",
    "nvlink-headroom-8192", "nvlink-headroom-run-8192", "literal-host-16384",
    "nvlink-positions-4096", "nvlink-zero-cta-4096", "nvlink-ep-p2p",
    "numerics", "steady", "sockets-two-nodes",
    "foreign-trainer", "mesh-fsdp-tp", "mesh-hsdp", "mesh-checkpointing", "mesh-compile", "fig3-library", "fig3-waves",
    "fig5", "nt-host-16384", "oracle-host-16384", "tp4-dp2-nvlink",
)  # fmt: skip


def place(folder: Path, **fields: Any) -> Place:
    return Place(**{"gpus": 8, "folder": folder, "nccl_230": "/opt/libnccl.so.2", **fields})


def test_every_row_that_was_asked_for_is_there_and_can_be_started(tmp_path: Path) -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names)
    assert set(WANTED) | set(QUICK) <= set(names)
    assert sum(name.startswith("cell-") for name in names) == (3 * 2 + 2) * 2, "three models x FSDP, TP; two MoE x EP"
    here = place(tmp_path)
    for row in ROWS:
        assert row.kind in matrix.KINDS
        assert row.seconds <= 570 or row.spread, f"{row.name} does not fit into one command"
        if set(row.arms) & {"static", "grid"}:
            assert row.cycles >= 6, f"{row.name}: half of its windows are too few pairs for an interval"
        arms = [] if row.kind == "foreign_jobs" else parse_arms(list(row.arms))
        in_rounds = row.kind == "replay_check" or (row.kind == "foreign_jobs" and row.arms)
        if in_rounds or any(arm.kind is Kind.PROCESS for arm in arms):
            assert row.rounds >= 6, f"{row.name}: too few rounds for an interval"
        assert row.script.startswith("-m ") or (JOBS / row.script).exists()
        assert arms or row.kind == "foreign_jobs"
        assert here.why_not(row) == ""
        line = here.command(row)
        assert "torch.distributed.run" in line
        assert line.count("--steps") == (0 if row.script.startswith("-m ") else 1)


def test_a_regime_is_what_its_variables_say_and_what_is_missing_is_said(tmp_path: Path) -> None:
    by_name = {row.name: row for row in ROWS}
    host = place(tmp_path).environ(by_name["host-fsdp-16384"])
    assert host["NCCL_P2P_DISABLE"] == "1"
    assert host["LD_PRELOAD"] == "/opt/libnccl.so.2"
    assert "LD_PRELOAD" not in place(tmp_path).environ(by_name["nvlink-fsdp-4096"])
    assert place(tmp_path, nccl_230=None).why_not(by_name["host-fsdp-16384"]) == "needs --nccl-230"
    assert "4 GPUs" in place(tmp_path, gpus=2).why_not(by_name["mesh-hsdp"])


def test_the_jobs_own_times_are_found_by_the_metric() -> None:
    found = re.search(METRIC, '{"step": 3, "ms": 123.456, "loss": 1.0}')
    assert found is not None
    assert found.group(1) == "123.456"


def row(name: str, **fields: Any) -> Row:
    return Row(name, "asks", "bench", "fsdp.py", **fields)


def test_time_ends_it_a_failing_row_costs_no_other_and_the_next_call_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []

    def fake(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
        ran.append(row.name)
        if row.name == "b" and "error" not in earlier:
            raise RuntimeError("broken at /home/somebody/secret/place/file")
        return {"complete": True, "tokens": budget}

    monkeypatch.setitem(matrix.KINDS, "bench", fake)
    wanted = [row("a"), row("b"), row("c"), row("long", seconds=10_000)]
    here, out = place(tmp_path), tmp_path / "out.json"
    monkeypatch.setattr(Place, "versions", lambda self: {"gpu": "G", "nccl": "2.28.9"})
    matrix.run_rows(wanted[:3], here, Results(out, None, here, ["--x"]), 1000.0)
    assert ran == ["a", "b", "c"]
    text = out.read_text()
    assert "secret/place/file" not in text, "paths are cut"
    assert json.loads(text)["rows"]["b"]["complete"] is False
    again = Results(out, None, here, ["--x"])
    matrix.run_rows(wanted, here, again, 1000.0)
    assert ran == ["a", "b", "c", "b"], "what is done is done; what is too long for the time is not begun"
    assert again.is_done(wanted[1])
    assert len(json.loads(out.read_text())["sessions"]) == 2


def results_file(folder: Path, monkeypatch: pytest.MonkeyPatch, **versions: str) -> Path:
    monkeypatch.setattr(Place, "versions", lambda self: {"gpu": "H200", "nccl": "2.28.9", **versions})
    here = place(folder)
    results = Results(folder / "out.json", None, here, [])
    results.put(row("a"), {"complete": True, "arms": {"x": 1}}, 10.0)
    return folder / "out.json"


@pytest.mark.parametrize(
    ("here", "versions"),
    [
        ({"rehearse": "virtual"}, {}),
        ({"rehearse": "gloo"}, {}),
        ({"gpus": 4}, {}),
        ({}, {"gpu": "H100"}),
        ({}, {"nccl": "2.30.3"}),
        ({}, {"nccl_230": "2.30.4"}),
        ({}, {"torch": "2.11"}),
    ],
)
def test_results_of_another_setup_are_refused_untouched(
    here: dict[str, Any], versions: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = results_file(tmp_path, monkeypatch, nccl_230="2.30.3")
    before = out.read_bytes()
    told = {"gpu": "H200", "nccl": "2.28.9", "nccl_230": "2.30.3", **versions}
    monkeypatch.setattr(Place, "versions", lambda self: told)
    with pytest.raises(OtherSetup, match="name another file"):
        Results(out, None, place(tmp_path, **here), [])
    assert out.read_bytes() == before


def test_the_same_setup_goes_on_and_a_row_defined_anew_is_measured_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = results_file(tmp_path, monkeypatch, nccl_230="2.30.3")
    monkeypatch.setattr(Place, "versions", lambda self: {"gpu": "H200", "nccl": "2.28.9", "nccl_230": ""})
    again = Results(out, None, place(tmp_path), [])
    assert again.is_done(row("a", seconds=7.0)), "how long it is said to take changes nothing"
    of_old = json.loads(out.read_text())
    known = of_old["rows"]["a"]["row"]
    of_old["rows"]["a"]["row"] = {**{name: known[name] for name in known if name != "assets"}, "gone": 1}
    out.write_text(json.dumps(of_old))
    assert Results(out, None, place(tmp_path), []).is_done(row("a")), "fields that came or went since change nothing"
    other = row("a", cycles=31)
    assert not again.is_done(other)
    assert again.of(other) == {}
    again.put(other, {"complete": False}, 5.0)
    kept = json.loads(out.read_text())
    assert kept["superseded"][0]["arms"] == {"x": 1}, "nothing is lost"
    assert kept["rows"]["a"]["seconds"] == 5.0
    again.put(other, {"complete": True}, 5.0)
    assert len(json.loads(out.read_text())["superseded"]) == 1


def test_numerics_are_judged_by_what_two_stock_settings_do() -> None:
    def arm(*losses: float, committed: int = 0) -> dict[str, Any]:
        bits = [loss.hex() for loss in losses]
        return {"losses": list(losses), "bits": bits, "exit": 0, "log": {"events": {"plan_committed": committed}}}

    arms = {
        "stock": arm(1.0, 2.0),
        "stock again": arm(1.0, 2.0),
        "stock, NCCL_MAX_NCHANNELS=2": arm(1.0, 2.01),
        "stock, NCCL_MAX_NCHANNELS=3": arm(1.001, 2.0),
        "tuned live": arm(1.0, 2.005, committed=9),
        "allgather only": arm(1.0, 2.0),
    }
    good = numerics.verdict(arms)
    assert good["tuned_within_two_stock_settings"]
    assert good["allgather_only_identical"]
    assert good["stock_repeats_itself"]
    assert good["plans_committed_while_tuning"] == 9
    bad = numerics.verdict({**arms, "tuned live": arm(1.0, 2.5), "allgather only": arm(1.0, 2.0000001)})
    assert not bad["tuned_within_two_stock_settings"]
    assert not bad["allgather_only_identical"]
    twice = numerics.verdict({**arms, "tuned live": arm(1.0, 2.02, committed=9)})
    assert not twice["tuned_within_two_stock_settings"], "twice the settings' spread is outside of it"
    assert foreign_jobs.largest_difference([], [1.0]) is None


def steps_of_a_run(step: float, exit_code: int = 0) -> dict[str, Any]:
    return {"ended": "itself", "exit": exit_code, "seconds": 1.0, "ms": [900.0] * 5 + [step] * 20, "losses": [1.0]}


def test_the_cost_to_a_job_is_the_mean_over_shuffled_rounds_of_processes() -> None:
    told = next(r for r in ROWS if r.name == "cost-shared-ddp")
    wanted = foreign_jobs.runs(told)
    arms_of = len(told.arms)
    assert len(wanted) == arms_of * told.rounds
    names = [name.partition("#")[0] for name in wanted]
    orders = {tuple(names[arms_of * n : arms_of * (n + 1)]) for n in range(told.rounds)}
    assert len(orders) > 1, "each round has an order of its own"
    assert all(sorted(order) == sorted(told.arms) for order in orders)
    took = {"autoccl": 101.0}
    arms = {name: steps_of_a_run(took.get(name.partition("#")[0], 100.0)) for name in wanted}
    for name, arm in arms.items():
        if name.startswith("lagom"):
            arm["ms"][10] = 300.0  # a candidate that was tried: no median shows it
    arms["lagom#2"]["losses"] = [1.25]
    found = foreign_jobs.verdict(arms)
    assert (found["loss_difference"], found["loss_difference_off"]) == (0.25, 0.0), "of all rounds"
    assert found["speed"].startswith("0.909 ["), "20 steps of 100 ms and 200 ms more"
    assert found["speed autoccl"].startswith("0.990 [")
    assert found["speed_off"].startswith("1.000 [")
    missing = {name: arm for name, arm in arms.items() if name != "autoccl#3"}
    assert f"n = {told.rounds - 1}" in foreign_jobs.verdict(missing)["speed"], (
        "a round that is not whole does not count"
    )


@pytest.mark.parametrize("module", [numerics, foreign_jobs])
def test_arms_that_time_cut_off_are_run_again_and_those_that_ended_are_not(
    module: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    cut = {"after": 2}

    def fake(command: Any, folder: Path, name: str, lagom: Any, environ: Any, limit: float) -> dict[str, Any]:
        ran.append(name)
        ended = "itself" if len(ran) <= cut["after"] else "limit"
        log: dict[str, Any] = {"events": {}, "standing_aside": []}
        return {"ended": ended, "exit": 0, "seconds": 10.0, "losses": [1.0], "bits": ["a"], "median_ms": 1.0,
                "log": log}  # fmt: skip

    monkeypatch.setattr(single_runs, "run_plain", fake)
    told = next(r for r in ROWS if r.name == ("numerics" if module is numerics else "mesh-hsdp"))
    first = module.run(told, place(tmp_path), {}, 200.0)
    assert not first["complete"]
    assert first["verdict"] == {}, "nothing is judged by halves"
    assert len(first["arms"]) == 2
    ran.clear()
    cut["after"] = 99
    second = module.run(told, place(tmp_path), first, 200.0)
    assert second["complete"]
    assert not {"arm-00", "arm-01"} & set(ran)
    assert module.run(told, place(tmp_path), {}, 20.0)["arms"] == {}, "too little time for any arm"


def test_a_job_that_hangs_with_time_enough_is_a_finding(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(single_runs, "run_plain", lambda *_: {"ended": "limit", "exit": -15, "seconds": 240.0})
    found = single_runs.run_arms((), tmp_path, {"x": single_runs.SingleRun(None)}, {}, {}, 1000.0)
    assert found["x"]["ended"] == single_runs.HUNG


def test_a_job_that_fails_without_us_says_nothing_about_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exits = iter((1, 0, 1))
    monkeypatch.setattr(single_runs, "run_plain", lambda *_: {"ended": "itself", "exit": next(exits), "seconds": 1.0})
    runs = {"off": single_runs.SingleRun(None), "lagom": single_runs.SingleRun(())}
    first = single_runs.run_arms((), tmp_path, runs, {}, {}, 1000.0)
    assert list(first) == ["off"]
    again = single_runs.run_arms((), tmp_path, runs, {}, {"arms": first}, 1000.0)
    assert [arm["exit"] for arm in again.values()] == [0, 1], "that ours alone fails is the finding"


def test_a_sweep_goes_on_with_the_settings_it_has_not_seen() -> None:
    told = row("fig5", cycles=2)
    whole = sweep.waiting(told, {})
    assert len(whole) == 2 * len(sweep.points(told))
    seen = [{"cycle": p.cycle, "part": p.part, "rules": list(p.rules), "samples": [[[1.0], 1.0, 1.0]]} for p in whole]
    over = [[p.cycle, p.part, list(p.rules)] for p in whole[5:6]]
    rest = sweep.waiting(told, {"visits": seen[:5], "passed_over": over})
    assert rest == whole[6:]
    assert sweep.waiting(told, {"visits": seen}) == []
    assert sweep.waiting(told, {"visits": [{**seen[0], "samples": []}]}) == whole, "no iteration fell into it"


def test_the_first_process_of_a_row_is_begun_in_a_folder_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Begun(Exception):
        pass

    def begin(*_: Any) -> None:
        raise Begun

    monkeypatch.setattr(runner, "run_task", begin)
    told = next(row for row in ROWS if row.name == "default-fsdp-16384")
    with pytest.raises(Begun):
        compared.run(told, place(tmp_path), {}, 600.0)
    assert (tmp_path / told.name).is_dir()


def test_steady_goes_on_by_the_saved_config_and_the_processes_of_an_earlier_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def measured(schedule: Any, earlier: dict[str, Any], say: Any) -> dict[str, Any]:
        given.append(earlier)
        return {"complete": True, "results": []}

    monkeypatch.setattr(compared, "measured", measured)
    text = "lagom-config 1\ncommunicator ranks=2 nodes=1 ordinal=0\nrule any 1048576 - nc=2\nend\n"
    record = {"arms": ["stock", "own:replay=a/found.lagom"], "runs": [{"arm": "own:replay=a/found.lagom"}, {}]}
    earlier = {"tuned": {"results": []}, "profile": text, "record": record}
    told = next(row for row in ROWS if row.name == "steady")
    found = replay_check.run(told, place(tmp_path), earlier, 100.0)
    assert len(given) == 1, "nothing is tuned twice"
    name = f"own:replay={tmp_path}/steady/found.lagom"
    assert given[0]["record"]["arms"][1] == given[0]["record"]["runs"][0]["arm"] == name
    assert found["profile"] == text


def test_a_sweep_counts_an_iteration_for_the_setting_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "HOLD_SECONDS", 0.05)
    monkeypatch.setattr(sweep, "SETTLE_SECONDS", 0.02)
    every = sweep.points(row("fig5"))[:3]
    course = sweep.SettingSweep(every, tmp_path)
    with journal.Journal(tmp_path) as log:
        log.write(journal.Communicator(communicator=0, comm_id="0x1", ranks=2, nodes=1))
        for _ in every:
            course.look()
            log.write(journal.PlanCommitted(communicator=0, epoch=1, start_call=1))
            for _ in range(100):
                before = len(course.spans)
                course.look()
                if len(course.spans) > before:
                    break
                time.sleep(0.01)
    assert course.is_over
    assert [point for point, _, _ in course.spans] == every
    assert set(every[-1].rules) <= set((tmp_path / "pins").read_text().splitlines())
    point, begin, end = course.spans[1]
    middle = (begin + end) / 2
    steps = [
        {"x_ms": [1.0], "y_ms": 2.0, "ms": 1.0, "wall_ns": int(at * 1e9)} for at in (begin - 1, begin, middle, end + 1)
    ]
    assert sweep._visit(point, begin, end, steps)["iterations"] == 1, "begun and ended within"


def test_figure_three_holds_the_papers_settings() -> None:
    found = sweep.points(row("fig3-library"))
    parts = {point.part.partition(":")[0] for point in found}
    assert parts == {"stock", "stock again", "3a", "3b", "3c", "NT alone, NC = 8"}
    assert {point.knobs["nt"] for point in found if point.part.startswith("3a")} == {128}
    assert {point.knobs["chunk"] for point in found if point.part.startswith("3b")} == {16 << 10}
    assert {point.knobs["nc"] for point in found if point.part.startswith("3c")} == {4}


@pytest.mark.parametrize(
    ("verdict", "complete"), [("stock_is_best", True), ("cut_short", False), ("stopped", False), ("improved", True)]
)
def test_steady_replays_what_tuning_found(
    verdict: str, complete: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def measured(schedule: Any, earlier: dict[str, Any], say: Any) -> dict[str, Any]:
        asked.append([arm.name for arm in schedule.arms])
        if verdict == "improved":
            config = schedule.request.folder / "00-tuning-lagom-00" / "config.lagom"
            config.parent.mkdir(parents=True, exist_ok=True)
            config.write_text("lagom-config 1\ncommunicator ranks=2 nodes=1 ordinal=0\nrule any 1048576 - nc=2\nend\n")
        return {"complete": True, "results": [{"arm": "lagom", "search": {"verdict": verdict}}]}

    monkeypatch.setattr(compared, "measured", measured)
    found = replay_check.run(next(row for row in ROWS if row.name == "steady"), place(tmp_path), {}, 100.0)
    assert found["complete"] is complete
    assert ("in_vain" in found) is not complete
    assert ("tuned" in found) is complete, "what led to nothing would count as done in the next session"
    assert len(asked) == (2 if verdict == "improved" else 1)
    again = replay_check.run(next(row for row in ROWS if row.name == "steady"), place(tmp_path), found, 100.0)
    assert len(again.get("in_vain", [])) == (0 if complete else 2), "nothing is lost"
    if verdict == "improved":
        assert [name.partition("=")[0] for name in asked[1]] == ["stock", "own:stock", "own:replay", "own:lagom"]
        assert "nc=2" in found["profile"]


# -- the page


def test_a_log_says_when_each_kind_of_event_came_first() -> None:
    events = [journal.Note(t=100.0, text="a"), journal.Outcome(t=117.5, communicator=0, verdict="cut_short", reason=""),
              journal.Note(t=130.0, text="b")]  # fmt: skip
    log = single_runs.summarize_log(events)
    assert log["events"] == {"note": 2, "outcome": 1}
    assert log["first_s"] == {"note": 0.0, "outcome": 17.5}
