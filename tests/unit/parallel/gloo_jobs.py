# SPDX-License-Identifier: Apache-2.0
"""Runs the cases of a gloo job (gloo_cases.py) on four ranks."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from tests import torch_jobs

Outcomes = dict[str, list[str]]


def names_in(job: str) -> list[str]:
    """Of the cases in a module of this folder."""
    return re.findall(r"^@case\ndef (\w+)", _file(job).read_text(), re.MULTILINE)


def outcomes_of(job: str, folder: Path, **given: str) -> Outcomes:
    """By case, what went wrong on each rank. ``given``: variables of the job."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith("LAGOM_")}
    environ = {**clean, "LAGOM_CACHE": "off", "FOLDER": str(folder), **given}
    started = torch_jobs.Job(job, [str(_file(job))], str(folder / "output"), ranks=4)
    compiles = ".compile(" in _file(job).read_text()
    done = torch_jobs.run([started], folder, environ, imports=torch_jobs.COMPILER if compiles else ())[job]
    lines = [json.loads(line) for line in done.said.splitlines() if line.startswith('{"case"')]
    assert lines, done.said[-3000:]
    return {line["case"]: line["wrong"] for line in lines}


def check_case(outcomes: Outcomes, name: str) -> None:
    """Fail with what every rank raised."""
    assert name in outcomes, f"another case ended the job: {[one for one, wrong in outcomes.items() if any(wrong)]}"
    assert outcomes[name] == [""] * 4, "\n".join(outcomes[name])


def _file(job: str) -> Path:
    return Path(__file__).with_name(f"{job}_job.py")
