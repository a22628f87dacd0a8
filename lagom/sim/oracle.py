# SPDX-License-Identifier: Apache-2.0
"""The best assignment there is, noise-free: a strategy's end result is compared with it.

Groups do not influence each other, so each is solved alone, over the configs that no other beats in everything. Up to
two sites: every joint config. More: descent from several starts, one site at a time over all its configs, then pairs of
sites over the neighbourhood of both, until neither helps. ``tests/unit/sim`` checks the descent against
everything there is on a coarse ladder.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lagom.records import STOCK, Assignment, CommConfig
from lagom.search.space import Space
from lagom.sim.simulator import Simulator

Choice = tuple[CommConfig, ...]
Cost = Callable[[Choice], float]

_EXHAUSTIVE_SITES = 2
_STARTS = 4
_REACH = 2  # rungs of a pair move, in each knob


@dataclass(frozen=True, slots=True)
class Best:
    """``z`` ns of one noise-free iteration under ``assignment``; ``tried`` evaluations were needed."""

    assignment: Assignment
    z: float
    tried: int


def oracle(simulator: Simulator) -> Best:
    """The fastest assignment of the simulator's problem. NT is left to NCCL, then tried at the optimum."""
    problem = simulator.problem()
    plain = Space(replace(problem, knobs=replace(problem.knobs, threads=False)))
    choices = [_undominated(simulator, site, plain) for site in range(len(problem.sites))]
    best, tried = list(simulator.stock().configs), 0
    for number, sites in enumerate(simulator.sites_by_group):
        if not sites:
            continue
        chosen, count = _solve(simulator, number, sites, [choices[site] for site in sites])
        tried += count
        for site, config in zip(sites, chosen, strict=True):
            best[site] = config
    found = _with_threads(simulator, Assignment(tuple(best)))
    return Best(found, simulator.run(found).z, tried)


def best_static(simulator: Simulator) -> Best:
    """The fastest single cap of NC for all sites, everything else NCCL's own (what NCCL_MAX_NCHANNELS could do)."""
    problem = simulator.problem()
    caps = set(Space(problem).ladder(0, "channels")) if problem.sites else set()
    options = [Assignment((replace(STOCK, channels=cap),) * len(problem.sites)) for cap in caps]
    found = min(options, key=lambda assignment: simulator.run(assignment).z)
    return Best(found, simulator.run(found).z, len(options))


def minimise(cost: Cost, choices: Sequence[Sequence[CommConfig]], seed: int = 0) -> tuple[Choice, int]:
    """The cheapest choice of one config a site, and how many choices were evaluated."""
    seen: dict[Choice, float] = {}

    def known(choice: Choice) -> float:
        if choice not in seen:
            seen[choice] = cost(choice)
        return seen[choice]

    if len(choices) <= _EXHAUSTIVE_SITES:
        return min(itertools.product(*choices), key=known), len(list(itertools.product(*choices)))
    rng = random.Random(seed)
    starts: list[Choice] = [tuple(options[0] for options in choices), tuple(options[-1] for options in choices)]
    starts += [tuple(rng.choice(options) for options in choices) for _ in range(_STARTS - len(starts))]
    ends = [_descend(known, choices, start) for start in starts]
    return min(ends, key=known), len(seen)


def _descend(known: Cost, choices: Sequence[Sequence[CommConfig]], at: Choice) -> Choice:
    """Descends to an assignment that no change of one or two sites improves."""
    while True:
        better = _one_site_at_a_time(known, choices, at)
        better = _pairs_of_sites(known, choices, better)
        if known(better) >= known(at):
            return at
        at = better


def _one_site_at_a_time(known: Cost, choices: Sequence[Sequence[CommConfig]], at: Choice) -> Choice:
    for site, options in enumerate(choices):
        at = min((at, *(_put(at, {site: option}) for option in options)), key=known)
    return at


def _pairs_of_sites(known: Cost, choices: Sequence[Sequence[CommConfig]], at: Choice) -> Choice:
    for a, b in itertools.combinations(range(len(choices)), 2):
        near_a, near_b = _near(choices[a], at[a]), _near(choices[b], at[b])
        at = min((at, *(_put(at, {a: p, b: q}) for p in near_a for q in near_b)), key=known)
    return at


def _near(options: Sequence[CommConfig], config: CommConfig) -> list[CommConfig]:
    """Configs of the same algorithm and protocol at most :data:`_REACH` rungs away in NC and C."""
    channels = _rungs(options, lambda c: c.channels)
    chunks = _rungs(options, lambda c: c.chunk_bytes)
    return [
        other
        for other in options
        if (other.algorithm, other.protocol) == (config.algorithm, config.protocol)
        and abs(channels[other.channels] - channels[config.channels]) <= _REACH
        and abs(chunks[other.chunk_bytes] - chunks[config.chunk_bytes]) <= _REACH
    ]


def _rungs(options: Sequence[CommConfig], of: Callable[[CommConfig], int | None]) -> dict[int | None, int]:
    """Place of each value on its ladder. ``None``, NCCL's own pick, is taken as the top rung."""
    values = sorted({of(o) for o in options}, key=lambda v: (v is None, v or 0))
    return {value: rung for rung, value in enumerate(values)}


def _put(at: Choice, changes: dict[int, CommConfig]) -> Choice:
    return tuple(changes.get(site, config) for site, config in enumerate(at))


def _undominated(simulator: Simulator, site: int, space: Space) -> list[CommConfig]:
    """The site's legal configs without those that run as another one does, and without those that another beats in
    everything they do: as fast or faster beside every kernel, and no heavier on any."""
    distinct: dict[object, CommConfig] = {}
    for config in space.configs(site):
        distinct.setdefault(simulator.effects(site, config), config)
    configs = list(distinct.values())
    effects = np.array([[*times, *burdens] for times, burdens in (simulator.effects(site, c) for c in configs)])
    beaten = [(np.all(effects <= own, axis=1) & np.any(effects < own, axis=1)).any() for own in effects]
    return [config for config, out in zip(configs, beaten, strict=True) if not out]


#: Solved groups of this process: workloads that differ in the number of micro-batches share them.
_SOLVED: dict[Hashable, tuple[Choice, int]] = {}


def _solve(
    simulator: Simulator, group: int, sites: Sequence[int], choices: Sequence[list[CommConfig]]
) -> tuple[Choice, int]:
    key = (simulator.machine, simulator.groups[group].segments, simulator.knobs, tuple(map(tuple, choices)))
    if key not in _SOLVED:
        _SOLVED[key] = minimise(
            lambda choice: simulator.run_group(group, dict(zip(sites, choice, strict=True))).z, choices
        )
    return _SOLVED[key]


def _with_threads(simulator: Simulator, assignment: Assignment) -> Assignment:
    """One pass over NT, site by site, where it may be set."""
    space = Space(simulator.problem())
    if "threads" not in space.dims:
        return assignment
    for site in range(len(assignment)):
        rungs = range(len(space.ladder(site, "threads")))
        options = (space.at(assignment, site, "threads", rung) for rung in rungs)
        legal = [option for option in options if space.why_illegal(option) is None]
        assignment = min([assignment, *legal], key=lambda a: simulator.run(a).z)
    return assignment
