# SPDX-License-Identifier: Apache-2.0
"""``make test-busy``: it says what failed, and leaves no busy loop behind however it ends. And how a test tells whether
other processes computed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests import waiting
from tests.waiting import OthersWatch, skip_if_others_computed, wait_until

BUSY = [sys.executable, "-m", "tests.busy", "--loops", "1"]


def test_it_shows_the_closing_line_and_what_failed_of_each_run(tmp_path: Path) -> None:
    said = "FAILED tests/x.py::test_y\n==== 1 failed, 2 passed in 0.10s ===="
    line = [*BUSY, "--runs", "2", "--logs", str(tmp_path), "--", "sh", "-c", f"echo noise; echo '{said}'; exit 3"]
    done = subprocess.run(line, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.count("FAILED tests/x.py::test_y") == done.stdout.count("1 failed, 2 passed") == 2
    assert "exit code 3" in done.stdout
    assert "noise" not in done.stdout
    assert "noise" in (tmp_path / "2.log").read_text()
    assert done.stdout.splitlines()[-1] == "0 of 2 runs beside 1 busy loops passed"


def loops_of(parent: int) -> list[int]:
    """Children of a process that are busy loops."""
    found = subprocess.run(["pgrep", "-P", str(parent), "-f", "getppid"], capture_output=True, text=True, check=False)
    return [int(pid) for pid in found.stdout.split()]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_the_loops_end_with_it(number: signal.Signals, tmp_path: Path) -> None:
    process = subprocess.Popen([*BUSY, "--logs", str(tmp_path), "--", "sh", "-c", "echo $$; exec sleep 30"])
    (loop,) = wait_until(lambda: loops_of(process.pid), "the loop")
    started = wait_until(lambda: (tmp_path / "1.log").exists() and (tmp_path / "1.log").read_text(), "the command")
    process.send_signal(number)
    process.wait()
    wait_until(lambda: not Path(f"/proc/{loop}").exists(), "the end of the loop")
    if number == signal.SIGTERM:
        assert not Path(f"/proc/{int(started)}").exists()


def test_a_stopped_process_goes_on_and_ends_with_it(tmp_path: Path) -> None:
    process = subprocess.Popen([*BUSY, "--pauses", "--logs", str(tmp_path), "--", "sh", "-c", "sleep 1000"])
    busy = psutil.Process(process.pid)

    def stopped() -> list[psutil.Process]:
        return [child for child in busy.children(recursive=True) if child.status() == psutil.STATUS_STOPPED]

    found = wait_until(stopped, "a process that is stopped")
    process.send_signal(signal.SIGTERM)
    process.wait()
    wait_until(lambda: not any(map(psutil.Process.is_running, found)), "its end")


def machine_spent(ticks: int) -> str:
    """``/proc/stat`` with so many ticks on anything, in all seven ways that count, beside much idling and waiting."""
    return f"cpu  {ticks - 6} 1 2 1000000 1000000 1 1 1 0 0\n"


@pytest.mark.parametrize("others_s", [0.0, 1.0, 30.0])
def test_the_share_of_others_is_what_the_machine_did_without_us(
    others_s: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In ten seconds, of which this process had two and a child of its own three. Only where others had more than a
    twelfth may a test be skipped for them."""
    stat, clock, own = tmp_path / "stat", [100.0], [(5.0, 1.0, 7.0, 1.0, 0.0)]
    ticks = os.sysconf("SC_CLK_TCK")
    monkeypatch.setattr(waiting, "PROC_STAT", stat)
    monkeypatch.setattr(waiting.time, "monotonic", lambda: clock[0])
    monkeypatch.setattr(waiting.os, "times", lambda: own[0])
    monkeypatch.setattr(waiting.os, "cpu_count", lambda: 4)
    stat.write_text(machine_spent(1000))
    others = OthersWatch()
    clock[0], own[0] = 110.0, (6.5, 1.5, 9.5, 1.5, 10.0)
    stat.write_text(machine_spent(1000 + round((5.0 + others_s) * ticks)))
    assert others.share() == pytest.approx(others_s / 40.0, abs=1e-9)
    ends = pytest.skip.Exception if others_s == 30.0 else pytest.fail.Exception
    with pytest.raises(ends, match=r"3 plans.*others had"):
        skip_if_others_computed(others, "3 plans")
