"""The matrix without GPUs: its rows can be run, stop in time, go on later, and become a page."""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest

from benchmarks import matrix_page
from benchmarks.matrix import __main__ as matrix
from benchmarks.matrix import compared, harmless, judged, numerics, once, steady, sweep
from benchmarks.matrix.page import page, twins
from benchmarks.matrix.place import JOBS, Place
from benchmarks.matrix.plots import draw
from benchmarks.matrix.results import OtherSetup, Results
from benchmarks.matrix.rows import METRIC, QUICK, Row, rows
from lagom import journal
from lagom.bench import Kind, Ratio, parse_arms

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
        if any(arm.kind is Kind.PROCESS for arm in parse_arms(list(row.arms))) or row.kind == "steady":
            assert row.rounds >= 6, f"{row.name}: too few rounds for an interval"
        assert row.script.startswith("-m ") or (JOBS / row.script).exists()
        assert parse_arms(list(row.arms))
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
    assert harmless.largest_difference([], [1.0]) is None


@pytest.mark.parametrize("module", [numerics, harmless])
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

    monkeypatch.setattr(once, "run_plain", fake)
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
    monkeypatch.setattr(once, "run_plain", lambda *_: {"ended": "limit", "exit": -15, "seconds": 240.0})
    found = once.run_arms((), tmp_path, {"x": once.Plan(None)}, {}, {}, 1000.0)
    assert found["x"]["ended"] == once.HUNG


def test_a_job_that_fails_without_us_says_nothing_about_us(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exits = iter((1, 0, 1))
    monkeypatch.setattr(once, "run_plain", lambda *_: {"ended": "itself", "exit": next(exits), "seconds": 1.0})
    plans = {"off": once.Plan(None), "lagom": once.Plan(())}
    first = once.run_arms((), tmp_path, plans, {}, {}, 1000.0)
    assert list(first) == ["off"]
    again = once.run_arms((), tmp_path, plans, {}, {"arms": first}, 1000.0)
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


def test_steady_goes_on_by_the_profile_and_the_processes_of_an_earlier_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[dict[str, Any]] = []

    def measured(request: Any, earlier: dict[str, Any], say: Any) -> dict[str, Any]:
        given.append(earlier)
        return {"complete": True, "results": []}

    monkeypatch.setattr(compared, "measured", measured)
    text = "lagom-profile 1\ncommunicator ranks=2 nodes=1 ordinal=0\nrule any 1048576 - nc=2\nend\n"
    record = {"arms": ["stock", "own:replay=a/found.lagom"], "runs": [{"arm": "own:replay=a/found.lagom"}, {}]}
    earlier = {"tuned": {"results": []}, "profile": text, "record": record}
    told = next(row for row in ROWS if row.name == "steady")
    found = steady.run(told, place(tmp_path), earlier, 100.0)
    assert len(given) == 1, "nothing is tuned twice"
    name = f"own:replay={tmp_path}/steady/found.lagom"
    assert given[0]["record"]["arms"][1] == given[0]["record"]["runs"][0]["arm"] == name
    assert found["profile"] == text


def test_a_sweep_counts_an_iteration_for_the_setting_in_force(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "HOLD_SECONDS", 0.05)
    monkeypatch.setattr(sweep, "SETTLE_SECONDS", 0.02)
    every = sweep.points(row("fig5"))[:3]
    course = sweep.Course(every, tmp_path)
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


@pytest.mark.parametrize(("verdict", "complete"), [("stock_is_best", True), ("stopped", False), ("improved", True)])
def test_steady_replays_what_tuning_found(
    verdict: str, complete: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def measured(request: Any, earlier: dict[str, Any], say: Any) -> dict[str, Any]:
        asked.append([arm.name for arm in request.arms])
        if verdict == "improved":
            profile = request.folder / "00-tuning-lagom-00" / "profile.lagom"
            profile.parent.mkdir(parents=True, exist_ok=True)
            profile.write_text(
                "lagom-profile 1\ncommunicator ranks=2 nodes=1 ordinal=0\nrule any 1048576 - nc=2\nend\n"
            )
        return {"complete": True, "results": [{"arm": "lagom", "search": {"verdict": verdict}}]}

    monkeypatch.setattr(compared, "measured", measured)
    found = steady.run(next(row for row in ROWS if row.name == "steady"), place(tmp_path), {}, 100.0)
    assert found["complete"] is complete
    assert len(asked) == (2 if verdict == "improved" else 1)
    if verdict == "improved":
        assert [name.partition("=")[0] for name in asked[1]] == ["stock", "own:stock", "own:replay", "own:lagom"]
        assert "nc=2" in found["profile"]


# -- the page


def result(arm: str, value: float | None, **fields: Any) -> dict[str, Any]:
    known = {"low": None, "high": None} if value is None else {"low": value - 0.01, "high": value + 0.01}
    base = {"pairing": "within one job", "measured_by": "nccl kernels", "pairs": 24, "resolvable": 0.004, "note": ""}
    return {"arm": arm, "speedup": value, "iteration": 1e8, "search": None, **base, **known, **fields}


def entry(name: str, *results: dict[str, Any], **fields: Any) -> dict[str, Any]:
    told = next(row for row in ROWS if row.name == name)
    known = {"script": told.script, "options": told.options, "regime": told.regime, "nccl": told.nccl, "name": name}
    return {"row": {**known, "environ": told.environ}, "session": 0, "complete": True, "results": results, **fields}


def fake_results() -> dict[str, Any]:
    search = {"verdict": "improved", "speedup": 1.41, "low": 1.4, "high": 1.42, "configs": 12, "iterations": 150,
              "lost": 4.2, "reason": ""}  # fmt: skip
    stock_best = result("lagom", None, note="stock is best: the job is left with stock")
    visit = [{"part": point.part, "knobs": point.knobs, "samples": [[[1.0], 2.0, 2.5]] * 3, "rules": point.rules,
              "cycle": 0} for point in sweep.points(row("fig3-library"))]  # fmt: skip
    slow = [{"part": name, "knobs": {}, "samples": [[[1.0, 4.0], y, z]], "rules": [], "cycle": cycle}
            for cycle in range(6) for name, y, z in (("stock", 2.5, 3.125), ("by cycle", 2.0, 2.5))]  # fmt: skip
    windows = [{"arm": arm, "z": [(100.0, z)] * 2} for _ in range(6) for arm, z in
               (("stock", 100.0), ("lagom", 50.0), ("autoccl:proposed", 55.0),
                ("set=any:>=1M:nt=256", 100.0))]  # fmt: skip
    record = {"command": ["x"], "arms": ["stock", "lagom", "autoccl"], "runs": [{"kind": "in job", "windows": windows}]}
    processes = [{"kind": "process", "arm": arm, "round": n, "value": 1.0, "measure": "metric"} for n in range(6)
                 for arm in ("own:stock", "own:stock", "own:replay=/a/found.lagom", "own:lagom")]  # fmt: skip
    two = [{**one, "samples": [[[1.0, 4.0], 2.0, 5.0]]} for one in
           ({"part": p.part, "knobs": p.knobs, "rules": p.rules} for p in sweep.points(row("fig5")))]  # fmt: skip
    return {
        "format": 1,
        "sessions": [{"began": "2026-11-20", "gpus": 8, "arguments": ["--gpus", "8"], "rehearsed": "", "gpu": "G"}],
        "rows": {
            "host-fsdp-16384": entry(
                "host-fsdp-16384", result("stock", 1.0), result("lagom", 1.42, search=search), result("static", 1.16),
                result("autoccl:proposed", 1.2), record=record,
            ),
            "nt-host-16384": entry("nt-host-16384", record=record),
            "steady": entry(
                "steady", result("own:replay=/a/found.lagom", 1.0), result("own:lagom", 1.0),
                record={"command": ["x"], "arms": ["stock"], "runs": processes},
            ),
            "host-fsdp-32768": entry(
                "host-fsdp-32768", result("stock", 1.0), result("lagom", 1.03), result("autoccl:proposed", 0.87)
            ),
            "nvlink-fsdp-4096": entry("nvlink-fsdp-4096", result("stock", 0.999), stock_best),
            "cell-tp-mpt_7b-host": entry("cell-tp-mpt_7b-host", result("stock", 1.0), result("lagom", 1.1)),
            "fig3-library": entry("fig3-library", visits=visit),
            "fig5": entry("fig5", visits=[*two, *slow]),
            "numerics": entry("numerics", verdict={"tuned_within_two_stock_settings": True}),
        },
    }  # fmt: skip


def test_the_page_says_what_was_reached_what_was_not_and_what_is_missing(tmp_path: Path) -> None:
    data = fake_results()
    pictures = draw(data, tmp_path, "matrix")
    assert len(pictures) == 3
    assert all((tmp_path / name).stat().st_size > 5000 for name in pictures)
    text = page(data, pictures)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    targets = {line.split(" | ")[0].strip("| "): line for line in reversed(lines)}  # the first table wins
    assert targets["host-fsdp-16384"].endswith("| yes |")
    assert targets["host-fsdp-32768"].endswith("| **no**, 1.030 |")
    assert "stock is best (A/A): 0.999" in targets["nvlink-fsdp-4096"], "stock against stock is the measurement"
    assert targets["nvlink-fsdp-4096"].endswith("| not resolved, 0.999 |"), "0.989 is within its interval"
    assert "Reproduced in 1 of 2 rows: host-fsdp-32768 0.870 [0.860, 0.880]" in text
    assert "| MPT-7B | TP | host path | 1.100 [1.090, 1.110] |" in text
    assert "| MPT-7B | TP | NVLink | not measured |" in text
    assert "tuned within two stock settings: True" in text
    assert re.search(r"Rows without a measurement: .*nvlink-zero-cta-4096", text)
    assert "| 3b: NC at C = 16 KiB | nc = 1, chunk = 16384 | 1.000 | 2.000 | 2.500 | 3 |" in text
    assert "| host-fsdp-16384 | 1.100 [1.100, 1.100], n = 12 | ahead |" in text
    assert "1.250 [1.250, 1.250], n = 6 | 1.250 [1.250, 1.250], n = 6 |" in text, "a sweep has intervals, by cycle"
    assert "| nt-host-16384 | any:>=1M:nt=256 | 1.000 [1.000, 1.000], n = 12 over stock | the same within 1% |" in text
    assert "| steady | own:replay | 1.000 [1.000, 1.000], n = 6 | 6 | the same within 1% |" in text


@pytest.mark.parametrize(
    ("target", "low", "high", "noise", "said"),
    [
        (0.995, 0.996, 1.004, 1.004, "yes"),
        (0.995, 0.990, 1.020, 1.004, "not resolved, 1.005"),  # noise does not reach a target
        (0.995, 0.980, 0.990, 1.004, "**no**, 0.985"),
        (1.10, 1.11, 1.13, 1.004, "yes"),
        (1.10, 1.09, 1.13, 1.004, "not resolved, 1.110"),
        (1.10, 1.11, 1.13, 1.12, "**no**: within stock against stock"),
    ],
)
def test_a_target_is_reached_with_the_whole_interval_and_beyond_the_noise(
    target: float, low: float, high: float, noise: float, said: str
) -> None:
    found = result("lagom", (low + high) / 2, low=low, high=high)
    assert judged.reached(row("r", target=target), found, result("stock", 1.0, low=0.99, high=noise)) == said
    assert judged.reached(row("r", target=target), {**found, "low": None, "high": None}, None) == "too few pairs"


def test_an_arm_that_is_another_by_its_own_name_is_on_the_page() -> None:
    found = entry("host-fsdp-16384", result("stock", 1.0), result("static=2", 0.87), remarks=[
        "arm dhelix is left out: here it is the same as static=2.",
        "arm liger is left out: here it is the same as stock"
    ])  # fmt: skip
    shown = list(twins(found))
    assert shown[0].startswith("| dhelix (here the same as static=2) | 0.870 [0.860, 0.880] |")
    assert shown[1].startswith("| liger (here the same as stock) | 1.000")


def test_what_two_arms_are_to_each_other() -> None:
    def ratio(low: float, high: float) -> Ratio:
        return Ratio((low + high) / 2, low, high, 12, 0.01)

    assert judged.ahead(ratio(1.01, 1.1)) == "ahead"
    assert judged.ahead(ratio(0.9, 0.99)) == "**behind**"
    assert judged.ahead(ratio(0.99, 1.1)) == judged.same(ratio(0.99, 1.1)) == "not resolved"
    assert judged.same(ratio(0.995, 1.005)) == "the same within 1%"
    assert judged.same(ratio(1.02, 1.05)) == "**differs**"
    assert judged.same(None) == judged.ahead(None) == "–"


def test_a_rehearsal_is_called_one(tmp_path: Path) -> None:
    data = fake_results()
    data["sessions"][0]["rehearsed"] = "gloo"
    assert "none of these numbers is of a GPU" in page(data, [])


def test_parts_become_one_and_what_is_complete_stays(tmp_path: Path) -> None:
    first, second = fake_results(), fake_results()
    second["rows"] = {
        "host-fsdp-16384": {**second["rows"]["host-fsdp-16384"], "complete": False},
        "nvlink-fsdp-2048": {**entry("nvlink-fsdp-2048", result("stock", 1.0)), "complete": False},
    }
    for name, data in (("a.json", first), ("b.json", second)):
        (tmp_path / name).write_text(json.dumps(data))
    whole = matrix_page.merge([tmp_path / "a.json", tmp_path / "b.json"])
    second["sessions"][0]["rehearsed"] = "virtual"
    (tmp_path / "c.json").write_text(json.dumps(second))
    with pytest.raises(SystemExit, match="rehearsal"):
        matrix_page.merge([tmp_path / "a.json", tmp_path / "c.json"])
    assert whole["rows"]["host-fsdp-16384"]["complete"]
    assert whole["rows"]["nvlink-fsdp-2048"]["session"] == 1
    assert len(whole["sessions"]) == 2
