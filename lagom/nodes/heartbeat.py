# SPDX-License-Identifier: Apache-2.0
"""Who still answers. Each launcher writes a counter about once a second; who reads it judges by its own clock alone.

A thread does both, and looks for the keys that end a round or all of them, so that nobody who asks waits for the folder
or the store. The launcher with seat 0 watches all others, and they watch it: 2 N reads a second, not N².
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from lagom.nodes.exchange import Beat, Exchange, ExchangeError, SessionEnd, Stop
from lagom.nodes.worker import leave_signals

BEAT_SECONDS, SILENT_SECONDS = 1.0, 60.0
LOOK_SECONDS = 0.1
#: Of the limit so much of the time between two looks counts as silence: whoever was itself stopped accuses nobody.
MOST_COUNTED = 0.25
CLOSE_SECONDS = 2.0


class Silence:
    """How long something has not changed, by the looks of this process. ``limit``: seconds after which it is gone."""

    def __init__(self, limit: float) -> None:
        self._limit = limit
        self._last: object = self
        self._looked = time.monotonic()
        self._seconds = 0.0

    def is_too_long(self, value: object) -> bool:
        """One more look: whether ``value`` has been the same for longer than the limit."""
        now = time.monotonic()
        more = min(now - self._looked, MOST_COUNTED * self._limit)
        self._seconds = 0.0 if value != self._last else self._seconds + more
        self._last, self._looked = value, now
        return self._seconds > self._limit


@dataclass(frozen=True, slots=True)
class Life:
    """How often a launcher shows that it lives, and after which silence it is gone; seconds."""

    beat: float = BEAT_SECONDS
    silent: float = SILENT_SECONDS


class LifeCheck:
    """Whether launchers live: the counter of each is to move while we look. ``unseen``: seats of which that was not
    seen yet; ``is_any_silent``: whether nothing more was seen for ``limit`` seconds. ``beat``: seconds between two
    beats of a launcher."""

    def __init__(self, seats: Iterable[int], beat: float, limit: float) -> None:
        self.unseen, self.is_any_silent = set(seats), False
        self._beat, self._silence = beat, Silence(limit)
        self._first: dict[int, Beat | None] = {}
        self._looked = -math.inf

    def look(self, beat_of: Callable[[int], Beat | None]) -> None:
        """As often as they beat, not as often as this is called: a hundred launchers are asked for."""
        now = time.monotonic()
        if now - self._looked < self._beat / 2:
            return
        self._looked = now
        for seat in sorted(self.unseen):
            beat = beat_of(seat)
            if beat != self._first.setdefault(seat, beat):
                self.unseen.discard(seat)
        self.is_any_silent = self._silence.is_too_long(len(self.unseen)) and bool(self.unseen)


class Heartbeat:
    """The thread of one launcher in the key space ``space``. ``watched``: seats that it looks at."""

    def __init__(self, exchange: Exchange, space: str, seat: int, watched: Iterable[int], life: Life) -> None:
        self._exchange, self._space, self._seat, self._life = exchange, space, seat, life
        self._answers = Silence(life.silent)
        self.watch(watched)
        self._answered = 0
        self._is_over = threading.Event()
        self._stop_key = ""
        self._stopped: tuple[str, Stop] | None = None  # of which round
        self.end: SessionEnd | None = None
        self.silent: int | None = None
        self.lost = ""  # a sentence: the exchange itself does not answer
        self._thread = threading.Thread(target=self._run, daemon=True, name="lagom-heartbeat")
        self._thread.start()

    def watch(self, seats: Iterable[int]) -> None:
        """From now on look at these."""
        self._watched = {one: Silence(self._life.silent) for one in seats}

    def look_for_stop(self, key: str) -> None:
        """From now on look for the end of this round; empty: of none."""
        self._stop_key = key

    @property
    def stop(self) -> Stop | None:
        """The end of the round that is looked for; None before."""
        found = self._stopped
        return found[1] if found is not None and found[0] == self._stop_key else None

    def is_alarmed(self) -> bool:
        """Whether nothing more is to be started: the session has ended, or a node or the exchange is gone."""
        return self.end is not None or self.silent is not None or bool(self.lost)

    def close(self) -> None:
        """End the thread; one that waits for an exchange that hangs comes to its end later."""
        self._is_over.set()
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        leave_signals()
        count, beaten = 0, 0.0
        while not self._is_over.wait(min(LOOK_SECONDS, self._life.beat)):
            try:
                self._look_for_ends()
                if time.monotonic() - beaten >= self._life.beat:
                    count, beaten = count + 1, time.monotonic()
                    self._exchange.put(f"{self._space}/beat/{self._seat}", Beat(count=count))
                    self._listen()
                self._answered += 1
            except ExchangeError as error:
                if self._answers.is_too_long(self._answered):
                    self.lost = f"{self._exchange.name} has not answered for {self._life.silent:.0f} s: {error}"
            else:
                self._answers.is_too_long(self._answered)

    def _look_for_ends(self) -> None:
        self.end = self.end or self._exchange.get(f"{self._space}/end", SessionEnd)
        if (key := self._stop_key) and self.stop is None:
            found = self._exchange.get(key, Stop)
            self._stopped = self._stopped if found is None else (key, found)

    def _listen(self) -> None:
        for seat, silence in list(self._watched.items()):
            beat = self._exchange.get(f"{self._space}/beat/{seat}", Beat)
            if silence.is_too_long(beat and beat.count):
                self.silent = seat
