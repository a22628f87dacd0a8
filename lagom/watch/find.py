# SPDX-License-Identifier: Apache-2.0
"""Which jobs of this user run on this node, and where their logs are. Looks only; takes nothing, removes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from lagom import environment
from lagom.environment import read_process_command, read_process_environment
from lagom.errors import JournalError, UsageError
from lagom.files import open_regular, own_file
from lagom.journal import LOG_NAME, JobStart, find_log, find_own_logs
from lagom.journal.reader import parse
from lagom.journal.reader import read as journal_events
from lagom.settings import NODE_FOLDER, read
from lagom.watch.build import readable_name
from lagom.wire.peek import RegionView, peek_region

CONTROLLER = "lagom.controller"


@dataclass(frozen=True, slots=True)
class Named:
    """A job that was asked for. ``folder``: its log, if it has one; ``region``: where it runs, else the log says."""

    folder: Path | None
    region: Path | None = None


def regions() -> list[Path]:
    """Every file that may be a region of ours, in LAGOM_SHM_DIR."""
    folder = Path(read("LAGOM_SHM_DIR"))
    return sorted(path for path in folder.glob(f"lagom-{os.getuid()}-*") if ".tmp." not in path.name)


def find_log_folder(seen: RegionView) -> Path | None:
    """The log folder of a region's job: that of its controller, that of its ranks, or one here that names the region.
    Only a log of our own user counts: a process id may now belong to another user, and anyone can name a region."""
    for folder in _candidates(seen):
        if own_file(folder / LOG_NAME) is not None and read_region_path(folder) == seen.path:
            return folder.absolute()
    return None


def _candidates(seen: RegionView) -> Iterator[Path]:
    if seen.controller_alive and (folder := _told_to_controller(seen)) is not None:
        yield folder
    for process in seen.processes:
        if (folder := _told_to_rank(process.pid)) is not None:
            yield folder
    yield from (log.parent for log in find_own_logs(Path()))


def _told_to_controller(seen: RegionView) -> Path | None:
    """``--dir`` of its command line. The pid may be of another PID namespace: the line must speak of this region."""
    words = read_process_command(seen.controller_pid)
    is_it = any(CONTROLLER in word for word in words) and {seen.job_key, str(seen.path)} & set(words)
    if not is_it or "--dir" not in words[:-1]:
        return None
    return _absolute(seen.controller_pid, words[words.index("--dir") + 1])


def _told_to_rank(pid: int) -> Path | None:
    folder = read_process_environment(pid).get("LAGOM_DIR", "")
    return _absolute(pid, folder) if folder else None


def _absolute(pid: int, folder: str) -> Path | None:
    try:
        return (environment.PROC / str(pid) / "cwd").resolve(strict=True) / folder
    except OSError:
        return Path(folder) if folder.startswith("/") else None


def read_region_path(folder: Path) -> Path | None:
    """The region that the last job of a log used; ``None`` without a log, or where it does not say."""
    last = None
    try:
        with open_regular(folder / LOG_NAME) as file:
            for line in file:
                if b'"job_start"' in line[:256]:
                    last = line
        start = parse(last.decode(errors="replace")) if last is not None else None
    except (OSError, JournalError):
        return None
    return Path(start.region) if isinstance(start, JobStart) and start.region else None


def _telling(folder: Path) -> Path:
    """The folder of a log that was asked for by name, if it says where its job runs: else nothing would be shown, as if
    nothing ran. Raises :class:`JournalError` for what is no log, and :class:`UsageError` for one that does not say."""
    if read_region_path(folder) is None:
        for _ in journal_events(folder / LOG_NAME):
            pass
        raise UsageError(
            f"{folder / LOG_NAME} does not say where its job runs: its first line is damaged, or not written yet; "
            "`lagom log` prints what can be read, and `lagom watch` alone shows every job of yours that runs."
        )
    return folder


def _own_log_in(folder: Path) -> Path | None:
    """The log in a job's log folder; of a job that spans nodes the newest one of theirs."""
    logs = [log for log in (folder / LOG_NAME,) if own_file(log) is not None]
    return next(iter([*logs, *find_own_logs(folder, f"{NODE_FOLDER}*")]), None)


def find_job(job: str) -> Named:
    """The job meant by a path or by its name, as ``watch`` shows it; raises :class:`UsageError` or
    :class:`JournalError` where there is none, or its log does not say where it runs."""
    path, beside = Path(job), Path(f"lagom-{job}")
    if path.is_file() or (path / LOG_NAME).exists() or _own_log_in(path):
        return Named(_telling(find_log(path).parent))
    running = [seen for seen in map(peek_region, regions()) if seen.processes or seen.controller_alive]
    for seen in running:
        if readable_name(seen.job_key) == readable_name(job):
            return Named(find_log_folder(seen), seen.path)
    if (log := _own_log_in(beside)) is not None:
        return Named(_telling(log.parent))
    known = ", ".join(readable_name(seen.job_key) for seen in running) or "none is running here"
    raise UsageError(f"there is no job and no log folder '{job}'; jobs on this node: {known}.")
