# SPDX-License-Identifier: Apache-2.0
"""Where a controller dies: as it enters one of the things it does to shared memory or to the log, or some microseconds
later, wherever the processor is by then.

The controller is the real one. In its process, and only there, the library it calls is wrapped: at the n-th call of one
function a timer is set whose signal is SIGKILL, and the function is entered.
"""

from __future__ import annotations

import os
import random
import signal
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from cffi import FFI

from lagom.journal.writer import Journal
from lagom.wire import region
from lagom.wire.library import library

#: What is stepped on, and how often it is chosen. Publishing comes first: there a half-done thing would be worst.
STEPS = {
    "lagom_publish": 8,
    "lagom_publish_poll": 6,
    "lagom_publish_ready": 2,
    "lagom_capture_set": 2,
    "lagom_call_ring_drain": 2,
    "lagom_region_control": 2,
    "lagom_region_sweep": 2,
    "log": 3,
}
#: How long such a call takes at most here; beyond it the kill lands behind it.
MICROSECONDS = 60
#: Calls that come many times before anything is published, and, while a search goes on, those of its later plans.
FREQUENT = {"lagom_call_ring_drain": 40, "lagom_publish_ready": 8, "lagom_publish_poll": 4, "log": 12}
FREQUENT_IN_A_SEARCH = {**FREQUENT, "lagom_publish": 5, "lagom_publish_poll": 12, "lagom_capture_set": 5, "log": 30}

_ffi = FFI()
_ffi.cdef(
    """
    struct sigevent { uint64_t value; int signo; int notify; char rest[48]; };
    struct itimerspec { long interval_s, interval_ns, value_s, value_ns; };
    int timer_create(int clock, struct sigevent *event, void **timer);
    int timer_settime(void *timer, int flags, const struct itimerspec *value, void *old);
    """
)


@dataclass(frozen=True, slots=True)
class Mine:
    """Lies at the ``nth`` entry of a step and goes off ``microseconds`` later."""

    step: str
    nth: int
    microseconds: int

    @classmethod
    def somewhere(cls, dice: random.Random, searching: bool) -> Mine:
        """At a step chosen by its weight."""
        (step,) = dice.choices([*STEPS], weights=[*STEPS.values()])
        nth = dice.randint(1, (FREQUENT_IN_A_SEARCH if searching else FREQUENT).get(step, 1))
        return cls(step, nth, dice.choice([0, dice.randint(1, MICROSECONDS)]))

    def lay(self) -> None:
        """In the process that is to die."""
        if self.step == "log":
            _wrap(Journal, "_append", self._counting())
            return
        real, stepped_on = library(), self._counting()
        region.library = lambda: _Mined(real, self.step, stepped_on)  # type: ignore[assignment]

    def _counting(self) -> Callable[[], None]:
        entries = 0

        def entered() -> None:
            nonlocal entries
            entries += 1
            if entries == self.nth:
                die_in(self.microseconds)

        return entered


class _Mined:
    """The library, with one function that counts its entries."""

    def __init__(self, real: Any, step: str, entered: Callable[[], None]) -> None:
        self._real, self._step, self._entered = real, step, entered

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._real, name)
        if name != self._step:
            return found

        def stepped_on(*arguments: Any) -> Any:
            self._entered()
            return found(*arguments)

        return stepped_on


def _wrap(owner: type, name: str, entered: Callable[[], None]) -> None:
    real = getattr(owner, name)

    def stepped_on(*arguments: Any) -> Any:
        entered()
        return real(*arguments)

    setattr(owner, name, stepped_on)


def die_in(microseconds: int) -> None:
    """SIGKILL to ourselves: now, or by a timer, wherever we are then."""
    if microseconds == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    libc = _ffi.dlopen(None)
    timer, event = _ffi.new("void **"), _ffi.new("struct sigevent *", {"signo": int(signal.SIGKILL)})
    at = _ffi.new("struct itimerspec *", {"value_ns": microseconds * 1000})
    if libc.timer_create(1, event, timer) != 0 or libc.timer_settime(timer[0], 0, at, _ffi.NULL) != 0:
        raise OSError("no timer could be set")
