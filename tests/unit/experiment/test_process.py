# SPDX-License-Identifier: Apache-2.0
"""What is kept of what a process says."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from lagom import journal
from lagom.experiment.output import LONGEST_LINE, OutputFile, OutputLines, read_output
from lagom.experiment.process import KEPT_LINES, OUTPUT_LINES, ProcessStart, Seen, run_process
from lagom.experiment.store import RunRecord
from tests.waiting import wait_until

LAUNCHERS = [
    "W1122 torch/distributed/elastic/multiprocessing/api.py:1012] Sending process 2798 closing signal SIGTERM",
    "Traceback (most recent call last):",
    '  File "<frozen runpy>", line 198, in _run_module_as_main',
    "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ",
    *["  exitcode  : 1 (pid: 2799)"] * 30,
    "  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html",
    "============================================================",
]


def said(*lines: str) -> list[str]:
    seen = Seen()
    seen.lines.extend(lines)
    return seen.last_lines()


def test_an_error_of_the_job_is_told_not_its_launchers_account() -> None:
    own = ["Traceback (most recent call last):", '  File "train.py", line 3', "TypeError: 'set' object is no list"]
    assert said("step 1", *own, *own, *LAUNCHERS) == ["step 1", *own]
    assert said("[rank1]: torch.OutOfMemoryError: CUDA out of memory", *LAUNCHERS)[-1].startswith("[rank1]: torch.Out")


def test_what_a_rank_said_before_it_left_is_told_with_its_launchers_word() -> None:
    where = "E1122 21:26:59.184 23655 torch/distributed/elastic/multiprocessing/api.py:1002]"
    told = where + " failed (exitcode: {}) local_rank: 0 (pid: 9) of binary: python"
    warning = "[rank0]:[W1122 21:26:57.1 ProcessGroupNCCL.cpp:1553] Warning: destroy_process_group() was not called"
    kept = said("step 1", "no such shape: try --shape x", "", warning, LAUNCHERS[0], told.format(1), *LAUNCHERS)
    run = RunRecord(kind="process", arm="off", output=kept)
    assert run.last_line == "no such shape: try --shape x (failed (exitcode: 1) local_rank: 0)"
    killed = RunRecord(kind="process", arm="off", output=said(told.format(-9), *LAUNCHERS))
    assert killed.last_line == "no output (failed (exitcode: -9) local_rank: 0)"


def test_without_one_the_last_lines_are_told() -> None:
    assert said("Error handling is on", "step 1", "killed") == ["Error handling is on", "step 1", "killed"]
    assert said(*map(str, range(OUTPUT_LINES + 5))) == [str(n) for n in range(OUTPUT_LINES + 5)][-KEPT_LINES:]
    assert said() == []


def no_file(path: Path) -> None:
    path.mkdir()


def a_link(path: Path) -> None:
    path.symlink_to("/dev/null")


@pytest.mark.parametrize("hinder", [no_file, a_link])
def test_where_its_output_cannot_be_kept_a_job_is_read_to_its_end_all_the_same(
    tmp_path: Path, hinder: Callable[[Path], None]
) -> None:
    """It would stand still for ever once the pipe is full."""
    hinder(tmp_path / "job.out")
    printing = "for step in range(20000): print(f'step {step + 1}')"
    line = [sys.executable, "-c", printing]
    seen = run_process(ProcessStart(line, tmp_path, "job", None, metric=r"step (\d+)")).seen
    assert [value for _, value in seen.metric.samples] == [float(step + 1) for step in range(20000)]
    assert len(seen.notes) == 1, "said once"
    assert "job.out" in seen.notes[0]


def test_on_a_full_disk_the_output_leaves_its_room_to_the_samples(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    copy = OutputFile(tmp_path / "job.out")
    copy.write(b"a line\n")

    def full(descriptor: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "write", full)
    copy.write(b"another\n")
    copy.write(b"and one more\n")
    assert "No space left" in copy.given_up
    assert not (tmp_path / "job.out").exists()


def test_output_is_cut_into_lines_whatever_lengths_it_comes_in() -> None:
    lines = OutputLines()
    chunks = [b"one\rtw", b"o\r", b"\nthree\n\n", b"x" * (3 * LONGEST_LINE), b"y\nfour \xff", b"!"]
    found = [line for chunk in chunks for line in lines.of(chunk)]
    assert found == ["one", "two", "three", "x" * LONGEST_LINE]
    assert list(lines.rest()) == ["four \ufffd!"]


def test_the_log_of_an_earlier_process_of_the_same_name_says_nothing_about_this_one(tmp_path: Path) -> None:
    """It was interrupted, or thrown away with --fresh. Its outcome would end this one at once."""
    log = journal.Journal(tmp_path / "job")
    log.write(journal.JobEnd(t=1.0, reason="the job ended"))
    log.close()
    seen: list[int] = []

    def enough(found: Seen) -> bool:
        seen.append(len(found.events))
        return False

    ended = run_process(ProcessStart(["true"], tmp_path, "job", None, enough=enough))
    assert (ended.ended, ended.seen.events) == ("itself", [])
    assert not any(seen), "nor while it ran"


def test_a_pipe_that_a_daemon_holds_is_read_as_far_as_the_job_has_written_to_it() -> None:
    """Also where the daemon writes without a pause."""
    source, sink = os.pipe()
    over = threading.Event()
    os.write(sink, b"last words")
    over.set()
    assert list(read_output(source, over)) == [b"last words"]
    os.write(sink, b"x" * 4096)
    chunks = read_output(source, over)
    read = 0
    for chunk in chunks:
        read += len(chunk)
        os.write(sink, chunk)
    assert 4096 < read <= 1 << 20, "what a pipe holds"
    os.close(sink)
    os.close(source)


def test_the_job_ends_when_whoever_measures_it_is_killed(tmp_path: Path) -> None:
    """It would go on alone, beside the process that the same command starts next."""
    job = "import os, time, pathlib; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(3000)"
    ours = f"""
import sys
from pathlib import Path
from lagom.experiment.output import LONGEST_LINE, OutputLines, OutputFile
from lagom.experiment.process import ProcessStart, run_process
run_process(ProcessStart([sys.executable, "-c", {job!r}], Path(), "job", None))
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with subprocess.Popen([sys.executable, "-c", ours], cwd=tmp_path, env=environ) as process:
        wait_until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text(), "the job's own process")
        process.kill()
    job_pid = (tmp_path / "pid").read_text()
    try:
        wait_until(lambda: not is_alive(Path("/proc") / job_pid), "the end of the job")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(job_pid), signal.SIGKILL)


def test_a_second_ctrl_c_ends_the_waiting_and_no_rank_is_left(tmp_path: Path) -> None:
    """The job ignores SIGTERM: it would be waited for a minute."""
    job = (
        "import os, signal, time, pathlib; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "signal.signal(signal.SIGINT, signal.SIG_IGN); pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(99)"
    )
    ours = f"""
import signal, sys
from pathlib import Path
from lagom.experiment import process
signal.signal(signal.SIGINT, signal.default_int_handler)
wait = process.subprocess.Popen.wait
def told(self, timeout=None):
    Path("waits").touch()
    return wait(self, timeout)
process.subprocess.Popen.wait = told
started = lambda: Path("started").touch()  # before that Ctrl-C may come while Popen is not over
process.run_process(process.ProcessStart([sys.executable, "-c", {job!r}], Path(), "job", None, while_it_runs=started))
"""
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pid, started, waits = tmp_path / "pid", tmp_path / "started", tmp_path / "waits"
    line = [sys.executable, "-c", ours]
    with subprocess.Popen(line, cwd=tmp_path, env=environ, stderr=subprocess.DEVNULL) as process:
        wait_until(lambda: started.exists() and pid.exists() and pid.read_text(), "the job's own process")
        process.send_signal(signal.SIGINT)
        wait_until(waits.exists, "the waiting for the job's end")
        process.send_signal(signal.SIGINT)
        wait_until(lambda: process.poll() is not None, "our own end")
    wait_until(lambda: not is_alive(Path("/proc") / pid.read_text()), "the end of the job")


def is_alive(place: Path) -> bool:
    """Whether a process, by its folder in /proc, runs: one that nobody has asked after does not."""
    try:
        return (place / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
