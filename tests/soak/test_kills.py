# SPDX-License-Identifier: Apache-2.0
"""Controllers killed in the middle of what they do; ``python -m tests.soak.kills`` kills ten thousand."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.soak.kills import run
from tests.system.storm import site_of_its_own
from tests.tiers import amount

KILLS = amount(40, 100)


@pytest.mark.slow
def test_killed_controllers_leave_the_ranks_agreed_and_going(tmp_path: Path) -> None:
    """In a process of its own: pytest's has threads, and what forks here must have none."""
    line = [sys.executable, "-m", "tests.soak.test_kills", str(tmp_path)]
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


if __name__ == "__main__":
    with site_of_its_own() as site:
        report, faults = run(KILLS, 7, site, Path(sys.argv[1]))
    print(report, *faults, sep="\n")
    sys.exit(bool(faults) or report["kills"] < KILLS or not report["log"]["offers_still_open_at_death"])
