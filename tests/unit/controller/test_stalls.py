"""What the host's clock tells of pauses: rare ones are left out, a job's own way of running is not."""

from __future__ import annotations

from lagom.controller.stalls import RARE, stalls

LABELS = {iteration: 20 <= iteration < 60 for iteration in range(81)}
EVERY = range(81)


def job(**odd: float) -> dict[int, float]:
    """Iterations of 100, of 180 with the candidate, but for some."""
    times = {iteration: 180.0 if LABELS[iteration] else 100.0 for iteration in EVERY}
    return {**times, **{int(name[1:]): value for name, value in odd.items()}}


def test_a_candidate_that_is_far_slower_is_no_stall() -> None:
    assert stalls([job(), job()], LABELS, EVERY) == set()


def test_a_pause_and_the_host_catching_up_are_one_stall_on_whatever_rank() -> None:
    assert stalls([job(), job(_30=900.0, _31=90.0, _32=90.0)], LABELS, EVERY) == {30, 31, 32}


def test_a_job_that_waits_for_its_gpu_every_few_iterations_is_taken_as_it_is() -> None:
    """Six short iterations, three as long as the GPU's and one that waits: 1000 in all, and 600 would be a lie."""
    ten = [50.0] * 6 + [100.0] * 3 + [400.0]
    assert stalls([{iteration: ten[iteration % 10] for iteration in EVERY}], LABELS, EVERY) == set()
    often = {f"_{iteration}": 900.0 for iteration in range(2, 81, RARE - 5)}
    assert stalls([job(**often)], LABELS, EVERY) == set()
    seldom = {f"_{iteration}": 900.0 for iteration in range(2, 81, RARE + 5)}
    assert len(stalls([job(**seldom)], LABELS, EVERY)) == len(seldom)


def test_what_follows_a_known_disturbance_belongs_to_it() -> None:
    """The iterations around three evaluations do not count anyway; the short ones behind them are no further stalls."""
    known = [iteration for iteration in EVERY if iteration % 25 > 8]
    short = {f"_{iteration}": 50.0 for iteration in (9, 10, 34, 35, 59, 60)}
    assert stalls([job(**short)], LABELS, known) == {9, 10, 34, 35, 59, 60}
