# SPDX-License-Identifier: Apache-2.0
"""How values read, wherever they are printed."""

from __future__ import annotations

import math

import pytest

from lagom import format as formats
from lagom.journal import ConfigRecord, SiteRecord
from lagom.records import Algorithm, CommConfig, Function, Protocol, Site
from lagom.wire.plan import NO_LIMIT, Rule

RING = CommConfig(Algorithm.RING, Protocol.SIMPLE, 1, 512, 2 << 20)


@pytest.mark.parametrize(("version", "text"), [(23007, "2.30.7"), ((2, 30, 7), "2.30.7"), (21903, "2.19.3"), (0, "")])
def test_a_version_is_written_alike_from_a_number_and_from_its_parts(version: int | tuple[int, ...], text: str) -> None:
    assert formats.format_version(version) == text


def test_a_config_reads_alike_as_value_and_as_record() -> None:
    for config in (RING, CommConfig(), CommConfig(channels=3, chunk_bytes=262144)):
        assert formats.format_config(ConfigRecord.of(config)) == str(config)
    assert str(RING) == "ring simple nc=1 chunk=2M nt=512"


def test_a_site_reads_alike_as_value_and_as_record() -> None:
    site = Site(0, Function.ALL_GATHER, 416 << 20, 2, "hidden")
    assert formats.format_site(SiteRecord.of(site)) == str(site) == "allgather 416M hidden"


def test_what_is_not_known_is_a_dash_or_nothing() -> None:
    assert formats.format_time(math.nan) == formats.format_percent(None) == formats.format_factor(math.nan) == "-"
    assert formats.format_interval(None, 1.0) == formats.describe_interval(1.0, None) == ""
    assert formats.describe_interval(1.087, 1.1111) == " (95 % interval 1.087 to 1.111)"
    assert formats.format_speedup(1.1434) == "1.143x plain NCCL"
    assert formats.format_clock(1e300) == "--:--:--"


@pytest.mark.parametrize(
    ("iterations", "text"),
    [
        (None, ""),
        (5263.2, ", paid back after 5,300 iterations"),
        (0.3, ", paid back after 1 iteration"),
        (72.4, ", paid back after 73 iterations"),
        (math.inf, ""),
    ],
)
def test_when_a_search_is_paid_back(iterations: float | None, text: str) -> None:
    assert formats.format_payback(iterations) == text


def test_a_rule_names_its_bounds() -> None:
    assert formats.describe_rule(Rule(Function.ALL_GATHER, 1 << 20, NO_LIMIT, RING)).startswith("allgather from 1M: ")
    assert formats.describe_rule(Rule(None, 0, 65536, CommConfig(channels=2))) == "any to 64K: nc=2"
    assert formats.describe_rule(Rule(None, 0, NO_LIMIT, CommConfig(channels=2))) == "any of any size: nc=2"
