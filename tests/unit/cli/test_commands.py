# SPDX-License-Identifier: Apache-2.0
"""The command line as a user meets it: quick help, one sentence an error, exit codes."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import get_type_hints

import pytest
from typer.models import OptionInfo
from typer.testing import CliRunner

from lagom import journal
from lagom.cli import pin
from lagom.cli.main import PANELS, app
from lagom.errors import UsageError
from lagom.experiment.store import FILE
from lagom.journal.log_status import pid_namespace
from lagom.tune.stages import SearchAim, TuneRecord
from tests.forked_commands import lagom
from tests.tiers import FULL

RUNNER = CliRunner()


def lagom_anew(*arguments: str, **options: object) -> subprocess.CompletedProcess[str]:
    """By a Python that has just started."""
    command = [sys.executable, "-m", "lagom", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)  # type: ignore[call-overload,no-any-return]


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A log folder of a running job."""
    with journal.Journal(tmp_path / "lagom-job") as log:
        log.write(journal.JobStart(job="job", mode="tune"))
        log.write(journal.Note(text="hello"))
    return tmp_path / "lagom-job"


def test_help_loads_little() -> None:
    """What a command needs it imports when it runs: `lagom --help` costs the start of typer."""
    script = "import sys, lagom.cli.main; print(*{name.split('.')[0] for name in sys.modules}, len(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    *names, count = done.stdout.split()
    of_commands = {"rich", "typer", "click", "shellingham", "annotated_doc", "typing_extensions", "lagom"}
    of_python = {*sys.stdlib_module_names, *(name for name in names if name.startswith("_"))}
    assert {*names} <= of_commands | of_python
    assert int(count) < 400, "a command file imports much at its top"


def test_an_option_that_is_its_own_metavar_is_named() -> None:
    """typer 0.27.0 takes the metavar for the name: `--mode` with metavar MODE was `--MODE` there."""
    for commands in PANELS.values():
        for name, command in commands.items():
            for option, hint in get_type_hints(command, include_extras=True).items():
                for info in getattr(hint, "__metadata__", ()):
                    if isinstance(info, OptionInfo) and info.metavar == option.upper():
                        named = str(info.default).startswith("--")  # where typer puts it in an Annotated
                        assert named, f"lagom {name}: name --{option} in its typer.Option"


@pytest.mark.parametrize("command", ["run", "env", "doctor", "log", "set", "demo", "profile", "report"])
def test_every_command_explains_itself(command: str) -> None:
    result = RUNNER.invoke(app, [command, "--help"])
    assert result.exit_code == 0
    assert "Usage: " in result.output


def test_an_error_is_one_sentence_and_exit_code_2(tmp_path: Path) -> None:
    done = lagom("log", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert done.stderr.startswith("lagom: there is no log at ")
    assert done.stderr.count("\n") == 1


def test_log_prints_one_line_an_event(job: Path) -> None:
    done = lagom("log", str(job))
    assert done.returncode == 0
    verdict, blank, *lines = done.stdout.splitlines()
    assert (verdict, blank) == ("Nothing was tuned yet: no communicator of 2 or more ranks was seen.", "")
    assert [line.split(" ", 1)[1] for line in lines] == ["job job starts: mode tune", "hello"]


def test_the_log_of_a_pinned_job_names_the_command_that_measures_its_rules(tmp_path: Path) -> None:
    put = journal.PlanPublished(communicator=0, epoch=1, start_call=9, purpose="pin", rules=("allgather: nc=4",))
    with journal.Journal(tmp_path / "lagom-job") as log:
        log.write(journal.JobStart(job="job", mode="tune", rules=("allgather:>=1M:nc=4", "any:nc=2")))
        log.write(journal.Communicator(communicator=0, comm_id="7", name="fsdp", ranks=8, nodes=1))
        log.write(put)
        log.write(journal.PlanCommitted(communicator=0, epoch=1, start_call=9))
    first, second, *_ = lagom("log", str(tmp_path / "lagom-job")).stdout.splitlines()
    assert first.startswith("Pinned by hand, not compared with plain NCCL")
    assert second == "What it gains: lagom run --compare 'allgather:>=1M:nc=4;any:nc=2' -- CMD"


def test_log_json_is_what_was_recorded(job: Path) -> None:
    lines = lagom("log", str(job), "--json").stdout.splitlines()
    assert [json.loads(line)["event"] for line in lines] == ["job_start", "note"]


def test_log_of_something_else_is_refused(tmp_path: Path) -> None:
    garbage = tmp_path / "garbage"
    garbage.write_text("root:x:0:0\n" * 5)
    done = lagom("log", str(garbage))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is no decision log of lagom" in done.stderr


def test_log_of_a_site_that_is_not_there_names_those_that_are(job: Path) -> None:
    with journal.Journal(job) as log:
        site = journal.SiteRecord(index=0, function="allgather", bytes=416 << 20)
        log.write(journal.Program(communicator=0, period=2, sites=(site,)))
    done = lagom("log", str(job), "--site", "99")
    assert done.returncode == 2
    assert "there is no site '99' in this log; its sites are: 0 (allgather 416M)." in done.stderr
    assert lagom("log", str(job), "--site", "allgather").returncode == 0


def test_demo_refuses_a_file_that_cannot_be_written_before_it_starts() -> None:
    done = lagom("demo", "--json", "/nonexistent/a.json")
    assert (done.returncode, done.stdout) == (2, "")
    assert "/nonexistent/a.json cannot be written" in done.stderr


def test_log_says_how_many_lines_were_torn(job: Path) -> None:
    with (job / "decisions.jsonl").open("a") as file:
        file.write('{"schema": 2, "t"')
    done = lagom("log", str(job))
    assert done.returncode == 0
    assert "1 line(s) could not be read" in done.stderr


def test_log_tells_torn_lines_from_lines_of_something_else(job: Path) -> None:
    with (job / "decisions.jsonl").open("a") as file:
        file.write('{"schema": 2, "t"\n{"schema": 2, "t": 1.0, "event": "note", "text": 5}\nhello\n')
    err = lagom("log", str(job)).stderr
    assert "1 line(s) could not be read (first: line 3): torn by a crash or a full disk." in err
    assert "2 line(s) could not be read (first: line 4): no lines of this log's schema." in err


def test_report_without_a_folder_finds_the_newest_log_or_search(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`lagom tune` is first in the README, and its results are as much to be reported on."""
    monkeypatch.chdir(tmp_path)
    with journal.Journal(tmp_path / "lagom-job") as log:
        log.write(journal.JobStart(job="job", mode="tune"))
    (tmp_path / "lagom-tune").mkdir()
    record = TuneRecord(command=["train"], aim=SearchAim(transport="NET/Socket", groups=[]))
    results = tmp_path / "lagom-tune" / FILE
    results.write_text(record.model_dump_json())
    os.utime(results, (time.time() + 9, time.time() + 9))
    assert "no process was measured" in lagom("report", cwd=tmp_path).stdout
    os.utime(results, (5, 5))
    assert "Nothing was tuned yet" in lagom("report", cwd=tmp_path).stdout


@pytest.mark.parametrize("command", ["log", "report"])
def test_an_empty_log_is_said_to_be_empty(command: str, tmp_path: Path) -> None:
    (tmp_path / "decisions.jsonl").touch()
    done = lagom(command, str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert "decisions.jsonl is empty: no job has written to it yet" in done.stderr


def test_a_job_that_called_no_nccl_and_one_before_it_are_told(job: Path) -> None:
    with journal.Journal(job) as log:
        log.write(journal.JobEnd(reason="over", calls=9))
        log.write(journal.JobStart(job="job", mode="tune"))
        log.write(journal.JobEnd(reason="over", calls=0))
    out = " ".join(lagom("report", str(job)).stdout.split())
    assert "no NCCL communicator of 2 or more ranks was seen." in out
    assert "This log also holds an earlier job, which is not part of this report; `lagom log` prints all of it." in out


def test_log_into_a_closed_pipe_ends_quietly(job: Path) -> None:
    with journal.Journal(job) as log:
        for number in range(3000):
            log.write(journal.Note(text=f"note {number} {'x' * 80}"))  # more than a pipe holds
    done = subprocess.run(f"{sys.executable} -m lagom log {job} | head -1", shell=True, capture_output=True, text=True)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full disk")
@pytest.mark.parametrize(
    "line", ["log JOB", "log JOB --json", "log --schema", "report JOB", "report JOB --json", "doctor",
             "watch --once --prometheus -", "watch --grafana", "watch --once", "env", "--version", "--help",
             "run --help"],
)  # fmt: skip
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_onto_a_full_disk_is_one_sentence(line: str, unbuffered: str, job: Path, tmp_path: Path) -> None:
    arguments = [str(job) if word == "JOB" else word for word in line.split()]
    environ = {**os.environ, "LAGOM_SHM_DIR": str(tmp_path), "PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        if line == "log JOB" or FULL:
            command = [sys.executable, "-m", "lagom", *arguments]
            done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False, env=environ)
        else:
            done = lagom(*arguments, stdout=full, env=environ)
    sentence = "the output could not be written (No space left on device); make room for it, or send it elsewhere."
    assert done.stderr.endswith(f"lagom: {sentence}\n")
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr
    assert done.returncode == 2


def test_log_schema_is_json_schema() -> None:
    assert "oneOf" in json.loads(lagom("log", "--schema").stdout)


@pytest.mark.parametrize("shell", ["sh", "bash", "dash", "zsh"])
@pytest.mark.parametrize("line", ["eval $(cat env)", 'eval "$(cat env)"'])
def test_env_can_be_evaluated_by_a_shell(shell: str, line: str, tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell} here")
    (tmp_path / "env").write_text(RUNNER.invoke(app, ["env"]).output)
    set_here = run_in_shell(shell, f"cd {shlex.quote(str(tmp_path))}\n{line}")
    path = RUNNER.invoke(app, ["env", "--path"]).output.strip()
    assert set_here == {"NCCL_TUNER_PLUGIN": path, "NCCL_PROFILER_PLUGIN": path, "LAGOM_PYTHON": sys.executable}


def run_in_shell(shell: str, script: str) -> dict[str, str]:
    """What a script leaves of the variables that `lagom env` is about."""
    names = ("NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "LAGOM_PYTHON")
    environ = {name: value for name, value in os.environ.items() if name not in names}
    command = [shell, "-c", f"{script}\nenv"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environ)
    lines = (line.partition("=") for line in done.stdout.splitlines())
    return {name: value for name, _, value in lines if name in names}


@pytest.mark.parametrize("line", ["eval $(cat exports)", 'eval "$(cat exports)"'])
def test_env_keeps_a_path_with_a_blank(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = tmp_path / "an $HOME; install" / "it's.so"
    monkeypatch.setattr("lagom.wire.library.plugin_path", lambda: plugin)
    (tmp_path / "exports").write_text(RUNNER.invoke(app, ["env"]).output)
    assert run_in_shell("sh", f"cd '{tmp_path}'\n{line}")["NCCL_TUNER_PLUGIN"] == str(plugin)


@pytest.mark.parametrize("arguments", [(), ("--path",)])
def test_env_prints_one_line_and_writes_no_file(arguments: tuple[str, ...]) -> None:
    folder = Path(lagom("env", "--path").stdout.strip()).parent
    before = {file: file.stat().st_mtime_ns for file in (folder, *folder.iterdir())}
    done = lagom("env", *arguments)
    assert (done.stdout.count("\n"), done.stderr) == (1, "")
    assert {file: file.stat().st_mtime_ns for file in (folder, *folder.iterdir())} == before


def test_watch_prints_a_dashboard_and_one_look_for_prometheus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAGOM_SHM_DIR", str(tmp_path))
    assert json.loads(RUNNER.invoke(app, ["watch", "--grafana"]).output)["title"]
    done = RUNNER.invoke(app, ["watch", "--once", "--prometheus", "-"])
    assert done.exit_code == 0, "also where no job runs"
    assert done.output.startswith("# HELP lagom_look_timestamp_seconds")
    assert "lagom_jobs 0.0" in done.output


def test_set_writes_checked_rules_for_the_controller(job: Path) -> None:
    done = lagom("set", "--dir", str(job), "allgather:>=1M:nc=4,chunk=512K", "any:<=64K:nc=1")
    assert done.returncode == 0, done.stderr
    assert pin.read_pins(job) == ["allgather:>=1M:nc=4,chunk=512K", "any:<=64K:nc=1"]
    assert "allgather:>=1M:nc=4" in lagom("set", "--dir", str(job)).stdout
    assert lagom("set", "--dir", str(job), "--clear").returncode == 0
    assert pin.read_pins(job) == []


def test_set_refuses_a_bad_rule_before_anything_is_changed(job: Path) -> None:
    pin.write_pins(job, ["any:any:nc=2"])
    done = lagom("set", "--dir", str(job), "allgather:>=1M:nc=4", "nonsense")
    assert done.returncode == 2
    assert pin.read_pins(job) == ["any:any:nc=2"]


def test_set_refuses_a_job_that_has_ended(job: Path) -> None:
    with journal.Journal(job) as log:
        log.write(journal.JobEnd(reason="all ranks left"))
    with pytest.raises(UsageError, match="has ended"):
        pin.set_rules(["any:any:nc=2"], job, False)


def dead_job(folder: Path, **more: object) -> Path:
    """The log of a job on this host whose controller is no more."""
    with journal.Journal(folder) as log:
        gone = subprocess.Popen(["true"])
        gone.wait()
        here = {"host": socket.gethostname(), "pid": gone.pid, "pid_namespace": pid_namespace()}
        log.write(journal.JobStart(job="job", mode="tune", **{**here, **more}))
    return folder


def test_set_refuses_a_job_whose_controller_reads_no_pins(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is gone"):
        pin.set_rules(["any:any:nc=2"], dead_job(tmp_path / "lagom-dead"), False)
    with journal.Journal(tmp_path / "lagom-replay") as log:
        log.write(journal.JobStart(job="job", mode="replay"))
    with pytest.raises(UsageError, match="replays a saved config"):
        pin.set_rules(["any:any:nc=2"], tmp_path / "lagom-replay", False)


def test_following_a_log_ends_where_nobody_will_write_its_end(tmp_path: Path) -> None:
    done = lagom("log", "--follow", str(dead_job(tmp_path / "lagom-dead")))
    assert done.returncode == 0
    assert "this log has no end" in done.stderr


def test_a_job_in_another_pid_namespace_is_not_called_dead(tmp_path: Path) -> None:
    for number, namespace in enumerate((0, pid_namespace() + 1)):
        folder = dead_job(tmp_path / f"lagom-{number}", pid_namespace=namespace)
        pin.set_rules(["any:any:nc=2"], folder, False)
        assert pin.read_pins(folder) == ["any:any:nc=2"]


def test_what_a_terminal_cannot_show_does_not_end_the_command(job: Path) -> None:
    with journal.Journal(job) as log:
        log.write(journal.Note(text="µs × ≤ ™"))
    done = lagom_anew("log", str(job), env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr


def test_version() -> None:
    assert RUNNER.invoke(app, ["--version"]).output.startswith("lagom 0.")
