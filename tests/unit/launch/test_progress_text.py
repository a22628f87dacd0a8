# SPDX-License-Identifier: Apache-2.0
"""What a running job is told about its search, and that it never lands in the middle of the job's own output."""

from __future__ import annotations

import io
import re
import time
from pathlib import Path
from typing import Any

import pytest

from lagom import journal
from lagom.journal.schema import ConfigRecord, SiteRecord
from lagom.launch.progress_text import Plain, ProgressText, Screen, show_progress

WIDTH = 40
STOCK, TUNED = (ConfigRecord(),), (ConfigRecord(channels=3),)
SITE = SiteRecord(index=0, function="allgather", bytes=436207616, calls_per_iteration=6)


def move(number: int, **fields: Any) -> journal.Move:
    usual = {"communicator": 0, "purpose": "trial", "candidate": TUNED, "verdict": "better"}
    more = {"reason": "site 0: channels 4 to 3: kept", "ratio": 0.9, "z": 1.8e8, "lost_iterations": 3.4}
    return journal.Move(number=number, **{**usual, **more, "resolvable": 0.012, **fields})  # type: ignore[arg-type]


PROGRAM = journal.Program(communicator=0, period=11, sites=(SITE,), tier="timeline")
BASELINE = move(1, purpose="baseline", verdict="baseline", candidate=STOCK, ratio=None, reason="stock: Z 180 ms")
CONFIRMED = move(3, purpose="confirm", verdict="confirmed", reason="fresh samples: 1.111x stock [1.1, 1.12]")
OUTCOME = journal.Outcome(communicator=0, verdict="improved", reason="proven", configs_chosen=TUNED, speedup=1.11)


class Terminal(io.StringIO):
    """A terminal of WIDTH columns, as far as this test needs one: what would stand on it, line by line."""

    def isatty(self) -> bool:
        return True

    def screen(self) -> list[str]:
        rows, column = [[" "] * WIDTH], 0
        for part in re.findall(r"\x1b\][^\x07]*\x07|\x1b\[[0-9;]*[A-Za-z]|.|\n", self.getvalue(), re.S):
            if part == "\n":
                rows.append([" "] * WIDTH)
                column = 0
            elif part == "\r":
                column = 0
            elif part == "\x1b[K":
                rows[-1][column:] = [" "] * (WIDTH - column)
            elif not part.startswith("\x1b"):
                if column == WIDTH:  # a pending wrap
                    rows.append([" "] * WIDTH)
                    column = 0
                rows[-1][column] = part
                column += 1
        return ["".join(row).rstrip() for row in rows]


@pytest.fixture(autouse=True)
def _a_terminal_of_known_width(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(WIDTH))
    monkeypatch.setenv("TERM", "xterm-256color")


def test_key_events_are_told_at_once_and_the_rest_now_and_then() -> None:
    progress = ProgressText(10.0)
    events = [PROGRAM, BASELINE, move(2), CONFIRMED, *(move(4 + n, ratio=1.2) for n in range(30)), OUTCOME]
    told = [progress.line(event, float(at)) for at, event in enumerate(events)]
    said = [line for line in told if line]
    assert said[0] == "in force: NCCL's choice on 0 ranks; searching 1 site of comm0, 11 calls an iteration"
    assert said[1] == "stock: Z 180 ms"
    assert said[2] == "in force: 1.111x plain NCCL: allgather 416M: nc=3"
    assert said[-1] == "in force: 1.110x plain NCCL; search over: improved, 0 configs, 0.0 iterations lost"
    between = said[3:-1]
    assert 2 <= len(between) <= 3, "one line in ten seconds"
    assert "best 1.111x plain NCCL" in between[0], "ratios are against the incumbent: 1.2 of 0.9 is no gain"
    assert "3.4 iterations lost" in between[0]
    assert "detectable 1.2 %" in between[0]


def test_as_long_as_nothing_is_faster_stock_is_the_best_so_far() -> None:
    progress = ProgressText(10.0)
    for event in (PROGRAM, BASELINE, move(2, ratio=1.414)):
        progress.line(event, 0.0)
    assert "nothing faster than plain NCCL so far" in progress.status
    assert "0.707x" not in progress.status


def test_what_went_wrong_is_told_and_remarks_are_not() -> None:
    progress = ProgressText(10.0)
    assert progress.line(journal.Note(text="a rank has a remark"), 0.0) is None
    assert (
        progress.line(journal.Note(text="calls are irregular", level="warning"), 0.0) == "warning: calls are irregular"
    )
    aside = journal.Passthrough(reason="the communicator spans 2 nodes", communicator=0)
    assert "spans 2 nodes" in (progress.line(aside, 0.0) or "")
    drift = journal.Drift(communicator=0, reason="Z has been 20 % longer", z_before=1e8, z_now=1.2e8)
    assert "tuned" not in (progress.line(drift, 0.0) or "")
    assert "Z 100.00 to 120.00 ms" in (progress.line(drift, 0.0) or "")


def test_lines_of_a_pipe_are_whole_and_plain() -> None:
    out = io.StringIO()
    Plain(out).say("something was decided")
    assert out.getvalue() == "lagom: something was decided\n"


def test_a_line_never_lands_in_the_middle_of_the_jobs() -> None:
    """A progress bar that was just drawn stays as it is; a line that had ended leaves no gap."""
    terminal = Terminal()
    screen = Screen(terminal)
    terminal.write("epoch 1 done\n")
    screen.say("first")
    terminal.write("\rstep 7 [###   ]")
    screen.say("second")
    terminal.write("\rstep 8 [####  ]")
    screen.close()
    assert terminal.screen() == ["epoch 1 done", "lagom first", "step 7 [###   ]", "lagom second", "step 8 [####  ]"]


def test_the_state_of_the_search_stands_in_the_title_and_the_old_one_comes_back() -> None:
    terminal = Terminal()
    screen = Screen(terminal)
    screen.status("trial 3, 2 configs")
    screen.status("trial 3, 2 configs")
    screen.close()
    text = terminal.getvalue()
    assert text.count("\x1b]2;lagom: trial 3, 2 configs\x07") == 1
    assert text.startswith("\x1b[22;2t")
    assert text.endswith("\x1b[23;2t")
    assert terminal.screen() == [""]


def test_a_dumb_terminal_gets_no_title(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "dumb")
    terminal = Terminal()
    screen = Screen(terminal)
    screen.status("trial 3")
    screen.close()
    assert terminal.getvalue() == ""


@pytest.mark.parametrize("term", ["dumb", "unknown", "", None])
def test_a_dumb_terminal_gets_plain_lines(term: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if term is None:
        monkeypatch.delenv("TERM")
    else:
        monkeypatch.setenv("TERM", term)
    terminal = Terminal()
    with journal.Journal(tmp_path) as log, show_progress(tmp_path, 0.0, terminal):
        log.write(BASELINE)
        log.write(OUTCOME)
    assert all(line.startswith("lagom: ") for line in terminal.getvalue().splitlines())
    assert "improved" in terminal.getvalue()
    assert "\x1b" not in terminal.getvalue()


def test_only_what_this_job_adds_to_a_log_is_told(tmp_path: Path) -> None:
    with journal.Journal(tmp_path) as log:
        log.write(OUTCOME.model_copy(update={"reason": "of an earlier job", "t": time.time() - 100}))
        out, since = io.StringIO(), time.time()
        with show_progress(tmp_path, since, out):
            log.write(BASELINE.model_copy(update={"t": time.time()}))
            log.write(OUTCOME.model_copy(update={"t": time.time()}))
    assert "earlier" not in out.getvalue()
    assert [line.split(":")[0] for line in out.getvalue().splitlines()] == ["lagom", "lagom"]
    assert "improved" in out.getvalue()


def test_a_log_nobody_can_read_costs_nothing(tmp_path: Path) -> None:
    (tmp_path / journal.LOG_NAME).write_text('{"schema": 99, "event": "move"}\n')
    out = io.StringIO()
    with show_progress(tmp_path, 0.0, out):
        pass
    assert out.getvalue() == ""
