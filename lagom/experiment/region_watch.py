# SPDX-License-Identifier: Apache-2.0
"""Whether a job's shared memory was ever created (inotify): a job of one second may start and end between two checks,
and must not be mistaken for one that never called NCCL."""

from __future__ import annotations

import ctypes
import math
import os
import select
import struct
import time
from collections.abc import Collection, Iterator
from pathlib import Path

IN_MOVED_TO, IN_CREATE, IN_Q_OVERFLOW = 0x80, 0x100, 0x4000
_HEAD = struct.Struct("iIII")  # struct inotify_event: watch, mask, cookie, length of the name
_MOST_BYTES = 1 << 20
#: After files that are no regions: a job may make thousands a second in this folder.
_PAUSE_SECONDS = 0.01


class RegionWatch:
    """Watches the folder of ``region`` from now on. A job that gives its ranks a NCCL_HOSTID has regions of other
    names: a file of another name may be this job's, unless its key was read while it was there."""

    def __init__(self, region: Path) -> None:
        self._name = os.fsencode(region.name)
        self._any = os.fsencode(f"lagom-{os.getuid()}-")
        self._seen = set[bytes]()  # files that appeared and may be regions
        self._is_blind = self._has_missed = False  # reading events failed; the kernel dropped some
        libc = ctypes.CDLL(None, use_errno=True)
        self._descriptor = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        folder = os.fsencode(region.parent)
        if self._descriptor >= 0 and libc.inotify_add_watch(self._descriptor, folder, IN_CREATE | IN_MOVED_TO) < 0:
            self.close()

    def close(self) -> None:
        """No more events."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1

    def wait(self, seconds: float) -> bool:
        """Sleep so long, or until a region has appeared; whether one has."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            if self._descriptor < 0 or self._is_blind:
                time.sleep(left)
            elif self._has_news(left):
                if self._read():
                    return True
                time.sleep(min(left, _PAUSE_SECONDS))
        return False

    def _has_news(self, seconds: float) -> bool:
        poll = select.poll()  # select() takes no descriptor above 1,023
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(math.ceil(1000 * seconds)))

    def was_made(self, others: Collection[str] = ()) -> bool | None:
        """Whether the region's file has appeared since; None if inotify could not report it, or if another file
        appeared that is not in ``others``, those of other jobs. To be called once."""
        if self._descriptor < 0:
            return None
        self._read()
        self.close()
        if self._name in self._seen:
            return True
        unknown = self._seen - {os.fsencode(name) for name in others}
        return None if self._is_blind or self._has_missed or unknown else False

    def _read(self) -> set[bytes]:
        """Files that have come since and may be regions; no others are kept."""
        new = set[bytes]()
        try:
            while events := os.read(self._descriptor, _MOST_BYTES):  # whole ones, as the kernel gives them
                for mask, name in _parsed(events):
                    self._has_missed |= bool(mask & IN_Q_OVERFLOW)
                    if name == self._name or self._is_region(name):
                        new.add(name)
        except BlockingIOError:
            pass  # that was all
        except OSError:
            self._is_blind = True
        self._seen |= new
        return new

    def _is_region(self, name: bytes) -> bool:
        """Of any job; not one that is being made."""
        return name.startswith(self._any) and b".tmp." not in name


def _parsed(events: bytes) -> Iterator[tuple[int, bytes]]:
    """(mask, name of the file) of each event."""
    at = 0
    while at < len(events):
        _, mask, _, length = _HEAD.unpack_from(events, at)
        at += _HEAD.size + length
        yield mask, events[at - length : at].rstrip(b"\0")
