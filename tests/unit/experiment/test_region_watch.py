# SPDX-License-Identifier: Apache-2.0
"""Whether shared memory was made, though it is gone again when we ask."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from lagom.experiment.region_watch import RegionWatch


def test_a_file_that_came_and_went_is_known(tmp_path: Path) -> None:
    watch = RegionWatch(tmp_path / "lagom-0-1")
    (tmp_path / "other").touch()
    (tmp_path / "temporary").touch()
    (tmp_path / "temporary").rename(tmp_path / "lagom-0-1")
    (tmp_path / "lagom-0-1").unlink()
    assert watch.was_made() is True


def test_other_files_are_not_it(tmp_path: Path) -> None:
    watch = RegionWatch(tmp_path / "lagom-0-1")
    (tmp_path / "something-else").touch()
    assert watch.was_made() is False


def test_waiting_ends_when_a_region_appears_and_its_name_is_still_known(tmp_path: Path) -> None:
    name = f"lagom-{os.getuid()}-1"
    watch = RegionWatch(tmp_path / name)
    (tmp_path / "something-else").touch()
    (tmp_path / f"{name}.tmp.0123456789abcdef").touch()
    assert watch.wait(0.01) is False
    (tmp_path / name).touch()
    assert watch.wait(3600.0) is True
    assert watch.wait(0.01) is False, "it was told"
    assert watch.was_made() is True


def test_of_other_files_nothing_is_kept(tmp_path: Path) -> None:
    """A job may make thousands a second in this folder, for hours."""
    watch = RegionWatch(tmp_path / "lagom-0-1")

    def held() -> int:
        """Bytes of what the watch has."""
        return sum(map(sys.getsizeof, vars(watch).values()))

    before = held()
    for number in range(1000):
        file = tmp_path / f"data-{number:0200d}"  # the same name again would be no new event
        file.touch()
        file.unlink()
    watch.wait(0.001)
    assert held() == before, "1,000 events have 230 kB"


def test_where_the_folder_cannot_be_watched_the_time_is_waited(tmp_path: Path) -> None:
    before = time.monotonic()
    assert RegionWatch(tmp_path / "gone" / "lagom-0-1").wait(0.05) is False
    assert time.monotonic() - before >= 0.05


def test_of_a_region_of_another_name_nobody_can_tell_whose_it_is(tmp_path: Path) -> None:
    """Another job's; or this one's, whose ranks were given a NCCL_HOSTID each."""
    watch = RegionWatch(tmp_path / "lagom-0-1")
    (tmp_path / f"lagom-{os.getuid()}-11").touch()
    assert watch.was_made() is None


def test_where_the_folder_cannot_be_watched_nothing_is_claimed(tmp_path: Path) -> None:
    assert RegionWatch(tmp_path / "gone" / "lagom-0-1").was_made() is None


def test_a_region_that_is_known_to_be_another_jobs_is_not_it(tmp_path: Path) -> None:
    watch, other = RegionWatch(tmp_path / "lagom-0-1"), f"lagom-{os.getuid()}-11"
    (tmp_path / other).touch()
    assert watch.was_made({other}) is False
