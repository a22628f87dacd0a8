# SPDX-License-Identifier: Apache-2.0
"""The last line of the doctor: one sentence for every outcome, and the exit code that goes with it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lagom.cli.main import app
from lagom.doctor import Finding, Level, libraries, memory, plugin
from lagom.doctor.machine_verdict import MachineVerdict, Obstacle, Reach, judge

RUNNER = CliRunner()


def verdict(
    nccl: int, *, plugin_loads: bool = True, found: bool = True, gpu: str = "H100", problems: int = 0
) -> MachineVerdict:
    return judge(plugin_loads=plugin_loads, nccl_found=found, nccl=nccl, gpu=gpu, problems=problems)


@pytest.mark.parametrize(
    ("judged", "obstacle", "sentence"),
    [
        (verdict(0, found=False), Obstacle.NO_NCCL, "no NCCL found"),
        (verdict(0), Obstacle.BROKEN_NCCL, "the NCCL found does not load or does not say its version"),
        (
            verdict(22005),
            Obstacle.OLD_NCCL,
            "NCCL 2.20.5 does not load lagom's tuner plugin (2.21 or later is needed)",
        ),
        (verdict(22809, plugin_loads=False), Obstacle.PLUGIN, "lagom's own libraries do not load"),
    ],
)
def test_nothing_can_be_tuned(judged: MachineVerdict, obstacle: Obstacle, sentence: str) -> None:
    assert (judged.reach, judged.obstacle, judged.exit_code) == (Reach.NOTHING, obstacle, 1)
    assert judged.sentence == f"nothing can be tuned here: {sentence}"


@pytest.mark.parametrize(
    ("nccl", "reach", "sentence"),
    [
        (
            22403,
            Reach.SIZE_RULES,
            "only replay of size rules: NCCL 2.24.3 cannot be tuned while the job runs (2.27 or later is needed)",
        ),
        (
            22705,
            Reach.TUNE,
            "this machine can be tuned: NCCL 2.27.5, while the job runs, with both plugin variables, which `lagom run` "
            "and `lagom env` set (algorithm, protocol, channels)",
        ),
        (
            22809,
            Reach.TUNE,
            "this machine can be tuned: NCCL 2.28.9, while the job runs (algorithm, protocol, channels)",
        ),
        (
            23007,
            Reach.TUNE,
            "this machine can be tuned: NCCL 2.30.7, while the job runs (algorithm, protocol, channels, chunk)",
        ),
    ],
)
def test_something_can_be_done(nccl: int, reach: Reach, sentence: str) -> None:
    assert (verdict(nccl).reach, verdict(nccl).exit_code) == (reach, 0)
    assert verdict(nccl).sentence == sentence
    without_gpu = verdict(nccl, gpu="")
    assert without_gpu.exit_code == 0, "a login node has no GPU, and its jobs run elsewhere"
    assert without_gpu.sentence.startswith(f"{sentence}; no GPU is visible on this machine")


def test_problems_come_first() -> None:
    assert verdict(22809, problems=1).sentence.endswith("; 1 problem above must be solved first")
    assert verdict(22809, problems=2).sentence.endswith("; 2 problems above must be solved first")
    assert verdict(22809, problems=1).exit_code == 1


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, shm: Path) -> pytest.MonkeyPatch:
    """Findings and NCCL of this machine shall not matter."""
    ok = [Finding(Level.OK, "test", "fine")]
    monkeypatch.setattr(memory, "examine", lambda *_, **__: ok)
    monkeypatch.setattr(plugin, "examine", lambda *_: ok)
    monkeypatch.setattr("lagom.environment.find_gpu", lambda: "")
    for name in ("LAGOM_STRATGY", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN"):
        monkeypatch.delenv(name, raising=False)
    return monkeypatch


def with_nccl(machine: pytest.MonkeyPatch, version: tuple[int, int, int] | None) -> None:
    candidates = [libraries.Candidate(Path("/nowhere/libnccl.so.2"), "test")] if version else []
    machine.setattr(libraries, "find_installed", lambda *_: libraries.Installed(None, [], candidates, version))


def test_the_verdict_is_the_last_line_and_its_exit_code_the_doctors(machine: pytest.MonkeyPatch) -> None:
    with_nccl(machine, None)
    done = RUNNER.invoke(app, ["doctor"])
    assert (done.exit_code, done.output.splitlines()[-1]) == (1, "nothing can be tuned here: no NCCL found")
    with_nccl(machine, (2, 28, 9))
    done = RUNNER.invoke(app, ["doctor"])
    assert done.exit_code == 0
    assert done.output.splitlines()[-1].startswith("this machine can be tuned: NCCL 2.28.9, while the job runs (")


def test_a_misspelt_variable_is_a_problem_that_the_verdict_counts(machine: pytest.MonkeyPatch) -> None:
    with_nccl(machine, (2, 28, 9))
    machine.setenv("LAGOM_STRATGY", "guided")
    done = RUNNER.invoke(app, ["doctor"])
    assert done.exit_code == 1
    assert "LAGOM_STRATGY is not a variable of lagom; did you mean LAGOM_STRATEGY?" in done.output
    assert done.output.splitlines()[-1].endswith("1 problem above must be solved first")


def test_the_verdict_in_json(machine: pytest.MonkeyPatch) -> None:
    with_nccl(machine, (2, 24, 3))
    done = RUNNER.invoke(app, ["doctor", "--json"])
    found = json.loads(done.output)["verdict"]
    text = found.pop("text")
    assert found == {"reach": "size rules", "obstacle": "", "nccl": "2.24.3", "gpu": ""}
    assert text.startswith("only replay of size rules: NCCL 2.24.3 ")
