# SPDX-License-Identifier: Apache-2.0
"""NCCL's wheels, asked themselves: which symbols they look up, how their structs lie, what the plugin makes of them.

Each wheel is downloaded, read and thrown away again (LAGOM_ABI_KEEP=1 keeps it). The newest release is among them: when
NVIDIA changes something, this is what says so.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from lagom.doctor import plugin
from lagom.doctor.nccl_versions import build_id_of, capabilities, threads_known, version_from_code
from lagom.wire.library import library as liblagom
from tests.abi import ours
from tests.abi.digest import BUILDS, LAYOUTS
from tests.abi.reading import Reading, read
from tests.abi.wheels import NoWheel, Wheel, available, library, newest
from tests.tiers import FULL

SAMPLE = (
    Wheel("2.21.5", "cu12"),
    Wheel("2.22.3", "cu12"),
    Wheel("2.25.1", "cu12"),
    Wheel("2.27.7", "cu12"),
    Wheel("2.28.9", "cu12"),
    Wheel("2.29.7", "cu13"),
    Wheel("2.30.7", "cu13"),
)


def wheels() -> list[Any]:
    """The sample, or every wheel there is, and the newest; nothing is asked of the network unless this runs."""
    if os.environ.get("LAGOM_TEST_ABI", "") != "1":
        return [pytest.param(wheel, id=str(wheel)) for wheel in SAMPLE]
    every = [w for cuda in ("cu12", "cu13") for w in available(cuda, platform.machine())] if FULL else list(SAMPLE)
    return [pytest.param(wheel, id=str(wheel)) for wheel in sorted({*every, newest()}, key=lambda w: (w.code, w))]


@dataclass(frozen=True, slots=True)
class Opened:
    """A wheel's library while it is here."""

    path: Path
    reading: Reading


@pytest.fixture(scope="module", params=wheels())
def wheel(request: pytest.FixtureRequest, evidence: Callable[..., None]) -> Iterator[Opened]:
    begun = time.monotonic()
    try:
        with library(request.param) as path:
            fetched = time.monotonic()
            opened = Opened(path, read(path, request.param))
            seconds = {"fetch_s": round(fetched - begun, 1), "read_s": round(time.monotonic() - fetched, 1)}
            size = {"library_bytes": path.stat().st_size}
            known = {"build_id": opened.reading.build_id, "symbols": list(opened.reading.symbols)}
            evidence(str(request.param), {"code": request.param.code, **known, **size, **seconds})
            yield opened
    except NoWheel as reason:
        pytest.fail(str(reason))


@pytest.fixture(scope="session")
def declared(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return ours.plugin_structs(tmp_path_factory.mktemp("abi"))


def versions(reading: Reading, prefix: str, mine: tuple[int, ...]) -> list[int]:
    """Versions of a kind of plugin that both this NCCL and we have."""
    return [version for version in mine if f"{prefix}_v{version}" in reading.symbols]


def test_it_looks_for_what_the_table_says(wheel: Opened) -> None:
    able = capabilities(version_from_code(wheel.reading.wheel.code))
    tuners = versions(wheel.reading, "ncclTunerPlugin", ours.TUNER_VERSIONS)
    profilers = versions(wheel.reading, "ncclProfiler", ours.PROFILER_VERSIONS)
    assert max(tuners, default=0) == able.tuner
    assert max(profilers, default=0) == able.profiler
    assert set(plugin.SYMBOLS) >= {f"ncclTunerPlugin_v{version}" for version in tuners}


def test_its_structs_are_what_was_written_down(wheel: Opened) -> None:
    digest = json.loads(LAYOUTS.read_text())
    assert wheel.reading.structs, "no plugin struct is in its debug information"
    for name, layout in wheel.reading.structs.items():
        assert digest["structs"][name] == layout, name


def test_its_tables_are_ours(
    wheel: Opened, declared: dict[str, Any], evidence: Callable[[str, dict[str, Any]], None]
) -> None:
    compared = []
    for version in versions(wheel.reading, "ncclTunerPlugin", ours.TUNER_VERSIONS):
        theirs = ours.members_by_place(wheel.reading.structs[f"ncclTuner_v{version}_t"])
        assert ours.members_by_place(declared[f"nccl_tuner_v{version}"]) == theirs
        assert ours.virtual_table(f"tuner_v{version}") == theirs
        compared.append(f"tuner v{version}")
    for version in versions(wheel.reading, "ncclProfiler", ours.PROFILER_VERSIONS):
        theirs = ours.members_by_place(wheel.reading.structs[f"ncclProfiler_v{version}_t"])
        assert ours.members_by_place(declared[f"nccl_profiler_v{ours.OURS_FOR_PROFILER[version]}"]) == theirs
        compared.append(f"profiler v{version}")
    assert compared
    evidence(str(wheel.reading.wheel), {"tables_compared": compared})


def test_its_events_lie_where_we_read(
    wheel: Opened, declared: dict[str, Any], evidence: Callable[[str, dict[str, Any]], None]
) -> None:
    compared = {}
    for version in versions(wheel.reading, "ncclProfiler", ours.PROFILER_VERSIONS):
        mine = declared[f"nccl_event_v{ours.OURS_FOR_PROFILER[version]}"]
        theirs = wheel.reading.structs[f"ncclProfilerEventDescr_v{version}_t"]
        assert ours.event_faults(mine, theirs, version) == []
        compared[f"v{version}"] = len(ours.fields_read(mine, version))
    evidence(str(wheel.reading.wheel), {"event_fields_compared": compared})


def test_its_build_is_in_the_table(wheel: Opened, evidence: Callable[[str, dict[str, Any]], None]) -> None:
    """A new release fails here: its layout has been read, so `python -m tests.abi.digest` can add it."""
    records = {record["build_id"]: record for record in json.loads(BUILDS.read_text())}
    assert records.get(wheel.reading.build_id) == wheel.reading.record(), "run python -m tests.abi.digest"
    assert build_id_of(wheel.path) == wheel.reading.build_id, "the doctor reads another build id"
    evidence(str(wheel.reading.wheel), {"offsets": wheel.reading.offsets})


def meet(wheel: Opened, folder: Path, **environ: str) -> dict[str, Any]:
    """What the plugin says in a process that holds the real library."""
    setting = {"LAGOM_SHM_DIR": str(folder), "LAGOM_DIR": str(folder), "LAGOM_CONTROLLER": "none"}
    asked = {**os.environ, **setting, "LAGOM_JOB_ID": folder.name, **environ}
    command = [sys.executable, "-m", "tests.abi.meet", str(wheel.path), json.dumps(wheel.reading.record())]
    done = subprocess.run(command, env=asked, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return said


def test_the_plugin_recognises_it(
    wheel: Opened, tmp_path: Path, evidence: Callable[[str, dict[str, Any]], None]
) -> None:
    """NT is offered on every known build that tells an id, and on no other; the version is its own."""
    able = capabilities(version_from_code(wheel.reading.wheel.code))
    said = meet(wheel, tmp_path, LAGOM_NT="1", LAGOM_MODE="auto")
    assert said["code"] == said["version"] == wheel.reading.wheel.code
    assert said["results"] == [0, 0]
    assert said["tuner"] == able.tuner
    flags = liblagom()
    assert bool(said["knobs"] & flags.LAGOM_KNOB_THREADS) == threads_known(version_from_code(said["code"]))
    assert bool(said["knobs"] & flags.LAGOM_KNOB_ONLINE) == (able.online != "")
    assert bool(said["knobs"] & flags.LAGOM_KNOB_CHUNK) == ("chunk" in able.knobs)
    assert said["context"] == (able.online != "")
    evidence(str(wheel.reading.wheel), {"plugin": {"knobs": said["knobs"], "remark": said["remark"]}})


def test_size_rules_are_replayed_where_nothing_else_is_possible(wheel: Opened, tmp_path: Path) -> None:
    able = capabilities(version_from_code(wheel.reading.wheel.code))
    if able.replay != "size rules":
        pytest.skip("this NCCL tells a communicator's id")
    assert meet(wheel, tmp_path, LAGOM_MODE="replay", LAGOM_SET="any:any:nc=2")["context"]
