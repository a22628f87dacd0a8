# SPDX-License-Identifier: Apache-2.0
"""`lagom run` with the real controller: the job is untouched, and whatever happens nothing is left behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lagom import journal
from lagom.doctor.libraries import has_nccl
from lagom.launch import controller_process
from lagom.launch.job_plan import JobPlan
from lagom.launch.run_job import state_since
from lagom.launch.status_text import describe_end, describe_next
from tests.forked_commands import Lagom, lagom
from tests.waiting import wait_until


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A folder to run in, with shared memory of its own."""
    (tmp_path / "shm").mkdir()
    return tmp_path


def environment(place: Path, **more: str) -> dict[str, str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LAGOM_", "NCCL_", "SLURM_"))}
    return clean | {"LAGOM_SHM_DIR": str(place / "shm"), "LAGOM_CACHE": "off"} | more


def start(place: Path, *arguments: str, **more: str) -> Lagom:
    return Lagom("run", *arguments, cwd=place, env=environment(place, **more))


def finish(process: Lagom) -> tuple[int, str, str]:
    out, err = process.communicate()
    return process.wait(), out, err


def start_python(place: Path, *arguments: str) -> subprocess.Popen[str]:
    """As a user does, where a process that Python has just started differs from one that was forked."""
    command = [sys.executable, "-m", "lagom", "run", *arguments]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, cwd=place, env=environment(place), stdin=pipe, stdout=pipe, stderr=pipe, text=True)


def controller_pid(place: Path) -> int:
    """From the first line of controller.log."""
    found: list[str] = []

    def look() -> bool:
        logs = list(place.glob("lagom-*/controller.log"))
        found[:] = re.findall(r"lagom controller (\d+):", logs[0].read_text()) if logs else []
        return bool(found)

    wait_until(look, "the controller")
    return int(found[0])


def wait_for_words(process: Lagom, words: str) -> None:
    """Until the launcher has said them on stderr."""
    wait_until(lambda: words in os.pread(process.stderr.fileno(), 1 << 20, 0).decode(), words)


def is_gone(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def assert_nothing_left(place: Path) -> None:
    assert list((place / "shm").iterdir()) == []


def test_a_misspelt_variable_is_told_before_the_job_and_does_not_stop_it(place: Path) -> None:
    process = start(place, "--mode", "off", "--", "echo", "hello", LAGOM_STRATGY="guided", LAGOM_TEST_FULL="0")
    code, out, err = finish(process)
    assert (code, out) == (0, "hello\n")
    assert err.splitlines()[0] == "lagom: LAGOM_STRATGY is not a variable of lagom; did you mean LAGOM_STRATEGY?"
    assert "LAGOM_TEST_FULL" not in err


def test_the_job_runs_as_always_with_the_plugin_in_its_environment(place: Path) -> None:
    wait = "while [ ! -s $LAGOM_DIR/decisions.jsonl ]; do sleep 0.05; done"
    script = f'read line; echo "$line $NCCL_TUNER_PLUGIN $LAGOM_JOB_ID"; {wait}; exit 3'
    process = start_python(place, "--", "sh", "-c", script)
    out, err = process.communicate("hello\n")
    assert process.returncode == 3
    word, plugin, job = out.split()
    assert word == "hello"
    assert Path(plugin).name == "libnccl-tuner-lagom.so"
    *plan, ending, last = err.splitlines()
    log = f"log lagom-{job}"
    if has_nccl(environment(place)):
        assert plan == [f"lagom: plan: tune while it runs; strategy auto, no time limit; {log}"]
        called = "no NCCL communicator of 2 or more ranks was seen"
    else:
        assert plan == ["lagom: plan: nothing, unless the job brings its own NCCL: none is found here", f"lagom: {log}"]
        called = "no NCCL is found here, and no rank called one"
    assert ending.startswith("lagom: ended: exit 3 after")
    assert ending.endswith(f"; nothing to tune: {called}")
    assert last == "lagom: next: why the job failed: the job's own output, above"
    assert_nothing_left(place)


def test_a_job_that_ends_at_once_leaves_nothing(place: Path) -> None:
    for _ in range(3):
        assert finish(start(place, "--", "true"))[0] == 0
    assert_nothing_left(place)


def test_options_end_where_the_command_begins(place: Path) -> None:
    code, out, _ = finish(start(place, "--mode", "off", "echo", "--mode", "x"))
    assert (code, out) == (0, "--mode x\n")


def test_death_by_signal_is_told_and_cleaned_up_after(place: Path) -> None:
    code, _, err = finish(start(place, "--", "sh", "-c", "kill -KILL $$"))
    assert code == 137
    assert "ended: exit 137" in err
    assert_nothing_left(place)


def test_a_signal_to_the_launcher_ends_job_and_controller(place: Path) -> None:
    process = start(place, "--", "sh", "-c", "echo ready; exec sleep 100")
    pid = controller_pid(place)
    process.send_signal(signal.SIGTERM)
    code, _, _ = finish(process)
    assert code == 128 + signal.SIGTERM
    assert is_gone(pid)
    assert_nothing_left(place)


def test_a_killed_controller_is_told_and_leaves_nothing(place: Path) -> None:
    process = start(place, "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; echo done")
    os.kill(controller_pid(place), signal.SIGKILL)
    wait_for_words(process, "the controller ended with -9; the job goes on with what was agreed so far.")
    (place / "go").touch()
    code, out, _ = finish(process)
    assert (code, out) == (0, "done\n")
    assert_nothing_left(place)


def test_a_controller_that_cannot_start_costs_the_job_nothing(place: Path) -> None:
    wait = ["--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done; echo done"]
    process = start(place, *wait, LAGOM_SHM_DIR=str(place / "nowhere"))
    wait_for_words(process, "the controller ended with 2")
    (place / "go").touch()
    code, out, _ = finish(process)
    assert (code, out) == (0, "done\n")


def test_a_stopped_controller_is_killed_after_a_while(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(place, LAGOM_JOB_ID="stopped").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(controller_process, "STOP_SECONDS", 0.5)
    folder = place / "lagom-stopped"
    folder.mkdir()
    controller = controller_process.ControllerProcess(
        JobPlan("stopped", folder, {}, "tune", starts_controller=True, tunes=True),
        set(),
        controller_process.open_log(folder),
    )
    pid = controller_pid(place)
    os.kill(pid, signal.SIGSTOP)
    controller.end(0)
    assert is_gone(pid)
    assert_nothing_left(place)


def test_a_job_that_ends_before_its_controller_starts_has_a_log_of_its_own(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also the second one in a folder: the end of the first job is not its own."""
    for name, value in environment(place, LAGOM_JOB_ID="early").items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(controller_process, "build_command_line", lambda plan, key: ["sleep", "100"])
    folder = place / "lagom-early"
    folder.mkdir()
    plan = JobPlan("early", folder, {}, "tune", starts_controller=True, tunes=True)
    for code in (0, 7):
        began = time.time()
        controller_process.ControllerProcess(plan, set(), controller_process.open_log(folder)).end(code)
        run = state_since(folder, began)
        assert run.end is not None
        assert run.end.reason == f"the job's command ended with {code}; its controller had not started yet"
        assert "nothing to tune: no NCCL" in describe_end(plan, run, 0, 1.0)
        assert describe_next(plan, run, ["true"]).startswith("next: lagom doctor")


@pytest.mark.parametrize(
    ("arguments", "more", "sentence"),
    [
        (["--", "no-such-command"], {}, "the command 'no-such-command' is not found"),
        (["--set", "nonsense", "--", "true"], {}, ""),
        (["--set", "", "--", "true"], {}, "--set holds no rule"),
        (["--set", " ; ;", "--", "true"], {}, "--set holds no rule"),
        (["--", "true"], {"LAGOM_SET": " ; ;"}, "LAGOM_SET holds no rule"),
        (["--strategy", "magic", "--", "true"], {}, "there is no strategy 'magic'; choose one of: "),
        (["--mode", "sometimes", "--", "true"], {}, "LAGOM_MODE=sometimes is not understood"),
        (["--", "true"], {"NCCL_TUNER_PLUGIN": "other.so"}, "NCCL_TUNER_PLUGIN=other.so is set already"),
        (["--compare", "nonsense", "--", "true"], {}, ""),
        (["--compare", "any:any:nc=2", "--mode", "off", "--", "true"], {}, "--compare measures while the job runs"),
        (["--dir", "/proc/nowhere", "--", "true"], {}, "cannot be made"),
        (["--dir", "/proc", "--", "true"], {}, "cannot be written to"),
        (["--mode", "replay", "--", "true"], {}, "mode replay needs a saved config"),
        (["--config", "/etc/hostname", "--", "true"], {}, "the saved config /etc/hostname cannot be used"),
        (["--", "true"], {"LAGOM_CONFIG": "/nonexistent"}, "the saved config /nonexistent cannot be used"),
        (["--", "true"], {"LAGOM_CONTROLLER": "foo"}, "LAGOM_CONTROLLER=foo is not understood"),
        (["--", "true"], {"LAGOM_NT": "7"}, "LAGOM_NT=7 is not understood"),
        (["--", "true"], {"LAGOM_CLOCK": "foo"}, "LAGOM_CLOCK=foo is not understood"),
    ],
)
def test_bad_input_is_refused_before_anything_is_changed(
    place: Path, arguments: list[str], more: dict[str, str], sentence: str
) -> None:
    code, out, err = finish(start(place, *arguments, **more))
    assert (code, out) == (2, "")
    assert err.startswith("lagom: ")
    assert err.count("\n") == 1
    assert sentence in err
    assert list(place.glob("lagom-*")) == []
    assert_nothing_left(place)


SIMULATED_CONFIG = """lagom-config 1
fingerprint simulated 1
environment NCCL_SOCKET_NTHREADS "4"
communicator ranks=2 nodes=1 ordinal=0
rule allgather 1M - nc=4
end
"""


@pytest.mark.parametrize(
    ("arguments", "more"),
    [
        (["run", "--config", "demo.lagom", "--", "touch", "ran"], {}),
        (["run", "--config", "demo.lagom", "--or-tune", "--", "touch", "ran"], {}),
        (["run", "--", "touch", "ran"], {"LAGOM_CONFIG": "demo.lagom"}),
        (["env", "--config", "demo.lagom"], {}),
        (["bench", "--arms", "replay=demo.lagom", "--", "touch", "ran"], {}),
        (["convert", "demo.lagom", "rules.csv"], {}),
    ],
)
def test_the_config_of_a_simulated_job_is_refused_before_anything_is_set(
    place: Path, arguments: list[str], more: dict[str, str]
) -> None:
    (place / "demo.lagom").write_text(SIMULATED_CONFIG)
    before = set(place.iterdir())
    done = lagom(*arguments, cwd=place, env=environment(place, **more))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("lagom: the saved config ")
    assert "demo.lagom is refused: made in a simulated job, this job is real; `lagom run -- CMD` tunes" in done.stderr
    assert "Traceback" not in done.stderr
    assert set(place.iterdir()) == before
    simulated = lagom("env", "--config", "demo.lagom", cwd=place, env=environment(place, LAGOM_CLOCK="simulated"))
    assert "NCCL_SOCKET_NTHREADS=4" in simulated.stdout


def test_mode_off_starts_no_controller(place: Path) -> None:
    code, out, err = finish(start(place, "--mode", "off", "--", "sh", "-c", "echo $LAGOM_MODE $LAGOM_CONTROLLER"))
    assert (code, out) == (0, "off none\n")
    assert "plan: off: the plugin does nothing" in err
    assert list(place.glob("lagom-*/controller.log")) == []


def test_no_thread_but_the_main_one_takes_the_jobs_signals(place: Path) -> None:
    process = start_python(place, "--mode", "off", "--", "sh", "-c", "echo begun; exec sleep 60")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    for task in Path(f"/proc/{process.pid}/task").iterdir():
        if task.name != str(process.pid):
            blocked = int(re.findall(r"SigBlk:\s*(\w+)", (task / "status").read_text())[0], 16)
            assert blocked >> (signal.SIGTERM - 1) & 1, task
    process.send_signal(signal.SIGTERM)
    process.communicate()
    assert process.returncode == 128 + signal.SIGTERM


def test_what_the_controller_shall_do_stands_on_its_command_line(place: Path) -> None:
    options = ["--compare", "any:>=1M:nc=2;allgather:any:nc=3", "--seed", "7", "--stable-iterations", "5", "--record"]
    options += ["--search-seconds", "30"]
    process = start(place, *options, "--strategy", "static", "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done")
    line = Path(f"/proc/{controller_pid(place)}/cmdline").read_text().split("\0")
    (place / "go").touch()
    assert finish(process)[0] == 0
    assert line[line.index("--compare") + 1] == "any:>=1M:nc=2;allgather:any:nc=3"
    assert line[line.index("--seed") + 1] == "7"
    assert line[line.index("--stable-iterations") + 1] == "5"
    assert line[line.index("--strategy") + 1] == "static"
    assert line[line.index("--search-seconds") + 1] == "30.0"
    assert "--record" in line


def test_two_jobs_at_once_cannot_share_a_folder_but_one_after_the_other_can(place: Path) -> None:
    folder = place / "lagom-shared"
    first = start(place, "--dir", str(folder), "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done")
    controller_pid(place)
    code, _, err = finish(start(place, "--dir", str(folder), "--", "true"))
    assert (code, err.count("\n")) == (2, 1)
    assert "another job writes to" in err
    (place / "go").touch()
    assert finish(first)[0] == 0
    assert finish(start(place, "--dir", str(folder), "--", "true"))[0] == 0


def test_a_folder_of_the_environment_that_is_taken_costs_the_job_nothing_but_the_tuning(place: Path) -> None:
    folder = place / "lagom-shared"
    wait = ["--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]
    first = start(place, *wait, LAGOM_DIR=str(folder))
    controller_pid(place)
    code, out, err = finish(start(place, "--", "sh", "-c", "echo ran $LAGOM_CONTROLLER", LAGOM_DIR=str(folder)))
    assert (code, out) == (0, "ran none\n")
    assert "another job writes to" in err
    assert "The job runs without a controller: nothing is tuned." in err
    (place / "go").touch()
    assert finish(first)[0] == 0


def test_nodes_that_share_a_folder_have_a_log_and_a_controller_each(place: Path) -> None:
    """As `srun -N2 --ntasks-per-node 8 lagom run ...`: the second node found the folder of the first in use."""
    step = {"SLURM_STEP_NUM_TASKS": "16", "SLURM_STEP_NUM_NODES": "2", "SLURM_LOCALID": "0", "SLURM_JOB_ID": "42"}
    wait = ["--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done"]
    nodes = [start(place, *wait, SLURM_STEP_ID="0", NCCL_HOSTID=node, **step) for node in "ab"]
    logs = [place / "lagom-42" / f"node-{node}" / "controller.log" for node in "ab"]
    wait_until(lambda: all(log.exists() and "lagom controller" in log.read_text() for log in logs), "both controllers")
    (place / "go").touch()
    for node, (code, _, err) in zip("ab", map(finish, nodes), strict=True):
        assert code == 0
        assert f"lagom-42/node-{node}" in err
        assert "another job writes to" not in err
    assert [journal.find_log(log.parent).exists() for log in logs] == [True, True]
    assert_nothing_left(place)


def test_the_last_line_speaks_of_this_job_alone(place: Path) -> None:
    folder = place / "lagom-shared"
    with journal.Journal(folder) as log:
        log.write(journal.Outcome(communicator=0, verdict="improved", reason="of an earlier job", speedup=1.5))
    code, _, err = finish(start(place, "--dir", str(folder), "--mode", "off", "--", "true"))
    assert code == 0
    assert "tuned" not in err


def test_a_forbidden_controller_is_not_started(place: Path) -> None:
    code, _, err = finish(start(place, "--set", "any:any:nc=2,nt=128", "--", "true", LAGOM_CONTROLLER="none"))
    assert code == 0
    assert "LAGOM_CONTROLLER=none: no controller is started" in err
    assert "LAGOM_NT=1 allows them" in err
    assert list(place.glob("lagom-*/controller.log")) == []


def test_a_job_that_is_over_at_once_has_not_had_its_controller_killed(place: Path) -> None:
    code, _, _ = finish(start(place, "--dir", "lagom-k", "--", "true"))
    assert code == 0
    end = list(journal.read(place / "lagom-k" / journal.LOG_NAME))[-1]
    assert isinstance(end, journal.JobEnd)
    assert "killed" not in end.reason


def told(place: Path, *command: str) -> str:
    """What a lagom command says, both streams."""
    done = lagom(*command, cwd=place, env=environment(place))
    return done.stdout + done.stderr


def test_a_killed_controller_is_in_the_log_with_the_end_of_the_job(place: Path) -> None:
    process = start(place, "--", "sh", "-c", "while [ ! -e go ]; do sleep 0.05; done", LAGOM_JOB_ID="k")
    pid = controller_pid(place)
    log = place / "lagom-k" / "decisions.jsonl"
    wait_until(lambda: log.exists() and "job_start" in log.read_text(), "the first line")
    assert f"this log has no end yet: its controller (pid {pid}) runs." in told(place, "log", "lagom-k")
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: "was killed by SIGKILL" in log.read_text(), "the death in the log")
    assert f"this log has no end: its controller (pid {pid}) was killed." in told(place, "log", "lagom-k")
    (place / "go").touch()
    finish(process)
    beginning, death, end = journal.read(log)
    assert isinstance(beginning, journal.JobStart)
    assert beginning.pid == pid
    assert isinstance(death, journal.Passthrough)
    assert death.reason == (
        f"the controller (pid {pid}) was killed by SIGKILL; the job goes on with what was agreed so far"
    )
    assert isinstance(end, journal.JobEnd)
    assert end.reason == "the job's command ended with 0; its controller was killed by SIGKILL"
    assert "no end" not in told(place, "log", "lagom-k")


def test_a_log_without_an_end_says_so_where_nobody_watched(place: Path) -> None:
    """As after a start by environment alone: in `log`, in `report`, and by the next controller of the folder."""
    folder = place / "lagom-bare"
    begun = journal.JobStart(
        job="bare", mode="tune", pid=1 << 22, region=str(place / "shm" / "gone"), host=os.uname().nodename
    )
    with journal.Journal(folder) as log:
        log.write(begun)
    for command in ("log", "report"):
        assert (
            f"this log has no end: its controller (pid {1 << 22}) was killed, or could not write it (a full disk)."
            in " ".join(told(place, command, "lagom-bare").split())
        )
    with journal.Journal(folder) as log:
        log.write(begun.model_copy(update={"host": "elsewhere"}))
    assert "was killed, or could not write it (a full disk), or still runs on elsewhere." in told(
        place, "log", "lagom-bare"
    )
    wait = "while ! grep -q '\"rank_joined\\|tune.*lagom-bare' $LAGOM_DIR/decisions.jsonl; do sleep 0.05; done"
    finish(start(place, "--dir", str(folder), "--", "sh", "-c", wait))
    notes = [event.text for event in journal.read(folder / "decisions.jsonl") if isinstance(event, journal.Note)]
    assert notes == [
        "the job before this line has no end in this log: its controller was killed, could not write it (a full disk), "
        "or still runs"
    ]


def test_a_log_that_broke_off_is_told_at_the_end(place: Path) -> None:
    """As on a full disk: another file lies in the log's place, and what the controller goes on to write is lost."""
    script = "cd $LAGOM_DIR; while ! grep -q job_start decisions.jsonl; do sleep 0.05; done"
    script += "; cp decisions.jsonl copy; mv copy decisions.jsonl"
    code, _, err = finish(start(place, "--dir", "lagom-k", "--", "sh", "-c", script))
    assert code == 0
    assert f"{place / 'lagom-k' / 'decisions.jsonl'} is incomplete: its end could not be written" in err


def test_a_log_with_its_end_is_not_called_broken_off(place: Path) -> None:
    _, _, err = finish(start(place, "--", "sh", "-c", "while [ ! -s $LAGOM_DIR/decisions.jsonl ]; do sleep 0.05; done"))
    assert "not whole" not in err
    assert "; nothing to tune: no NCCL " in err.splitlines()[-2]


def cannot_be_made(place: Path) -> dict[str, str]:
    return {"LAGOM_DIR": "/proc/nowhere"}


def no_place_for_the_log(place: Path) -> dict[str, str]:
    (place / "taken" / "decisions.jsonl").mkdir(parents=True)
    return {"LAGOM_DIR": str(place / "taken")}


def a_link_for_a_log(place: Path) -> dict[str, str]:
    (place / "linked").mkdir()
    (place / "linked" / "decisions.jsonl").symlink_to(place / "elsewhere")
    return {"LAGOM_DIR": str(place / "linked")}


def open_to_all(place: Path) -> dict[str, str]:
    (place / "open").mkdir()
    (place / "open").chmod(0o777)
    return {"LAGOM_DIR": str(place / "open")}


@pytest.mark.parametrize("hinder", [cannot_be_made, no_place_for_the_log, a_link_for_a_log, open_to_all])
def test_a_log_that_cannot_be_written_costs_the_job_nothing(
    place: Path, hinder: Callable[[Path], dict[str, str]]
) -> None:
    code, out, err = finish(start(place, "--", "sh", "-c", "echo ran $LAGOM_CONTROLLER", **hinder(place)))
    assert (code, out) == (0, "ran none\n")
    assert "The job runs without a controller: nothing is tuned." in err
    assert "; log" not in err
    assert not (place / "elsewhere").exists()
    assert list(place.glob("*/controller.log")) == []
    assert_nothing_left(place)


def test_the_same_log_named_with_dir_is_refused(place: Path) -> None:
    folder = no_place_for_the_log(place)["LAGOM_DIR"]
    code, out, err = finish(start(place, "--dir", folder, "--", "echo", "ran"))
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "decisions.jsonl cannot be written" in err


def test_mode_off_needs_no_folder(place: Path) -> None:
    code, out, err = finish(start(place, "--", "echo", "ran", LAGOM_MODE="off", LAGOM_DIR="/proc/nowhere"))
    assert (code, out) == (0, "ran\n")
    assert "cannot" not in err
    assert finish(start(place, "--", "true", LAGOM_MODE="off"))[0] == 0
    assert list(place.glob("lagom-*")) == []
    assert_nothing_left(place)


def test_a_command_without_permission_is_not_called_missing(place: Path) -> None:
    (place / "job.sh").write_text("#!/bin/sh\n")
    code, _, err = finish(start(place, "--", "./job.sh"))
    assert code == 2
    assert "'./job.sh' may not be executed" in err


def test_a_replay_without_a_log_folder_runs(place: Path) -> None:
    config = place / "p.lagom"
    config.write_text("lagom-config 1\nfingerprint ranks 2\ncommunicator ranks=2 nodes=1 ordinal=0\nend\n")
    options = ["--config", str(config), "--mode", "replay"]
    code, out, err = finish(start(place, *options, "--", "echo", "ran", LAGOM_DIR="/proc/nowhere"))
    assert (code, out) == (0, "ran\n")
    assert err.count("cannot be made") == 1
    assert "The job runs without a log." in err
    assert err.count("\n") == 4


def test_a_saved_config_without_a_log_folder_is_not_said_to_be_followed_by_a_search(place: Path) -> None:
    config = place / "p.lagom"
    config.write_text("lagom-config 1\nfingerprint ranks 2\ncommunicator ranks=2 nodes=1 ordinal=0\nend\n")
    options = ["--config", str(config), "--or-tune"]
    code, _, err = finish(start(place, *options, "--", "true", LAGOM_DIR="/proc/nowhere"))
    assert code == 0
    assert (
        "The job runs without a log and without a controller: the saved config is replayed if it fits, and if not, "
        "nothing is tuned." in err
    )


def test_what_cannot_go_together_is_refused(place: Path) -> None:
    options = ["--compare", "any:>=1M:nc=2"]
    for more, environ in ((["--set", "any:>=1M:nc=3"], {}), ([], {"LAGOM_SET": "any:>=1M:nc=3"})):
        code, out, err = finish(start(place, *options, *more, "--", "echo", "ran", **environ))
        assert (code, out) == (2, "")
        assert "leave one of the two out" in err


def test_the_mode_in_force_says_whether_a_saved_config_counts(place: Path) -> None:
    """--mode wins over LAGOM_MODE, here too."""
    config = place / "p.lagom"
    config.write_text('lagom-config 1\nenvironment NCCL_MAX_CTAS "16"\ncommunicator ranks=2 nodes=1 ordinal=0\nend\n')
    job = ["--", "sh", "-c", 'echo "[$NCCL_MAX_CTAS]"']
    for mode, environ, wanted in (
        ("replay", {"LAGOM_MODE": "off"}, "[16]\n"),
        ("off", {}, "[]\n"),
        ("tune", {}, "[]\n"),
    ):
        code, out, err = finish(start(place, "--mode", mode, "--config", str(config), *job, **environ))
        assert (code, out) == (0, wanted), err
        assert ("is not used" in err) == (wanted == "[]\n")


def test_options_that_a_rank_would_not_pass_on_are_told(place: Path) -> None:
    config = place / "p.lagom"
    config.write_text("lagom-config 1\nfingerprint ranks 2\ncommunicator ranks=2 nodes=1 ordinal=0\nend\n")
    _, _, err = finish(start(place, "--config", str(config), "--or-tune", "--record", "--", "true"))
    assert "without --record" in err
    _, _, err = finish(start(place, "--config", str(config), "--record", "--", "true"))
    assert "have no effect" in err
    _, _, err = finish(start(place, "--config", str(config), "--", "true"))
    assert "--record" not in err
