# SPDX-License-Identifier: Apache-2.0
"""Steps as traces mark them: ProfilerStep, named ranges, Optimizer.step; and what is taken where they disagree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lagom
from lagom.report.profile_report import write_folder
from lagom.timeline import load, load_all, profile
from lagom.timeline.steps import REPETITION, find_steps

GATHER = "ncclDevKernel_AllGather_RING_LL"
#: The host launches everything so long before the GPU runs it, µs: more than a step.
AHEAD = 1500.0
Kernel = tuple[float, float, int, str]


def host_range(name: str, begin: float, end: float, category: str = "user_annotation", pid: int = 7) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": pid, "tid": 7, "ts": begin, "dur": end - begin}


def launched(
    *kernels: Kernel, ahead: float = AHEAD, rank: int = 0, first: int = 1, pid: int = 7
) -> list[dict[str, Any]]:
    """(start µs, end µs, stream, name): each kernel and the call that launched it ``ahead`` µs before its start."""
    events: list[dict[str, Any]] = []
    for number, (start, end, stream, name) in enumerate(kernels, first):
        shared = {"correlation": number}
        events.append({
            "ph": "X", "cat": "kernel", "name": name, "pid": rank, "tid": stream, "ts": start, "dur": end - start,
            "args": {**shared, "device": rank, "stream": stream, "grid": [8, 1, 1], "block": [32, 1, 1]},
        })  # fmt: skip
        events.append(
            {**host_range("cudaLaunchKernel", start - ahead, start - ahead + 1, "cuda_runtime", pid), "args": shared}
        )
    return events


def step_kernels(step: int, gather: float = 300.0, extra: int = 0) -> list[Kernel]:
    """A step of 1000 µs from 10,000 µs on: a gather, half of it beside a matmul, and ``extra`` kernels of its own."""
    at = 10_000 + 1000.0 * step
    kernels = [(at, at + 500, 1, "gemm"), (at + 350, at + 350 + gather, 2, GATHER), (at + 700, at + 900, 1, "adam")]
    return kernels + [(at + 910 + 5 * n, at + 913 + 5 * n, 1, f"extra{step}") for n in range(extra)]


def marks(count: int, first: int = 5, each: float = 1000.0, name: str = "ProfilerStep#{}") -> list[dict[str, Any]]:
    """The host's ranges, one a step."""
    begin = 10_000 - AHEAD - 20
    return [host_range(name.format(first + n), begin + each * n, begin + each * (n + 1) - 1) for n in range(count)]


def write(path: Path, events: list[dict[str, Any]], **more: Any) -> Path:
    path.write_text(json.dumps({"traceEvents": events, **more}))
    return path


def test_two_marked_steps_are_two_steps(tmp_path: Path) -> None:
    """Shape: two profiled steps with collectives of other lengths, which no period can tell."""
    events = launched(*step_kernels(0, 195), *step_kernels(1, 201)) + marks(2)
    found = profile(load(write(tmp_path / "t.json", events)))
    assert [sample.x for sample in found.combined.samples] == [195_000, 201_000]
    assert (found.steps, found.own_x, found.exposed) == (2, 198_000, 48_000)
    assert [sample.z_max for sample in found.combined.samples] == [1_000_000, 900_000]  # the last ends with its kernels
    assert not any("period" in note for note in found.notes)


def test_a_kernel_is_of_the_step_that_launched_it_not_of_the_one_it_runs_in(tmp_path: Path) -> None:
    """The GPU is a step and a half behind, and one kernel of the next step starts early on a stream of its own."""
    early = [(11_950.0, 11_990.0, 3, "prefetch")]
    kernels = [kernel for step in range(4) for kernel in step_kernels(step)]
    events = launched(*kernels) + launched(*early, ahead=1450 + 10, first=99) + marks(4)
    events[1]["ts"] += 3  # launches need not be equally far ahead
    (table,) = load(write(tmp_path / "t.json", events))
    steps = find_steps(table)
    assert (steps.found_by, steps.count, steps.irregular) == ("ProfilerStep", 4, 0)
    begin = [1000 * (10_000 + 1000 * n) for n in range(4)]
    begin[2] = 11_950_000  # its own first kernel, while no kernel of the step before runs
    assert steps.begin.tolist() == begin
    assert steps.number is not None
    assert steps.number.tolist() == [5, 6, 7, 8]


def test_the_cut_leaves_the_least_time_on_the_wrong_side(tmp_path: Path) -> None:
    """A short kernel of step 1 starts on a side stream in the middle of step 0's gather: it moves no boundary."""
    events = launched(*step_kernels(0), *step_kernels(1)) + marks(2)
    events += launched((10_400.0, 10_402.0, 3, "prefetch"), ahead=AHEAD + 400 - 1000, first=99)
    found = profile(load(write(tmp_path / "t.json", events)))
    assert [sample.x for sample in found.combined.samples] == [300_000, 300_000]


def test_kernels_that_were_launched_before_the_recording_are_of_no_step(tmp_path: Path) -> None:
    before = [kernel for step in (-2, -1) for kernel in step_kernels(step, 450)]
    orphans = [event for event in launched(*before, first=500) if event["cat"] == "kernel"]
    kernels = [kernel for step in range(3) for kernel in step_kernels(step, 200 + step)]
    late = marks(3)  # the host is at step 0 while the GPU runs the orphans
    found = profile(load(write(tmp_path / "t.json", [*orphans, *launched(*kernels), *late])))
    assert [sample.x for sample in found.combined.samples] == [200_000, 201_000, 202_000]


@pytest.mark.parametrize("extra", [(0, 1, 2, 3), (0, 0, 0, 9)])
def test_marked_steps_whose_kernels_differ_all_count(extra: tuple[int, ...], tmp_path: Path) -> None:
    kernels = [kernel for step, more in enumerate(extra) for kernel in step_kernels(step, 200 + step, more)]
    (table,) = load(write(tmp_path / "t.json", launched(*kernels) + marks(4)))
    steps = find_steps(table)
    assert (steps.count, steps.irregular) == (4, 0)
    names = {table.names[name] for name in table.name[steps.index].ravel()}
    assert names == {"gemm", GATHER, "adam"}
    assert profile([table]).own_x == 201_500


def test_a_step_of_another_kind_is_left_out_and_said(tmp_path: Path) -> None:
    usual = [kernel for step in (0, 1, 2) for kernel in step_kernels(step)]
    evaluation = [(13_000.0 + 10 * n, 13_005.0 + 10 * n, 1, f"eval{n}") for n in range(40)]
    found = profile(load(write(tmp_path / "t.json", launched(*usual, *evaluation) + marks(4))))
    assert (found.steps, found.irregular, found.own_x) == (3, 1, 300_000)
    assert any("1 more have other kernels and are left out" in note for note in found.notes)


def test_marks_that_follow_each_other_with_a_gap_end_with_their_own_kernels(tmp_path: Path) -> None:
    events = launched(*step_kernels(0), *step_kernels(4)) + [marks(5)[0], marks(5)[4]]
    (table,) = load(write(tmp_path / "t.json", events))
    assert np.diff([find_steps(table).begin, find_steps(table).end], axis=0).tolist() == [[900_000, 900_000]]


def test_marks_outweigh_the_repetition_and_it_is_said(tmp_path: Path) -> None:
    """Two micro-batches a step, without anything that only a step has."""
    kernels = [kernel for step in range(8) for kernel in step_kernels(step)]
    found = profile(load(write(tmp_path / "t.json", launched(*kernels) + marks(4, each=2000.0))))
    assert (found.steps, found.own_x) == (4, 600_000)
    (note,) = [note for note in found.notes if "ProfilerStep" in note]
    assert note.startswith("the steps taken are those by ProfilerStep (4 of 2")
    assert f"others in the trace: {REPETITION} (7 of 1.00 ms)" in note


def test_a_single_mark_may_be_the_whole_recording(tmp_path: Path) -> None:
    kernels = [kernel for step in range(8) for kernel in step_kernels(step)]
    found = profile(load(write(tmp_path / "t.json", launched(*kernels) + marks(1, each=8000.0))))
    assert (found.ranks[0].steps.found_by, found.steps, found.own_x) == (REPETITION, 7, 300_000)
    assert any("others in the trace: ProfilerStep (1 of 7.90 ms)" in note for note in found.notes)
    warm_up = [(9_000.0 + 10 * n, 9_008.0 + 10 * n, 1, f"w{n}") for n in range(50)]
    found = profile(load(write(tmp_path / "u.json", launched(*warm_up, *step_kernels(0), first=50) + marks(1))))
    assert (found.steps, found.z_max) == (1, 900_000)
    assert any("record at least four" in note for note in found.notes)


@pytest.mark.parametrize(
    ("name", "category", "source"),
    [
        ("iteration {}", "user_annotation", "ranges `iteration #`"),
        ("train_step", "nvtx", "ranges `train_step`"),
        ("Optimizer.step#AdamW.step", "cpu_op", "Optimizer.step"),
        ("Optimizer.step#AdamW.step", "Operator", "Optimizer.step"),
    ],
)
def test_weaker_hints_count_where_nothing_repeats(name: str, category: str, source: str, tmp_path: Path) -> None:
    kernels = [kernel for step in range(3) for kernel in step_kernels(step, 200 + step, extra=step)]
    hints = [{**one, "cat": category} for one in marks(3, name=name)]
    found = profile(load(write(tmp_path / "t.json", launched(*kernels) + hints)))
    assert found.ranks[0].steps.found_by == source
    # what is before the end of the first Optimizer.step may be a part of a step only
    assert [sample.x for sample in found.combined.samples] == [200_000, 201_000, 202_000][source == "Optimizer.step" :]
    assert any(note.startswith(f"the steps taken are those by {source} (") for note in found.notes)


@pytest.mark.parametrize(
    "name", ["layer {}", "lr_scheduler.step", "micro_step", "optimizer_step", "warmup step {}", "footstepper"]
)
def test_ranges_of_other_names_are_no_steps(name: str, tmp_path: Path) -> None:
    (table,) = load(write(tmp_path / "t.json", launched(*step_kernels(0), *step_kernels(1)) + marks(2, name=name)))
    assert table.marks == ()


def test_the_repetition_outweighs_a_hint_and_it_is_said(tmp_path: Path) -> None:
    kernels = [kernel for step in range(8) for kernel in step_kernels(step)]
    hints = marks(4, each=2000.0, name="iteration {}")
    found = profile(load(write(tmp_path / "t.json", launched(*kernels) + hints)))
    assert (found.steps, found.own_x) == (7, 300_000)
    assert any("others in the trace: ranges `iteration #` (4 of 2" in note for note in found.notes)


def test_marks_on_the_gpu_count_where_no_launches_are_in_the_file(tmp_path: Path) -> None:
    kernels = [event for event in launched(*step_kernels(0, 195), *step_kernels(1, 201)) if event["cat"] == "kernel"]
    drawn = [
        host_range(f"ProfilerStep#{5 + n}", 10_000 + 1000 * n, 10_900 + 1000 * n, "gpu_user_annotation") for n in (0, 1)
    ]
    found = profile(load(write(tmp_path / "t.json", kernels + drawn)))
    assert [sample.x for sample in found.combined.samples] == [195_000, 201_000]
    assert [sample.z_max for sample in found.combined.samples] == [1_000_000, 900_000]
    by_start = [{**one, "cat": "user_annotation"} for one in drawn]  # no launch, no range on the GPU
    found = profile(load(write(tmp_path / "u.json", kernels + by_start)))
    assert [sample.x for sample in found.combined.samples] == [195_000, 201_000]


def test_two_processes_in_one_file_have_marks_of_their_own(tmp_path: Path) -> None:
    """Correlations are numbered by each process; the second one's clock of launches is its own."""
    events = launched(*step_kernels(0, 195), *step_kernels(1, 201)) + marks(2)
    events += launched(*step_kernels(8, 210), *step_kernels(9, 220), rank=1, pid=8)
    events += [{**one, "pid": 8, "ts": one["ts"] + 8000} for one in marks(2)]
    tables = load_all([write(tmp_path / "t.json", events)])
    assert [find_steps(one).begin.tolist() for one in tables] == [[10**7, 11 * 10**6], [18 * 10**6, 19 * 10**6]]


def test_ranks_with_other_clocks_are_matched_by_the_number_of_the_step(tmp_path: Path) -> None:
    """Rank 1 was recorded from the second step on, and its clock is an hour ahead."""
    paths = []
    for rank, steps, clock in ((0, (0, 1, 2), 0), (1, (1, 2), 3_600 * 10**9)):
        kernels = [kernel for step in steps for kernel in step_kernels(step, 200 + 10 * step - rank)]
        events = launched(*kernels) + marks(3)[steps[0] :]
        more = {"distributedInfo": {"rank": rank}, "baseTimeNanoseconds": clock}
        paths.append(write(tmp_path / f"{rank}.json", events, **more))
    found = profile(load_all(paths))
    assert found.combined.aligned_by == "step number"
    assert [sample.x for sample in found.combined.samples] == [209_000, 219_000]


def test_the_folder_of_a_profile_has_the_same_steps(tmp_path: Path) -> None:
    for name in ("ProfilerStep#{}", "iteration {}"):
        kernels = [kernel for step in range(3) for kernel in step_kernels(step, 200 + step, extra=step)]
        path = write(tmp_path / "t.json", launched(*kernels) + marks(3, name=name))
        given = lagom.overlap(path)
        write_folder(given.profile, tmp_path / "out", "t.json")
        again = lagom.overlap(tmp_path / "out")
        assert given.profile.combined.samples == again.profile.combined.samples
        assert (given.notes, given.x_ns, given.exposed_ns) == (again.notes, again.x_ns, again.exposed_ns)


EVENT = st.fixed_dictionaries(
    {
        "ph": st.just("X"),
        "cat": st.sampled_from(["kernel", "cuda_runtime", "user_annotation", "gpu_user_annotation", "lagom_step"]),
        "name": st.sampled_from(["gemm", GATHER, "ProfilerStep#1", "ProfilerStep#2", "Optimizer.step#A", "step 3"]),
        "pid": st.integers(0, 1),
        "ts": st.sampled_from([0.5, 1.0, 2.0, 3.0, 5.0, 8.0, float("nan"), "x", None]),
        "dur": st.sampled_from([0.0, 0.5, 1.0, 4.0, -1.0, float("inf")]),
        "args": st.one_of(st.none(), st.fixed_dictionaries({"correlation": st.sampled_from([1, 2, 3, "x", None])})),
    }
)


@settings(max_examples=150, deadline=None)
@given(st.lists(EVENT, max_size=24))
def test_whatever_is_marked_the_steps_obey_arithmetic(events: list[dict[str, Any]]) -> None:
    from lagom.timeline import TraceError, kineto

    try:
        tables = kineto.read("t.json", json.dumps(events))
        found = profile(tables)
    except TraceError:
        return
    for rank in found.ranks:
        steps, times = rank.steps, rank.step_times()
        assert (steps.end >= steps.begin).all()
        assert (steps.begin[1:] >= steps.end[:-1]).all()
        assert (times.x <= times.z).all()
        assert (np.diff(np.sort(steps.index.ravel())) > 0).all()
