# SPDX-License-Identifier: Apache-2.0
"""The table of `lagom tune` fits a narrow terminal, with every name, variable and interval whole."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from lagom.start import StartGroup
from lagom.tune import TunePlan, find_result
from lagom.tune.result_table import table_of
from tests.unit.tune.simulated import constant, group, noisy, search

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
    below = ["runs of confirm", *(f"{name}={value}" for name, value in SETTINGS.items())]
    assert [line.strip() for line in lines[row + 1 : row + 5]] == below


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5])
def test_the_table_gives_the_winner_the_interval_of_the_verdict_and_says_which_runs_decide(seed: int) -> None:
    """The best of four equal groups looks faster in the processes that chose it than in those that confirm it."""
    plan = TunePlan(tuple(group(name) for name in "abcd"))
    tried = search(plan, noisy(lambda _: 1.0, 0.05, seed))
    result = find_result(plan, tried)
    console = Console(file=io.StringIO(), width=100)
    console.print(table_of(plan, tried, "the job's own metric"))
    assert isinstance(console.file, io.StringIO)
    lines = [line.split() for line in console.file.getvalue().splitlines()]
    assert result.group is not None
    assert result.speedup is not None
    row = next(number for number, words in enumerate(lines) if words[:1] == [result.group.name])
    assert " ".join(lines[row]).endswith(result.speedup.text)
    assert lines[row][1] == str(result.speedup.count[1])
    assert lines[row + 1] == ["runs", "of", "confirm"]
