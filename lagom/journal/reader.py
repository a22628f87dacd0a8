# SPDX-License-Identifier: Apache-2.0
"""Finds a log and reads it back: whole, or as it grows.

A crash may have torn a line: such lines are skipped and counted. A log of another schema is refused by its number.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from lagom.errors import JournalError
from lagom.files import newest_own, open_regular
from lagom.journal.schema import EVENT, SCHEMA, Base
from lagom.journal.writer import LOG_NAME
from lagom.records import printable
from lagom.settings import NODE_FOLDER

FOLLOW_SECONDS = 0.2


def read(
    path: Path | str,
    *,
    follow: bool = False,
    stop: Callable[[], bool] = lambda: False,
    on_damage: Callable[[int, str], None] = lambda number, line: None,
) -> Iterator[Base]:
    """Every event of a log file, in order; with ``follow`` also those still to come, until ``stop()`` or the last line
    is a job_end (a folder may hold several jobs, one after the other).

    ``on_damage(line_number, line)`` hears of lines that could not be read. Raises :class:`JournalError` for another
    schema, and for a file that has lines but not one event.
    """
    last, number = "", 0

    def over() -> bool:
        return last == "job_end" or stop()

    for number, line in _lines(Path(path), follow, over):
        event = parse(line, number)
        if event is None:
            on_damage(number, line)
            continue
        last = event.kind
        yield event
    if number and not last:
        raise JournalError(f"{path} is no decision log of lagom; name a log folder (lagom-<job>) or its {LOG_NAME}.")


def parse(line: str, number: int = 0) -> Base | None:
    """One line as an event; None if it is torn or garbage; raises :class:`JournalError` for another schema."""
    try:
        data: Any = json.loads(line)
    except (ValueError, RecursionError):  # torn; or nested without end
        return None
    if not isinstance(data, dict):
        return None
    version = data.get("schema", SCHEMA)
    if version != SCHEMA:
        raise JournalError(
            f"line {number} has schema {version} and this lagom reads schema {SCHEMA}; "
            "use the version of lagom that wrote the log."
        )
    try:
        event: Base = EVENT.validate_python(_plain(data))
    except ValidationError:
        return None
    return event


def is_torn(line: str) -> bool:
    """Whether a line that :func:`parse` could not read is the beginning of one: no JSON, though it begins as ours do.
    Such a line need not be the last: the next writer went on below it."""
    try:
        json.loads(line)
    except (ValueError, RecursionError):
        return line.startswith("{")
    return False


def _plain(value: Any) -> Any:
    """With no control character in any text: names are the job's own, and readers put them on terminals and pages."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, list):
        return [_plain(one) for one in value]
    if isinstance(value, dict):
        return {printable(name): _plain(one) for name, one in value.items()}
    return value


def _lines(path: Path, follow: bool, stop: Callable[[], bool]) -> Iterator[tuple[int, str]]:
    """Complete lines with their numbers. The last line counts only once its newline is there."""
    number, rest = 0, b""
    try:
        file = open_regular(path)
    except OSError as error:
        raise JournalError(f"cannot read {path} ({error.strerror}); check the path and its permissions.") from error
    with file:
        while True:
            block = file.read(1 << 16)
            if not block:
                if not follow or stop():
                    break
                time.sleep(FOLLOW_SECONDS)
                continue
            *whole, rest = (rest + block).split(b"\n")
            for line in whole:
                number += 1
                if line.strip():
                    yield number, line.decode(errors="replace")
    if rest.strip():
        yield number + 1, rest.decode(errors="replace")  # readable only if nothing but the newline is missing


# -- as it grows, without waiting for it


class Tail:
    """Hands out each event of a log folder once."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / LOG_NAME
        self._offset = 0

    def unread(self) -> list[Base]:
        """Events whose lines are complete and were not handed out before; nothing while there is no log. A log that
        has become shorter is another one, and is read from its start. Raises :class:`JournalError` for another schema.
        """
        try:
            with open_regular(self._path) as file:
                if os.fstat(file.fileno()).st_size < self._offset:
                    self._offset = 0
                file.seek(self._offset)
                block = file.read()
        except OSError:
            return []
        whole = block[: block.rfind(b"\n") + 1]
        self._offset += len(whole)
        events = (parse(line.decode(errors="replace")) for line in whole.splitlines() if line.strip())
        return [event for event in events if event is not None]


# -- which log is meant: one that is named may be anybody's; one that merely lies about is taken only if it is ours

FIRST_BYTES = 4096


def find_log(path: Path | str | None = None) -> Path:
    """The log meant by a file, a folder, or nothing (the newest ``./lagom-*``); raises :class:`JournalError`."""
    if path is None:
        return _newest_log(Path())
    path = Path(path)
    log = path / LOG_NAME if path.is_dir() else path
    if path.is_dir() and not log.is_file():
        log = next(iter(find_own_logs(path, f"{NODE_FOLDER}*")), log)  # of a job that spans nodes, the newest of them
    if not log.is_file():
        raise JournalError(f"there is no log at {log}; name a log folder (lagom-<job>) or a {LOG_NAME} file.")
    return log


def find_written(path: Path | str | None = None) -> Path:
    """The same, but a log that is still empty is a :class:`JournalError`, too."""
    log = find_log(path)
    with contextlib.suppress(OSError), open_regular(log) as file:  # who reads it says why it cannot be read
        if not file.read(FIRST_BYTES).strip():
            raise JournalError(
                f"{log} is empty: no job has written to it yet, or its disk was full; name the log of another job."
            )
    return log


def find_own_logs(here: Path, folders: str = "lagom-*") -> list[Path]:
    """The logs in folders below ``here``, and one folder deeper those of a job's nodes, newest first: regular files
    that nobody but this user could have written. Links to nothing, FIFOs and logs of other users are passed over, as is
    what goes away meanwhile."""
    return newest_own([*here.glob(f"{folders}/{LOG_NAME}"), *here.glob(f"{folders}/{NODE_FOLDER}*/{LOG_NAME}")])


def _newest_log(here: Path) -> Path:
    logs = find_own_logs(here)
    if not logs:
        raise JournalError(
            f"there is no lagom-*/{LOG_NAME} of yours in {here.absolute()}; name the log folder of the job."
        )
    return logs[0]
