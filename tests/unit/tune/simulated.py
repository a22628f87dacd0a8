# SPDX-License-Identifier: Apache-2.0
"""Searches over processes that are random numbers: what `lagom tune` would decide, without running anything."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Collection, Mapping

from lagom.sim.sockets import step_ms_of
from lagom.start import StartGroup, Transport, known_groups
from lagom.tune import PLAIN, TunePlan, TuneTrial, next_trial
from lagom.tune.stages import Tried

SOCKET_GROUPS = known_groups(Transport.SOCKET)
Job = Callable[[TuneTrial], float | None]


def tried(trial: TuneTrial, time: float | None) -> Tried:
    """What the process of a trial gave."""
    return Tried(trial.group.name, trial.stage, trial.round, time)


def search(plan: TunePlan, job: Job, most: int = 1000) -> list[Tried]:
    """All processes of a search, in order."""
    done: list[Tried] = []
    while (trial := next_trial(plan, done)) is not None:
        done.append(tried(trial, job(trial)))
        assert len(done) <= most, "the search does not end"
    return done


def noisy(mean_of: Callable[[StartGroup], float], noise: float, seed: int, broken: Collection[str] = ()) -> Job:
    """Processes that differ by ``noise`` (lognormal), each group around a mean of its own."""
    chance = random.Random(seed)

    def job(trial: TuneTrial) -> float | None:
        value = mean_of(trial.group) * math.exp(chance.gauss(0.0, noise))
        return None if trial.group.name in broken else value

    return job


def over_sockets(group: StartGroup) -> float:
    """A step of the job that the model of sockets is calibrated on."""
    return step_ms_of(group.settings)


def constant(times: Mapping[str, float], otherwise: float = 1.0) -> Job:
    """Processes without noise."""
    return lambda trial: times.get(trial.group.name, otherwise)


def group(name: str) -> StartGroup:
    """One whose settings do not matter."""
    return StartGroup(name, {"NCCL_MIN_NCHANNELS": "8"})


def rounds_of(done: list[Tried], stage: str) -> list[list[str]]:
    """The names of the groups in the order in which they ran, by round."""
    last = max((one.round for one in done if one.stage == stage), default=-1)
    return [[one.group for one in done if (one.stage, one.round) == (stage, number)] for number in range(last + 1)]


def plain_count(names: list[str]) -> int:
    """How often plain NCCL ran."""
    return names.count(PLAIN.name)
