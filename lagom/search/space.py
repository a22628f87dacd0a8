# SPDX-License-Identifier: Apache-2.0
"""What may be tried: ladders, floors, subspaces and legality, in one place.

Every knob of a site is a *ladder*: its legal values in rising order of resources. The rung that NCCL itself would
take is written ``None`` (leave it alone), so "all sites on NCCL's rungs" and :meth:`Assignment.stock` are the same
value.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from lagom.records import Algorithm, Assignment, CommConfig, Problem, Protocol

CHANNELS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
CHUNKS = tuple(32 << (10 + step) for step in range(7))  # 32K ... 2M by 2
THREADS = (128, 256, 384, 512)  # RING only; NCCL adds one warp of its own at launch

FLOOR_CHANNELS = 2  # where a search from below starts: a live job pays for each iteration there
FLOOR_CHUNK = 128 << 10
SMALL_CEILING = 8  # with so few channels in all, one is a fair floor

FIELDS = {"channels": "channels", "chunk": "chunk_bytes", "threads": "threads"}
STOCK_TOP = {"chunk": 2 << 20, "threads": 512}  # NCCL's usual pick where the record does not say

Pair = tuple[Algorithm, Protocol]
Unit = tuple[int, ...]
"""Sites that always share one config: usually one site, or all of them."""


class Space:
    """The legal assignments of one problem."""

    def __init__(self, problem: Problem, *, shared: bool = False, units: Sequence[Unit] = ()) -> None:
        """``shared``: all sites are one unit; ``units``: these are, together every site once. Else each site is one."""
        self.problem = problem
        everything = range(len(problem.sites))
        each = (tuple(everything),) if shared else tuple((site,) for site in everything)
        self.units: tuple[Unit, ...] = tuple(units) or each
        self.dims = tuple(dim for dim in FIELDS if getattr(problem.knobs, dim))
        self._ladders = {(site, dim): self._ladder(site, dim) for site in everything for dim in self.dims}
        self._values = {key: tuple(value for value, _ in ladder) for key, ladder in self._ladders.items()}

    @property
    def stock(self) -> Assignment:
        """NCCL untouched."""
        return Assignment.stock(len(self.problem.sites))

    def ladder(self, site: int, dim: str) -> tuple[int | None, ...]:
        """Settings of a knob (``channels``, ``chunk`` in bytes, ``threads``), fewest resources first; ``None`` is
        NCCL's own rung."""
        return self._values[site, dim]

    def magnitudes(self, site: int, dim: str) -> list[int]:
        """The same settings with NCCL's own as its value."""
        return [magnitude for _, magnitude in self._ladders[site, dim]]

    def rung(self, assignment: Assignment, site: int, dim: str) -> int:
        """Where on the ladder a site stands."""
        return self._values[site, dim].index(getattr(assignment[site], FIELDS[dim]))

    def magnitude(self, assignment: Assignment, site: int, dim: str) -> int:
        """The value in force there, NCCL's own where it is left alone."""
        return self._ladders[site, dim][self.rung(assignment, site, dim)][1]

    def at(self, assignment: Assignment, site: int, dim: str, rung: int) -> Assignment:
        """One knob of one site set to a rung."""
        value = self._values[site, dim][rung]
        return assignment.with_config(site, _with_knob(assignment[site], dim, value))

    def moved(self, assignment: Assignment, unit: Unit, dim: str, rungs: int) -> Assignment | None:
        """All sites of ``unit`` moved by ``rungs`` (negative: down), stopping at the ladder's ends; ``None`` if none
        can."""
        result = assignment
        for site in unit:
            top = len(self._values[site, dim]) - 1
            there = min(max(self.rung(assignment, site, dim) + rungs, 0), top)
            result = self.at(result, site, dim, there)
        return None if result == assignment else result

    def movable(self, assignment: Assignment, unit: Unit, dim: str) -> bool:
        """Does this knob act here at all? NT only acts on RING (it is written into RING's table alone)."""
        return dim != "threads" or all(self._ring(assignment[site], site) for site in unit)

    def floor(self, base: Assignment, units: Sequence[Unit] | None = None) -> Assignment:
        """Fewest resources a search starts from, for the sites of ``units`` (all if not said), else as in ``base``."""
        result = base
        sites = range(len(base)) if units is None else [site for unit in units for site in unit]
        for site, dim in itertools.product(sites, self.dims):
            if dim != "threads":
                result = self.at(result, site, dim, self._floor_rung(site, dim))
        return result

    def subspaces(self, unit: Unit) -> tuple[Pair, ...]:
        """Algorithm and protocol pairs usable at every site of ``unit``, NCCL's own pick left out."""
        if not self.problem.knobs.algorithm or not self.problem.usable:
            return ()
        common = set.intersection(*(set(self.problem.usable[site]) for site in unit))
        own = {(self.problem.stock[site].algorithm, self.problem.stock[site].protocol) for site in unit}
        return tuple((Algorithm(a), Protocol(p)) for a, p in sorted(common) if (a, p) not in own)

    def in_subspace(self, assignment: Assignment, unit: Unit, pair: Pair | None) -> Assignment:
        """``unit`` put on that algorithm and protocol; ``None`` = NCCL's own."""
        algorithm, protocol = pair if pair is not None else (None, None)
        for site in unit:
            config = replace(assignment[site], algorithm=algorithm, protocol=protocol)
            assignment = assignment.with_config(site, config)
        return assignment

    def on_pair(self, assignment: Assignment, pair: Pair, sites: Collection[int]) -> Assignment:
        """Every unit of these sites that offers it put on this algorithm and protocol."""
        for unit in self.units:
            if pair in self.subspaces(unit) and all(site in sites for site in unit):
                assignment = self.in_subspace(assignment, unit, pair)
        return assignment

    def configs(self, site: int) -> Iterator[CommConfig]:
        """Every legal config of one site, fewest resources first."""
        pairs = (None, *self.subspaces((site,)))
        for pair in pairs:
            for values in itertools.product(*(self._values[site, dim] for dim in self.dims)):
                settings = {FIELDS[dim]: value for dim, value in zip(self.dims, values, strict=True)}
                algorithm, protocol = pair if pair is not None else (None, None)
                config = CommConfig(algorithm=algorithm, protocol=protocol, **settings)
                if config.threads is None or self._ring(config, site):
                    yield config

    def normal(self, assignment: Assignment) -> Assignment:
        """The same with ``None`` wherever it names what NCCL does anyway, as every assignment of a search has it."""
        if len(assignment) != len(self.problem.sites):
            return assignment
        return Assignment(tuple(self._without_own(site, config) for site, config in enumerate(assignment.configs)))

    def _without_own(self, site: int, config: CommConfig) -> CommConfig:
        own = self.problem.stock[site]
        if (config.algorithm, config.protocol) == (own.algorithm, own.protocol):
            config = replace(config, algorithm=None, protocol=None)
        for dim in self.dims:
            if getattr(config, FIELDS[dim]) == self._stock_value(site, dim):
                config = _with_knob(config, dim, None)
        return config

    def why_illegal(self, assignment: Assignment) -> str | None:
        """A sentence naming what is wrong, or ``None`` for a legal assignment."""
        if len(assignment) != len(self.problem.sites):
            return f"{len(assignment)} configs for {len(self.problem.sites)} sites"
        for site, config in enumerate(assignment.configs):
            if wrong := self._wrong(site, config):
                return f"site {site} ({self.problem.sites[site]}): {wrong}"
        return None

    def _wrong(self, site: int, config: CommConfig) -> str | None:
        for dim, attribute in FIELDS.items():
            value = getattr(config, attribute)
            if value is not None and (dim not in self.dims or value not in self._values[site, dim]):
                return f"{attribute}={value} is not among {self._values.get((site, dim), ())}"
        pair = (config.algorithm, config.protocol)
        if pair != (None, None) and pair not in self.subspaces((site,)):
            return f"{config} is no algorithm and protocol that this communicator offers"
        if config.threads is not None and not self._ring(config, site):
            return "threads can be set for RING only"
        return None

    def _ladder(self, site: int, dim: str) -> tuple[tuple[int | None, int], ...]:
        """(setting, magnitude) of each rung."""
        own = self._stock_value(site, dim)
        ceiling, rungs = self._range(dim)
        values = {value for value in rungs if value <= ceiling} | {own}
        if dim == "channels":
            values.add(ceiling)
        return tuple((None if value == own else value, value) for value in sorted(values))

    def _range(self, dim: str) -> tuple[int, tuple[int, ...]]:
        if dim == "channels":
            return self.problem.channels_ceiling, CHANNELS
        if dim == "chunk":
            return self.problem.chunk_ceiling, CHUNKS
        return STOCK_TOP["threads"], THREADS

    def _stock_value(self, site: int, dim: str) -> int:
        known = getattr(self.problem.stock[site], FIELDS[dim])
        if known is not None:
            return known
        return self.problem.channels_ceiling if dim == "channels" else min(STOCK_TOP[dim], self._range(dim)[0])

    def _floor_rung(self, site: int, dim: str) -> int:
        few = 1 if self.problem.channels_ceiling <= SMALL_CEILING else FLOOR_CHANNELS
        least = few if dim == "channels" else FLOOR_CHUNK
        magnitudes = [magnitude for _, magnitude in self._ladders[site, dim]]
        own = self._values[site, dim].index(None)
        above = next((rung for rung, magnitude in enumerate(magnitudes) if magnitude >= least), own)
        return min(above, own)

    def _ring(self, config: CommConfig, site: int) -> bool:
        return config.over(self.problem.stock[site]).algorithm == Algorithm.RING


def _with_knob(config: CommConfig, dim: str, value: int | None) -> CommConfig:
    if dim == "channels":
        return replace(config, channels=value)
    if dim == "chunk":
        return replace(config, chunk_bytes=value)
    return replace(config, threads=value)
