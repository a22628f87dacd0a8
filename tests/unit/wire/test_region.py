# SPDX-License-Identifier: Apache-2.0
"""A region as the controller holds it, through the real library; what is read from it may be garbage."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from lagom.wire.job_key import region_path
from lagom.wire.layout import CALL_RECORD, KERNEL_SPAN, ffi
from lagom.wire.library import library
from lagom.wire.plan import Plan, PlanTooLarge, fill_plan
from lagom.wire.region import Publication, Region, RegionRefused, TimelineState, unlink_if_unheld
from lagom.wire.views import plausible

pytestmark = pytest.mark.usefixtures("shm")


def test_a_region_is_made_private_small_and_goes_with_its_owner(shm: Path) -> None:
    region = Region.create("job-1")
    file = region.path
    assert file == region_path("job-1")
    assert file.parent == shm
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.stat().st_size <= 8 << 20
    assert region.job_key == "job-1"
    assert region.processes_alive() == 0
    assert region.communicators() == region.slots() == region.processes() == []
    region.close(unlink=True)
    assert not file.exists()


def test_what_nobody_holds_is_removed_and_said_to_be_gone() -> None:
    with Region.create("job-3") as region:
        assert not unlink_if_unheld(region.path)
        assert region.path.exists()
        left = region.path
    assert unlink_if_unheld(left)
    assert not left.exists()
    assert unlink_if_unheld(left), "nothing there is gone too"


def test_only_one_controller_holds_it() -> None:
    with Region.create("job-2") as region:
        child = os.fork()
        if child == 0:
            try:
                Region.attach(region.path)
            except RegionRefused as error:
                os._exit(0 if "controller" in str(error) else 2)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        region.close(unlink=True)


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, os.urandom(1 << 16)])
def test_a_foreign_or_damaged_file_is_refused_in_one_sentence(shm: Path, content: bytes) -> None:
    file = shm / "lagom-0-damaged"
    file.write_bytes(content)
    file.chmod(0o600)
    with pytest.raises(RegionRefused) as caught:
        Region.attach(file)
    assert "\n" not in str(caught.value)
    assert file.read_bytes() == content


def test_a_missing_region_is_named(shm: Path) -> None:
    with pytest.raises(RegionRefused, match="nowhere"):
        Region.attach(shm / "nowhere")


def test_rings_come_out_as_they_went_in() -> None:
    with Region.create("job-3") as region:
        calls = np.zeros(3, CALL_RECORD)
        calls["call"] = [1, 2, 3]
        calls["chosen"]["channels"] = 4
        spans = np.zeros(2, KERNEL_SPAN)
        spans["end_ns"] = 9
        region._region.slots[5].call_ring = 3
        for row in calls:
            record = ffi.from_buffer("struct lagom_call_record *", np.array([row]))
            library().lagom_call_ring_push(region._region, 5, record)
        for row in spans:
            library().lagom_kernel_ring_push(
                region._region, 0, ffi.from_buffer("struct lagom_kernel_span *", np.array([row]))
            )
        assert (region.drain_calls(5) == calls).all()
        assert (region.drain_kernels(0) == spans).all()
        assert len(region.drain_calls(5)) == 0
        region.close(unlink=True)


def test_nothing_is_published_to_nobody() -> None:
    with Region.create("job-4") as region:
        result, epoch = region.publish(0, Plan(start_call=10))
        assert result is Publication.INCOMPLETE
        assert epoch == 0
        region.close(unlink=True)


def test_a_plan_that_does_not_fit_is_refused_before_anything_is_written() -> None:
    struct = ffi.new("struct lagom_plan *")
    with pytest.raises(PlanTooLarge, match="positions"):
        fill_plan(Plan(start_call=1, positions=(0,) * 5000), struct)
    assert bytes(ffi.buffer(struct)) == bytes(ffi.sizeof("struct lagom_plan"))


def test_the_state_of_a_recording_is_read_as_it_was_written() -> None:
    with Region.create("job-5") as region:
        for state in TimelineState:
            region._region.processes[1].timeline_state = state
            assert region.timeline_state(1) is state
        region._region.processes[1].timeline_state = max(TimelineState) + 1
        assert region.timeline_state(1) is TimelineState.ABSENT, "unknown"
        region.close(unlink=True)


def test_two_slots_of_one_rank_are_a_double() -> None:
    with Region.create("job-6") as region:
        for index, rank in enumerate((0, 1, 1)):
            slot = region._region.slots[index]
            slot.communicator, slot.rank, slot.state = 2, rank, library().LAGOM_READY
            assert region.has_double(2) == (index == 2)
        assert not region.has_double(0)
        region.close(unlink=True)


@pytest.mark.parametrize(
    ("function", "algorithm", "protocol", "kept"),
    [
        (2, 1, 2, True),
        (2, -1, -1, True),
        (4, 6, 0, True),
        (5, 1, 2, False),
        (2, 20, 2, False),
        (2, 1, 3, False),
        (2, 1, -1, False),
        (2, -1, 0, False),
        (2, 7, 0, False),
        (4, 0, 0, True),
    ],
)
def test_records_that_cannot_be_true_are_left_out(function: int, algorithm: int, protocol: int, kept: bool) -> None:
    records = np.zeros(1, CALL_RECORD)
    records["function"], records["stock_algorithm"], records["stock_protocol"] = function, algorithm, protocol
    assert plausible(records).tolist() == [kept]


def test_random_bytes_never_name_what_does_not_exist() -> None:
    noise = np.random.default_rng(0).integers(0, 256, 4096 * CALL_RECORD.itemsize, dtype=np.uint8)
    records = noise.view(CALL_RECORD)
    kept = records[plausible(records)]
    assert (kept["function"] < 5).all()
    assert (kept["stock_algorithm"] < 7).all()


def test_kernel_names_are_found_by_the_number_in_a_span() -> None:
    """Numbers begin at 1, since 0 in a span means none. A name that is not whole yet is left out."""
    with Region.create("job-names") as region:
        for index, (text, ready) in enumerate(((b"gemm", 1), (b"half written", 0), (b"ncclDevKernel", 1))):
            entry = region._region.names[index]
            ffi.memmove(entry.text, text, len(text))
            entry.ready = ready
        assert region.kernel_names() == {1: "gemm", 3: "ncclDevKernel"}
        region.close(unlink=True)
