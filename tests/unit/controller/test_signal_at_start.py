# SPDX-License-Identifier: Apache-2.0
"""A controller that is told to end while it makes the job's shared memory leaves nothing behind.

In a process of its own: where nothing handles the signal, it ends whoever runs the controller."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lagom import journal

#: The signal comes before or after the region is made, and before anything could handle it.
JOB = """
import os, signal, sys
from lagom.controller import __main__ as controller
from lagom.wire.region import Region

make, when = Region.create, sys.argv.pop(1)

def create(*given, **options):
    if when == "before":
        os.kill(os.getpid(), signal.SIGTERM)
    region = make(*given, **options)
    if when == "after":
        os.kill(os.getpid(), signal.SIGTERM)
    return region

Region.create = create
sys.exit(controller.main(sys.argv[1:]))
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_signal_while_the_region_is_made_leaves_nothing_behind(tmp_path: Path, when: str) -> None:
    shm = tmp_path / "shm"
    shm.mkdir()
    arguments = ["--job-key", "signal at start", "--dir", str(tmp_path / "log")]
    done = subprocess.run(
        [sys.executable, "-c", JOB, when, *arguments],
        env={**os.environ, "LAGOM_SHM_DIR": str(shm)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(shm.iterdir()) == []
    *_, end = journal.read(tmp_path / "log" / journal.LOG_NAME)
    assert (end.kind, end.reason) == ("job_end", "stopped by SIGTERM")
