"""``make test-busy``: it says what failed, and leaves no busy loop behind however it ends."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

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
