# SPDX-License-Identifier: Apache-2.0
"""The folder of a record: one process at a time writes it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lagom.bench.results_folder import claim
from lagom.bench.store import BadBench

HOLDER = """
import sys
from pathlib import Path
from lagom.bench.results_folder import claim
claim(Path(sys.argv[1]))
print("claimed", flush=True)
sys.stdin.read()
"""


def test_a_folder_that_another_process_measures_in_is_refused_until_that_one_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    line = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "claimed\n"
        with pytest.raises(BadBench, match=r"another lagom measures in .*out; wait for it, or name another"):
            claim(folder)
    claim(folder)
