# SPDX-License-Identifier: Apache-2.0
"""Sites and patterns of a profile, with every number worked out by hand."""

from __future__ import annotations

import pytest
from timeline_helpers import table

from lagom.timeline import KernelTable, profile

GATHER = "ncclDevKernel_AllGather_RING_LL"
SCATTER = "ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL"
SEND = "ncclDevKernel_SendRecv"


def job(*kernels: tuple[float, float, int, str], steps: int = 4) -> KernelTable:
    """The kernels (µs after the step's start) in ``steps`` whole steps of 1000 µs; one more lacks its end."""
    return table(*[(1000.0 * k + b, 1000.0 * k + e, s, n) for k in range(steps + 1) for b, e, s, n in kernels])


def test_what_a_site_exposes_is_its_time_without_compute() -> None:
    """Compute runs 30..130 µs and 200..300. Of the first gather (0..40) 30 µs are exposed, of the reduction (120..150)
    20; the one before it and the two later gathers have compute beside all of them, the send (400..420) none."""
    found = profile(
        [
            job(
                (30, 130, 1, "gemm"), (200, 300, 1, "gemm"),
                (0, 40, 2, GATHER), (60, 100, 3, SCATTER), (120, 150, 3, SCATTER),
                (210, 230, 2, GATHER), (250, 295, 2, GATHER), (400, 420, 4, SEND),
            )
        ]
    )  # fmt: skip
    sites = {row.name: (row.calls, row.x, row.exposed, row.hidden, row.tunable) for row in found.sites}
    assert sites == {
        "allgather exposed": (1, 40_000, 30_000, pytest.approx(0.25), True),
        "reducescatter hidden": (1, 40_000, 0, 1.0, True),
        "reducescatter exposed": (1, 30_000, 20_000, pytest.approx(1 / 3), True),
        "allgather hidden": (2, 65_000, 0, 1.0, True),
        "p2p exposed": (1, 20_000, 20_000, 0.0, False),
    }
    assert sum(row.exposed for row in found.sites) == found.exposed == 70_000


def test_a_hidden_site_may_expose_some() -> None:
    """Of 100 µs, 60 have compute beside them."""
    (site,) = profile([job((0, 100, 2, GATHER), (40, 140, 1, "gemm"))]).sites
    assert (site.name, site.x, site.exposed, site.hidden) == ("allgather hidden", 100_000, 40_000, 0.6)


def test_oef_with_compute_as_it_would_be_alone() -> None:
    """A gather of 220 µs beside a GEMM of 140, whose like takes 100 alone: X = 220, Y = 240 of which 40 are lost, and
    |C u K| = 320. DHelix Eq. 1 as measured: (220 + 240 - 320) / min(220, 240); with T_j = 200: (220 + 200 - 320) /
    min(220, 200)."""
    (row,) = profile([job((0, 220, 2, GATHER), (0, 140, 1, "gemm"), (230, 330, 1, "gemm"))]).patterns
    assert (row.x, row.y, row.overlap, row.exposed, row.overhead) == (220_000, 240_000, 140_000, 80_000, 40_000)
    assert row.oef == pytest.approx(140 / 220)
    assert row.oef_alone == pytest.approx(100 / 200)


def test_oef_of_a_pattern_where_communication_is_the_shorter() -> None:
    """X = 140 stays the minimum: (140 + 200 - 240) / 140."""
    (row,) = profile([job((0, 140, 2, GATHER), (0, 140, 1, "gemm"), (230, 330, 1, "gemm"))]).patterns
    assert row.oef == pytest.approx(1.0)
    assert row.oef_alone == pytest.approx(100 / 140)
