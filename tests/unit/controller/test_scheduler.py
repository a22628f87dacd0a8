# SPDX-License-Identifier: Apache-2.0
"""Several communicators: who searches when, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

from lagom.controller.scheduler import FIRST_SECONDS, PATIENCE_SECONDS, Scheduler


@dataclass(eq=False)
class Tuner:
    """A tuner as the turns see it."""

    index: int
    bytes: int
    is_over: bool = False
    is_idle: bool = False
    is_unknown: bool = False
    wants_turn: bool = True
    seconds: float | None = -1.0
    spent_seconds: float = 0.0
    has_turn: bool = False

    @property
    def view(self) -> Any:
        return SimpleNamespace(index=self.index)

    def traffic(self) -> int:
        return self.bytes

    def give_turn(self, seconds: float | None) -> None:
        self.has_turn, self.seconds, self.spent_seconds = True, seconds, 0.0

    def take_turn(self) -> None:
        self.has_turn = False

    def finish(self) -> None:
        self.is_over, self.wants_turn = True, False


def whose(tuners: list[Tuner]) -> list[int]:
    return [tuner.index for tuner in tuners if tuner.has_turn]


def look(turns: Scheduler, tuners: list[Tuner], now: float) -> list[int]:
    turns.look(tuners, now)  # type: ignore[arg-type]
    return whose(tuners)


def test_the_busiest_goes_first_and_each_has_its_turn() -> None:
    tuners = [Tuner(0, 10), Tuner(1, 30), Tuner(2, 20)]
    turns, order = Scheduler(None), []
    for now in range(3):
        order += look(turns, tuners, float(now))
        tuners[order[-1]].finish()
    assert order == [1, 2, 0]
    assert look(turns, tuners, 9.0) == []


def test_the_first_turn_waits_a_moment_for_those_that_may_be_busier() -> None:
    tuners = [Tuner(0, 10), Tuner(1, 0, wants_turn=False, is_unknown=True)]
    turns = Scheduler(None)
    assert look(turns, tuners, 0.0) == []
    tuners[1].bytes, tuners[1].wants_turn, tuners[1].is_unknown = 30, True, False
    assert look(turns, tuners, 1.0) == [1]
    never = [Tuner(0, 10), Tuner(1, 0, wants_turn=False, is_unknown=True)]
    turns = Scheduler(None)
    assert look(turns, never, 0.0) == []
    assert look(turns, never, FIRST_SECONDS + 0.1) == [0], "but not for ever"


def test_one_that_never_settles_holds_nobody_up() -> None:
    tuners = [Tuner(0, 10), Tuner(1, 30, is_idle=True)]
    turns = Scheduler(None)
    assert look(turns, tuners, 0.0) == [1]
    assert look(turns, tuners, 0.5 * PATIENCE_SECONDS) == [1]
    assert look(turns, tuners, 1.6 * PATIENCE_SECONDS) == [0]
    tuners[0].finish()
    assert look(turns, tuners, 2 * PATIENCE_SECONDS) == [1], "it is tried again"
    assert look(turns, tuners, 9 * PATIENCE_SECONDS) == [1], "and nobody waits for it"


def test_a_pause_ends_the_waiting_for_patience() -> None:
    tuners = [Tuner(0, 10), Tuner(1, 30, is_idle=True)]
    turns = Scheduler(None)
    look(turns, tuners, 0.0)
    look(turns, tuners, 0.9 * PATIENCE_SECONDS)
    tuners[1].is_idle = False
    assert look(turns, tuners, PATIENCE_SECONDS) == [1]
    tuners[1].is_idle = True
    assert look(turns, tuners, 1.5 * PATIENCE_SECONDS) == [1]


def test_a_limit_in_time_is_for_all_of_them() -> None:
    tuners = [Tuner(0, 10), Tuner(1, 30), Tuner(2, 20)]
    turns = Scheduler(90.0)
    look(turns, tuners, 0.0)
    assert tuners[1].seconds == 30.0
    tuners[1].spent_seconds = 10.0
    tuners[1].finish()
    look(turns, tuners, 10.0)
    assert tuners[2].seconds == 40.0, "what the first one left is shared"
    tuners[2].spent_seconds = 60.0
    tuners[2].finish()
    look(turns, tuners, 70.0)
    assert tuners[0].seconds == 20.0
    tuners[0].finish()
    look(turns, tuners, 80.0)
    tuners[1].is_over, tuners[1].wants_turn = False, True
    look(turns, tuners, 5000.0)
    assert tuners[1].seconds == 90.0, "a search after drift is another one"


def test_one_that_comes_back_after_drift_gets_another_turn() -> None:
    one = Tuner(0, 10)
    turns = Scheduler(None)
    assert look(turns, [one], 0.0) == [0]
    one.finish()
    assert look(turns, [one], 1.0) == []
    one.is_over, one.wants_turn = False, True
    assert look(turns, [one], 2.0) == [0]


def test_one_that_waits_until_it_may_lose_more_keeps_nobody_from_the_time() -> None:
    """It searched for 5 of 60 seconds and then waited for an hour: the others get what is left, and so does it."""
    tuners = [Tuner(0, 10), Tuner(1, 30)]
    turns = Scheduler(60.0)
    look(turns, tuners, 0.0)
    tuners[1].spent_seconds, tuners[1].is_idle = 5.0, True
    look(turns, tuners, 5.0)
    look(turns, tuners, 5.0 + 2 * PATIENCE_SECONDS)
    assert whose(tuners) == [0]
    assert tuners[0].seconds == 27.5
    tuners[0].finish()
    look(turns, tuners, 3600.0)
    assert whose(tuners) == [1]
    assert tuners[1].seconds == 55.0
