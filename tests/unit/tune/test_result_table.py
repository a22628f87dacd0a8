# SPDX-License-Identifier: Apache-2.0
"""The table of `lagom tune` fits a narrow terminal, with every name, variable and interval whole."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lagom.start import StartGroup
from lagom.tune import TunePlan
from lagom.tune.result_table import table_of
from tests.unit.tune.simulated import constant, search

SETTINGS = {"NCCL_SOCKET_NTHREADS": "4", "NCCL_NSOCKS_PERTHREAD": "4", "NCCL_MIN_NCHANNELS": "16"}


@pytest.mark.parametrize("width", [60, 80])
def test_names_variables_and_intervals_are_whole(width: int) -> None:
    plan = TunePlan((StartGroup("4x4 sockets, 16 channels", SETTINGS),))
    tried = search(plan, constant({"4x4 sockets, 16 channels": 0.5}))
    console = Console(file=io.StringIO(), width=width)
    console.print(table_of(plan, tried, "the job's own metric"))
    assert isinstance(console.file, io.StringIO)
    lines = console.file.getvalue().splitlines()
    assert all(len(line) <= width for line in lines)
    row = next(number for number, line in enumerate(lines) if "4x4 sockets, 16 channels" in line)
    assert "2.00x" in lines[row]
    assert [line.strip() for line in lines[row + 1 : row + 4]] == [
        f"{name}={value}" for name, value in SETTINGS.items()
    ]
