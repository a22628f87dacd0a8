# SPDX-License-Identifier: Apache-2.0
"""A folder that all nodes see: one file a key. A file is made whole under another name and then linked into place,
which is atomic on NFS too, and of several writers one wins. No lock: a node that is stopped holds nothing."""

from __future__ import annotations

import errno
import math
import os
import time
from contextlib import suppress
from pathlib import Path

from lagom.files import not_ours, open_own, write_whole
from lagom.nodes.exchange import MOST_BYTES, Exchange, ExchangeError
from lagom.nodes.worker import DEADLINE

MODE = 0o755
#: A file system has replaced what was just found: looked for once more.
STALE = (errno.ESTALE, errno.ENOENT)
#: Between two listings for one key that is waited for: every node asks for it about ten times a second, and a listing
#: of a hundred nodes' files each time would be a load for the server.
LIST_SECONDS = 0.5


class FolderExchange(Exchange):
    """Records in ``folder``, which is made if its parent is there. Raises :class:`ExchangeError` where another user
    could write to it."""

    def __init__(self, folder: Path, deadline: float = DEADLINE) -> None:
        super().__init__(str(folder), deadline)
        self._folder = folder.absolute()
        self._checked: set[Path] = set()
        self._listed: dict[str, float] = {}  # by key that is not there yet: when its folders were listed last
        self._in_time(lambda: self._make(self._folder))

    def _make(self, folder: Path) -> None:
        """Make a folder of ours, once; what is there already is looked at."""
        if folder in self._checked:
            return
        try:
            with suppress(FileExistsError):
                folder.mkdir(MODE)
            reason = not_ours(folder)
        except OSError as error:
            raise self._failed(error) from error
        if reason:
            raise ExchangeError(f"{folder} {reason}, so it is not used; name a folder of your own with --out.")
        self._checked.add(folder)

    def _path(self, key: str) -> Path:
        """Of a key that is to be written; its folders are made."""
        *folders, name = key.split("/")
        path = self._folder
        for one in folders:
            path /= one
            self._make(path)
        return path / name

    def _put_once(self, key: str, data: bytes) -> bytes:
        path = self._path(key)
        if (found := self._get(key)) is not None:
            return found
        fresh = path.with_name(f".lagom-{os.urandom(8).hex()}")
        try:
            write_whole(fresh, data, mode=0o644)
            try:
                with suppress(FileExistsError):
                    os.link(fresh, path)
            finally:
                fresh.unlink(missing_ok=True)
        except OSError as error:
            raise self._failed(error) from error
        if (found := self._get(key)) is None:
            raise ExchangeError(f"{path} was written and is not there; is {self.name} shared by all nodes?")
        return found

    def _put(self, key: str, data: bytes) -> None:
        try:
            write_whole(self._path(key), data, mode=0o644)
        except OSError as error:
            raise self._failed(error) from error

    def _get(self, key: str) -> bytes | None:
        path = self._folder / key
        try:
            found = _read(path)
            if found is None and self._is_listed(key):
                found = _read(path)
            if found is not None:
                self._listed.pop(key, None)
        except OSError as error:
            raise self._failed(error) from error
        return found

    def _is_listed(self, key: str) -> bool:
        """An NFS client may remember for up to a minute that a name was not there; it looks anew at a folder that is
        listed."""
        now = time.monotonic()
        if now - self._listed.get(key, -math.inf) < LIST_SECONDS:
            return False
        self._listed[key] = now
        path = self._folder
        for name in key.split("/"):
            try:
                if name not in os.listdir(path):
                    return False
            except OSError as error:
                if error.errno in STALE:
                    return False
                raise
            path /= name
        return True

    def _failed(self, error: OSError) -> ExchangeError:
        return ExchangeError(self._gone(error.strerror or str(error), error.filename))

    def _gone(self, why: str, path: str = "") -> str:
        return (
            f"{path or self.name} cannot be used ({why}); name a folder with --out that all nodes can write, "
            "on a file system with hard links, or use --rdzv-endpoint HOST:PORT."
        )


def _read(path: Path) -> bytes | None:
    """At most one byte more than may be; None if it is not there."""
    try:
        descriptor = open_own(path)
    except OSError as error:
        if error.errno in STALE:
            return None
        raise
    try:
        with os.fdopen(descriptor, "rb") as file:
            return file.read(MOST_BYTES + 1)
    except OSError as error:
        if error.errno in STALE:
            return None
        raise
