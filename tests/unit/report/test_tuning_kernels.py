# SPDX-License-Identifier: Apache-2.0
"""Kernels that a search keeps for the report: which moves leave a file, what is in it, what the page makes of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from typer.testing import CliRunner

from lagom import journal
from lagom.cli.main import app
from lagom.controller.trace_samples import FILES, ITERATIONS, TraceSamples, excerpt
from lagom.journal import RunState
from lagom.journal.schema import records_of
from lagom.records import Assignment, CommConfig, Function, Site
from lagom.report.tuning_kernels import read_kernels
from lagom.search.moves import SearchMove
from lagom.timeline.ring_records import find_trace_samples, load_trace_sample
from lagom.wire.layout import CALL_RECORD, KERNEL_SPAN, NO_CALL
from lagom.wire.views import SlotView

US = 1000
STOCK, TUNED = Assignment.stock(2), Assignment((CommConfig(channels=4), CommConfig()))
SITES = (Site(0, Function.ALL_GATHER, 64 << 20), Site(1, Function.REDUCE_SCATTER, 32 << 20))
SLOT = SlotView(**{field.name: 0 for field in fields(SlotView)} | {"index": 3, "process": 0, "communicator": 0})
#: (communication, compute beside it, length) of the two groups of an iteration, µs.
LENGTHS = {False: ((100, 160, 200), (50, 80, 100)), True: ((150, 120, 160), (50, 80, 100))}


class Job:
    """One rank's records, iteration by iteration, as a window alternates them."""

    def __init__(self) -> None:
        self.now, self.call, self.iteration = 1_000_000_000, 0, 0

    def iterations(self, candidates: list[bool], *, tuned: bool) -> Iterator[tuple[NDArray[Any], NDArray[Any]]]:
        """Calls and kernels; ``candidates`` says which iterations the candidate has, ``tuned`` whether it is TUNED."""
        for candidate in candidates:
            yield self._iteration(candidate, tuned and candidate)

    def _iteration(self, candidate: bool, tuned: bool) -> tuple[NDArray[Any], NDArray[Any]]:
        calls, spans = np.zeros(2, CALL_RECORD), np.zeros(4, KERNEL_SPAN)
        spans["source"], spans["call"], spans["slot"] = 3, NO_CALL, 0xFFFFFFFF
        for place, (comm, compute, length) in enumerate(LENGTHS[tuned]):
            call, one, other = calls[place], spans[2 * place], spans[2 * place + 1]
            call["call"], call["iteration"], call["position"], call["site"] = self.call, self.iteration, place, place
            call["function"], call["bytes"] = int(SITES[place].function), SITES[place].bytes
            call["flags"] = 1 | (2 if candidate else 0) | (4 if tuned else 0)
            call["chosen"]["algorithm"] = call["chosen"]["protocol"] = -1
            call["chosen"]["channels"] = 4 if tuned and place == 0 else 0
            one["start_ns"], one["end_ns"], one["kind"], one["stream"] = self.now, self.now + comm * US, 1, 28
            one["call"], one["slot"], one["function"], one["bytes"] = self.call, 3, call["function"], call["bytes"]
            other["start_ns"], other["end_ns"], other["stream"] = self.now + US, self.now + (1 + compute) * US, 7
            other["name"] = place + 1
            self.now, self.call = self.now + length * US, self.call + 1
        self.iteration += 1
        return calls, spans


ABBA = [False, False, True, True, True, True, False, False]


def move(number: int, purpose: str, candidate: Assignment, verdict: str, **more: Any) -> journal.Move:
    event = SearchMove(
        number=number,
        purpose=purpose,
        candidate=candidate,
        verdict=verdict,
        reason="because",
        z=1e6,
        kept=verdict == "better",
        **more,
    )
    return journal.Move.of(event, communicator=0, iteration=number)


def program(tier: str = "timeline") -> journal.Program:
    sites = tuple(journal.SiteRecord.of(site) for site in SITES)
    return journal.Program(communicator=0, period=2, sites=sites, tier=tier)


def outcome(verdict: str = "improved") -> journal.Outcome:
    return journal.Outcome(
        communicator=0,
        verdict=verdict,
        reason="so",
        configs_chosen=records_of(TUNED),
        speedup=1.1,
        configs=2,
        windows=3,
    )


def of_another_communicator(spans: NDArray[Any]) -> NDArray[Any]:
    """A collective beside each compute kernel."""
    more = spans[spans["kind"] == 0].copy()
    more["kind"], more["stream"], more["slot"], more["call"], more["function"] = 1, 29, 5, np.arange(len(more)), 2
    return np.concatenate([spans, more])


def search(folder: Path, tier: str = "timeline", *, others: bool = False) -> list[Any]:
    """A whole search: baseline, a worse move, a better one, final; the log's events."""
    folder.mkdir(exist_ok=True)
    keeper, job, events = TraceSamples(folder), Job(), [journal.JobStart(job="j", mode="tune"), program(tier)]
    keeper.on_event(events[-1], {})
    for event, tuned in (
        (move(1, "baseline", STOCK, "baseline"), False),
        (move(2, "trial", TUNED, "worse"), True),
        (move(3, "trial", TUNED, "better"), True),
        (move(4, "final", TUNED, "confirmed"), True),
    ):
        for calls, spans in job.iterations(ABBA * 3, tuned=tuned):
            keeper.add_calls(SLOT, calls)
            keeper.add_spans(0, of_another_communicator(spans) if others else spans)
        keeper.on_event(event, {1: "gemm", 2: "norm"})
        events.append(event)
    keeper.on_event(outcome(), {})
    return [*events, outcome(), journal.JobEnd(reason="over")]


def test_only_kept_moves_leave_a_file(tmp_path: Path) -> None:
    search(tmp_path)
    assert list(find_trace_samples(tmp_path, 0)) == [1, 3]
    assert find_trace_samples(tmp_path, 1) == {}


def test_a_file_holds_the_candidates_iterations_and_those_before_them(tmp_path: Path) -> None:
    search(tmp_path)
    (table,), calls = load_trace_sample(find_trace_samples(tmp_path, 0)[3])
    records = calls[0][3]
    begun = records[records["position"] == 0]
    assert ((begun["flags"] & 2) != 0).sum() == ITERATIONS
    assert len(table) < 4 * 2 * ITERATIONS
    assert set(table.names) >= {"gemm", "norm"}


def test_where_no_compute_is_seen_nothing_is_kept(tmp_path: Path) -> None:
    search(tmp_path, tier="nccl kernels")
    assert not (tmp_path / "kernels").exists()


def test_there_are_never_more_files_than_that(tmp_path: Path) -> None:
    keeper, job = TraceSamples(tmp_path), Job()
    keeper.on_event(program(), {})
    for calls, spans in job.iterations(ABBA, tuned=True):
        keeper.add_calls(SLOT, calls)
        keeper.add_spans(0, spans)
    for number in range(FILES + 5):
        keeper.on_event(move(number, "trial", TUNED, "better"), {})
    assert len(find_trace_samples(tmp_path, 0)) == FILES


def test_a_window_that_measured_something_else_is_not_the_candidates(tmp_path: Path) -> None:
    keeper, job = TraceSamples(tmp_path), Job()
    keeper.on_event(program(), {})
    for calls, spans in job.iterations(ABBA, tuned=True):
        keeper.add_calls(SLOT, calls)
        keeper.add_spans(0, spans)
    keeper.on_event(move(2, "trial", TUNED, "better", ran=STOCK), {})
    assert find_trace_samples(tmp_path, 0) == {}


def test_calls_without_their_kernels_are_no_excerpt() -> None:
    calls, spans = (np.concatenate(part) for part in zip(*Job().iterations(ABBA, tuned=True), strict=True))
    kept, seen = excerpt(calls, spans[:0], 3, candidate=True)
    assert not len(kept)
    assert not len(seen)
    assert not len(excerpt(calls[:0], spans, 3, candidate=True)[1])


def test_each_patterns_times_are_those_of_its_groups(tmp_path: Path) -> None:
    story = RunState(search(tmp_path))
    found = read_kernels(story.comm(0), tmp_path)
    assert found.patterns is not None
    assert found.patterns.labels == ("plain NCCL", "#3")
    gather_, scatter = (found.patterns.names.index(name) for name in found.patterns.names)
    for column, tuned in zip(found.patterns.times, (False, True), strict=True):
        for pattern, (comm, compute, length) in zip((gather_, scatter), LENGTHS[tuned], strict=True):
            assert (column.x[pattern], column.y[pattern], column.z[pattern]) == (comm * US, compute * US, length * US)


def test_the_overlap_before_and_after_comes_from_them(tmp_path: Path) -> None:
    found = read_kernels(RunState(search(tmp_path)).comm(0), tmp_path)
    assert found.overlap is not None
    assert (found.overlap.before.z_max, found.overlap.after.z_max) == (300 * US, 260 * US)
    assert (found.overlap.before.y, found.overlap.after.y) == (240 * US, 200 * US)


def test_kernels_of_another_communicator_are_no_trouble(tmp_path: Path) -> None:
    """Its spans are in the excerpt, since it keeps the SMs busy too; its calls are not."""
    events = search(tmp_path, others=True)
    found = read_kernels(RunState(events).comm(0), tmp_path)
    assert found.remark == ""
    assert found.overlap is not None
    assert (found.overlap.before.z_max, found.overlap.after.z_max) == (300 * US, 260 * US)


def test_a_further_search_tells_only_itself(tmp_path: Path) -> None:
    first = search(tmp_path)
    (tmp_path / "kernels" / "0-29.npz").write_bytes(b"of the first")
    second = search(tmp_path)
    story = RunState([*first[:-1], *second[1:]])
    assert list(find_trace_samples(tmp_path, 0)) == [1, 3]
    assert [move.number for move in story.comm(0).moves] == [1, 2, 3, 4]
    assert any("more than once" in remark for remark in story.remarks)
    assert read_kernels(story.comm(0), tmp_path).overlap is not None


def test_a_search_that_kept_stock_has_no_after(tmp_path: Path) -> None:
    events = [*search(tmp_path)[:-2], outcome("stock_is_best")]
    assert read_kernels(RunState(events).comm(0), tmp_path).overlap is None


@pytest.mark.parametrize("number", [1, 3])
def test_a_damaged_file_is_a_remark(tmp_path: Path, number: int) -> None:
    story = RunState(search(tmp_path))
    (tmp_path / "kernels" / f"0-{number}.npz").write_bytes(b"PK torn")
    assert "is damaged" in read_kernels(story.comm(0), tmp_path).remark


def test_the_page_shows_both(tmp_path: Path) -> None:
    folder = tmp_path / "lagom-x"
    with journal.Journal(folder) as log:
        for event in search(folder):
            log.write(event)
    ran = CliRunner().invoke(app, ["report", str(folder), "--html", str(folder / "report")])
    assert ran.exit_code == 0, ran.output
    text = (folder / "report" / "report.html").read_text()
    assert "Overlap, before and after" in text
    assert "<td>iteration (Z max)</td><td>300 µs</td><td>260 µs</td>" in text
    assert "Overlap patterns, config by config" in text
    assert "<th>plain NCCL</th><th>#3</th>" in text
    for picture in ("patterns", "timeline-stock", "timeline-tuned"):
        assert (folder / "report" / f"{picture}.png").exists()
