# SPDX-License-Identifier: Apache-2.0
"""The plan of a search over start settings: its stages and processes, and how many fit into the time limit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from pydantic import BaseModel, Field, model_validator

from lagom.environment import check_start_settings
from lagom.experiment.store import ExperimentRecord
from lagom.start import StartGroup
from lagom.tune.design import Row, design_rows

Stage = Literal["screen", "best two", "design", "repeat", "confirm"]
STAGES: tuple[Stage, ...] = ("screen", "best two", "design", "repeat", "confirm")
PLAIN = StartGroup("plain NCCL")


@dataclass(frozen=True, slots=True)
class TuneTrial:
    """One process to run."""

    group: StartGroup
    stage: Stage
    round: int


@dataclass(frozen=True, slots=True)
class Tried:
    """What a process gave: the time of an iteration, or None."""

    group: str
    stage: str
    round: int
    time: float | None


@dataclass(frozen=True, slots=True)
class TunePlan:
    """What the time is enough for: the groups to try, most promising first, the rounds of each stage, the variables of
    the design with the values to try, and how often the design may be run (2: folded over)."""

    groups: tuple[StartGroup, ...]
    screen: int = 2
    best_two: int = 3
    confirm: int = 6
    seed: int = 0
    design: int = 0
    factors: tuple[tuple[str, tuple[str, ...]], ...] = ()
    repeat: int = 0

    def rounds(self, stage: str) -> int:
        """Of a stage; of the design, how often it may be run."""
        rounds = {"screen": self.screen, "best two": self.best_two, "confirm": self.confirm}
        return {**rounds, "design": self.design, "repeat": self.repeat}[stage]

    def rows(self, passes: int) -> list[Row]:
        """Of the design."""
        return _rows(self.factors, passes) if passes else []

    def most(self, stage: Stage, rounds: int) -> int:
        """Processes of so many rounds of a stage, if nothing is left out on the way; of the design, of all passes."""
        rows, is_grouped = len(self.rows(self.design)), bool(self.groups)
        if stage == "design":
            return rows + 2 * (not is_grouped)
        screened, decided = (len(self.groups) + 2, 4) if is_grouped else (0, 0)
        confirmed = 2 + is_grouped + bool(rows)
        return {"screen": screened, "best two": decided, "repeat": 2, "confirm": confirmed}[stage] * rounds

    @property
    def most_processes(self) -> int:
        """If nothing is left out on the way."""
        return sum(self.most(stage, self.rounds(stage)) for stage in STAGES)


class SearchAim(BaseModel):
    """What a search set out to do: ``transport`` as NCCL connected the ranks, ``groups`` most promising first, and
    ``factors``, values of variables that are screened together. ``look_seconds``: of the budget, what the process took
    that is not compared. ``plan``: what the time of the newest call is enough for."""

    transport: str
    groups: list[StartGroup]
    factors: dict[str, list[str]] = Field(default_factory=dict)
    look_seconds: float = 0.0
    plan: TunePlan = TunePlan(())

    @model_validator(mode="after")
    def _check(self) -> SearchAim:
        """A record may have been written by somebody else, and what it names is set for the job."""
        for settings in (self.factors, *(group.settings for group in self.groups)):
            check_start_settings(dict(settings))
        return self


class TuneRecord(ExperimentRecord):
    """The samples of ``lagom tune``. ``aim``: None until it is known how the ranks are connected, and on a node that
    follows another one."""

    schedule: Literal["tune"] = "tune"
    aim: SearchAim | None = None


@lru_cache(maxsize=8)
def _rows(factors: tuple[tuple[str, tuple[str, ...]], ...], passes: int) -> list[Row]:
    return design_rows(dict(factors), passes)


#: Tried in this order until one fits into the budget: (groups, rounds of screen, best two, confirm, design, repeat).
_SIZES = (
    (99, 2, 3, 6, 2, 2), (99, 2, 3, 4, 2, 2), (99, 2, 3, 4, 2, 0), (99, 2, 3, 6, 1, 2), (99, 2, 3, 4, 1, 2),
    (99, 1, 2, 6, 1, 0), (4, 1, 1, 6, 1, 0), (99, 1, 3, 6, 0, 0), (5, 1, 2, 6, 0, 0), (3, 1, 2, 6, 0, 0),
    (2, 1, 1, 6, 0, 0), (2, 1, 1, 4, 0, 0),
)  # fmt: skip


def plan_for(
    groups: Sequence[StartGroup],
    seconds_each: float,
    budget: float | None,
    seed: int = 0,
    factors: Mapping[str, Sequence[str]] | None = None,
) -> TunePlan:
    """The largest plan whose processes fit into ``budget`` seconds, each taking ``seconds_each``; else the smallest.
    Without groups the design is all there is, and is kept."""
    plan = TunePlan(())
    for plan in plans(groups, seed, factors):
        if budget is None or plan.most_processes * seconds_each <= budget:
            break
    return plan


def plans(
    groups: Sequence[StartGroup], seed: int = 0, factors: Mapping[str, Sequence[str]] | None = None
) -> Iterator[TunePlan]:
    """Those that a budget chooses from, the largest first."""
    known = tuple((name, tuple(values)) for name, values in (factors or {}).items())
    for count, screen, best_two, confirm, passes, repeat in _SIZES:
        if not groups and not passes:
            return
        some = tuple(groups[:count])
        if known:
            yield TunePlan(some, screen, best_two, confirm, seed, passes, known if passes else (), repeat)
        else:
            yield TunePlan(some, screen, best_two, confirm, seed)
