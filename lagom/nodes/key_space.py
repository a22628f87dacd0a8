# SPDX-License-Identifier: Apache-2.0
"""Keys of one purpose in a folder or store that serves several: tuning, starts of each job, a trial by the doctor."""

from __future__ import annotations

import re
from pathlib import Path

from lagom.nodes.exchange import Exchange, ExchangeError

ENDPOINT = re.compile(r"[^/\s]+:\d+")
NAME = re.compile(r"[a-z0-9]{1,40}(/[a-z0-9]{1,40})?")


class KeySpace(Exchange):
    """The part of another exchange below ``space``, which its own keys never meet."""

    def __init__(self, whole: Exchange, space: str) -> None:
        if not NAME.fullmatch(space):
            raise ValueError(f"{space!r} is no key space")
        self._whole, self._space = whole, space
        self.name, self.may_coordinate, self.is_host = whole.name, whole.may_coordinate, whole.is_host

    def close(self) -> None:
        """Close the whole exchange."""
        self._whole.close()

    def _put_once(self, key: str, data: bytes) -> bytes:
        return self._whole._put_once(f"{self._space}/{key}", data)

    def _put(self, key: str, data: bytes) -> None:
        self._whole._put(f"{self._space}/{key}", data)

    def _get(self, key: str) -> bytes | None:
        return self._whole._get(f"{self._space}/{key}")


def open_exchange(where: str, space: str, patience: float) -> KeySpace:
    """The exchange at ``where``, a folder or ``HOST:PORT``. Of a store that nobody hosts yet so many seconds are
    waited for one. Raises :class:`ExchangeError`, and :class:`UsageError` for an address that cannot be."""
    from lagom.nodes.folder_exchange import FolderExchange
    from lagom.nodes.store_exchange import StoreExchange, read_endpoint

    if ENDPOINT.fullmatch(where):
        return KeySpace(StoreExchange(*read_endpoint(where), patience), space)
    folder = Path(where)
    if not folder.is_absolute():
        raise ExchangeError(f"{where} is no absolute path; nodes that work in other folders would never meet.")
    return KeySpace(FolderExchange(folder), space)
