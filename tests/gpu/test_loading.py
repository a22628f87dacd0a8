# SPDX-License-Identifier: Apache-2.0
"""Unchanged torch loads the plugin by the environment alone; mode off changes nothing at all."""

from __future__ import annotations

from collections.abc import Callable

from tests.gpu.jobs.operations import OPERATIONS
from tests.gpu.support import Kernel, Place, kernels, run, runs_of, torchrun, until


def test_stock_has_one_tunable_kernel_a_call(stock: dict[str, list[Kernel]], gpus: int) -> None:
    """What the other tests count on: the n-th kernel of the trace is the n-th call."""
    assert len(stock) == gpus, f"traces of {sorted(stock)} only"
    for rank, launched in stock.items():
        assert len(launched) == 20 * len(OPERATIONS), f"{rank}: {len(launched)} kernels, begins {launched[:16]}"


def test_mode_off_leaves_no_log_and_the_same_kernels(
    spot: Place, stock: dict[str, list[Kernel]], gpus: int, evidence: Callable[..., None]
) -> None:
    command = torchrun("mixed.py", gpus, "--iterations", "20", "--trace", str(spot.traces))
    ran = run(command, spot.with_plugin(LAGOM_MODE="off"), spot.folder)
    assert ran.code == 0, ran.tail()
    assert not spot.log.exists(), f"mode off wrote {list(spot.log.iterdir())}"
    assert list(spot.shm.iterdir()) == [], "mode off made shared memory"
    off = kernels(spot.traces)
    for rank, launched in stock.items():
        assert off.get(rank) == launched, f"{rank}: stock {runs_of(launched)}, mode off {runs_of(off.get(rank, []))}"
    evidence(kernels_compared=sum(map(len, off.values())))


def test_with_the_environment_alone_every_kernel_is_a_counted_call(
    spot: Place, gpus: int, evidence: Callable[..., None]
) -> None:
    """The first rank starts the controller, which ends with the job; its count of calls is that of the profiler."""
    command = torchrun("mixed.py", gpus, "--iterations", "300", "--pause-ms", "15", "--trace", str(spot.traces))
    ran = run(command, spot.with_plugin(LAGOM_MODE="tune", LAGOM_NT="1"), spot.folder)
    assert ran.code == 0, ran.tail()
    assert until(lambda: bool(spot.events("job_end")), 20), f"the controller did not end: {_log_of(spot)}"
    launched, end = kernels(spot.traces), spot.events("job_end")[0]
    joined = spot.events("rank_joined")
    assert len(joined) == gpus, f"{len(joined)} of {gpus} ranks joined: {joined}; {ran.tail(15)}"
    counts = {rank: len(found) for rank, found in launched.items()}
    assert end["calls"] == sum(counts.values()), f"{end} but the profiler saw {counts}; {_log_of(spot)}"
    assert spot.events("program"), f"the iteration was not found: {_log_of(spot)}"
    assert until(lambda: list(spot.shm.iterdir()) == [], 5), "the region was left behind"
    evidence(calls=end["calls"], kernels=counts, knobs=joined[0]["knobs"], nccl=joined[0]["nccl"])


def _log_of(spot: Place) -> str:
    log = spot.log / "controller.log"
    told = log.read_text() if log.exists() else "no controller.log"
    events = [{k: v for k, v in event.items() if k != "samples"} for event in spot.events()]
    return f"controller: {told[-1500:]}; last events: {events[-5:]}"
