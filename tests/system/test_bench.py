# SPDX-License-Identifier: Apache-2.0
"""`lagom bench` on virtual ranks: every kind of arm, from the command line to the table, and on from where it ended."""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from lagom import journal
from tests.forked_commands import lagom
from tests.tiers import FULL, amount

JOB = (sys.executable, str(Path(__file__).with_name("forked_job.py")), "--layers", "2", "--noise", "0.004")


CALLS = 8  # an iteration; two layers: gathers forward and backward, scatters, the same of the root


def pinned_from(out: Path) -> float:
    """The last call from which on a pin was in force in any of the processes' logs; infinity if none was."""
    logs = [journal.read(log) for log in out.rglob(journal.LOG_NAME)]
    pinned = (event.start_call for log in logs for event in log if isinstance(event, journal.PlanCommitted))
    return max(pinned, default=math.inf)


def bench(
    place: Path, *options: str, job: tuple[str, ...] = JOB, code: int | None = 0, **variables: str
) -> subprocess.CompletedProcess[str]:
    """One call, in ``place``, with shared memory of its own. ``code``: None = whether or not anything was measured."""
    shm = place / "shm"
    shm.mkdir(parents=True, exist_ok=True)
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LAGOM_", "NCCL_", "SLURM_"))}
    environ = clean | {"LAGOM_SHM_DIR": str(shm), "LAGOM_CLOCK": "simulated", "LAGOM_CACHE": "off"} | variables
    done = lagom("bench", "--out", str(place / "out"), "--json", *options, "--", *job, cwd=place, env=environ)
    assert done.returncode in ((0, 1) if code is None else (code,)), done.stderr
    assert list(shm.iterdir()) == [], "no region is left behind"
    return done


def results(done: subprocess.CompletedProcess[str]) -> dict[str, dict[str, object]]:
    return {one["arm"]: one for one in json.loads(done.stdout)["results"]}


@pytest.mark.slow
def test_arms_alternate_with_stock_within_one_job_that_is_ended_when_enough_is_known(tmp_path: Path) -> None:
    done = bench(tmp_path, "--arms", "stock,static=2,set=allgather:any:nc=1", "--cycles", "3")
    found = results(done)
    assert set(found) == {"stock", "static=2", "set=allgather:any:nc=1"}
    assert all(one["pairs"] == 6 and one["pairing"] == "within one job" for one in found.values())
    stock, slow = found["stock"], found["set=allgather:any:nc=1"]
    low, high = float(str(stock["low"])), float(str(stock["high"]))
    # One interval in twenty misses what it is about; one three times as wide, next to none.
    assert 2 * low - high <= 1.0 <= 2 * high - low, "stock against stock"
    assert float(str(slow["high"])) < float(str(found["static=2"]["low"])) < 1.0, "fewer channels are slower here"
    raw = json.loads((tmp_path / "out" / "bench.json").read_text())
    assert raw["runs"][0]["ended"] == "us"
    assert sum(len(window["z"]) for window in raw["runs"][0]["windows"]) == 18
    again = bench(tmp_path, "--arms", "stock,static=2,set=allgather:any:nc=1", "--cycles", "3")
    assert "comparing" not in again.stderr, "what is measured is not measured again"
    assert results(again) == found
    other = bench(tmp_path, "--arms", "stock,static=3", code=2)
    assert "holds another benchmark" in other.stderr
    elsewhere = bench(
        tmp_path, "--arms", "stock,static=2,set=allgather:any:nc=1", "--cycles", "3", code=2, NCCL_P2P_DISABLE="1"
    )
    assert "NCCL_P2P_DISABLE was not set and is 1" in elsewhere.stderr, "and not the first one's table"


@pytest.mark.slow
def test_a_comparison_that_is_cut_off_goes_on_until_all_its_cycles_are_there(tmp_path: Path) -> None:
    """Cut off by --run-limit, and by a budget that leaves no time for a second process. On a busy machine the limit is
    doubled until something is measured within it."""
    asked = ("--arms", "stock,static=2", "--cycles")
    job = (*JOB, "--real-ms", "3")
    for limit in (3, 6, 12, 24, 48):
        limits = ("--run-limit", str(limit), "--budget", str(max(21, limit + 1)))
        cut = bench(tmp_path, *asked, "100000", *limits, "--fresh", job=job, code=None)
        if cut.returncode == 0:
            break
    assert cut.returncode == 0, cut.stderr
    measured = int(str(results(cut)["stock"]["pairs"])) // 2
    assert "time limit reached, processes left: 1" in cut.stderr
    done = bench(tmp_path, *asked, str(measured + 4), job=job)
    assert "comparing the arms within one job, 4 cycles" in done.stderr, "no more than is missing"
    assert int(str(results(done)["stock"]["pairs"])) == 2 * (measured + 4)
    assert "comparing" not in bench(tmp_path, *asked, str(measured + 4), job=job).stderr


@pytest.mark.slow
def test_arms_that_need_processes_of_their_own_get_them(tmp_path: Path) -> None:
    """The last two thirds of a process are judged. Where the machine is so busy that half of the iterations were over
    when a pin was agreed on, there are four times as many."""
    metric = r"iteration \d+: ([0-9.]+) ms"
    asked = ("--arms", "off,own:static=1", "--metric", metric, "--rounds", "1")
    for iterations in (250, 1000, 4000):
        place = tmp_path / str(iterations)
        done = bench(place, *asked, job=(*JOB, "--real-ms", "10", "--iterations", str(iterations)))
        if is_early := pinned_from(place / "out") <= iterations // 2 * CALLS:
            break
    assert is_early, "no pin was agreed on before half of the iterations were over"
    found = results(done)
    assert {name: one["pairing"] for name, one in found.items()} == {
        "own:stock": "2 processes in shuffled rounds",
        "off": "1 process in shuffled rounds",
        "own:static=1": "1 process in shuffled rounds",
    }
    assert float(str(found["off"]["speedup"])) == pytest.approx(1.0, abs=0.02), "the plugin alone changes nothing"
    assert float(str(found["own:static=1"]["speedup"])) < 0.95
    assert all(one["measured_by"] == "metric" for one in found.values())
    assert found["off"]["low"] is None, "one pair gives no interval"


def test_a_budget_ends_it_cleanly_and_a_job_that_fails_is_quoted(tmp_path: Path) -> None:
    failing = (sys.executable, "-c", "print('no such data set'); raise SystemExit(3)")
    done = bench(tmp_path, "--arms", "stock,static=2", job=failing, code=1)
    assert done.stderr.count("failed with 3") == 2, "tried twice, then given up"
    assert any("no such data set" in text for text in json.loads(done.stdout)["remarks"])
    (tmp_path / "out" / "bench.json").unlink()
    short = bench(tmp_path, "--arms", "stock,static=2", "--budget", "5", code=1)
    assert "needs at least 20 s: use --budget 20 or more." in short.stderr
    assert "run the same command again" not in short.stderr


@pytest.mark.parametrize("arms", ["off", "stock,static=2", "lagom"])
def test_a_command_that_never_calls_nccl_is_refused_after_one_process(tmp_path: Path, arms: str) -> None:
    """`-- true` was 268 times as fast without us: what was compared were our own processes."""
    for job in amount([("sleep", "0.5")], [("true",), ("sleep", "0.5")]):
        done = bench(tmp_path, "--arms", arms, "--fresh", job=job, code=1)
        assert "no rank was seen to call NCCL through the plugin" in done.stderr
        assert all(one["speedup"] is None for one in results(done).values())
        raw = json.loads((tmp_path / "out" / "bench.json").read_text())
        assert sum(run["arm"] != "off" for run in raw["runs"]) == 1


@pytest.mark.slow
def test_wall_time_is_that_of_the_job_and_holds_nothing_of_our_launcher(tmp_path: Path) -> None:
    """Processes of two seconds, with the plugin and without, take equally long: an iteration lasts 50 ms, in which the
    host's work is hidden. `lagom run` alone takes a fifth of that time."""
    job = (*JOB, "--iterations", "40", "--real-ms", "50")
    done = bench(tmp_path, "--arms", "off", "--rounds", str(amount(1, 6)), job=job)
    if FULL:  # one pair gives no interval
        low, high = (float(str(results(done)["off"][end])) for end in ("low", "high"))
        assert 2 * low - high <= 1.0 <= 2 * high - low, "within twice the interval: one in twenty is just outside of it"
    raw = json.loads((tmp_path / "out" / "bench.json").read_text())
    for run in raw["runs"]:
        assert run["value"] < run["seconds"], "the launcher's own time is not in it"


def test_a_process_that_failed_is_not_scored_and_one_that_gave_nothing_says_why(tmp_path: Path) -> None:
    asked = ("--arms", "off", "--rounds", "1", "--metric")
    failing = (sys.executable, "-c", "print('step 7'); raise SystemExit(3)")
    broken = bench(tmp_path, *asked, "step ([0-9]+)", job=failing, code=1)
    assert results(broken) == {}
    assert any("ended with 3" in text for text in json.loads(broken.stdout)["remarks"])
    job = (*JOB, "--iterations", "30")
    silent = bench(tmp_path, *asked, "stp ([0-9]+)", "--fresh", job=job, code=1)
    assert results(silent) == {}
    reason = "nothing could be measured: no line of its output matched --metric 'stp ([0-9]+)'."
    assert json.loads(silent.stdout)["remarks"] == [f"own:stock: {reason}", f"off: {reason}"]
    (tmp_path / "out" / "bench.json").write_text('{"command": ["tr')
    damaged = bench(tmp_path, *asked, "step ([0-9]+)", code=2)
    assert damaged.stderr.count("\n") == 1, "before the plan is announced"
    assert "--fresh" in damaged.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_who_interrupts_it_is_told_how_to_go_on(tmp_path: Path, number: signal.Signals) -> None:
    endless = (sys.executable, "-c", "import time; print('step 1', flush=True); time.sleep(600)")
    out = tmp_path / "out"
    line = [sys.executable, "-m", "lagom", "bench", "--out", str(out), "--arms", "off", "--metric", "step (.+)", "--"]
    environ = os.environ | {"LAGOM_SHM_DIR": str(tmp_path)}
    process = subprocess.Popen(
        [*line, *endless], cwd=tmp_path, env=environ, stderr=subprocess.PIPE, text=True, start_new_session=True,
        preexec_fn=heeding_ctrl_c,
    )  # fmt: skip
    try:
        while not any("step 1" in copy.read_text() for copy in out.glob("*.out")):
            time.sleep(0.05)  # the test's own time limit ends this
        process.send_signal(number)
        _, said = process.communicate()
    finally:
        process.kill()
    assert process.returncode == 128 + number
    assert f"the same command (--out {out}" in said
    assert "Traceback" not in said


def heeding_ctrl_c() -> None:
    """What runs in the background of a shell without job control, as CI may, begins with SIGINT ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
