# SPDX-License-Identifier: Apache-2.0
"""Files in places where other users can write too: their links are not followed, their files are not used as ours, and
files are written atomically. For libraries and programs the C side has ``csrc/shm/ownership.h``."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from lagom.errors import UsageError

#: Never writable by all, whatever the umask: the content of a log folder is trusted.
FOLDER_MODE = 0o775
LARGEST_READ = 1 << 20
#: A user id that a file system gives to what is ours, as NFS and volumes of Kubernetes do.
OWNER_VARIABLE = "LAGOM_TRUSTED_OWNER"
NOBODY = 65534
_LINKS = 8


def trusted_owners() -> set[int]:
    """Root, this user, the owner of ``/`` (in a user namespace the system's files belong to nobody we can name) and of
    the running program: all of them could do what they like without us. And whom the user names by OWNER_VARIABLE."""
    owners = {0, os.geteuid()}
    if (named := os.environ.get(OWNER_VARIABLE, "")).isdecimal():
        owners.add(int(named))
    for path in ("/", "/proc/self/exe"):
        with suppress(OSError):
            owners.add(os.stat(path).st_uid)
    return owners


def not_ours(folder: Path) -> str:
    """Why a log folder cannot be used: one clause, empty where it can. Raises OSError if it is not there."""
    trusted = trusted_owners()
    for status in (os.lstat(folder), os.stat(folder)):
        if status.st_uid not in trusted:
            mapped = f"; where NFS calls you that, see {OWNER_VARIABLE}" if status.st_uid == NOBODY else ""
            return f"belongs to another user ({status.st_uid}{mapped})"
    return "may be written by every user" if os.stat(folder).st_mode & stat.S_IWOTH else ""


def open_append(path: Path) -> int:
    """A descriptor for appending to ``path``, made if missing; OSError where it is a link or somebody else's file."""
    flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return _checked(path, os.open(path, flags, 0o644))


def open_fresh(path: Path) -> int:
    """A descriptor for writing ``path`` from its beginning, made if missing; OSError where it is a link or somebody
    else's file, which keeps what it holds."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    descriptor = _checked(path, os.open(path, flags, 0o644))
    os.ftruncate(descriptor, 0)
    return descriptor


def open_own(path: Path) -> int:
    """A descriptor for reading; OSError where the file is a link, a FIFO or another user's."""
    return _checked(path, os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))


def own_file(path: Path) -> os.stat_result | None:
    """The status of a regular file of ours in a folder of ours, so that nobody else can have put it there or can put
    another in its place; None for whatever else ``path`` may be. Nothing is opened."""
    try:
        status = path.stat()
        ours = stat.S_ISREG(status.st_mode) and status.st_uid in trusted_owners() and not not_ours(path.parent)
    except OSError:
        return None
    return status if ours else None


def newest_own(paths: Iterable[Path]) -> list[Path]:
    """Those of ``paths`` that are an :func:`own_file`, newest first; of files as old as each other, as they came."""
    ours = {path: status.st_mtime for path in paths if (status := own_file(path)) is not None}
    return sorted(ours, key=lambda path: ours[path], reverse=True)


def open_regular(path: Path) -> BinaryIO:
    """A file to read that somebody named, whoever owns it; OSError where it is none: a FIFO would be waited for."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return os.fdopen(descriptor, "rb")


def read_own(path: Path) -> str:
    """The text of a small file; OSError where it is a link, another user's, or larger than a MiB."""
    with os.fdopen(open_own(path), "rb") as file:
        data = file.read(LARGEST_READ + 1)
    if len(data) > LARGEST_READ:
        raise OSError(errno.EFBIG, "it is larger than a MiB", str(path))
    return data.decode()


def write_whole(path: Path, content: str | bytes, *, mode: int = 0o666, sync: bool = False) -> None:
    """Write ``content`` beside ``path`` under a name nobody can guess, then put it in place in one step. ``mode`` is
    that of a new file, less the umask. ``sync``: a machine that dies after this keeps it.

    What takes text as it comes (a terminal, ``/dev/stdout``, a FIFO that is read) is written to, not replaced. OSError
    where ``path`` names a folder, or is neither.
    """
    if not path.name:
        raise OSError(errno.EISDIR, "it is a folder", str(path))
    data = content if isinstance(content, bytes) else content.encode()
    if _is_stream(path):
        flags = os.O_WRONLY | os.O_APPEND | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "wb") as stream:
            os.set_blocking(stream.fileno(), True)
            stream.write(data)
        return
    fresh = path.with_name(f".lagom-{os.urandom(8).hex()}")
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            if path.is_file() and not path.is_symlink():
                os.fchmod(descriptor, stat.S_IMODE(path.stat().st_mode))  # as open to others as what it replaces
            file.write(data)
            file.flush()
            if sync:
                os.fsync(descriptor)
        fresh.replace(path)
    except BaseException:
        fresh.unlink(missing_ok=True)
        raise


def check_named(path: Path) -> None:
    """Refuse a file that a user named and that could not be written, before time is spent on what shall be in it. It is
    not touched. Raises :class:`UsageError`."""
    file = _followed(path)
    reason = "it is a folder" if file.is_dir() else "there is no such folder" if not file.parent.is_dir() else ""
    if not reason and not os.access(file if file.exists() and not file.is_file() else file.parent, os.W_OK):
        reason = "it may not be"
    if reason:
        raise UsageError(f"{path} cannot be written ({reason}); name another file.")


def write_named(path: Path, content: str | bytes) -> None:
    """The same to a file that a user named, or that is a command's result, also where it is a link of theirs; raises
    :class:`UsageError` where that cannot be: a folder of that name, a full disk."""
    try:
        write_whole(_followed(path), content)
    except OSError as error:
        reason = error.strerror or error
        raise UsageError(f"{path} cannot be written ({reason}); make room for it, or name another file.") from error


def _followed(path: Path) -> Path:
    """Where a link to a file leads, if it is ours or the system's."""
    is_link = path.is_symlink() and path.lstat().st_uid in trusted_owners()
    return path.resolve() if is_link and path.is_file() and not _is_descriptor(path) else path


def _is_stream(path: Path) -> bool:
    """Whether it takes text as it comes. A link to one counts if it is ours or the system's; so does ``/dev/stdout``,
    also where that is a file by now. OSError for whatever is no stream and must not be replaced either."""
    try:
        owner, status = path.lstat().st_uid, path.stat()
    except OSError:
        return False  # nothing there, or a link to nothing
    if stat.S_ISDIR(status.st_mode):
        return False
    if stat.S_ISREG(status.st_mode):
        return owner in trusted_owners() and _is_descriptor(path)
    if owner not in trusted_owners() or not (stat.S_ISCHR(status.st_mode) or stat.S_ISFIFO(status.st_mode)):
        raise OSError(errno.EINVAL, "it is no regular file", str(path))
    return True


def _is_descriptor(path: Path) -> bool:
    """Whether it is a name for what a process has open, like ``/dev/stdout`` and ``/dev/fd/1``."""
    for _ in range(_LINKS):
        if path.parent.resolve().match("/proc/*/fd"):
            return True
        if not path.is_symlink():
            return False
        path = path.parent / path.readlink()
    return False


def _checked(path: Path, descriptor: int) -> int:
    status = os.fstat(descriptor)
    if stat.S_ISREG(status.st_mode) and status.st_uid in trusted_owners():
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EPERM, "it is no regular file of this user", str(path))
