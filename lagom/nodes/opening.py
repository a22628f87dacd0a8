# SPDX-License-Identifier: Apache-2.0
"""The exchange that a text names, a folder or a store, and in it the keys of one purpose: tuning, starts of each job, a
trial by the doctor."""

from __future__ import annotations

import re
from pathlib import Path

from lagom.nodes.exchange import Exchange, ExchangeError

ENDPOINT = re.compile(r"[^/\s]+:\d+")
NAME = re.compile(r"[a-z0-9]{1,40}(/[a-z0-9]{1,40})?")


def open_exchange(where: str, space: str, patience: float) -> Exchange:
    """The exchange at ``where``, a folder or ``HOST:PORT``; its keys are those below ``space``. Of a store that nobody
    hosts yet so many seconds are waited for one. Raises :class:`ExchangeError`, and :class:`UsageError` for an address
    that cannot be."""
    if not NAME.fullmatch(space):
        raise ValueError(f"{space!r} is no key space")
    exchange = _open(where, patience)
    exchange.space = space
    return exchange


def is_endpoint(where: str) -> bool:
    """Whether a text names a store, not a folder."""
    return ENDPOINT.fullmatch(where) is not None


def _open(where: str, patience: float) -> Exchange:
    from lagom.nodes.folder_exchange import FolderExchange
    from lagom.nodes.store_exchange import StoreExchange, read_endpoint

    if is_endpoint(where):
        return StoreExchange(*read_endpoint(where), patience)
    folder = Path(where)
    if not folder.is_absolute():
        raise ExchangeError(f"{where} is no absolute path; nodes that work in other folders would never meet.")
    return FolderExchange(folder)
