# SPDX-License-Identifier: Apache-2.0
"""Our declarations of NCCL's plugin interface are NCCL's: compared with what NVIDIA's wheels said of themselves.

``tests/abi/layouts.json`` is a digest of the debug information of every wheel from 2.21.5 on; ``make test-abi`` asks
the wheels again. Nothing here needs a network.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from lagom.doctor import nccl_versions, plugin
from lagom.doctor.nccl_versions import TABLE, capabilities, parse_version
from lagom.sim.virtual.selection import VERSIONS
from tests.abi import ours
from tests.abi.digest import BUILDS, HEADER, LAYOUTS, c_table

ROOT = Path(__file__).resolve().parents[2]
Structs = dict[str, Any]


@pytest.fixture(scope="module")
def digest() -> dict[str, Any]:
    """The wheels' own words."""
    loaded: dict[str, Any] = json.loads(LAYOUTS.read_text())
    return loaded


@pytest.fixture(scope="module")
def declared(tmp_path_factory: pytest.TempPathFactory) -> Structs:
    """The plugin's structs as the compiler lays them out."""
    return ours.plugin_structs(tmp_path_factory.mktemp("abi"))


@pytest.mark.parametrize("version", ours.TUNER_VERSIONS)
def test_the_plugins_tuner_is_nccls(digest: dict[str, Any], declared: Structs, version: int) -> None:
    theirs = digest["structs"][f"ncclTuner_v{version}_t"]
    assert ours.members_by_place(declared[f"nccl_tuner_v{version}"]) == ours.members_by_place(theirs)


@pytest.mark.parametrize("version", ours.PROFILER_VERSIONS)
def test_the_plugins_profiler_is_nccls(digest: dict[str, Any], declared: Structs, version: int) -> None:
    theirs = digest["structs"][f"ncclProfiler_v{version}_t"]
    mine = declared[f"nccl_profiler_v{ours.OURS_FOR_PROFILER[version]}"]
    assert ours.members_by_place(mine) == ours.members_by_place(theirs)


@pytest.mark.parametrize("version", ours.PROFILER_VERSIONS)
def test_the_plugin_reads_events_where_nccl_writes_them(
    digest: dict[str, Any], declared: Structs, version: int
) -> None:
    mine = declared[f"nccl_event_v{ours.OURS_FOR_PROFILER[version]}"]
    assert ours.event_faults(mine, digest["structs"][f"ncclProfilerEventDescr_v{version}_t"], version) == []


@pytest.mark.parametrize("version", sorted(ours.TUNERS))
def test_virtual_ranks_call_the_tuner_as_nccl_does(digest: dict[str, Any], version: int) -> None:
    theirs = digest["structs"][f"ncclTuner_v{version}_t"]
    assert ours.virtual_table(f"tuner_v{version}") == ours.members_by_place(theirs)


@pytest.mark.parametrize("version", sorted(ours.PROFILER_INITS))
def test_virtual_ranks_send_the_events_nccl_sends(digest: dict[str, Any], version: int) -> None:
    structs = digest["structs"]
    assert ours.virtual_table(f"profiler_v{version}") == ours.members_by_place(structs[f"ncclProfiler_v{version}_t"])
    theirs = structs[f"ncclProfilerEventDescr_v{version}_t"]
    name = f"profiler_event_v{ours.EVENTS_OF[version]}"
    for field, member in ours.virtual_fields(name).items():
        there = {"type": "type", "parent": "parentObj", "rank": "rank", **ours.VIRTUAL_FIELDS}[field]
        assert theirs["members"][there] == member, field
    assert ours.ffi.sizeof(name) == theirs["size"]


def test_every_release_finds_a_table_of_ours(digest: dict[str, Any]) -> None:
    """The newest of ours that a wheel looks up is what the doctor's table says; so is the newest profiler."""
    for release, found in digest["releases"].items():
        version = parse_version(release)
        assert version is not None
        able = capabilities(version)
        common = set(found["symbols"]) & set(plugin.SYMBOLS)
        assert newest(common, "ncclTunerPlugin") == able.tuner, release
        assert newest(common, "ncclProfiler") == able.profiler, release


def newest(symbols: set[str], prefix: str) -> int:
    return max((int(symbol.rpartition("_v")[2]) for symbol in symbols if symbol.startswith(prefix)), default=0)


def test_the_plugin_exports_what_the_doctor_looks_for() -> None:
    exported = re.findall(r"^    (nccl\w+);", (ROOT / "tuner_plugin" / "plugin.map").read_text(), re.MULTILINE)
    assert sorted(exported) == sorted(plugin.SYMBOLS)


def test_the_plugins_builds_are_the_doctors() -> None:
    assert HEADER.read_text() == c_table(json.loads(BUILDS.read_text())), "run python -m tests.abi.digest --header"


def test_every_release_that_was_read_has_its_builds(digest: dict[str, Any]) -> None:
    records = json.loads(BUILDS.read_text())
    assert {record["version"] for record in records} == set(digest["releases"])
    assert len({record["build_id"] for record in records}) == len(records)


def test_the_plugin_draws_the_line_for_size_rules_where_the_table_does() -> None:
    header = (ROOT / "tuner_plugin" / "static_rules.h").read_text()
    first, end = (int(number) for number in re.findall(r"#define LAGOM_FIRST_\w+ (\d+)", header))
    rows = [entry.since for entry in TABLE if entry.replay == "size rules"]
    after = next(entry.since for entry in TABLE if entry.since > max(rows))
    assert nccl_versions.version_from_code(first) == min(rows)
    assert nccl_versions.version_from_code(end) == after


def test_virtual_nccls_look_for_what_the_table_says() -> None:
    for version in VERSIONS.values():
        able = capabilities(nccl_versions.version_from_code(version.code))
        assert version.tuner_api == able.tuner, version.name
        assert not able.profiler or version.profiler_api == able.profiler, version.name
