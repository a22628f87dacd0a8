"""The log as it grows, without waiting for it."""

from __future__ import annotations

import os
from pathlib import Path

from lagom.files import open_regular
from lagom.journal import LOG_NAME
from lagom.journal.reader import parse
from lagom.journal.schema import Base


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
