# SPDX-License-Identifier: Apache-2.0
"""The folder of raw samples. What lies there is continued, and what it names is run: nobody else may write to it."""

from __future__ import annotations

import fcntl
import itertools
import os
import stat
from collections.abc import Iterable
from pathlib import Path

from lagom.experiment.store import FILE, BadRecord, is_record
from lagom.files import not_ours, open_append, trusted_owners

#: Whatever the umask.
MODE = 0o755
LOCK = ".lock"


def claim(folder: Path, *, is_named: bool = False) -> str:
    """Make the folder, and have it for this process as long as it lives: two that write one record would lose each
    other's processes. ``is_named``: the user asked for it, and so may let its group write there.

    Returns one sentence about a folder that is accepted with a risk, else nothing. Raises :class:`BadRecord` where
    others could have written what it holds, where another process has it, or nothing can be written.
    """
    try:
        reason = next(filter(None, map(_others_link, folder.parents)), "")
        if not reason:
            folder.mkdir(MODE, parents=True, exist_ok=True)
            reason = not_ours(folder)
        said = ""
        if not reason and os.stat(folder).st_mode & stat.S_IWGRP:
            said = f"{folder} may be written by its group: whoever is in it decides what the next run sets."
            reason = "" if is_named else "may be written by its group (--out with its name accepts that)"
        if reason:
            raise BadRecord(f"{folder} {reason}, so it is not used; name a folder of your own with --out.")
        lock = open_append(folder / LOCK)
    except OSError as error:
        why = error.strerror or error
        raise BadRecord(f"{folder / LOCK} cannot be written ({why}); name another folder with --out.") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        raise BadRecord(
            f"another lagom measures in {folder}; wait for it, or name another folder with --out."
        ) from None
    except OSError:
        pass  # a file system without locks
    return said


def _others_link(path: Path) -> str:
    """Why a folder on the way may lead somewhere else tomorrow; empty where it does not."""
    if path.is_symlink() and (owner := path.lstat().st_uid) not in trusted_owners():
        return f"lies below {path}, a link of another user ({owner})"
    return ""


def discard(folder: Path, found: Iterable[str] = ()) -> str:
    """Throw away what the folder holds of a benchmark, and the files named ``found`` that were made of it; raises
    :class:`BadRecord`. A file of that name that is no record of lagom, or is damaged, is kept under another name:
    returns one sentence about it, else nothing."""
    record = folder / FILE
    kept = None if not record.is_file() or is_record(record) else _unused_name(record)
    try:
        for path in (folder / name for name in found):
            path.unlink(missing_ok=True)
        path = record
        if kept is None:
            record.unlink(missing_ok=True)
            return ""
        record.rename(kept)
    except OSError as error:
        why = error.strerror or error
        raise BadRecord(
            f"{path} cannot be removed ({why}); remove it by hand, or use another folder with --out."
        ) from error
    return f"{record} is not a benchmark file of lagom, or is damaged; it is kept as {kept.name}."


def _unused_name(path: Path) -> Path:
    names = (path.with_name(f"{path.name}.{number}") for number in itertools.count(1))
    return next(name for name in names if not os.path.lexists(name))
