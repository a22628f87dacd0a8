# SPDX-License-Identifier: Apache-2.0
"""``lagom.read_run``: the log of a tuned job as values."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lagom
from lagom import journal
from lagom.errors import JournalError
from tests.unit.report.test_run_text import ONE_UP, events


def write(folder: Path, told: list[journal.Base]) -> Path:
    with journal.Journal(folder) as log:
        for event in told:
            log.write(event)
    return folder


def test_a_run_has_its_verdict_sites_and_moves(tmp_path: Path) -> None:
    run = lagom.read_run(write(tmp_path, events()))
    assert (run.verdict, run.speedup, run.speedup_low, run.speedup_high) == ("improved", 1.05, 1.04, 1.06)
    assert [comm.name for comm in run.communicators] == ["fsdp", "wide"]
    assert [site.ours for site in run.sites] == list(ONE_UP.configs)
    assert run.sites[0].evidence
    assert [move.number for move in run.moves] == [1, 2, 3, 4, 5, 6, 7]
    assert run.log.parent == tmp_path
    assert lagom.read_run(str(run.log)).log == run.log
    first, *others = repr(run).splitlines()
    assert first == f"Run('{run.log}', improved, 1.050x plain NCCL [1.040, 1.060], 7 moves)"
    assert [line.partition(":")[0] for line in others] == ["  fsdp", "  wide"]


@pytest.mark.parametrize(
    ("kept", "verdict"),
    [
        (lambda event: not isinstance(event, journal.Outcome | journal.JobEnd), "running"),
        (lambda event: not isinstance(event, journal.Outcome), "stopped"),
        (lambda event: event.t < 0, "not_tuned"),
    ],
)
def test_a_search_without_an_end_is_running_and_none_is_not_tuned(
    tmp_path: Path, kept: Callable[[Any], bool], verdict: str
) -> None:
    start, *others = events()
    run = lagom.read_run(write(tmp_path, [start, *filter(kept, others)]))
    assert run.verdict == verdict
    assert run.speedup is None


def test_one_communicator_that_gained_makes_the_verdict(tmp_path: Path) -> None:
    other = [
        journal.Communicator(communicator=2, comm_id="9", name="tp", ranks=2, nodes=1),
        journal.Outcome(communicator=2, verdict="stock_is_best", reason="nothing was faster"),
    ]
    assert lagom.read_run(write(tmp_path, [*events()[:-1], *other, events()[-1]])).verdict == "improved"


def test_the_repr_of_a_run_has_at_most_twelve_lines(tmp_path: Path) -> None:
    many = [
        journal.Communicator(communicator=number, comm_id=str(number), name=f"pg{number}", ranks=2, nodes=1)
        for number in range(40)
    ]
    run = lagom.read_run(write(tmp_path, [journal.JobStart(job="llama", mode="tune"), *many]))
    lines = repr(run).splitlines()
    assert len(lines) == 12
    assert lines[-1] == "  and 30 communicators more"


@pytest.mark.parametrize("best_first", [True, False])
def test_of_two_communicators_that_gained_the_larger_gain_is_the_runs(best_first: bool, tmp_path: Path) -> None:
    gains = [(1.2, 1.19, 1.21), (1.05, 1.04, 1.06)]
    told: list[journal.Base] = [journal.JobStart(job="llama", mode="tune")]
    for number, (gain, low, high) in enumerate(gains if best_first else reversed(gains)):
        told += [
            journal.Communicator(communicator=number, comm_id=str(number), name=f"pg{number}", ranks=8, nodes=1),
            journal.Outcome(
                communicator=number, verdict="improved", reason="", speedup=gain, speedup_low=low, speedup_high=high
            ),
        ]
    run = lagom.read_run(write(tmp_path, [*told, journal.JobEnd(reason="over")]))
    assert (run.verdict, run.speedup, run.speedup_low, run.speedup_high) == ("improved", 1.2, 1.19, 1.21)


def test_a_data_frame_has_a_row_a_site(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    frame = lagom.read_run(write(tmp_path, events())).to_dataframe()
    assert list(frame["function"]) == ["allgather", "reducescatter"]
    assert list(frame["channels"]) == [6, 2]
    assert list(frame["stock_algorithm"]) == ["ring", "ring"]
    assert set(frame["communicator"]) == {"fsdp"}


def test_a_folder_without_a_log_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="there is no log at"):
        lagom.read_run(tmp_path)


def test_everything_public_can_be_had_and_importing_lagom_is_light() -> None:
    for name in lagom.__all__:
        assert getattr(lagom, name) is not None
    code = "import lagom, sys; print(sorted({'numpy', 'scipy', 'pandas', 'pydantic', 'matplotlib'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
