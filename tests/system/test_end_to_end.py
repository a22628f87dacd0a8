# SPDX-License-Identifier: Apache-2.0
"""The whole path, once: virtual ranks tuned live by the real controller, the log, the saved config, and its replay."""

from __future__ import annotations

import io
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lagom import journal
from lagom.demo.run_demo import run_demo
from lagom.demo.stage import Scene
from lagom.records import CommConfig, Protocol
from lagom.sim.virtual.call_log import load_configs
from lagom.sim.virtual.iteration_timing import build_simulator
from lagom.sim.virtual.virtual_job import VirtualJob
from tests.processor_time import shared as charged_apart
from tests.system.launched import events_in
from tests.system.support import Job
from tests.waiting import wait_until

FRESH_PROCESSES = True  # the region is found in /proc/<pid>/environ
MEGABYTE = 1 << 20
SCENE = Scene(ranks=4, layers=4, tokens=4096, noise=0.005)
SECONDS = 500.0  # at most; the search ends by itself in ten on two quiet cores
FIRST_MARGIN = 64  # calls: csrc/agreement/replay.c


@dataclass
class Watch:
    """The largest things seen while the demo ran."""

    controller_rss: int = 0
    region_bytes: int = 0
    processes: set[int] = field(default_factory=set)


@contextmanager
def watching(shared: Path) -> Iterator[Watch]:
    """Looks at our children and at the region several times a second."""
    seen, over, others = Watch(), threading.Event(), set(children(os.getpid()))

    def look() -> None:
        while not over.wait(0.1):
            for pid in set(children(os.getpid())) - others:
                seen.processes.add(pid)
                if "lagom.controller" in command_line(pid):
                    seen.controller_rss = max(seen.controller_rss, resident_bytes(pid))
            sizes = [path.stat().st_size for path in shared.glob("lagom-*")]
            seen.region_bytes = max([seen.region_bytes, *sizes])

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def children(parent: int) -> list[int]:
    """Processes whose parent is ``parent``."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[1]) == parent:
            found.append(int(entry.parent.name))
    return found


def command_line(pid: int) -> str:
    """The arguments of a process; empty if it has just gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def resident_bytes(pid: int) -> int:
    """Peak resident memory."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM")), 0)


@dataclass(frozen=True)
class Tuned:
    """What the demo left behind."""

    code: int
    result: dict[str, Any]
    text: str
    log: Path
    seen: Watch


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory) -> Tuned:
    """One run of the demo's small variant."""
    folder = tmp_path_factory.mktemp("demo")
    shared = folder / "shm"
    shared.mkdir()
    os.environ["LAGOM_SHM_DIR"] = str(shared)
    out = io.StringIO()
    try:
        with charged_apart("the demo"), watching(shared) as seen:
            code = run_demo(
                folder / "out.json", SECONDS, scene=SCENE, folder=folder / "log", console=Console(file=out, width=140)
            )
    finally:
        del os.environ["LAGOM_SHM_DIR"]
    assert list(shared.iterdir()) == [], "the region is still there"
    return Tuned(code, json.loads((folder / "out.json").read_text()), out.getvalue(), folder / "log", seen)


@pytest.mark.slow
def test_demo_finds_a_faster_config(tuned: Tuned) -> None:
    assert tuned.code == 0
    assert tuned.result["differences"] == []
    outcome = tuned.result["outcome"]
    assert outcome["verdict"] == "improved", f"{outcome}\n{tuned.text}"
    assert outcome["speedup_low"] > 1.0
    assert tuned.result["after"]["z"] < tuned.result["before"]["z"]


def test_numbers_of_the_table_are_the_logs(tuned: Tuned) -> None:
    """What is shown is computed from the decision log: the same numbers come out of the log again."""
    events = list(journal.read(tuned.log / journal.LOG_NAME))
    outcome = next(event for event in events if isinstance(event, journal.Outcome))
    # There is no final A/B where a confirmation against plain NCCL had its level.
    moves = [event for event in events if isinstance(event, journal.Move)]
    pairs = [pair for move in moves if move.against == "stock" for pair in move.samples]
    assert f"{outcome.speedup:.3f}x" in tuned.text
    assert f"{outcome.configs} configs tried" in tuned.text
    z = sorted(pair[0].z for pair in pairs)
    assert z[0] <= tuned.result["before"]["z"] <= z[-1]
    for site in tuned.result["sites"]:
        assert site["x_before"] > 0


def test_log_is_whole_and_of_its_schema(tuned: Tuned) -> None:
    damaged: list[int] = []
    events = list(journal.read(tuned.log / journal.LOG_NAME, on_damage=lambda number, line: damaged.append(number)))
    assert damaged == []
    kinds = [getattr(event, "event", "") for event in events]
    assert kinds[0] == "job_start"
    assert kinds[-1] == "job_end"
    assert kinds.count("rank_joined") == SCENE.ranks
    assert {"program", "plan_published", "plan_committed", "move", "outcome"} <= set(kinds)


def test_memory_stays_within_its_limits(tuned: Tuned) -> None:
    """Region <= 8 MB; controller <= 150 MB."""
    assert 0 < tuned.seen.region_bytes <= 8 * MEGABYTE
    assert 0 < tuned.seen.controller_rss <= 150 * MEGABYTE


def test_nothing_is_left_running(tuned: Tuned) -> None:
    assert len(tuned.seen.processes) >= SCENE.ranks + 1
    assert not [pid for pid in tuned.seen.processes if "lagom" in command_line(pid)]


# -- replay


def positions(config: Path) -> list[int]:
    """Position -> site, from the saved config's ``program`` line, whose runs are written ``33x0``."""
    line = next(line for line in config.read_text().splitlines() if line.startswith("program "))
    runs = [word.rpartition("x") for word in line.split()[1:]]
    return [int(site) for count, _, site in runs for _ in range(int(count or 1))]


def expected(tuned: Tuned, program: list[int], stock: list[CommConfig]) -> list[CommConfig]:
    """What each call of an iteration runs under the tuned config, on top of what NCCL picks there."""
    chosen = {
        entry["site"]["index"]: journal.ConfigRecord(**entry["chosen"]).config()
        for entry in tuned.result["sites"]
        if entry["chosen"]
    }
    return [chosen.get(site, CommConfig()).over(base) for site, base in zip(program, stock, strict=True)]


def test_saved_config_is_replayed_without_a_controller(tuned: Tuned, job: Job, tmp_path: Path) -> None:
    """From the first agreed call on, every rank runs what was found; before it, stock."""
    config = tuned.log / "config.lagom"
    assert config.exists()
    spec = SCENE.spec(iterations=60)
    environ = job.with_(LAGOM_MODE="replay", LAGOM_CONFIG=str(config))
    with VirtualJob(spec, tmp_path, environ) as ranks:
        summaries = ranks.finish()
        assert ranks.differences() == []
    ran = load_configs(tmp_path, spec.communicators[0].comm_id, 0)
    logging = [n for n, config in enumerate(ran) if config.protocol is Protocol.LL]  # the small AllReduce
    calls = [config for n, config in enumerate(ran) if n not in logging]
    period = len(calls) // spec.iterations
    assert period == len(build_simulator(spec).comm_ops)
    wanted = expected(tuned, positions(config), calls[:period])
    assert wanted != calls[:period], "the first iteration was not stock, or the saved config changes nothing"
    iterations = [calls[n : n + period] for n in range(0, len(calls), period)]
    agreed = iterations.index(wanted)
    # By counts, however the machine delays a rank: the last one to come finds the others no further ahead than they may
    # run, the plan starts a period and the margin later, and the next whole iteration is known within two.
    latest = FIRST_MARGIN + (spec.run_ahead + 1 + 1 + 2) * period
    assert all(iteration == wanted for iteration in iterations[agreed:])
    assert all(iteration == calls[:period] for iteration in iterations[:agreed])
    assert agreed * period <= latest, f"replay began only at iteration {agreed}: {summaries[0].log}"


def test_saved_config_of_another_job_is_refused(tuned: Tuned, job: Job, tmp_path: Path) -> None:
    """Five ranks are not four: the saved config does not fit, and everything is stock."""
    spec = replace(SCENE, ranks=5).spec(iterations=8)
    environ = job.with_(LAGOM_MODE="replay", LAGOM_CONFIG=str(tuned.log / "config.lagom"))
    with VirtualJob(spec, tmp_path, environ) as ranks:
        for summary in ranks.finish():
            assert summary.was_stock
            assert any("saved config refused: made for 4 ranks, this job has 5" in line for line in summary.log), (
                summary.log
            )


# -- Ctrl-C


def ranks_joined(log: Path) -> int:
    return sum(isinstance(event, journal.RankJoined) for event in events_in(log))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_interrupted_demo_cleans_up(tmp_path: Path, number: signal.Signals, code: int) -> None:
    shared = tmp_path / "shm"
    shared.mkdir()
    (tmp_path / "tmp").mkdir()
    environ = {**os.environ, "LAGOM_SHM_DIR": str(shared), "LAGOM_DIR": str(tmp_path / "log")}
    demo = subprocess.Popen(
        [sys.executable, "-m", "lagom", "demo"],
        env=environ | {"TMPDIR": str(tmp_path / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell has it ignored
    )
    wait_until(lambda: ranks_joined(tmp_path / "log") == 8, "8 ranks", pause=0.05)
    started = children(demo.pid)
    demo.send_signal(number)
    output, _ = demo.communicate()
    assert demo.returncode == code, output.decode()
    assert list((tmp_path / "tmp").iterdir()) == []
    assert len(started) == 9, "8 ranks and a controller"
    assert not [pid for pid in started if command_line(pid)]
    assert list(shared.iterdir()) == []
