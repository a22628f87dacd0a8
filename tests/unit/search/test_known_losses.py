# SPDX-License-Identifier: Apache-2.0
"""What a config that was far slower says of others."""

from __future__ import annotations

import pytest

from lagom.records import Algorithm, Assignment, CommConfig, Function, Problem, Protocol, Sample, Site
from lagom.search.known_losses import KnownLosses
from lagom.search.measurements import Measurements
from lagom.search.space import Space

OWN = CommConfig(Algorithm.RING, Protocol.SIMPLE, 24, 512, 2 << 20)
LARGE, SMALL = 90 << 20, 10 << 20
PROBLEM = Problem(
    (Site(0, Function.ALL_GATHER, LARGE), Site(1, Function.ALL_GATHER, SMALL)),
    (OWN, OWN),
    24,
    usable=(((1, 1), (1, 0)),) * 2,
)


def both(**settings: int) -> Assignment:
    return Assignment((CommConfig(**settings),) * 2)


def one(site: int, **settings: int) -> Assignment:
    return Assignment.of({site: CommConfig(**settings)}, 2)


def ruled_out(candidate: Assignment, tried: Assignment, slower: float) -> bool:
    """Where ``tried`` was found to be slower by so many percent."""
    measurements = Measurements(Assignment.stock(2))
    measurements.set_baseline([(Sample(1e8), Sample(1e8))] * 4)
    measurements.add(tried, measurements.stock, [(Sample(1e8), Sample(1e8 * (1.0 + slower / 100)))] * 4)
    return KnownLosses(Space(PROBLEM), measurements).rule_out(candidate)


@pytest.mark.parametrize(
    ("candidate", "expected"),
    [
        (both(chunk_bytes=32 << 10), True),
        (both(channels=12, chunk_bytes=64 << 10), True),  # as far out, and in another direction as well
        (one(0, chunk_bytes=32 << 10), True),  # nine tenths of the bytes
        (one(1, chunk_bytes=32 << 10), True),  # a tenth of 240 %
        (both(chunk_bytes=128 << 10), False),
        (both(channels=1), False),
        (Assignment((CommConfig(Algorithm.RING, Protocol.LL128, chunk_bytes=32 << 10),) * 2), False),
    ],
)
def test_nothing_as_extreme_as_a_known_loss(candidate: Assignment, expected: bool) -> None:
    """Seen on an H200: 32 KiB for all was 3.4 times as slow, and was tried again at one communication."""
    assert ruled_out(candidate, both(chunk_bytes=64 << 10), slower=240) is expected


def test_a_small_part_of_a_loss_is_none() -> None:
    assert ruled_out(both(chunk_bytes=32 << 10), both(chunk_bytes=64 << 10), slower=20)
    assert not ruled_out(one(1, chunk_bytes=32 << 10), both(chunk_bytes=64 << 10), slower=20)
    assert not ruled_out(both(chunk_bytes=32 << 10), both(chunk_bytes=64 << 10), slower=8)


def test_another_protocol_that_was_far_slower_is_not_tried_again() -> None:
    ll128 = {"algorithm": Algorithm.RING, "protocol": Protocol.LL128}
    assert ruled_out(one(0, **ll128), both(**ll128), slower=50)
    assert not ruled_out(one(0, channels=12), both(**ll128), slower=50)


def test_that_another_protocol_is_far_faster_says_nothing_of_fewer_channels_on_nccl_s_own() -> None:
    measurements = Measurements(Assignment.stock(2))
    measurements.set_baseline([(Sample(1e8), Sample(1e8))] * 4)
    faster = both(algorithm=Algorithm.RING, protocol=Protocol.LL128)
    measurements.add(faster, measurements.stock, [(Sample(1e8), Sample(0.8e8))] * 4)
    losses = KnownLosses(Space(PROBLEM), measurements)
    assert not losses.rule_out(both(channels=12))
    assert not losses.rule_out(both(chunk_bytes=512 << 10))
