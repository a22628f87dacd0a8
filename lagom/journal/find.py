"""Which log is meant. One that is named may be anybody's; one that merely lies about is taken only if it is ours."""

from __future__ import annotations

import contextlib
from pathlib import Path

from lagom.errors import JournalError
from lagom.files import open_regular, own_file
from lagom.journal.writer import LOG_NAME

FIRST_BYTES = 4096


def find_log(path: Path | str | None = None) -> Path:
    """The log meant by a file, a folder, or nothing (the newest ``./lagom-*``); raises :class:`JournalError`."""
    if path is None:
        return _newest_log(Path())
    path = Path(path)
    log = path / LOG_NAME if path.is_dir() else path
    if not log.is_file():
        raise JournalError(f"there is no log at {log}; name a log folder (lagom-<job>) or a {LOG_NAME} file.")
    return log


def find_written(path: Path | str | None = None) -> Path:
    """The same of a log that is there to be told of: :class:`JournalError` also where nothing is in it yet."""
    log = find_log(path)
    with contextlib.suppress(OSError), open_regular(log) as file:  # who reads it says why it cannot be read
        if not file.read(FIRST_BYTES).strip():
            raise JournalError(
                f"{log} is empty: no job has written to it yet, or its disk was full; name the log of another job."
            )
    return log


def own_logs(here: Path, folders: str = "lagom-*") -> list[Path]:
    """The logs in folders below ``here``, newest first: regular files that nobody but this user could have written.
    Links to nothing, FIFOs and logs of other users are passed over, as is what goes away meanwhile."""
    ours = {log: status.st_mtime for log in here.glob(f"{folders}/{LOG_NAME}") if (status := own_file(log)) is not None}
    return sorted(ours, key=lambda log: ours[log], reverse=True)


def _newest_log(here: Path) -> Path:
    logs = own_logs(here)
    if not logs:
        raise JournalError(
            f"there is no lagom-*/{LOG_NAME} of yours in {here.absolute()}; name the log folder of the job."
        )
    return logs[0]
