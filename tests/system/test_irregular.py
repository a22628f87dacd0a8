# SPDX-License-Identifier: Apache-2.0
"""Jobs that do not only iterate: evaluations, checkpoints, other shapes, micro-batches, recompilation, graph capture.

None of it may hang the job or the search, let two ranks differ, count as an iteration, or leave a wrong config behind.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lagom import journal
from lagom.config_file import load_config
from lagom.demo.stage import Scene
from lagom.journal.schema import SampleRecord
from lagom.program.detect import HISTORY_CALLS
from lagom.records import CommConfig, Function
from lagom.sim.virtual.call_log import load, unpack
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec, fsdp_like_calls
from lagom.sim.virtual.workload_events import WorkloadEvent, checkpoint, evaluation
from tests.system.play import ENDS, STOCK_KEPT, UNHURRIED, Played, play, searches
from tests.system.support import Job
from tests.system.truth import ENOUGH, judge

pytestmark = pytest.mark.slow

Pair = tuple[SampleRecord, SampleRecord]  # of (incumbent, candidate)

CALLS = fsdp_like_calls(3, 128 << 20)
COMM_ID = 0x5A4D
SCENE = Scene(ranks=2, layers=3, tokens=4096, noise=0.005)
CAPTURED_AT = 500  # iterations: learnt by then (150 to 190), and long before a search of the scene ends by itself
#: Real time: some hundred iterations a second at most, so that an interruption comes after the learning on any machine.
UNHURRIED_US = 10_000.0
PAUSED_NS = 5e7  # an iteration with a pause is longer, one of the slowest candidate shorter
LONG_S = 20.0  # simulated: forty iterations of the scene's job, thousands of the plain one's


def plain(calls: tuple[tuple[int, int], ...] = CALLS, ranks: int = 2) -> JobSpec:
    """A job of nothing but communication: NCCL's own pick is the best there is. So little noise that it never makes
    another one look 0.5 % faster, the least difference that a search follows: at 0.5 % one search in twenty may claim
    something, by its level (tests/unit/search/test_false_accepts.py counts those), here none may."""
    one = CommunicatorSpec(COMM_ID, "shard", calls)
    return JobSpec(ranks=ranks, communicators=(one,), iterations=1 << 40, noise=0.0001, logging_every=7)


def tune(spec: JobSpec, job: Job, folder: Path, search_seconds: int = 5, *options: str) -> Played:
    """Until a search is over, by the default strategy."""
    return play(spec, job, folder, "--search-seconds", str(search_seconds), *options, until=searches())


def is_run(expected: list[CommConfig], calls: list[CommConfig]) -> bool:
    """Whether one iteration of ``calls`` is as ``expected``."""
    return any(calls[at : at + len(expected)] == expected for at in range(len(calls)))


def samples_ns(run: Played) -> list[float]:
    return [sample.z for move in run.of(journal.Move) for pair in move.samples for sample in pair]


def is_clean(pair: Pair) -> bool:
    return max(sample.z for sample in pair) < PAUSED_NS


def tells(pairs: Sequence[Pair]) -> bool:
    """Whether a window tells what its candidate costs: most pairs hold no pause, or one at least, and kernels show the
    pauses of the others, all in the candidate's half."""
    clean = sum(map(is_clean, pairs))
    shown = all(before.z < PAUSED_NS and after.x is not None for before, after in pairs)
    return 2 * clean > len(pairs) or (clean > 0 and shown)


def lost_beside_pauses(run: Played) -> tuple[float, float, str]:
    """What candidates have cost against stock, the incumbent throughout: as counted, and by the pairs without a pause;
    of the windows that tell. And the windows of which the two differ, with their pairs, for who reads the failure."""
    counted = clean = before = 0.0
    differ = []
    for move in run.of(journal.Move):
        added, before = move.lost_iterations - before, move.lost_iterations
        if move.purpose != "baseline" and tells(move.samples):
            ratios = [after.z / stock.z for stock, after in filter(is_clean, move.samples)]
            told = max(0.0, sum(ratios) / len(ratios) - 1.0) * move.iterations
            counted, clean = counted + added, clean + told
            if abs(added - told) > 1.0:
                differ.append(f"window {move.number}: {added:.1f} for {told:.1f} iterations, {move.samples}")
    return counted, clean, "; ".join(differ)


def iterations_run(folder: Path, comm_id: int, calls: int) -> tuple[list[CommConfig], list[CommConfig]]:
    """What the calls of the first iteration ran on rank 0, and those at the end: some iterations, since the last one
    may follow an evaluation, and then it is stock's."""
    words = load(folder, comm_id, 0)
    return [unpack(word) for word in words[:calls]], [unpack(word) for word in words[-6 * calls :]]


def configs_in(folder: Path) -> list[CommConfig]:
    """What each call of an iteration should run, by the saved config."""
    sections = load_config(folder / "config.lagom").sections
    assert sections[0].assignment is not None
    assert sections[0].program is not None
    return [sections[0].assignment[site] for site in sections[0].program.positions]


def test_evaluations_and_checkpoints_are_no_iterations(job: Job, tmp_path: Path) -> None:
    """They come every few windows, from the start on; no sample holds one, and what was found is in force later."""
    gathers = ((int(Function.ALL_GATHER), 416 << 20),) * 5
    interruptions = (
        evaluation(10, every=47, batches=3, calls=gathers, pause_s=LONG_S),
        checkpoint(150, every=90, pause_s=LONG_S),
    )
    spec = replace(SCENE.spec(), events=interruptions, keep_plans=True)
    run = tune(spec, job, tmp_path, search_seconds=400)
    assert len(run.of(journal.Program)) == 1, "learnt once"
    outcome = run.of(journal.Outcome)[0]
    assert outcome.verdict == "improved", outcome.reason
    assert sum(move.discarded for move in run.of(journal.Move)) > 0, (
        "no window met an interruption: this test shows nothing"
    )
    baseline = next(move for move in run.of(journal.Move) if move.verdict != "missing")  # two may hit the first window
    assert baseline.verdict == "baseline"
    assert baseline.z is not None
    assert max(samples_ns(run)) < LONG_S * 1e9 / 10, "a sample holds an evaluation"
    empty = [move for move in run.of(journal.Move) if move.verdict == "missing"]
    assert all(move.discarded for move in empty), "a window is empty that met no interruption"
    first, last = iterations_run(tmp_path, spec.communicators[0].comm_id, run.of(journal.Program)[0].period)
    chosen = [config.over(stock) for config, stock in zip(configs_in(job.folder), first, strict=True)]
    assert is_run(chosen, last)
    judged, wrong = judge(run, spec, tmp_path, tolerance=0.03)  # six standard deviations of an iteration's length
    assert wrong == []
    assert judged > ENOUGH, "next to nothing was measured"


def test_pauses_without_calls_prove_nothing(job: Job, tmp_path: Path) -> None:
    """A recompilation, a garbage collection: one iteration a hundred times as long, now in this arm, now in that."""
    pauses = (WorkloadEvent(37, every=41, pause_s=0.4), WorkloadEvent(60, every=23, pause_s=0.1))
    run = tune(replace(plain(), events=pauses), job, tmp_path, search_seconds=400)
    assert run.of(journal.Outcome)[0].verdict in STOCK_KEPT, run.of(journal.Outcome)[0].reason
    assert not [move for move in run.of(journal.Move) if move.verdict == "confirmed"]
    assert max(samples_ns(run)) > PAUSED_NS, "no pause met a window: this test shows nothing"
    counted, clean, differ = lost_beside_pauses(run)
    assert counted == pytest.approx(clean, rel=0.1, abs=5.0), f"the job's pauses are counted as the search's: {differ}"


def test_other_shapes_are_learnt_anew(job: Job, tmp_path: Path) -> None:
    """Sequence lengths that change for good, in mid-search: it begins at iteration 150 to 190 and takes 700. The next
    search comes to its end."""

    def is_searched_again(seen: Played) -> bool:
        again = next(iter(seen.of(journal.Program)[1:]), None)
        return again is not None and any(outcome.t >= again.t for outcome in seen.of(journal.Outcome))

    spec = replace(SCENE.spec(), events=(WorkloadEvent(500, share=0.5),), skew_us=UNHURRIED_US)
    run = play(spec, job, tmp_path, *UNHURRIED, until=is_searched_again)
    assert [program.sites[0].bytes for program in run.of(journal.Program)] == [
        run.of(journal.Program)[0].sites[0].bytes,
        pytest.approx(0.5 * run.of(journal.Program)[0].sites[0].bytes, rel=0.01),
    ]
    assert any("the calls have been others" in note for note in run.notes)
    assert run.of(journal.Outcome)[-1].verdict in ENDS


def test_micro_batches_without_synchronisation_are_one_iteration(job: Job, tmp_path: Path) -> None:
    """Gradient accumulation: four micro-batches, gradients are reduced in the last one only."""
    gather, scatter = (int(Function.ALL_GATHER), 64 << 20), (int(Function.REDUCE_SCATTER), 64 << 20)
    calls = (gather,) * 6 * 3 + (gather,) * 3 + (gather, scatter) * 3
    run = tune(plain(calls), job, tmp_path, search_seconds=3)
    assert [program.period for program in run.of(journal.Program)] == [len(calls)]
    assert run.of(journal.Outcome)[0].verdict in ENDS


def test_a_graph_capture_ends_the_trials(job: Job, tmp_path: Path) -> None:
    """From then on NCCL is not called any more: the search ends with the incumbent, and nothing hangs. By ``lagom``,
    which searches for longer than ``auto``: it is still at it."""
    spec = replace(SCENE.spec(), events=(WorkloadEvent(CAPTURED_AT, captured=True),), skew_us=UNHURRIED_US)
    run = tune(spec, job, tmp_path, 400, "--strategy", "lagom")
    assert run.of(journal.Outcome)[0].verdict == "stopped"
    assert "CUDA graph" in run.of(journal.Outcome)[0].reason
    assert run.iterations > CAPTURED_AT


def test_an_iteration_of_a_thousand_calls_is_tuned_too(job: Job, tmp_path: Path) -> None:
    """Of twenty only twelve are remembered; the others are counted as they go by."""
    calls = fsdp_like_calls(366, 4 << 20)
    assert 20 * len(calls) > HISTORY_CALLS > 3 * len(calls)
    run = tune(plain(calls), job, tmp_path, search_seconds=10)
    assert [program.period for program in run.of(journal.Program)] == [len(calls)]
    assert run.of(journal.Outcome)[0].verdict in STOCK_KEPT, run.of(journal.Outcome)[0].reason
    assert run.of(journal.Move), "nothing was tried"
