# SPDX-License-Identifier: Apache-2.0
"""Which tests run in one worker of pytest-xdist, so that a fixture that is a whole run is made once.

Not by the mark `xdist_group` and `--dist loadgroup`: with pytest 9.2 xdist 3.8 leaves the group out without a word
(https://github.com/pytest-dev/pytest-xdist/issues/1386), and each worker made its own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdist.scheduler import LoadScopeScheduling

ROOT = Path(__file__).parents[1]
#: Modules, by the name of what their tests share.
SHARED = {
    "tests/contract/test_one_worker.py": "one_worker",
    "tests/contract/test_packaging.py": "packaging",
    "tests/contract/test_readme_commands.py": "readme_commands",
    "tests/examples/test_examples.py": "torch",  # compiled once, with the benchmarks' jobs
    "tests/system/test_end_to_end.py": "end_to_end",
    "tests/unit/benchmarks/test_jobs.py": "torch",
    "tests/unit/parallel/test_ranks.py": "parallel",
    "tests/unit/parallel/test_strands.py": "parallel",
    "tests/unit/parallel/test_styles.py": "parallel",
    "tests/unit/report/test_profile_report.py": "profile_report",
}


class OneWorker(LoadScopeScheduling):
    """Sends a worker all tests of an entry of ``SHARED``, and each other test by itself."""

    def _split_scope(self, nodeid: str) -> str:
        return SHARED.get(nodeid.partition("::")[0], nodeid)


class Distribution:
    """A pytest plugin, where xdist is installed."""

    def pytest_xdist_make_scheduler(self, config: pytest.Config, log: Any) -> OneWorker:
        return OneWorker(config, log)
