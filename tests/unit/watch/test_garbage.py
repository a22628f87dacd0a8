# SPDX-License-Identifier: Apache-2.0
"""A region may hold anything: whatever is copied from it can be shown, on every way out."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from lagom.records import Assignment, CommConfig, Function, Site
from lagom.watch.build import build_job, read_counters
from lagom.watch.log_view import LogView
from lagom.watch.prometheus import render_metrics
from lagom.watch.screen import Lines, page
from lagom.watch.snapshot import NodeSnapshot
from lagom.wire.layout import MAX_COMMUNICATORS, MAX_PROCESSES, MAX_SLOTS, ffi
from lagom.wire.library import library
from lagom.wire.peek import TABLE_BYTES, Untunable, _read
from lagom.wire.plan import Plan, fill_plan


def noise(seed: int) -> bytearray:
    """Random tables whose entries all claim to be there."""
    draw = np.random.default_rng(seed)
    tables = bytearray(draw.integers(0, 256, TABLE_BYTES, dtype=np.uint8).tobytes())
    region = ffi.cast("struct lagom_region *", ffi.from_buffer(tables))
    for entries, count in ((region.processes, MAX_PROCESSES), (region.communicators, MAX_COMMUNICATORS)):
        for index in range(count):
            entries[index].state = 2
    for index in range(MAX_SLOTS):
        region.slots[index].state = 2
        region.slots[index].communicator = int(draw.integers(0, 40))
        region.slots[index].process = int(draw.integers(0, 20))
    return tables


@pytest.mark.parametrize("seed", range(12))
def test_random_tables_can_be_shown(seed: int) -> None:
    tables = noise(seed)
    region = ffi.cast("struct lagom_region *", ffi.from_buffer(tables))
    seen = _read(Path("/x"), region, set(range(MAX_PROCESSES)), True)
    job = build_job(seen, LogView(), "", {}, read_counters(seen, 1.0))
    assert len(job.groups) == MAX_COMMUNICATORS
    node = NodeSnapshot(1.0, "host", (job,))
    out = io.StringIO()
    Console(file=out, width=120).print(page(node))
    assert "\x1b" not in out.getvalue()
    assert all(line.isprintable() for line in Lines().of(node))
    json.dumps(node.as_json())
    render_metrics(node)


def laid_out() -> tuple[bytearray, Any]:
    """Tables with one communicator and a whole plan in it."""
    tables = bytearray(TABLE_BYTES)
    region = ffi.cast("struct lagom_region *", ffi.from_buffer(tables))
    communicator = region.communicators[0]
    communicator.state, communicator.comm_id, communicator.rank_count = 2, 5, 2
    site = Site(0, Function.ALL_GATHER, 1 << 20)
    fill_plan(Plan(7, (site,), (0,), Assignment((CommConfig(channels=3),))), region.plans[0])
    region.plans[0].epoch, region.plans[0].comm_id = 4, 5
    region.plans[0].hash = library().lagom_plan_hash(ffi.addressof(region.plans[0]))
    return tables, region


@pytest.mark.parametrize("field", ["hash", "start_call", "epoch", "comm_id", "site_count"])
def test_a_plan_counts_only_whole(field: str) -> None:
    tables, region = laid_out()
    (group,) = _read(Path("/x"), region, set(), True).groups
    assert group.plan is not None
    assert group.plan.sites[0].incumbent == CommConfig(channels=3)
    plan = region.plans[0]
    setattr(plan, field, getattr(plan, field) ^ 1)
    assert _read(Path("/x"), region, set(), True).groups[0].plan is None
    assert len(tables) == TABLE_BYTES


def test_a_plan_that_is_half_written_is_no_plan() -> None:
    tables = bytearray(TABLE_BYTES)
    region = ffi.cast("struct lagom_region *", ffi.from_buffer(tables))
    communicator = region.communicators[0]
    communicator.state, communicator.comm_id, communicator.rank_count = 2, 5, 2
    region.plans[0].epoch, region.plans[0].site_count = 3, 4_000_000_000
    assert _read(Path("/x"), region, set(), True).groups[0].plan is None


def test_of_a_communicator_without_ranks_nothing_is_counted() -> None:
    """Its processes are gone, what they counted may still be in their slots."""
    tables, region = laid_out()
    slot = region.slots[0]
    slot.state, slot.communicator, slot.process = 2, 0, 0
    slot.untunable_p2p = slot.untunable_symmetric = slot.untunable_copy_engine = 7
    (alone,) = _read(Path("/x"), region, set(), True).groups
    assert alone.slots == ()
    assert alone.untunable == Untunable(0, 0, 0)
    assert len(tables) == TABLE_BYTES


def test_a_communicator_says_what_its_busiest_rank_could_not_tune() -> None:
    """Each count for itself: no rank has the largest of all three."""
    tables, region = laid_out()
    for index, counts in enumerate(((1, 20, 300), (10, 2, 30), (5, 3, 3))):
        slot = region.slots[index]
        slot.state, slot.communicator, slot.process = 2, 0, 0
        slot.untunable_p2p, slot.untunable_symmetric, slot.untunable_copy_engine = counts
    (group,) = _read(Path("/x"), region, {0}, True).groups
    assert group.untunable == Untunable(10, 20, 300)
    assert len(tables) == TABLE_BYTES
