# SPDX-License-Identifier: Apache-2.0
"""A thread for what may hang: the file system of a server that is gone, a store that does not answer."""

from __future__ import annotations

import queue
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar, cast

#: Seconds that whatever is asked of an exchange may take. The caller may be the thread that holds the job to its limit,
#: which is late by as much; and the thread that shows that a launcher lives is to try several times until it is silent.
DEADLINE = 5.0
Given = TypeVar("Given")


class TookTooLong(Exception):
    """Nothing came back within the deadline."""


class Worker:
    """Does one thing after the other in a daemon thread, so that the end of the process waits for none of them. A
    thread that does not come back is left behind, and the next thing is done in a new one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._thread: _Thread | None = None

    def do(self, what: Callable[[], Given], deadline: float) -> Given:
        """What ``what()`` returns or raises. Raises :class:`TookTooLong` after ``deadline`` seconds, of which some may
        pass with what other threads have asked for."""
        end = time.monotonic() + deadline
        if not self._lock.acquire(timeout=deadline):
            raise TookTooLong
        try:
            if self._thread is None:
                self._thread = _Thread()
            self._thread.tasks.put(what)
            found, error = self._thread.answers.get(timeout=max(end - time.monotonic(), 0.0))
        except queue.Empty:
            self._leave()
            raise TookTooLong from None
        except BaseException:  # Ctrl-C: the answer that comes later is not that to the next question
            self._leave()
            raise
        finally:
            self._lock.release()
        if error is not None:
            raise error
        return cast("Given", found)

    def close(self) -> None:
        """End the thread, when it has done what it was asked for."""
        with self._lock:
            self._leave()

    def _leave(self) -> None:
        if self._thread is not None:
            self._thread.tasks.put(None)
        self._thread = None


class _Thread:
    """``tasks``: what to do, None = no more; ``answers``: what came of each, or the error."""

    def __init__(self) -> None:
        self.tasks: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self.answers: queue.SimpleQueue[tuple[Any, BaseException | None]] = queue.SimpleQueue()
        threading.Thread(target=self._run, daemon=True, name="lagom-exchange").start()

    def _run(self) -> None:
        leave_signals()  # torch starts threads in here
        while (what := self.tasks.get()) is not None:
            self.answers.put(_answer(what))
            del what  # and with it the store that is let go of


def _answer(what: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    try:
        return what(), None
    except BaseException as error:  # noqa: BLE001 - whoever asked gets it
        return None, error


def leave_signals() -> None:
    """Of this thread and those that it starts: a signal for the launcher is for its main thread, which hands it on to
    the job; a thread that took it would end the launcher alone."""
    signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
