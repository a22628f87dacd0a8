# SPDX-License-Identifier: Apache-2.0
"""``lagom report``: from a decision log to one page, for finished, unfinished, empty and damaged logs."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from lagom import journal
from lagom.cli.main import app
from lagom.controller.recorder import Recorder
from lagom.errors import LagomError
from lagom.journal import RunState
from lagom.journal.schema import SampleRecord, records_of
from lagom.records import Assignment, CommConfig, Function, Sample, Site
from lagom.report import tuning_figures, tuning_report
from lagom.search.moves import SearchMove, SearchOutcome
from lagom.wire.layout import CALL_RECORD, KERNEL_SPAN, NO_CALL

STOCK = Assignment.stock(2)
FEWER = STOCK.with_config(0, CommConfig(channels=4))
BEST = FEWER.with_config(1, CommConfig(channels=2, chunk_bytes=256 << 10))
SITES = (Site(0, Function.ALL_GATHER, 416 << 20, 12, "hidden"), Site(1, Function.REDUCE_SCATTER, 416 << 20, 6))


def recorded(sample: Sample) -> SampleRecord:
    return SampleRecord(z=sample.z, x=sample.x, y=sample.y, x_by_site=sample.x_by_site)


def trial(
    number: int, purpose: str, candidate: Assignment, verdict: str, ratio: float | None, x: float, y: float, z: float,
    **more: Any,
) -> SearchMove:  # fmt: skip
    """A move with an interval of 0.01 either side of its ratio; times in ms."""
    interval = {} if ratio is None else {"ratio": ratio, "ratio_low": ratio - 0.01, "ratio_high": ratio + 0.01}
    times = {"x": x * 1e6, "y": y * 1e6, "z": z * 1e6}
    rest = {"reason": "because", "lost_iterations": 0.5 if number > 1 else 0.0, "pairs": 3, **more}
    return SearchMove(
        number=number, purpose=purpose, candidate=candidate, verdict=verdict, **{**interval, **times, **rest}
    )


def events(finished: bool = True) -> list:
    """A small search: baseline, a bad trial, a better one, confirmation, a second better one, the final A/B."""
    pairs = tuple((Sample(100e6, 40e6, 90e6, (30e6, 10e6)), Sample(91e6, 44e6, 82e6, (33e6, 11e6))) for _ in range(3))
    bad = FEWER.with_config(0, CommConfig(channels=1))
    moves = [
        (trial(1, "baseline", STOCK, "baseline", None, 40, 90, 100), STOCK, ()),
        (trial(2, "trial", bad, "worse", 1.25, 80, 80, 125, reason="<too few> & slow", h=0.5, site=0), STOCK, ()),
        (trial(3, "trial", FEWER, "better", 0.95, 42, 85, 95, h=0.2, site=0), STOCK, ()),
        (trial(4, "confirm", FEWER, "confirmed", 0.95, 42, 85, 95), STOCK, ()),
        (trial(5, "trial", BEST, "better", 0.96, 44, 82, 91, h=0.1, site=1), FEWER, ()),
        (trial(6, "final", BEST, "confirmed", 0.91, 44, 82, 91), STOCK, pairs),
    ]
    log: list = [
        journal.JobStart(job="llama", mode="tune", strategy="lagom"),
        journal.RankJoined(process=0, pid=1, gpu="NVIDIA H200", nccl="2.30.7", remark="no chunk knob"),
        journal.Communicator(communicator=0, comm_id="7", name="fsdp", ranks=8, nodes=1),
        journal.Program(communicator=0, period=18, sites=tuple(journal.SiteRecord.of(site) for site in SITES)),
    ]
    for number, (move, incumbent, samples) in enumerate(moves[: None if finished else 3]):
        event = journal.Move.of(move, communicator=0, iteration=20 * number)
        records = tuple(tuple(map(recorded, pair)) for pair in samples)
        log.append(event.model_copy(update={"incumbent": records_of(incumbent), "samples": records}))
    if finished:
        outcome = SearchOutcome(
            BEST, "improved", "1.099x stock", speedup=1.099, speedup_low=1.087, speedup_high=1.111, resolvable=0.01,
            configs=4, windows=6, iterations=200, regret_iterations=0.5,
        )  # fmt: skip
        log += [journal.Outcome.of(outcome, communicator=0), journal.JobEnd(reason="every rank has gone", seconds=60)]
    return log


@pytest.fixture
def story() -> RunState:
    return RunState(events())


def test_speed_ups_are_over_stock_whatever_the_incumbent_was(story: RunState) -> None:
    steps = story.comm(0).steps()
    assert [step.speedup and round(step.speedup, 4) for step in steps] == [
        None, round(1 / 1.25, 4), round(1 / 0.95, 4), round(1 / 0.95, 4), round(1 / 0.95 / 0.96, 4), round(1 / 0.91, 4)
    ]  # fmt: skip
    assert steps[4].low == pytest.approx(1 / 0.95 / 0.97)
    assert steps[4].what == "reducescatter 416M: nc=2 chunk=256K"
    assert story.comm(0).incumbent_line() == [(0, 1.0), (60, 1 / 0.95), (100, 1 / 0.91)]


def test_sites_before_and_after_come_from_the_final_ab(story: RunState) -> None:
    first, second = story.comm(0).changes()
    assert (first.name, first.after, first.stock_ns, first.tuned_ns) == ("allgather 416M hidden", "nc=4", 30e6, 33e6)
    assert (second.after, second.changed) == ("nc=2 chunk=256K", True)


def test_the_page_tells_all_of_it_offline(story: RunState, tmp_path: Path) -> None:
    written = tuning_report.write_page(story, tmp_path, "the log")
    names = sorted(path.name for path in written)
    assert names == ["convergence.png", "path.png", "report.html", "sites.png"]
    page = (tmp_path / "report.html").read_text()
    assert page.count("<svg") == 3
    for wanted in ("1.099× as fast", "&lt;too few&gt; &amp; slow", "nc=2 chunk=256K", "NVIDIA H200", "no chunk knob"):
        assert wanted in page, wanted
    without_names = re.sub(r'xmlns(:\w+)?="[^"]*"|<!DOCTYPE[^>]*>', "", page)
    assert not re.findall(r'(?:src|href)="(?!#)[^"]*"|https?://\S+', without_names)


def test_no_label_of_the_path_lies_on_another() -> None:
    log = events()
    last = max(place for place, event in enumerate(log) if isinstance(event, journal.Move))
    log.insert(last, log[last - 1].model_copy(update={"y": 81.45e6, "h": -0.13}))  # under the word "tuned"
    figure = tuning_figures.draw_path(RunState(log).comm(0))
    assert figure is not None
    assert figure.axes[0].get_title(loc="left") == "Search path"
    figure.canvas.draw()
    texts = [text for text in figure.axes[0].texts if text.get_text() and "X = Y" not in text.get_text()]
    boxes = [text.get_window_extent() for text in texts]
    assert {"plain NCCL", "tuned"} <= {text.get_text() for text in texts}
    assert "H 0.2" in {text.get_text() for text in texts}
    assert not [pair for pair in itertools.combinations(boxes, 2) if pair[0].overlaps(pair[1])]


def test_of_two_jobs_in_one_log_the_newest_is_told() -> None:
    newest = events()
    assert RunState([*events(finished=False), *newest]).comms == RunState(newest).comms


def test_an_unfinished_search_says_so(tmp_path: Path) -> None:
    story = RunState(events(finished=False))
    tuning_report.write_page(story, tmp_path, "x")
    page = (tmp_path / "report.html").read_text()
    assert "still going after 3 moves" in page
    assert "still running, or was killed" in page


def said_where_stock_was_kept(verdict: str) -> str:
    search = RunState(events()).comm(0)
    outcome = SearchOutcome(
        STOCK, verdict, "", speedup=None, speedup_low=None, speedup_high=None, resolvable=0.012,
        configs=40, windows=60, iterations=500, regret_iterations=2.0,
    )  # fmt: skip
    search.outcome = journal.Outcome.of(outcome, communicator=0)
    return tuning_report.describe_verdict(search)


def test_stock_is_best_is_a_good_answer() -> None:
    said = said_where_stock_was_kept("stock_is_best")
    assert said == "Plain NCCL is already best here: 40 configs were tried, and a gain of 1.2 % would have shown."


def test_a_search_whose_time_was_over_says_no_more_than_that() -> None:
    said = said_where_stock_was_kept("cut_short")
    assert said == "The search was cut short with nothing faster than plain NCCL found: 40 configs were tried."


def test_without_kernel_times_there_is_no_path_but_the_rest(tmp_path: Path) -> None:
    log = [one.model_copy(update={"x": None, "y": None}) if isinstance(one, journal.Move) else one for one in events()]
    search = RunState(log).comm(0)
    assert tuning_figures.draw_path(search) is None
    assert tuning_figures.draw_convergence(search) is not None


def write(path: Path, log: list, extra: str = "") -> Path:
    path.mkdir(parents=True)
    lines = [event.model_dump_json(by_alias=True) for event in log]
    (path / journal.LOG_NAME).write_text("\n".join(lines) + "\n" + extra)
    return path


def test_command_writes_what_it_is_asked_for_and_counts_damage(tmp_path: Path) -> None:
    folder = write(tmp_path / "lagom-x", events(), extra='{"torn')
    ran = CliRunner().invoke(app, ["report", str(folder), "--html", str(tmp_path / "one.html")])
    assert ran.exit_code == 0, ran.output
    assert ran.stdout.startswith("The job runs 1.099× as fast as with plain NCCL"), "the verdict first"
    assert "1 line(s) of the log could not be read" in (tmp_path / "one.html").read_text()
    assert {file.name for file in tmp_path.iterdir()} == {"lagom-x", "one.html"}, "a file has its pictures inside"
    assert {file.name for file in folder.iterdir()} == {journal.LOG_NAME}


def test_pictures_of_an_earlier_report_go_and_nobody_elses(tmp_path: Path) -> None:
    folder = write(tmp_path / "lagom-x", events())
    place = folder / "report"
    assert CliRunner().invoke(app, ["report", str(folder), "--html", str(place)]).exit_code == 0
    assert (place / "sites.png").is_file()
    (place / "1-timeline-tuned.png").touch()
    (place / "mine.png").touch()
    with journal.Journal(folder) as log:  # a second job, of which there is nothing to show
        log.write(events()[0])
    ran = CliRunner().invoke(app, ["report", str(folder), "--html", str(place)])
    assert "This log also holds an earlier job" in ran.output
    assert {file.name for file in place.iterdir()} == {"report.html", "mine.png"}
    fresh = tmp_path / "fresh"
    fresh.mkdir()
    (fresh / "sites.png").touch()
    assert CliRunner().invoke(app, ["report", str(folder), "--html", str(fresh)]).exit_code == 0
    assert (fresh / "sites.png").is_file(), "no report lay there: it is not ours"


def test_command_on_a_log_with_nothing_in_it(tmp_path: Path) -> None:
    folder = write(tmp_path / "lagom-x", events()[:2])
    ran = CliRunner().invoke(app, ["report", str(folder), "--html", str(tmp_path / "o")])
    assert ran.exit_code == 0, ran.output
    assert "Nothing was tuned yet" in ran.stdout
    assert (tmp_path / "o" / "report.html").is_file()


def test_the_page_of_a_replayed_job_says_what_the_terminal_says(tmp_path: Path) -> None:
    put = journal.PlanPublished(communicator=0, epoch=1, start_call=9, purpose="replay", rules=("allgather: nc=4",))
    agreed = journal.PlanCommitted(communicator=0, epoch=1, start_call=9)
    folder = write(tmp_path / "lagom-x", [*events()[:3], put, agreed, journal.JobEnd(reason="over")])
    ran = CliRunner().invoke(app, ["report", str(folder), "--html", str(tmp_path / "o")])
    answer = "Replayed from a saved config, agreed by every rank; nothing was tried here."
    page = (tmp_path / "o" / "report.html").read_text()
    assert answer in page
    assert answer in " ".join(CliRunner().invoke(app, ["report", str(folder)]).output.split())
    assert "Nothing was tuned" not in page + ran.output


def test_command_without_a_log_is_one_sentence(tmp_path: Path) -> None:
    ran = CliRunner().invoke(app, ["report", str(tmp_path)])
    assert isinstance(ran.exception, LagomError)
    assert "there is no log at" in str(ran.exception)


def test_overlap_before_and_after_comes_from_raw_records(tmp_path: Path) -> None:
    """Stock: a gather of 100 µs beside a GEMM of 160; tuned: 150 beside 120. Alternating, as a window records them."""
    folder = write(tmp_path / "lagom-x", events())
    keeper, now = Recorder(folder), 1_000_000_000
    calls, kernels = np.zeros(24, CALL_RECORD), np.zeros(48, KERNEL_SPAN)
    tuned = np.tile([False, False, True, True, True, True, False, False], 3)
    calls["call"] = calls["iteration"] = np.arange(24)
    calls["function"], calls["bytes"], calls["flags"] = 2, 64 << 20, np.where(tuned, 7, 1)
    calls["chosen"]["algorithm"] = calls["chosen"]["protocol"] = -1
    calls["chosen"]["channels"] = np.where(tuned, 4, 0)
    kernels["source"], kernels["call"], kernels["slot"] = 3, NO_CALL, 0xFFFFFFFF
    for step, length, gemm in zip(range(24), np.where(tuned, 150, 100), np.where(tuned, 120, 160), strict=True):
        comm, compute = kernels[2 * step : 2 * step + 1], kernels[2 * step + 1 : 2 * step + 2]
        comm["start_ns"], comm["end_ns"], comm["kind"], comm["stream"] = now, now + 1000 * length, 1, 28
        comm["call"], comm["slot"], comm["function"], comm["bytes"] = step, 3, 2, 64 << 20
        compute["start_ns"], compute["end_ns"], compute["stream"] = now + 5_000, now + 5_000 + 1000 * gemm, 7
        now += 200_000
    keeper.add_calls(3, calls)
    keeper.add_kernels(0, kernels)
    keeper.write({})
    ran = CliRunner().invoke(app, ["report", str(folder), "--html", str(tmp_path / "o")])
    assert ran.exit_code == 0, ran.output
    text = (tmp_path / "o" / "report.html").read_text()
    assert "Overlap, before and after" in text
    assert "<td>compute busy (Y)</td><td>160 µs</td><td>120 µs</td>" in text
    assert "<td>communication busy (X)</td><td>100 µs</td><td>150 µs</td>" in text
    assert (tmp_path / "o" / "timeline-tuned.png").exists()
    (folder / "kernels.npy").write_bytes(b"torn")
    ran = CliRunner().invoke(app, ["report", str(folder), "--html", str(tmp_path / "p")])
    assert ran.exit_code == 0, ran.output
    text = (tmp_path / "p" / "report.html").read_text()
    assert "Overlap, before and after" not in text
    assert "kernels.npy is damaged" in text
