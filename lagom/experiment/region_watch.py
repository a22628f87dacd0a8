# SPDX-License-Identifier: Apache-2.0
"""Whether a job's shared memory was ever created (inotify): a job of one second may start and end between two checks,
and must not be mistaken for one that never called NCCL."""

from __future__ import annotations

import ctypes
import os
import struct
from collections.abc import Collection
from pathlib import Path

IN_MOVED_TO, IN_CREATE, IN_Q_OVERFLOW = 0x80, 0x100, 0x4000
_HEAD = struct.Struct("iIII")  # struct inotify_event: watch, mask, cookie, length of the name
_MOST_BYTES = 1 << 20


class RegionWatch:
    """Watches the folder of ``region`` from now on. A job that gives its ranks a NCCL_HOSTID has regions of other
    names: a file of another name may be this job's, unless its key was read while it was there."""

    def __init__(self, region: Path) -> None:
        self._name = os.fsencode(region.name)
        self._any = os.fsencode(f"lagom-{os.getuid()}-")
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

    def was_made(self, others: Collection[str] = ()) -> bool | None:
        """Whether the region's file has appeared since; None if inotify could not report it, or if another file
        appeared that is not in ``others``, those of other jobs. To be called once."""
        if self._descriptor < 0:
            return None
        events = bytearray()
        try:
            while more := os.read(self._descriptor, _MOST_BYTES):
                events += more
        except BlockingIOError:
            pass  # that was all
        except OSError:
            return None
        finally:
            self.close()
        return self._find(bytes(events), {os.fsencode(name) for name in others})

    def _find(self, events: bytes, others: Collection[bytes]) -> bool | None:
        at, unknown = 0, False
        while at < len(events):
            _, mask, _, length = _HEAD.unpack_from(events, at)
            at += _HEAD.size + length
            if mask & IN_Q_OVERFLOW:
                return None
            name = events[at - length : at].rstrip(b"\0")
            if name == self._name:
                return True
            unknown |= name.startswith(self._any) and b".tmp." not in name and name not in others
        return None if unknown else False
