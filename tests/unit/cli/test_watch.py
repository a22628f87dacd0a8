# SPDX-License-Identifier: Apache-2.0
"""``lagom watch`` on a terminal and in a pipe, where nothing runs: how it begins, and how it leaves."""

from __future__ import annotations

import os
import pty
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.forked_commands import lagom
from tests.waiting import PATIENCE

COMMAND = [sys.executable, "-m", "lagom", "watch"]
OWN_SCREEN, SCREEN_BEFORE = b"\x1b[?1049h", b"\x1b[?1049l"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """Nobody's shared memory but ours, which is empty."""
    return {**os.environ, "LAGOM_SHM_DIR": str(tmp_path), "TERM": "xterm"}


def read_until(terminal: int, words: bytes) -> bytes:
    """What the terminal is sent, up to these words, or to its end."""
    seen, end = b"", time.monotonic() + PATIENCE
    while words not in seen and time.monotonic() < end:
        if select.select([terminal], [], [], 0.5)[0]:
            try:
                seen += os.read(terminal, 65536)
            except OSError:  # the other side is closed
                break
    return seen


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 128 + signal.SIGTERM), (signal.SIGINT, 0)])
def test_a_terminal_is_given_back_as_it_was(number: signal.Signals, code: int, environ: dict[str, str]) -> None:
    ours, theirs = pty.openpty()
    command = ["env", "--default-signal=INT", *COMMAND]  # a shell's background jobs, these tests too, may ignore it
    with subprocess.Popen(command, env=environ, stdin=theirs, stdout=theirs, stderr=theirs) as process:
        os.close(theirs)
        assert OWN_SCREEN in read_until(ours, b"no job of yours")
        process.send_signal(number)
        after = read_until(ours, SCREEN_BEFORE) + read_until(ours, b"no job of yours")
        assert process.wait(PATIENCE) == code
    os.close(ours)
    assert SCREEN_BEFORE in after
    assert after.index(SCREEN_BEFORE) < after.rindex(b"no job of yours"), "the last picture stays behind"


def test_a_pipe_gets_lines_and_may_be_closed(environ: dict[str, str]) -> None:
    line = f"{' '.join(COMMAND)} --json --interval 0.1 | head -1"
    done = subprocess.run(line, shell=True, env=environ, capture_output=True, text=True, check=False)
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""


def test_where_nothing_runs_a_script_is_told_so(environ: dict[str, str]) -> None:
    done = lagom("watch", "--once", "--json", env=environ)
    assert done.returncode == 1
    assert '"jobs": []' in done.stdout


def test_a_textfile_that_cannot_be_written_is_refused_at_once(environ: dict[str, str]) -> None:
    done = lagom("watch", "--prometheus", "/nonexistent/lagom.prom", env=environ)
    assert (done.returncode, done.stdout) == (2, "")
    assert "/nonexistent/lagom.prom cannot be written" in done.stderr
