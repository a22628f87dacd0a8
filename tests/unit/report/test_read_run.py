# SPDX-License-Identifier: Apache-2.0
"""``lagom.read_run``: the log of a tuned job as values."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

import lagom
from lagom import journal
from lagom.bench import table
from lagom.bench.results import BenchRecord, results_of
from lagom.cli.main import app
from lagom.errors import JournalError
from lagom.experiment.store import FILE, RunRecord
from lagom.start import StartGroup
from lagom.tune import PLAIN, TunePlan
from lagom.tune.stages import SearchAim, TuneRecord
from tests.unit.report.test_run_text import ONE_UP, events


def write(folder: Path, told: list[journal.Base]) -> Path:
    with journal.Journal(folder) as log:
        for event in told:
            log.write(event)
    return folder


def read(folder: Path | str) -> lagom.Run:
    run = lagom.read_run(folder)
    assert isinstance(run, lagom.Run)
    return run


def test_a_run_has_its_verdict_sites_and_moves(tmp_path: Path) -> None:
    run = read(write(tmp_path, events()))
    assert (run.verdict, run.speedup, run.speedup_low, run.speedup_high) == ("improved", 1.05, 1.04, 1.06)
    assert [comm.name for comm in run.communicators] == ["fsdp", "wide"]
    assert [site.ours for site in run.sites] == list(ONE_UP.configs)
    assert run.sites[0].evidence
    assert [move.number for move in run.moves] == [1, 2, 3, 4, 5, 6, 7]
    assert run.log.parent == tmp_path
    assert read(str(run.log)).log == run.log
    first, *others = repr(run).splitlines()
    assert first == f"Run('{run.log}', improved, 1.050x plain NCCL [1.040, 1.060], 7 moves)"
    assert [line.partition(":")[0] for line in others] == ["  fsdp", "  wide"]


@pytest.mark.parametrize(
    ("kept", "verdict"),
    [
        (lambda event: not isinstance(event, journal.Outcome | journal.JobEnd), "running"),
        (lambda event: not isinstance(event, journal.Outcome), "stopped"),
        (lambda event: event.t < 0, "not_tuned"),
    ],
)
def test_a_search_without_an_end_is_running_and_none_is_not_tuned(
    tmp_path: Path, kept: Callable[[Any], bool], verdict: str
) -> None:
    start, *others = events()
    run = read(write(tmp_path, [start, *filter(kept, others)]))
    assert run.verdict == verdict
    assert run.speedup is None


def test_one_communicator_that_gained_makes_the_verdict(tmp_path: Path) -> None:
    other = [
        journal.Communicator(communicator=2, comm_id="9", name="tp", ranks=2, nodes=1),
        journal.Outcome(communicator=2, verdict="stock_is_best", reason="nothing was faster"),
    ]
    assert read(write(tmp_path, [*events()[:-1], *other, events()[-1]])).verdict == "improved"


def test_the_repr_of_a_run_has_at_most_twelve_lines(tmp_path: Path) -> None:
    many = [
        journal.Communicator(communicator=number, comm_id=str(number), name=f"pg{number}", ranks=2, nodes=1)
        for number in range(40)
    ]
    run = read(write(tmp_path, [journal.JobStart(job="llama", mode="tune"), *many]))
    lines = repr(run).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  and 30 communicators more"


@pytest.mark.parametrize("best_first", [True, False])
def test_of_two_communicators_that_gained_the_larger_gain_is_the_runs(best_first: bool, tmp_path: Path) -> None:
    gains = [(1.2, 1.19, 1.21), (1.05, 1.04, 1.06)]
    told: list[journal.Base] = [journal.JobStart(job="llama", mode="tune")]
    for number, (gain, low, high) in enumerate(gains if best_first else reversed(gains)):
        told += [
            journal.Communicator(communicator=number, comm_id=str(number), name=f"pg{number}", ranks=8, nodes=1),
            journal.Outcome(
                communicator=number, verdict="improved", reason="", speedup=gain, speedup_low=low, speedup_high=high
            ),
        ]
    run = read(write(tmp_path, [*told, journal.JobEnd(reason="over")]))
    assert (run.verdict, run.speedup, run.speedup_low, run.speedup_high) == ("improved", 1.2, 1.19, 1.21)


def test_a_data_frame_has_a_row_a_site(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    frame = read(write(tmp_path, events())).to_dataframe()
    assert list(frame["function"]) == ["allgather", "reducescatter"]
    assert list(frame["channels"]) == [6, 2]
    assert list(frame["stock_algorithm"]) == ["ring", "ring"]
    assert set(frame["communicator"]) == {"fsdp"}


def test_a_folder_without_a_log_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no log at"):
        lagom.read_run(tmp_path)


GROUP = StartGroup("4 threads", {"NCCL_SOCKET_NTHREADS": "4"})


def write_search(folder: Path, speedup: float = 2.0, aim: SearchAim | None = None, **fields: Any) -> Path:
    """The results of a search over one group, whose confirming processes are so many times as fast as plain NCCL."""
    aim = aim or SearchAim(transport="NET/Socket", groups=[GROUP], plan=TunePlan((GROUP,), 1, 0, 2))
    trials = [("screen", GROUP.name, 0, 30.0), ("screen", PLAIN.name, 0, 60.0), ("screen", PLAIN.name, 0, None)]
    trials += [("screen", PLAIN.name, 0, 61.0)]
    for number in range(2):
        trials += [("confirm", PLAIN.name, number, 60.0 + number), ("confirm", PLAIN.name, number, 61.0)]
        trials += [("confirm", GROUP.name, number, (60.0 + number) / speedup)]
    runs = [
        RunRecord(kind="process", arm=group, stage=stage, round=number, value=value, ended="us")
        for stage, group, number, value in trials
    ]
    folder.mkdir(exist_ok=True)
    record = TuneRecord(command=["train"], aim=aim, runs=runs).model_copy(update=fields)
    (folder / FILE).write_text(record.model_dump_json())
    return folder


def read_search(folder: Path | str | None) -> lagom.StartSearch:
    search = lagom.read_run(folder)
    assert isinstance(search, lagom.StartSearch)
    return search


def test_a_search_over_start_settings_has_its_verdict_settings_and_processes(tmp_path: Path) -> None:
    search = read_search(write_search(tmp_path))
    assert (search.folder, search.verdict, search.settings) == (tmp_path, "improved", GROUP.settings)
    assert search.speedup == pytest.approx(2.0, rel=0.01)
    assert search.speedup_low is not None
    assert search.speedup_high is not None
    assert 1.8 < search.speedup_low < search.speedup < search.speedup_high < 2.2
    assert search.detectable is not None
    assert 0.0 < search.detectable < 0.1
    assert search.processes == {
        GROUP.name: (30.0, 30.0, 30.5), PLAIN.name: (60.0, None, 61.0, 60.0, 61.0, 61.0, 61.0),
    }  # fmt: skip
    assert search.nodes == ()
    assert repr(search).splitlines() == [
        f"StartSearch('{tmp_path}', improved, 2.008x plain NCCL "
        f"[{search.speedup_low:.3f}, {search.speedup_high:.3f}], 10 processes)",
        "  settings: NCCL_SOCKET_NTHREADS=4",
        "  plain NCCL: 60, -, 61, 60, 61, 61, 61",
        "  4 threads: 30, 30, 30.5",
    ]
    assert read_search(str(tmp_path / FILE)).verdict == "improved"


def test_the_nodes_of_a_search_are_named(tmp_path: Path) -> None:
    write_search(tmp_path, nodes=["node0", "node1"])
    for options, words in (((), "nodes: node0, node1."), (("--json",), '"node0"')):
        done = CliRunner().invoke(app, ["report", str(tmp_path), *options])
        assert done.exit_code == 0, done.output
        assert words in done.output


def test_of_a_node_that_followed_it_is_said_where_the_search_is(tmp_path: Path) -> None:
    write_search(tmp_path)
    samples = tmp_path / FILE
    samples.write_text(json.dumps({**json.loads(samples.read_text()), "aim": None}))
    with pytest.raises(lagom.LagomError, match="name the coordinator's folder, or continue with the same command"):
        lagom.read_run(tmp_path)


@pytest.mark.parametrize(("speedup", "verdict"), [(1.0, "nothing_resolved"), (0.5, "plain_is_best")])
def test_a_search_that_found_nothing_says_so(speedup: float, verdict: str, tmp_path: Path) -> None:
    assert read_search(write_search(tmp_path, speedup)).verdict == verdict


def test_the_repr_of_a_search_has_at_most_twelve_lines(tmp_path: Path) -> None:
    search = read_search(write_search(tmp_path))
    many = {f"group {number}": (1.0,) for number in range(40)}
    lines = repr(replace(search, processes={**search.processes, **many}, nodes=("a", "b"))).splitlines()
    assert len(lines) == 12
    assert lines[0].endswith(", 50 processes on 2 nodes)")
    assert lines[-1] == "  and 33 groups more"


def test_without_a_folder_the_newest_log_or_search_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    log = write(tmp_path / "lagom-job", events()) / "decisions.jsonl"
    samples = write_search(tmp_path / "lagom-tune") / FILE
    os.utime(samples, (5, 5))
    assert isinstance(lagom.read_run(), lagom.Run)
    os.utime(log, (4, 4))
    assert read_search(None).folder == Path("lagom-tune")


def test_results_that_cannot_be_read_are_one_sentence(tmp_path: Path) -> None:
    samples = write_search(tmp_path) / FILE
    samples.write_text(samples.read_text()[:-9])
    with pytest.raises(lagom.LagomError, match="is damaged") as refused:
        lagom.read_run(tmp_path)
    assert "\n" not in str(refused.value)
    write_search(tmp_path, schedule="other")
    with pytest.raises(lagom.LagomError, match="holds results of `lagom other`"):
        lagom.read_run(tmp_path)


def write_benchmark(folder: Path) -> BenchRecord:
    runs = [
        RunRecord(kind="process", arm=arm, round=number, measure="metric", value=value + 0.01 * (number % 3))
        for number in range(8)
        for arm, value in (("own:stock", 2.0), ("own:stock", 2.0), ("env=NCCL_NTHREADS=512", 1.0))
    ]
    record = BenchRecord(command=["train"], arms=["stock", "env=NCCL_NTHREADS=512"], runs=runs)
    folder.mkdir(exist_ok=True)
    (folder / FILE).write_text(record.model_dump_json())
    return record


def report(*words: str) -> str:
    done = CliRunner(env={"COLUMNS": "140"}).invoke(app, ["report", *words])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_of_a_benchmark_it_shows_what_was_printed_at_its_end(tmp_path: Path) -> None:
    record, printed = write_benchmark(tmp_path), io.StringIO()
    table.show(record, results_of(record), tmp_path / FILE, Console(file=printed, width=140))
    for place in (tmp_path, tmp_path / FILE):
        assert report(str(place)) == printed.getvalue()
        shown = {**table.as_json(record, results_of(record)), "samples": str(tmp_path / FILE)}
        assert json.loads(report(str(place), "--json")) == json.loads(json.dumps(shown))
    found = lagom.read_run(tmp_path)
    assert isinstance(found, lagom.Benchmark)
    assert repr(found).startswith(f"Benchmark('{tmp_path}', 2 arms): Fastest: env=NCCL_NTHREADS=512, 1.9")
    refused = CliRunner().invoke(app, ["report", str(tmp_path), "--export"]).exception
    assert str(refused) == f"{tmp_path} holds results of lagom bench; this option needs the log of a job."


def test_a_log_beside_a_benchmark_and_options_that_need_one_read_the_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    log = write(tmp_path / "lagom-job", events()) / "decisions.jsonl"
    os.utime(log, (4, 4))
    write_benchmark(tmp_path / "lagom-bench")
    assert isinstance(lagom.read_run(), lagom.Benchmark)
    assert report("--export", "--bench", "lagom-bench").startswith("export NCCL_NTHREADS=512")
    write_benchmark(tmp_path / "lagom-job")
    assert isinstance(lagom.read_run(log.parent), lagom.Run)
    assert isinstance(lagom.read_run(log.parent / FILE), lagom.Benchmark)


def test_everything_public_can_be_had_and_importing_lagom_is_light() -> None:
    for name in lagom.__all__:
        assert getattr(lagom, name) is not None
    code = "import lagom, sys; print(sorted({'numpy', 'scipy', 'pandas', 'pydantic', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
