"""Which log is meant. One that is named may be anybody's; one that merely lies about is taken only if it is ours."""

from __future__ import annotations

from pathlib import Path

from lagom.errors import JournalError
from lagom.files import own_file
from lagom.journal.writer import LOG_NAME


def find_log(path: Path | str | None = None) -> Path:
    """The log meant by a file, a folder, or nothing (the newest ``./lagom-*``); raises :class:`JournalError`."""
    if path is None:
        return _newest_log(Path())
    path = Path(path)
    log = path / LOG_NAME if path.is_dir() else path
    if not log.is_file():
        raise JournalError(f"there is no log at {log}; name a log folder (lagom-<job>) or a {LOG_NAME} file.")
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
