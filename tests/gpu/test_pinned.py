# SPDX-License-Identifier: Apache-2.0
"""A config shows in the kernels themselves: on every rank, from the agreed call on and not one call earlier."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lagom.config_file import Fingerprint, SavedConfig, Section, save_config
from lagom.wire.plan import parse_rule
from tests.gpu.jobs.operations import OPERATIONS
from tests.gpu.support import Kernel, Place, Ran, kernels, run, runs_of, torchrun

LARGE = next(index for index, op in enumerate(OPERATIONS) if op.function == "allgather")
THREADS_SET, BLOCK_SEEN = 128, 160  # RING/SIMPLE adds a warp


def gathers(launched: list[Kernel]) -> list[tuple[int, Kernel]]:
    """(call number, kernel) of the large AllGather of each iteration."""
    return [(call, kernel) for call, kernel in enumerate(launched) if call % len(OPERATIONS) == LARGE]


def pinned_run(spot: Place, gpus: int, rule: str, **variables: str) -> Ran:
    """The job under ``lagom run --set``, long enough for the plan to be agreed in mid-run."""
    job = torchrun("mixed.py", gpus, "--iterations", "250", "--pause-ms", "10", "--trace", str(spot.traces))
    ran = run([*spot.lagom_run("--record", "--set", rule), *job], spot.environment(**variables), spot.folder)
    assert ran.code == 0, ran.tail()
    return ran


def committed_start(spot: Place, ran: Ran) -> int:
    """The call from which on the one plan is in force."""
    plans = spot.events("plan_committed")
    told = [event for event in spot.events() if event["event"] in ("note", "standing_aside", "plan_aborted")]
    assert len(plans) == 1, f"{len(plans)} plans were committed; {told}; {ran.tail(15)}"
    return int(plans[0]["start_call"])


def recorded_calls(folder: Path) -> dict[int, Any]:
    """The call numbers each rank recorded (slot -> numbers)."""
    rows = np.load(folder / "calls.npy")
    return {int(slot): rows[rows["slot"] == slot]["record"]["call"] for slot in np.unique(rows["slot"])}


def fewer(stock: dict[str, list[Kernel]]) -> int:
    """Fewer channels than NCCL takes for the large AllGather by itself: at most eight, taken as they are (asked
    for 32 of 64 it took 31: data is shared out in whole cells)."""
    return min(8, built(stock) // 2)


def built(stock: dict[str, list[Kernel]]) -> int:
    """How many channels NCCL takes for the large AllGather by itself."""
    grids = {kernel.grid for launched in stock.values() for _, kernel in gathers(launched)}
    assert len(grids) == 1, f"stock ranks or iterations differ: {grids}"
    if grids == {1}:
        pytest.skip("NCCL has built one channel here, so there is nothing to lower")
    return int(grids.pop())


def assert_switched(launched: dict[str, list[Kernel]], start: int, before: Kernel, after: Kernel) -> None:
    """Every rank's large AllGathers are ``before`` up to call ``start`` and ``after`` from it on."""
    for rank, found in launched.items():
        wrong = [(call, kernel) for call, kernel in gathers(found) if kernel != (after if call >= start else before)]
        expected = f"{before} before call {start} and {after} from it on"
        assert wrong == [], f"{rank}: not {expected}: {len(wrong)} calls, first {wrong[:5]}; {runs_of(found)}"
        calls = [call for call, _ in gathers(found)]
        assert min(calls) < start < max(calls), f"{rank}: the switch at {start} lies outside the run"


def test_channels_pinned_show_as_the_grid_from_the_agreed_call_on(
    spot: Place, stock: dict[str, list[Kernel]], gpus: int, evidence: Callable[..., None]
) -> None:
    channels = fewer(stock)
    ran = pinned_run(spot, gpus, f"allgather:>=1M:nc={channels}")
    start, launched = committed_start(spot, ran), kernels(spot.traces)
    assert len(launched) == gpus
    before = gathers(stock["rank0"])[0][1]
    assert_switched(launched, start, before, Kernel(before.function, channels, before.block))
    recorded = recorded_calls(spot.log)
    assert len(recorded) == gpus, f"records of {len(recorded)} ranks only"
    for slot, calls in recorded.items():
        first, last, total = int(calls[0]), int(calls[-1]), len(launched["rank0"])
        assert (calls == np.arange(first, first + len(calls))).all(), f"slot {slot}: the records have a gap"
        assert last + 1 == total, f"slot {slot}: the last record is call {last}, but there were {total} kernels"
        assert first < start, f"slot {slot}: recording began at call {first}, after the plan of call {start}"
    begun = {slot: int(calls[0]) for slot, calls in recorded.items()}
    evidence(built=before.grid, pinned=channels, from_call=start, kernels=total, recorded_from_call=begun)


def test_threads_pinned_show_as_the_block_from_the_agreed_call_on(
    spot: Place, stock: dict[str, list[Kernel]], gpus: int, evidence: Callable[..., None]
) -> None:
    rule = f"allgather:>=1M:algo=ring,proto=simple,nt={THREADS_SET}"
    ran = pinned_run(spot, gpus, rule, LAGOM_NT="1")
    joined = spot.events("rank_joined")
    remarks = [event["text"] for event in spot.events("note")] + [event["remark"] for event in joined]
    if any("NT is off" in remark for remark in remarks):
        pytest.skip(f"threads cannot be set on this build of NCCL: {remarks}")
    start, launched = committed_start(spot, ran), kernels(spot.traces)
    before = gathers(stock["rank0"])[0][1]
    assert before.block != BLOCK_SEEN
    after = {kernel for found in launched.values() for call, kernel in gathers(found) if call >= start}
    assert {kernel.block for kernel in after} == {BLOCK_SEEN}, f"{after}; {runs_of(launched['rank0'])}"
    assert len(after) == 1, f"ranks differ: {after}"
    assert_switched(launched, start, before, after.pop())
    evidence(block_stock=before.block, block_pinned=BLOCK_SEEN, from_call=start)


def test_a_saved_config_replays_without_a_controller(
    spot: Place, stock: dict[str, list[Kernel]], gpus: int, evidence: Callable[..., None]
) -> None:
    """The ranks agree among themselves: one switch, the same call on every rank, and never back."""
    channels, config = fewer(stock), spot.folder / "config.lagom"
    rule = parse_rule(f"allgather:>=1M:nc={channels}")
    save_config(SavedConfig(Fingerprint(ranks=gpus, nodes=1), (Section(gpus, 1, 0, rules=(rule,)),)), config)
    command = torchrun("mixed.py", gpus, "--iterations", "60", "--trace", str(spot.traces))
    replay = {"LAGOM_MODE": "replay", "LAGOM_CONFIG": str(config), "LAGOM_CONTROLLER": "none"}
    ran = run(command, spot.with_plugin(**replay), spot.folder)
    assert ran.code == 0, ran.tail()
    assert not (spot.log / "decisions.jsonl").exists(), "there was a controller"
    launched = kernels(spot.traces)
    first = {rank: _first_with(gathers(found), channels) for rank, found in launched.items()}
    shown = {rank: runs_of(found) for rank, found in launched.items()}
    assert len(set(first.values())) == 1, f"ranks switched at different calls {first}; {shown}"
    start = first["rank0"]
    assert start is not None, f"the saved config never took effect; {ran.tail(15)}; {shown}"
    stock_kernel = gathers(stock["rank0"])[0][1]
    for rank, found in launched.items():
        grids = [(call, kernel.grid) for call, kernel in gathers(found)]
        expected = [(call, channels if call >= start else stock_kernel.grid) for call, _ in grids]
        assert grids == expected, f"{rank}: {shown[rank]}"
    evidence(channels=channels, from_call=start, ranks=len(launched))


def _first_with(launched: list[tuple[int, Kernel]], grid: int) -> int | None:
    return next((call for call, kernel in launched if kernel.grid == grid), None)
