# SPDX-License-Identifier: Apache-2.0
"""Regions are told apart: live, stale, garbage; only what nobody holds is ever removed."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from lagom.doctor import Level, memory, plugin
from lagom.wire.job_key import region_path
from lagom.wire.peek import peek_region
from lagom.wire.region import Region, unlink_if_unheld

#: Holds a region as its controller until its stdin closes.
HOLDER = """
import sys
from lagom.wire.region import Region
with Region.create(sys.argv[1]) as region:
    print(region.path, flush=True)
    sys.stdin.read()
"""


def test_room_is_judged_by_a_quarter_of_what_is_free(shm: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert memory.check_room(shm).level is Level.OK

    class Full:
        f_bavail, f_frsize = 20 << 20, 1

    monkeypatch.setattr(os, "statvfs", lambda _: Full)
    finding = memory.check_room(shm)
    assert finding.level is Level.PROBLEM
    assert "--shm-size" in finding.remedy


def test_a_folder_that_is_not_there_is_a_problem(tmp_path: Path) -> None:
    assert memory.check_room(tmp_path / "nowhere").level is Level.PROBLEM


def test_a_live_region_is_left_alone_and_a_left_over_one_removed(shm: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, "the-job"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert holder.stdout is not None
    path = Path(holder.stdout.readline().strip())
    try:
        assert path == region_path("the-job")
        (live,) = memory.check_regions(shm, clean=True)
        assert live.level is Level.OK
        assert "is live: job the-job, 0 rank(s), controller" in live.text
        assert not unlink_if_unheld(path)
    finally:
        holder.kill()
        holder.wait()
    (stale,) = memory.check_regions(shm, clean=False)
    assert (stale.level, path.exists()) == (Level.NOTE, True)
    assert "--clean" in stale.remedy
    (removed,) = memory.check_regions(shm, clean=True)
    assert (removed.level, path.exists()) == (Level.OK, False)


def test_communicators_without_a_place_are_told(shm: Path) -> None:
    with Region.create("a-large-job") as region:
        region._region.header.places_refused = 3
        (live,) = memory.check_regions(shm, clean=False)
        assert live.level is Level.NOTE
        assert "3 times a rank found no place" in live.text
        region.close(unlink=True)


def test_a_place_where_no_file_can_be_made_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    finding = memory.check_room(tmp_path / "file")
    assert finding.level is Level.PROBLEM
    assert "cannot be used (Not a directory)" in finding.text


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo, lambda path: path.symlink_to("/nonexist")])
def test_what_is_no_file_of_ours_is_not_said_to_be_removable(shm: Path, make: Callable[[Path], object]) -> None:
    path = shm / f"lagom-{os.getuid()}-0123456789abcdef"
    make(path)
    for clean in (False, True):
        (finding,) = memory.check_regions(shm, clean=clean)
        assert finding.level is Level.PROBLEM
        assert "is no region" in finding.text
        assert "by hand" in finding.remedy
    assert os.path.lexists(path)


@pytest.mark.parametrize("content", [b"", b"garbage", b"\0" * 4096])
def test_garbage_under_our_name_is_stale(shm: Path, content: bytes) -> None:
    path = shm / f"lagom-{os.getuid()}-0123456789abcdef"
    path.write_bytes(content)
    path.chmod(0o600)
    assert peek_region(path).fault
    (finding,) = memory.check_regions(shm, clean=True)
    assert finding.level is Level.OK
    assert not path.exists()


def test_a_region_with_a_controller_and_no_rank_yet_is_in_use(shm: Path) -> None:
    with Region.create("the-job") as region:
        seen = peek_region(region.path)
        assert (seen.fault, seen.processes) == ("", ())
        assert seen.in_use
        region.close(unlink=True)


def test_inspecting_takes_nothing_away(shm: Path) -> None:
    with Region.create("the-job") as region:
        path = region.path
    assert peek_region(path).fault or not peek_region(path).in_use
    with Region.create("the-job"):
        pass


def test_the_plugin_is_judged_by_loading_it(tmp_path: Path) -> None:
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"not a library")
    assert "does not load" in plugin.check_plugin(broken).text
    other = tmp_path / "other.so"
    subprocess.run(["gcc", "-shared", "-x", "c", "/dev/null", "-o", str(other)], check=True)
    assert "lacks ncclTunerPlugin_v2" in plugin.check_plugin(other).text
    missing = plugin.check_timeline(tmp_path / "nowhere.so")
    assert (missing.level, "no kernel timelines" in missing.text) == (Level.NOTE, True)
    assert [finding.level for finding in plugin.examine({})[:2]] == [Level.OK, Level.OK]


def test_the_interpreter_of_the_installed_script_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    absent = plugin.check_interpreter()
    assert absent.level is Level.NOTE
    assert "no `lagom` script" in absent.text
    script = tmp_path / "lagom"
    script.write_text("#!/gone/python\n")
    script.chmod(0o755)
    gone = plugin.check_interpreter()
    assert gone.level is Level.NOTE
    assert "it cannot be run: /gone/python" in gone.text
    script.write_text(f"#!{sys.executable}\n")
    found = plugin.check_interpreter()
    assert found.level is Level.OK
    assert found.text.endswith(f"a rank starts the controller with {sys.executable}")
    assert len(plugin.examine({"LAGOM_PYTHON": sys.executable})) < len(plugin.examine({}))
