# SPDX-License-Identifier: Apache-2.0
"""``lagom.overlap``: its numbers by hand, every kind of input, and that they are those of ``lagom profile``."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from timeline_helpers import DATA, DUMP, dump, table

import lagom
from lagom.timeline import KernelTable, TraceError, profile
from lagom.timeline.kineto import write

GATHER = "ncclDevKernel_AllGather_RING_LL"
GEMM = "gemm"
H200 = DATA / DUMP.format(2048)


def job(steps: int = 6, gather: int = 145) -> KernelTable:
    """An iteration of 900 µs: six layers of a norm (10 µs) and a GEMM, 100 µs, or 140 beside one of three gathers; and
    an optimizer kernel of 10 µs."""
    rows = []
    for step in range(steps):
        at = 900.0 * step
        for layer in range(6):
            rows.append((at, at + 10, 1, "norm"))
            length = 140 if layer % 2 else 100
            rows.append((at + 10, at + 10 + length, 1, GEMM))
            rows += [(at + 10, at + 10 + gather, 2, GATHER)] if layer % 2 else []
            at += length + 20
        rows.append((at, at + 10, 1, "adam"))
    return table(*rows)


def test_an_iteration_by_hand() -> None:
    """|C| = 3 x 145, |K| = 60 + 300 + 420 + 10, |C n K| = 420: exposed 15, idle 900 - (435 + 790 - 420) = 95 µs. The
    GEMM takes 140 µs beside a gather and 100 without: 1.4x, 120 of 790 µs of compute."""
    found = lagom.overlap(job())
    assert (found.x_ns, found.y_ns, found.z_max_ns) == (435_000, 790_000, 900_000)
    assert (found.exposed_ns, found.idle_ns) == (15_000, 95_000)
    assert found.overlap_ratio == pytest.approx(420 / 435)
    (slow,) = found.slowdowns
    assert (slow.name, slow.reference_ns, slow.overlapped_ns, slow.extra_ns) == (GEMM, 100_000, 140_000, 120_000)
    assert slow.slowdown == pytest.approx(1.4)
    assert found.overhead.ns == 120_000
    assert found.overhead.share == pytest.approx(120 / 790)
    assert found.iterations == 5


def test_each_rank_by_itself_and_the_job_as_a_whole() -> None:
    """The second rank's gathers are 4 µs shorter: it arrived last, so theirs is the true X."""
    found = lagom.overlap([job(), replace(job(gather=141), rank=1)])
    assert found.x_ns == 423_000
    assert [one.rank for one in found.ranks] == [0, 1]
    assert [one.x_ns for one in found.ranks] == [435_000, 423_000]
    assert [one.exposed_ns for one in found.ranks] == [15_000, 3_000]
    assert [one.wait_ns for one in found.ranks] == [12_000, 0]
    assert [one.overlap_ratio for one in found.ranks] == pytest.approx([420 / 435, 420 / 423])


def test_paths_folders_and_tables_say_the_same(tmp_path: Path) -> None:
    write(dump(2048), tmp_path / "rank0.json.gz")
    wanted = lagom.overlap(dump(2048))
    for given in (H200, str(H200), [H200], tmp_path / "rank0.json.gz", [dump(2048)]):
        found = lagom.overlap(given)
        assert found.z_max_ns == pytest.approx(wanted.z_max_ns, rel=1e-6)
        assert found.overlap_ratio == pytest.approx(wanted.overlap_ratio, rel=1e-6)
    assert wanted.overhead == profile([dump(2048)]).overhead


def test_a_reference_trace_fills_in_what_never_runs_alone() -> None:
    always = table(*[(100.0 * k, 100.0 * k + 70, s, name) for k in range(6) for s, name in ((1, GEMM), (2, GATHER))])
    alone = table(
        *[
            row
            for k in range(6)
            for row in ((100.0 * k, 100.0 * k + 50, 1, GEMM), (100.0 * k + 60, 100.0 * k + 70, 2, GATHER))
        ]
    )
    assert not lagom.overlap(always).slowdowns
    (slow,) = lagom.overlap(always, reference=alone).slowdowns
    assert slow.slowdown == pytest.approx(1.4)


def test_without_compute_what_takes_compute_to_know_is_nan() -> None:
    found = lagom.overlap(table(*[(100.0 * k, 100.0 * k + 50, 2, GATHER) for k in range(6)]))
    assert (found.x_ns, found.z_max_ns) == (50_000, 100_000)
    unknown = (found.y_ns, found.overlap_ratio, found.exposed_ns, found.idle_ns, found.overhead.share)
    assert all(math.isnan(value) for value in (*unknown, found.ranks[0].overlap_ratio, found.ranks[0].y_ns))


def test_nothing_to_see_is_an_error() -> None:
    for nothing in ([], Path("/nowhere/trace.json")):
        with pytest.raises(TraceError):
            lagom.overlap(nothing)


def test_import_lagom_imports_nothing_else() -> None:
    program = (
        "import sys, lagom; assert 'overlap' in dir(lagom); print([m for m in sys.modules if m.startswith('lagom.')])"
    )
    assert subprocess.check_output([sys.executable, "-c", program], text=True) == "['lagom.version']\n"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = lagom.nothing
