# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of gloo jobs (gloo_cases.py), all of them on ranks forked from one process."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

from tests import torch_jobs
from tests.tiers import amount

#: By case, what went wrong on each rank.
Outcomes = dict[str, list[str]]
#: By job, how many random shapes or models it takes.
SHAPES = {"ranks": amount(32, 200), "strands": amount(6, 200), "styles": 0}
#: By what stands before a case.
RANKS = {"case": 4, "case_of_two": 2}
#: The first one says what is imported with lagom.parallel.
IMPORTS = ("tests.unit.parallel.before_styles", *torch_jobs.COMPILER)


def names_in(job: str) -> list[str]:
    """Of the cases in a module of this folder."""
    return [name for _, name in _marked(job)]


def outcomes_of(names: Sequence[str], folder: Path) -> dict[str, Outcomes]:
    """By job."""
    jobs = {name: [_job(name, mark, folder) for mark in {mark: 0 for mark, _ in _marked(name)}] for name in names}
    done = torch_jobs.run([one for every in jobs.values() for one in every], folder, _clean(), imports=IMPORTS)
    return {
        name: {k: v for job in every for k, v in _said(done[job.name].said).items()} for name, every in jobs.items()
    }


def check_case(outcomes: Outcomes, name: str) -> None:
    """Fail with what every rank raised."""
    assert name in outcomes, f"another case ended the job: {[one for one, wrong in outcomes.items() if any(wrong)]}"
    assert not any(outcomes[name]), "\n".join(outcomes[name])


def _job(name: str, mark: str, folder: Path) -> torch_jobs.Job:
    own = folder / f"{name}_{mark}"
    own.mkdir()
    given = {"LAGOM_CACHE": "off", "FOLDER": str(own), "SHAPES": str(SHAPES[name])}
    environ = {**_clean(), **torch_jobs.QUIET, **given}
    return torch_jobs.Job(own.name, [str(_file(name))], str(own / "output"), RANKS[mark], environ)


def _clean() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("LAGOM_")}


def _said(output: str) -> Outcomes:
    lines = [json.loads(line) for line in output.splitlines() if line.startswith('{"case"')]
    assert lines, output[-3000:]
    return {line["case"]: line["wrong"] for line in lines}


def _marked(job: str) -> list[tuple[str, str]]:
    return re.findall(r"^@(case|case_of_two)\ndef (\w+)", _file(job).read_text(), re.MULTILINE)


def _file(job: str) -> Path:
    return Path(__file__).with_name(f"{job}_job.py")
