# SPDX-License-Identifier: Apache-2.0
"""An analytic landscape and a driver: a strategy is tried on it without a simulator and without a GPU.

The landscape has the shape of the paper's Fig. 3 and Eq. 1: communication gets faster with NC and C with diminishing
returns, compute gets slower with both, Z is the longer of the two plus whatever communication is exposed.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass

from lagom.records import Algorithm, Assignment, CommConfig, Function, Knobs, Problem, Protocol, Sample, Site
from lagom.search.moves import Pairs, WindowRequest, WindowResult
from lagom.search.session import TuningSession

MS = 1e6  # ns


@dataclass(frozen=True)
class Communication:
    """One site. ``alone`` ns at infinite resources; ``knee`` the NC beyond which it is no faster; ``exposed`` the
    share of its time that no compute covers."""

    alone: float
    knee: float = 8.0
    exposed: float = 0.0


@dataclass(frozen=True)
class Landscape:
    """Noise-free truth. ``compute`` ns undisturbed; ``sms`` what compute shares with channels; ``tax`` how much a large
    chunk costs compute (memory bandwidth); ``half_chunk`` bytes at which a channel reaches half its speed."""

    communications: tuple[Communication, ...]
    compute: float
    sms: int = 84
    tax: float = 0.15
    half_chunk: float = 192 << 10
    late_chunk: float = 0.0  # extra communication time of a 2 MiB chunk, as a fraction (pipeline fill)
    ceiling: int = 24
    knobs: Knobs = Knobs()
    usable: tuple[tuple[int, int], ...] = ()
    see_kernels: bool = True
    protocol_factor: float = 1.3  # any protocol but NCCL's own is slower by this

    def problem(self) -> Problem:
        """The search problem that goes with it: all-gathers of which NCCL takes RING/SIMPLE, the ceiling, 2 MiB,
        512."""
        count = len(self.communications)
        sites = tuple(Site(i, Function.ALL_GATHER, (64 << 20) * (i + 1)) for i in range(count))
        stock = CommConfig(Algorithm.RING, Protocol.SIMPLE, self.ceiling, 512, 2 << 20)
        return Problem(sites, (stock,) * count, self.ceiling, self.knobs, (self.usable,) * count if self.usable else ())

    def truth(self, assignment: Assignment) -> Sample:
        """X, Y, Z and x_j of one iteration without noise, ns."""
        configs = [config.over(self.problem_stock) for config in assignment.configs]
        times = [self._time(comm, config) for comm, config in zip(self.communications, configs, strict=True)]
        x = sum(times)
        burden = sum(self._burden(config) * time for config, time in zip(configs, times, strict=True))
        y = self.compute + min(burden, burden * self.compute / max(x, 1.0))
        exposed = sum(comm.exposed * time for comm, time in zip(self.communications, times, strict=True))
        z = max(x - exposed, y) + exposed
        return Sample(z, x, y, tuple(times)) if self.see_kernels else Sample(z)

    @property
    def problem_stock(self) -> CommConfig:
        """NCCL's own pick at every site."""
        return CommConfig(Algorithm.RING, Protocol.SIMPLE, self.ceiling, 512, 2 << 20)

    def _time(self, comm: Communication, config: CommConfig) -> float:
        assert config.channels
        assert config.chunk_bytes
        speed = config.channels / comm.knee * config.chunk_bytes / (config.chunk_bytes + self.half_chunk)
        late = 1.0 + self.late_chunk * config.chunk_bytes / (2 << 20)
        other = self.protocol_factor if config.protocol != Protocol.SIMPLE else 1.0
        return comm.alone * late * other / min(1.0, speed)

    def _burden(self, config: CommConfig) -> float:
        """Compute time lost per ns under this config."""
        assert config.channels
        assert config.chunk_bytes
        return config.channels / (self.sms - config.channels) + self.tax * config.chunk_bytes / (2 << 20)


def compute_bound(**changes: object) -> Landscape:
    """Two communications well hidden: fewer resources pay (the paper's pattern 1)."""
    return Landscape((Communication(6 * MS), Communication(4 * MS)), **{"compute": 40 * MS, **changes})  # type: ignore[arg-type]


def comm_bound(**changes: object) -> Landscape:
    """Communication dominates and small chunks are faster, as on the H200 host path: chunk is the lever."""
    defaults = {"compute": 20 * MS, "late_chunk": 0.5, "half_chunk": 64 << 10, "ceiling": 4}
    return Landscape(
        (Communication(30 * MS, 3.0), Communication(20 * MS, 3.0)),
        **{**defaults, **changes},  # type: ignore[arg-type]
    )


def flat(sites: int = 2, **changes: object) -> Landscape:
    """Nothing matters: whatever is accepted here is a false accept."""
    shape = {"compute": 50 * MS, "sms": 10**9, "tax": 0.0, "half_chunk": 0.0, **changes}
    return Landscape((Communication(1.0, 1e-9),) * sites, **shape)  # type: ignore[arg-type]


@dataclass
class LandscapeDriver:
    """Measures what a session asks for, with noise, drift, outliers and lost windows.

    ``noise``: relative sigma of one iteration. ``drift``: stock's wandering as a function of the iteration number, as a
    factor. ``outliers``: probability of an iteration three times as long. ``lose``: probability of an empty window.
    """

    landscape: Landscape
    seed: int = 0
    noise: float = 0.02
    drift: Callable[[int], float] = lambda iteration: 1.0
    outliers: float = 0.0
    lose: float = 0.0
    iteration: int = 0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._cache: dict[Assignment, Sample] = {}

    def truth(self, assignment: Assignment) -> Sample:
        """Noise-free, cached."""
        if assignment not in self._cache:
            self._cache[assignment] = self.landscape.truth(assignment)
        return self._cache[assignment]

    def gain(self, assignment: Assignment) -> float:
        """True speed-up of an assignment over stock."""
        return self.truth(Assignment.stock(len(assignment))).z / self.truth(assignment).z

    def measure(self, request: WindowRequest, should_cut: Callable[[Pairs], bool] | None = None) -> WindowResult:
        """One window: incumbent, candidate, candidate, incumbent, ..."""
        if self._random.random() < self.lose:
            return WindowResult(())
        pairs: list[tuple[Sample, Sample]] = []
        for number in range(request.pairs):
            order = (request.incumbent, request.candidate)
            first, second = (self._iteration(a) for a in (order if number % 2 == 0 else order[::-1]))
            pairs.append((first, second) if number % 2 == 0 else (second, first))
            if should_cut is not None and should_cut(tuple(pairs)) and number + 1 < request.pairs:
                return WindowResult(tuple(pairs), ended_early=True)
        return WindowResult(tuple(pairs))

    def drive(self, session: TuningSession, *, cut: bool = True) -> TuningSession:
        """Run a session to its end."""
        while (request := session.request()) is not None:
            session.report(self.measure(request, session.should_cut if cut else None))
        return session

    def _iteration(self, assignment: Assignment) -> Sample:
        sample = self.truth(assignment).scaled(self.drift(self.iteration))
        self.iteration += 1
        factor = math.exp(self._random.gauss(0.0, self.noise)) if self.noise else 1.0
        return sample.scaled(factor * (3.0 if self._random.random() < self.outliers else 1.0))
