# SPDX-License-Identifier: Apache-2.0
"""The job behaves as if it had been started directly: exit code, signals, terminal."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.waiting import wait_until

#: Supervises sys.argv[1:] and exits with its code.
LAUNCHER = """
import os, sys
from lagom.launch.supervise import run_command, signals_held
with signals_held() as mask:
    code = run_command(sys.argv[1:], os.environ, mask)
sys.exit(code)
"""
#: Appends the names of signals it gets to a file, says it is ready, ends on SIGTERM with 7.
CHILD = """
import os, signal, sys, time
def note(number, _):
    with open(sys.argv[1], "a") as file:
        file.write(signal.Signals(number).name + "\\n")
    if number == signal.SIGTERM:
        sys.exit(7)
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1):
    signal.signal(number, note)
open(sys.argv[1], "w").close()
while True:
    time.sleep(0.05)
"""


def launch(*command: str) -> list[str]:
    return [sys.executable, "-c", LAUNCHER, *command]


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 42", 42), ("kill -9 $$", 137), ("kill -TERM $$", 143)]
)
def test_the_exit_code_is_the_commands(script: str, code: int) -> None:
    assert subprocess.run(launch("sh", "-c", script), check=False).returncode == code


def test_stdin_stdout_and_stderr_are_untouched() -> None:
    done = subprocess.run(launch("sh", "-c", "cat; echo err >&2"), input=b"through", capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"through", b"err\n")


def test_the_command_gets_default_signal_handling() -> None:
    script = (
        "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, "
        "signal.pthread_sigmask(0, []))"
    )
    done = subprocess.run(
        launch(sys.executable, "-c", script),
        capture_output=True,
        text=True,
        check=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a background shell has it ignored
    )
    assert done.stdout.strip() == "True set()"
    status = subprocess.run(launch("grep", "SigIgn", "/proc/self/status"), capture_output=True, text=True, check=True)
    assert int(status.stdout.split()[1], 16) & (1 << (signal.SIGPIPE - 1)) == 0


def test_signals_sent_to_the_launcher_are_passed_on(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    process = subprocess.Popen(launch(sys.executable, "-c", CHILD, str(seen)))
    wait_until(seen.exists, "the child to start")
    process.send_signal(signal.SIGUSR1)
    wait_until(lambda: "SIGUSR1" in seen.read_text(), "SIGUSR1")
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 7
    assert seen.read_text().split() == ["SIGUSR1", "SIGTERM"]


def test_ctrl_c_at_a_terminal_reaches_the_command_once(tmp_path: Path) -> None:
    seen = tmp_path / "seen"
    pid, terminal = pty.fork()
    if pid == 0:  # the launcher, with the terminal as its own
        os.execv(sys.executable, launch(sys.executable, "-c", CHILD, str(seen)))
    wait_until(seen.exists, "the child to start")
    os.write(terminal, b"\x03")
    wait_until(lambda: "SIGINT" in seen.read_text(), "Ctrl-C")
    os.kill(pid, signal.SIGTERM)  # the launcher takes its own SIGINT first: of two it waits for the lower number
    _, status = os.waitpid(pid, 0)
    os.close(terminal)
    assert os.waitstatus_to_exitcode(status) == 7
    assert seen.read_text().split() == ["SIGINT", "SIGTERM"]


def test_a_signal_before_the_start_means_no_start() -> None:
    script = LAUNCHER.replace("    code", "    os.kill(os.getpid(), 15)\n    code")
    done = subprocess.run([sys.executable, "-c", script, "echo", "started"], capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (143, b"")
