# SPDX-License-Identifier: Apache-2.0
"""Jobs are found by their shared memory, logs by what controller, ranks and logs themselves say."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from lagom import environment, journal
from lagom.errors import LagomError, UsageError
from lagom.watch import Watcher, find
from lagom.wire.peek import peek_region
from lagom.wire.region import Region, RegionRefused
from tests.unit.watch.pictures import START, group, region, slot


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(shm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def log_of(folder: Path, path: Path, *more: journal.Base) -> Path:
    with journal.Journal(folder) as log:
        log.write(START.model_copy(update={"region": str(path)}))
        for event in more:
            log.write(event)
    return folder


def test_a_look_changes_nothing_and_takes_no_lock(shm: Path) -> None:
    with Region.create("job-a") as held:
        before = held.path.read_bytes()
        watcher = Watcher()
        for _ in range(3):
            (job,) = watcher.look().running
        assert job.controller_pid == os.getpid()
        assert held.path.read_bytes() == before
        child = os.fork()
        if child == 0:  # another process still finds the lock where it was
            try:
                Region.attach(held.path)
            except RegionRefused:
                os._exit(0)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        held.close(unlink=True)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("root:x:0:0\n", "is no decision log of lagom"),
        ('{"schema": 2, "t": 1.0, "event": "job_start", "jo\n', "is no decision log of lagom"),
        ('{"schema": 2, "t": 1.0, "event": "note", "text": "hello"}\n', "does not say where its job runs"),
        ("", "does not say where its job runs"),
        ('{"schema": 999, "t": 1.0, "event": "job_start"}\n', "schema 999"),
    ],
)
def test_a_log_that_does_not_say_where_its_job_runs_is_told_of(content: str, said: str, tmp_path: Path) -> None:
    """Not as if no job ran, which nobody knows."""
    folder = tmp_path / "lagom-a"
    folder.mkdir()
    (folder / journal.LOG_NAME).write_text(content)
    for name in (str(folder), "a", str(folder / journal.LOG_NAME)):
        with pytest.raises(LagomError, match=said):
            find.find_job(name)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_log_that_may_not_be_read_is_told_of(tmp_path: Path) -> None:
    folder = log_of(tmp_path / "lagom-a", tmp_path / "region")
    (folder / journal.LOG_NAME).chmod(0)
    with pytest.raises(LagomError, match="Permission denied"):
        find.find_job(str(folder))


@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"LAGOM01\0" * 100_000])
def test_what_is_no_region_is_passed_over(shm: Path, content: bytes) -> None:
    file = shm / f"lagom-{os.getuid()}-feedfeedfeedfeed"
    file.write_bytes(content)
    file.chmod(0o600)
    assert Watcher().look().jobs == ()
    assert peek_region(file).fault


def test_a_region_cut_short_while_it_is_mapped_is_a_fault_not_a_crash(shm: Path) -> None:
    held = Region.create("job-c")
    os.truncate(held.path, 4096)
    assert peek_region(held.path).fault
    os.truncate(held.path, 8 << 20)
    held.close(unlink=True)


def test_a_job_that_goes_is_said_to_have_ended_with_its_logs_reason(tmp_path: Path) -> None:
    held = Region.create("job-b")
    log = log_of(tmp_path / "lagom-b", held.path)
    watcher = Watcher()
    (job,) = watcher.look().running
    assert (job.job, job.folder) == ("myjob", str(log))
    with journal.Journal(log) as journal_:
        journal_.write(journal.JobEnd(reason="the launcher has gone"))
    held.close(unlink=True)
    assert [(job.job, job.ended) for job in watcher.look().jobs] == [("myjob", "the launcher has gone")]


def test_a_job_that_vanishes_without_a_word_is_said_too() -> None:
    held = Region.create("job-d")
    watcher = Watcher()
    assert watcher.look().running
    held.close(unlink=True)
    (gone,) = watcher.look().jobs
    assert "its log does not say why" in gone.ended


def test_one_named_folder_is_followed_alone_and_to_its_end(tmp_path: Path) -> None:
    one, other = Region.create("job-e"), Region.create("job-f")
    log = log_of(tmp_path / "lagom-e", one.path)
    watcher = Watcher(find.Named(log))
    assert [job.region for job in watcher.look().jobs] == [str(one.path)]
    one.close(unlink=True)
    assert not watcher.look().running
    other.close(unlink=True)


def test_a_log_that_served_another_job_before_is_not_believed(tmp_path: Path) -> None:
    with Region.create("job-g") as held:
        log_of(tmp_path / "lagom-g", tmp_path / "another-region")
        (job,) = Watcher().look().running
        assert (job.folder, job.mode) == ("", "")
        held.close(unlink=True)


def test_a_log_that_goes_over_to_another_job_is_not_believed_any_more(tmp_path: Path) -> None:
    with Region.create("job-i") as held:
        log = log_of(tmp_path / "lagom-i", held.path)
        watcher = Watcher()
        assert watcher.look().running[0].mode == "tune"
        log_of(log, tmp_path / "another-region")
        assert watcher.look().running[0].mode == ""
        held.close(unlink=True)


def test_the_last_job_of_a_log_names_its_region(tmp_path: Path) -> None:
    log_of(tmp_path / "lagom-h", tmp_path / "first")
    folder = log_of(tmp_path / "lagom-h", tmp_path / "second")
    assert find.read_region_path(folder) == tmp_path / "second"
    (folder / "decisions.jsonl").write_text('{"schema": 99, "event": "job_start", "region": "/x"}\n')
    assert find.read_region_path(folder) is None


def proc(folder: Path, pid: int, file: str, words: list[str], cwd: Path) -> None:
    (folder / str(pid)).mkdir(parents=True)
    (folder / str(pid) / file).write_bytes("\0".join(words).encode())
    (folder / str(pid) / "cwd").symlink_to(cwd)


@pytest.mark.parametrize("start", [["-m", "lagom.controller"], ["-c", "run_module('lagom.controller')", "/site"]])
def test_the_controllers_command_line_says_where_its_log_is(
    start: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "PROC", tmp_path / "proc")
    seen = replace(region(group(slot(0))), path=tmp_path / "region")
    log = log_of(tmp_path / "deep" / "log", seen.path)
    line = ["python", *start, "--job-key", seen.job_key, "--dir", "log", "--mode", "tune"]
    proc(tmp_path / "proc", seen.controller_pid, "cmdline", line, tmp_path / "deep")
    assert find.find_log_folder(seen) == log
    assert find.find_log_folder(replace(seen, job_key="another", path=tmp_path / "other")) is None


def test_a_ranks_environment_says_it_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "PROC", tmp_path / "proc")
    seen = replace(region(group(slot(0)), controller=False), path=tmp_path / "region")
    log = log_of(tmp_path / "deep" / "log", seen.path)
    proc(tmp_path / "proc", seen.processes[0].pid, "environ", ["A=1", f"LAGOM_DIR={log}"], tmp_path)
    assert find.find_log_folder(seen) == log


def test_a_job_is_named_by_its_folder_or_its_name(tmp_path: Path) -> None:
    folder = log_of(tmp_path / "lagom-night", tmp_path / "region")
    assert find.find_job(str(folder)) == find.Named(folder)
    assert find.find_job("night") == find.Named(Path("lagom-night"))
    with pytest.raises(UsageError, match=r"no job and no log folder 'day'.*none is running here"):
        find.find_job("day")


def test_a_running_job_without_a_log_is_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "rep").mkdir()  # a folder of that name that is no log folder is not meant
    with Region.create("lagom.rep uid=0 boot=1 host=-") as held, Region.create("lagom.other uid=0 boot=1") as other:
        assert find.find_job("rep") == find.Named(None, held.path)
        watcher = Watcher(find.find_job("rep"))
        assert [(job.job, job.folder) for job in watcher.look().running] == [("rep", "")]
        with pytest.raises(UsageError, match=r"jobs on this node: (rep, other|other, rep)\."):
            find.find_job("day")
        held.close(unlink=True)
        assert [bool(job.ended) for job in watcher.look().jobs] == [True]
        other.close(unlink=True)


def test_a_running_job_is_meant_rather_than_a_log_of_its_name_that_lies_here(tmp_path: Path) -> None:
    log_of(tmp_path / "lagom-rep", tmp_path / "another-region")
    with Region.create("lagom.rep uid=0 boot=1 host=-") as held:
        assert find.find_job("rep") == find.Named(None, held.path)
        mine = log_of(tmp_path / "lagom-rep", held.path)
        assert find.find_job("rep") == find.Named(mine, held.path)
        held.close(unlink=True)


@pytest.mark.parametrize("kind", ["fifo", "dangling"])
def test_what_is_planted_beside_a_running_job_neither_hangs_nor_breaks_a_look(kind: str, tmp_path: Path) -> None:
    if kind == "fifo":
        (tmp_path / "lagom-x").mkdir()
        os.mkfifo(tmp_path / "lagom-x" / "decisions.jsonl")
        assert find.read_region_path(tmp_path / "lagom-x") is None
    else:
        (tmp_path / "lagom-gone").symlink_to("/nonexistent")
    with Region.create("job-p") as held:
        (job,) = Watcher().look().running
        assert job.folder == ""
        held.close(unlink=True)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")
@pytest.mark.parametrize("told", [False, True], ids=["lies here", "a pid gone to another user"])
def test_another_users_log_that_names_our_region_is_not_believed(
    told: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "PROC", tmp_path / "proc")
    seen = replace(region(group(slot(0)), controller=False), path=tmp_path / "region")
    log = log_of(tmp_path / ("deep/log" if told else "lagom-evil"), seen.path)
    if told:
        proc(tmp_path / "proc", seen.processes[0].pid, "environ", [f"LAGOM_DIR={log}"], tmp_path)
    assert find.find_log_folder(seen) == log
    os.chown(log, 65534, 65534)
    assert find.find_log_folder(seen) is None


def test_a_job_of_several_nodes_is_found_by_its_folder_and_by_its_name(tmp_path: Path) -> None:
    log = log_of(tmp_path / "lagom-42" / "node-a", tmp_path / "region")
    for name in ("lagom-42", "42", "lagom-42/node-a"):
        folder = find.find_job(name).folder
        assert folder is not None
        assert folder.absolute() == log
