# SPDX-License-Identifier: Apache-2.0
"""What `lagom tune` makes of its options, without starting a process."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from lagom.cli import tune
from lagom.cli.main import app
from lagom.cli.measured_job import check_job
from lagom.cli.tune_nodes import facts_of_search
from lagom.errors import UsageError
from lagom.experiment import process
from lagom.experiment.request import Request
from lagom.experiment.store import BadRecord, ExperimentRecord, Store
from lagom.tune import TuneRecord, TuneResult


def test_every_option_reaches_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request] = []
    monkeypatch.setattr(process, "leave_in_order", lambda: None)  # signal handlers of the whole process
    monkeypatch.setattr(tune, "_tune", lambda request, *rest, **more: seen.append(request))
    options = ["--budget", "2m", "--run-limit", "77", "--samples", "5", "--metric", "step (.+)", "--higher-is-better"]
    done = CliRunner().invoke(app, ["tune", *options, "--seed", "3", "--out", str(tmp_path / "out"), "--", "true", "x"])
    assert done.exception is None, done.output
    (request,) = seen
    assert (request.run_limit, request.budget, request.samples, request.seed) == (77.0, 120.0, 5, 3)
    assert (request.command, request.metric, request.higher_is_better) == (("true", "x"), "step (.+)", True)
    assert request.folder == tmp_path / "out"


@pytest.mark.parametrize("is_search", [True, False])
def test_fresh_deletes_what_the_earlier_search_found_and_no_config_of_a_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_search: bool
) -> None:
    monkeypatch.setattr(process, "leave_in_order", lambda: None)  # signal handlers of the whole process
    monkeypatch.setattr(tune, "_tune", lambda *given: None)
    record = TuneRecord(command=["true"]) if is_search else ExperimentRecord(command=["true"], schedule="bench")
    (tmp_path / "bench.json").write_text(record.model_dump_json())
    found = [tmp_path / "config.lagom", tmp_path / "nccl.conf"]
    for path in found:
        path.write_text("found earlier")
    done = CliRunner().invoke(app, ["tune", "--out", str(tmp_path), "--fresh", "--", "true"])
    assert [path.exists() for path in found] == [not is_search] * 2
    if is_search:
        assert done.exception is None, done.output
    else:  # nor is it written over
        assert isinstance(done.exception, BadRecord)
        assert f"{found[0]} is of no search of lagom tune in this folder" in str(done.exception)


def test_a_search_that_goes_on_says_what_a_shorter_one_found(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    request = Request(("true",), tmp_path)
    store = Store(request, TuneRecord)
    assert tune._write(request, store, TuneResult("unfinished")) is None
    assert "shorter search" not in capfd.readouterr().err
    (tmp_path / "config.lagom").touch()
    assert tune._write(request, store, TuneResult("unfinished")) is None
    said = " ".join(capfd.readouterr().err.split())
    assert "is what a shorter search here found; it stays, and the next start may use it" in said


@pytest.mark.parametrize("command", ["tune", "bench"])
@pytest.mark.parametrize(
    ("job", "environ", "why"),
    [
        (["--nnodes", "2", "t.py"], {}, "torchrun --nnodes 2 starts the ranks of one node of 2"),
        (["t.py"], {"PET_NNODES": "2"}, "torchrun with PET_NNODES=2 starts the ranks of one node of 2"),
        (["t.py"], {"WORLD_SIZE": "16", "LOCAL_RANK": "0"}, "starts one process for each rank"),
    ],
)
def test_a_command_that_starts_some_ranks_only_is_refused_before_anything_starts(
    command: str, job: list[str], environ: dict[str, str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchrun = script(tmp_path / "torchrun", "touch started")
    done = invoke_in(tmp_path, monkeypatch, [command, "--", str(torchrun), *job], environ)
    assert isinstance(done.exception, UsageError)
    assert why in str(done.exception)
    assert "give one command that starts the ranks of all nodes (srun, mpirun)" in str(done.exception)
    assert [path.name for path in tmp_path.iterdir()] == ["torchrun"]


@pytest.mark.parametrize("command", ["tune", "run"])
@pytest.mark.parametrize(
    ("nnodes", "job", "why"),
    [
        ("2", ["t.py"], "torchrun without --nnodes starts all ranks of a job on one node"),
        ("3", ["--nnodes", "2", "t.py"], "torchrun --nnodes 2 starts the ranks of one node of 2"),
    ],
)
def test_a_command_of_another_number_of_nodes_is_refused_before_anything_starts(
    command: str, nnodes: str, job: list[str], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torchrun = script(tmp_path / "torchrun", "touch started")
    done = invoke_in(tmp_path, monkeypatch, [command, "--nnodes", nnodes, "--", str(torchrun), *job], {})
    assert str(done.exception) == f"{why}, and --nnodes {nnodes} is another number; make both the same."
    assert [path.name for path in tmp_path.iterdir()] == ["torchrun"]


@pytest.mark.parametrize(("nodes", "warned"), [("1:4", True), ("1", False)])
def test_where_it_is_not_clear_whether_there_are_more_nodes_it_is_said(
    nodes: str, warned: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(process, "leave_in_order", lambda: None)
    monkeypatch.setattr(tune, "_tune", lambda request, *rest, **more: None)
    torchrun = script(tmp_path / "torchrun", "true")
    done = invoke_in(tmp_path, monkeypatch, ["tune", "--", str(torchrun), f"--nnodes={nodes}", "t.py"], {})
    assert done.exception is None, done.output
    assert ("does not say whether there is one node" in " ".join(done.output.split())) is warned


DOCKER = "docker does not pass this environment, only what is asked for by -e or --env or --env-file"
SUDO = "sudo does not pass this environment, only what is asked for by -E or --preserve-env"


@pytest.mark.parametrize("nnodes", [1, 2])
@pytest.mark.parametrize(
    ("command", "lost"),
    [
        ("docker run img {torchrun}", DOCKER),
        ("docker run --gpus all -e NCCL_TUNER_PLUGIN -e NCCL_SOCKET_NTHREADS img {torchrun}", DOCKER),
        ("docker run --env-file variables img {torchrun}", DOCKER),
        ("docker run img bash -c '{torchrun}'", DOCKER),
        ("docker exec ctr {torchrun}", DOCKER),
        ("docker run -e NCCL_SOCKET_NTHREADS img ./job.sh", DOCKER),
        ("podman run img {torchrun}", DOCKER.replace("docker", "podman").replace("by -e", "by --env-host or -e")),
        ("podman run --env-host img {torchrun}", ""),
        ("kubectl exec pod -- {torchrun}", "kubectl does not pass this environment"),
        ("ssh host {torchrun}", "ssh does not pass this environment"),
        ("sudo {torchrun}", SUDO),
        ("sudo --preserve-env=NCCL_TUNER_PLUGIN {torchrun}", SUDO),
        ("sudo -E {torchrun}", ""),
        ("env -i {torchrun}", "env -i does not pass this environment"),
        ("singularity exec --nv img {torchrun}", ""),
    ],
)
def test_a_command_that_loses_the_environment_is_told_so_on_one_node_and_on_several(
    command: str, lost: str, nnodes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    said: list[str] = []
    check_job(shlex.split(command.format(torchrun=f"torchrun --nnodes {nnodes} t.py")), "", said.append, nnodes)
    what_to_do = "start lagom behind it, or have it pass every variable that is tried: the ranks run without the others"
    assert said == ([f"warning: {lost}; {what_to_do}."] if lost else [])


@pytest.mark.parametrize("command", ["srun -N2 python t.py", "mpirun -H a,b python t.py", "sudo mpirun -H a,b ./train"])
def test_a_command_that_starts_all_nodes_is_refused_on_each(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.which", lambda name: name)
    with pytest.raises(
        UsageError, match=r"may start ranks .*: it is started once, for all nodes; leave --nnodes out\.$"
    ):
        check_job(shlex.split(command), "", lambda text: None, 2)


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def invoke_in(folder: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], environ: dict[str, str]) -> Result:
    monkeypatch.chdir(folder)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return CliRunner().invoke(app, words)


def test_nodes_that_measure_otherwise_do_not_agree(tmp_path: Path) -> None:
    request = Request(command=("train",), folder=tmp_path, metric="a: (.*)", nnodes=2)
    others = [replace(request, metric="b: (.*)"), replace(request, higher_is_better=True), replace(request, samples=7)]
    digests = [facts_of_search(one, "", fresh=False).command for one in (request, *others)]
    digests += [
        facts_of_search(request, "sockets", fresh=False).command,
        facts_of_search(request, "", fresh=True).command,
    ]
    assert len(set(digests)) == len(digests)
    assert facts_of_search(replace(request, folder=tmp_path / "other"), "", fresh=False).command == digests[0]
