# SPDX-License-Identifier: Apache-2.0
"""What `lagom run` says of its job, in each of the cases that a user must tell apart: what is planned, what is in force
or refused, how it ended, and the next command. `python -m tests.system.test_first_contact` prints the transcripts."""

from __future__ import annotations

import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from lagom import journal, read_run
from lagom.wire.library import plugin_path
from tests.system.launched import JOB, UNHURRIED_JOB, bare_environment, launch

HEAD = "lagom-config 1\nfingerprint ranks {ranks}\ncommunicator ranks=2 nodes=1 ordinal=0\n"
RULE, PROGRAM = "rule allgather 1M - nc=4\nend\n", "site 0 allgather 123M nc=2\nprogram 3x0\nend\n"


@dataclass(frozen=True)
class Case:
    """Options and job, what ends it, and what the lines must hold, in order."""

    options: tuple[str, ...]
    lines: tuple[str, ...]
    config: str = ""
    until: type | None = None
    job: tuple[str, ...] = JOB
    ending: int = signal.SIGTERM


SHORT = (*JOB, "--iterations", "40")
CASES = {
    "tuning": Case(
        ("--search-seconds", "2"),
        (
            "plan: tune while it runs; strategy auto, limit 2 s; log log",
            "in force: NCCL's choice on 2 ranks; searching 6 sites of default_pg",
            "in force: ",
            "ended: exit 0 after",
            "next: lagom r",
        ),
        until=journal.Outcome,
    ),
    "saved config in force": Case(
        ("--config", "config.lagom"),
        (
            "plan: replay saved config config.lagom, no search; log log",
            "in force: saved config (1 site or rule) on 2 ranks of default_pg from call ",
            "; saved config was in force on 2 ranks",
            "next: lagom bench --arms replay=config.lagom -- CMD",
        ),
        HEAD.format(ranks=2) + RULE,
        journal.PlanCommitted,
    ),
    "saved config refused": Case(
        ("--config", "config.lagom"),
        (
            "plan: replay saved config config.lagom, no search; log log",
            "not in force: saved config refused: made for 16 ranks, this job has 2; NCCL chooses",
            "; saved config refused: made for 16 ranks, this job has 2",
            "next: lagom run --mode tune -- CMD",
        ),
        HEAD.format(ranks=16) + RULE,
        journal.Passthrough,
    ),
    "saved config of another program": Case(
        ("--config", "config.lagom"),
        (
            "plan: replay saved config config.lagom, no search; log log",
            "not in force: saved config of another program: no iteration of its 3 calls in ",
            "; saved config of another program was not in force; NCCL chooses",
            "next: lagom run --mode tune -- CMD",
        ),
        HEAD.format(ranks=2) + PROGRAM,
        journal.Passthrough,
    ),
    "pinned by --set": Case(
        ("--set", "allgather:>=1M:nc=4"),
        (
            "plan: pin 1 rule of --set, no search; log log",
            "in force: 1 rule on 2 ranks of default_pg from call ",
            "; 1 pinned rule in force on 2 ranks",
            "next: lagom run --compare 'allgather:>=1M:nc=4' -- CMD",
        ),
        until=journal.PlanCommitted,
    ),
    "off": Case(
        ("--mode", "off"),
        (
            "plan: off: the plugin does nothing; NCCL chooses",
            "; off: NCCL chooses",
            "next: lagom run --mode tune -- CMD",
        ),
        job=SHORT,
    ),
    "nothing to tune": Case(
        (),
        (
            "plan: tune while it runs; strategy auto, no time limit; log log",
            "; nothing to tune: no NCCL communicator of 2 or more ranks was seen",
            "next: lagom doctor",
        ),
        until=journal.JobStart,  # a busy machine may take longer for the controller than a short job lasts
        job=("sleep", "1000"),
    ),
    "stopped early": Case(
        (),
        (
            "plan: tune while it runs; strategy auto, no time limit; log log",
            "in force: NCCL's choice on 2 ranks; searching 6 sites of default_pg",
            "; stopped before its proof: ",
            "next: lagom report log",
        ),
        until=journal.Move,
        job=UNHURRIED_JOB,
        ending=signal.SIGINT,
    ),
}
NEITHER = ("off", "nothing to tune")


def transcript(case: Case, place: Path) -> list[str]:
    """What `lagom run` printed of itself."""
    (place / "config.lagom").write_text(case.config)
    _, done = launch(place, *case.options, until=case.until, job=case.job, ending=case.ending)
    return [line for line in done.stderr.splitlines() if line.startswith("lagom")]


@pytest.mark.parametrize("name", CASES)
def test_the_lines_say_what_is_planned_in_force_and_next(name: str, tmp_path: Path) -> None:
    said = transcript(CASES[name], tmp_path)
    assert not any("…" in line for line in said), said
    places = [next((at for at, line in enumerate(said) if part in line), None) for part in CASES[name].lines]
    assert None not in places, (said, CASES[name].lines)
    assert places == sorted(places)  # type: ignore[type-var]
    assert said[0].startswith("lagom: plan: ")
    assert said[-2].startswith("lagom: ended: ")
    assert said[-1].startswith("lagom: next: ")
    in_force = any(line.startswith("lagom: in force: ") for line in said)
    assert in_force != any(line.startswith("lagom: not in force: ") for line in said) or name in NEITHER, said


def test_no_two_cases_can_be_mistaken_for_each_other() -> None:
    """By the lines that the cases must hold: the plan and the end together differ everywhere."""
    ends = {name: (case.lines[0], *case.lines[-2:]) for name, case in CASES.items()}
    assert len(set(ends.values())) == len(CASES)


#: Without `lagom run` the plugin says what is planned, or refused: variables, and its lines in order.
ALONE = {
    "tuning": ({}, ("plan: tune while it runs; log ", "ended; log ")),
    "pinned": (
        {"LAGOM_SET": "allgather:>=1M:nc=4"},
        ("plan: pin the rules of LAGOM_SET, no search; log ", "ended; log "),
    ),
    "in force": ({"LAGOM_CONFIG": "fits"}, ("plan: replay saved config fits, no search; in force once every rank",)),
    "refused": ({"LAGOM_CONFIG": "not"}, ("saved config refused: made for 16 ranks, this job has 2; NCCL chooses",)),
    "no file": ({"LAGOM_CONFIG": "gone"}, ("saved config refused: the saved config gone is not a readable file",)),
    "off": ({"LAGOM_MODE": "off"}, ()),
}


@pytest.mark.parametrize("name", ALONE)
def test_with_variables_alone_the_plugin_says_it(name: str, tmp_path: Path) -> None:
    variables, lines = ALONE[name]
    (tmp_path / "fits").write_text(HEAD.format(ranks=2) + RULE)
    (tmp_path / "not").write_text(HEAD.format(ranks=16) + RULE)
    (tmp_path / "shm").mkdir()
    ours = {"LAGOM_SHM_DIR": str(tmp_path / "shm"), "LAGOM_CLOCK": "simulated", "LAGOM_JOB_ID": "alone"}
    plugin = {"NCCL_TUNER_PLUGIN": str(plugin_path()), "LAGOM_PYTHON": sys.executable}
    done = subprocess.run(
        SHORT,
        cwd=tmp_path,
        env=bare_environment() | ours | plugin | variables,
        capture_output=True,
        text=True,
        check=True,
    )
    said = [line.removeprefix("lagom: ") for line in done.stderr.splitlines() if line.startswith("lagom")]
    assert len(said) == len(lines), said
    assert all(line.startswith(part) for line, part in zip(said, lines, strict=True)), said


if __name__ == "__main__":
    for name in sys.argv[1:] or CASES:
        with tempfile.TemporaryDirectory() as folder:
            print(f"--- {name}", *transcript(CASES[name], Path(folder)), sep="\n")


def test_a_job_that_is_off_has_that_verdict(tmp_path: Path) -> None:
    launch(tmp_path, "--mode", "off", job=SHORT)
    assert read_run(tmp_path / "log").verdict == "off"
