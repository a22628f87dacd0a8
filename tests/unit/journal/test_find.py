# SPDX-License-Identifier: Apache-2.0
"""What lies about under the names of logs: only ours are found, and nothing planted can hang or break a search."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from lagom.cli import complete
from lagom.errors import JournalError
from lagom.journal import LOG_NAME, Journal, Note, find_log, find_own_logs, read
from lagom.journal.reader import Tail

NOBODY = 65534


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def log(folder: str, age: int) -> Path:
    with Journal(Path(folder)) as journal:
        journal.write(Note(level="info", text=folder))
    os.utime(Path(folder, LOG_NAME), (age, age))
    return Path(folder, LOG_NAME)


def plant(kind: str, folder: Path) -> None:
    """Something that is no log of ours, newer than those that are."""
    if kind == "dangling folder":
        folder.symlink_to("/nonexistent")
        return
    if kind == "loop":
        folder.symlink_to(folder)
        return
    folder.mkdir()
    file = folder / LOG_NAME
    if kind == "fifo":
        os.mkfifo(file)
    elif kind == "dangling log":
        file.symlink_to("/nonexistent")
    elif kind == "folder":
        file.mkdir()
    else:
        log(str(folder), 9_000_000_000)
        if kind == "open to all":
            folder.chmod(0o777)
        elif os.geteuid() != 0:
            pytest.skip("only root can give a file to another user")
        else:
            os.chown(folder if kind == "their folder" else file, NOBODY, NOBODY)


KINDS = ("fifo", "dangling folder", "loop", "dangling log", "folder", "open to all", "their folder", "their log")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_no_log_of_ours_is_passed_over(kind: str, here: Path) -> None:
    old, new = log("lagom-old", 1), log("lagom-new", 2)
    plant(kind, here / "lagom-evil")
    assert find_own_logs(Path()) == [new, old]
    assert find_log() == new
    assert complete.log_folders("lagom-") == ["lagom-new", "lagom-old"]


def test_a_job_of_several_nodes_has_a_log_of_each(here: Path) -> None:
    a, old, b = log("lagom-job/node-a", 1), log("lagom-old", 2), log("lagom-job/node-b", 3)
    log("lagom-bench/runs", 4)  # no log of a node
    assert find_own_logs(Path()) == [b, old, a]
    assert find_log() == b
    assert find_log("lagom-job") == b
    assert find_log("lagom-job/node-a") == a
    with pytest.raises(JournalError, match="there is no log"):
        find_log("lagom-bench")


@pytest.mark.parametrize("kind", KINDS)
def test_where_nothing_else_lies_there_is_no_log(kind: str, here: Path) -> None:
    plant(kind, here / "lagom-evil")
    with pytest.raises(JournalError, match="of yours"):
        find_log()


def test_a_fifo_that_is_named_is_not_waited_for(here: Path) -> None:
    plant("fifo", here / "lagom-evil")
    with pytest.raises(JournalError, match="there is no log"):
        find_log("lagom-evil")
    with pytest.raises(JournalError, match="no regular file"):
        next(read(Path("lagom-evil", LOG_NAME)))
    assert Tail(Path("lagom-evil")).unread() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
def test_a_log_of_another_user_that_is_named_is_read(here: Path) -> None:
    plant("their folder", here / "lagom-evil")
    assert [event.kind for event in read(find_log("lagom-evil"))] == ["note"]
