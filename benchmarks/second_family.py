# SPDX-License-Identifier: Apache-2.0
"""A second family of landscapes: it shares no formula with ``lagom.sim`` or ``lagom.cost``.

A cost model that is tested on the simulator it was written beside may look better than it is. Here communication time
is an exponential of a valley in log2(NC) and log2(C), which may lie across both (a ridge), with ripples and with a
steep rise where few bytes are in flight. Compute slows down by a power of NC. Another protocol has a valley of its own.
Z is a smooth maximum. There is no bandwidth, no wave of threadblocks and no queue. Each seed is another landscape;
:data:`KINDS` says what may be gained, :data:`BLOCKS` where seeds differ besides.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from lagom.records import Algorithm, Assignment, CommConfig, Function, Knobs, Problem, Protocol, Sample, Site
from lagom.search import TuningSession
from lagom.search.landscape import LandscapeDriver
from lagom.search.moves import Pairs, WindowRequest, WindowResult
from lagom.search.space import Pair, Space

STEP_NS = 500e6
STOCK_CHUNK = 2 << 20
KINDS = ("bound", "taxed", "nothing", "exposed", "ridge", "steep")
"""Communication-bound, small chunks are faster; hidden, fewer channels give compute back; stock is the best;
some exposed and some hidden; NC and C must be traded; communication-bound, some configs are 10 to 40 times slower."""
NOISES = (0.005, 0.01, 0.02, 0.05)
SITES = (2, 3, 2, 4, 2, 6)
BLOCKS = ("several", "protocols that lose", "one communication", "protocols that may gain")
"""Every kind with every noise takes 24 seeds; each 24 seeds are another block of :func:`draw_mixed`."""
LL128 = (Algorithm.RING, Protocol.LL128)
LL = (Algorithm.RING, Protocol.LL)


@dataclass(frozen=True, slots=True)
class Twist:
    """What another protocol makes of a valley: ``log_time`` on its time, the best v moved by ``move``, ``tax`` on what
    it takes from compute."""

    log_time: float = 0.0
    move: float = 0.0
    tax: float = 1.0


PLAIN = Twist()


@dataclass(frozen=True, slots=True)
class Valley:
    """Time of one communication and what it takes from compute. u = log2(NC), v = log2(C / KiB), ``top`` is u of
    stock."""

    time: float  # ns with stock's config
    exposed: bool
    top: float
    knee: float  # below this u, time rises by ``climb`` for each halving of NC
    climb: float
    best_v: float  # chunk with the least time at stock's NC
    bend: float  # how steep the valley is in v
    tilt: float  # how far the best v moves for each doubling of NC
    tax: float  # ns of compute lost for each ns of communication, with stock's config
    power: float  # tax ~ NC^power
    chunk_tax: float  # share of the tax that a 32 KiB chunk does not have
    ripple: float
    phase: float
    steep: float  # log of the extra factor where few bytes are in flight
    few: float  # u + v below which that is so
    twists: tuple[tuple[Pair, Twist], ...] = ()  # of the other protocols

    def log_time(self, u: float, v: float, twist: Twist = PLAIN) -> float:
        """ln of the time, up to a constant."""
        away = v - self.best_v - twist.move - self.tilt * (u - self.top)
        ripple = self.ripple * math.sin(self.phase + 1.9 * u) * math.sin(2.0 * self.phase + 1.3 * v)
        few = self.steep / (1.0 + math.exp(-5.0 * (self.few - u - v)))
        climb = self.climb * softplus(self.knee - u, 0.25)
        return twist.log_time + climb + self.bend * away * away + ripple + few

    def times(self, config: CommConfig) -> tuple[float, float]:
        """Its time and the compute time it costs, ns."""
        assert config.channels
        assert config.chunk_bytes
        u, v = math.log2(config.channels), math.log2(config.chunk_bytes / 1024)
        pair = (config.algorithm, config.protocol)
        twist = next((twist for other, twist in self.twists if other == pair), PLAIN)
        factor = math.exp(self.log_time(u, v, twist) - self.log_time(self.top, math.log2(STOCK_CHUNK / 1024)))
        chunk = 1.0 - self.chunk_tax * (11.0 - v) / 6.0
        share = self.tax * twist.tax * math.sqrt(factor) * 2.0 ** (self.power * (u - self.top)) * chunk
        return self.time * factor, self.time * share


def softplus(value: float, width: float) -> float:
    """max(0, value) with a round corner."""
    scaled = value / width
    return width * (scaled + math.log1p(math.exp(-scaled)) if scaled > 0.0 else math.log1p(math.exp(scaled)))


@dataclass(frozen=True)
class SecondLandscape:
    """Noise-free truth; ``visible`` is false where only Z is measured. ``corner``: width of the smooth maximum."""

    kind: str
    valleys: tuple[Valley, ...]
    compute: float
    host: float
    ceiling: int
    contexts: bool
    corner: float
    visible: bool = True

    def problem(self) -> Problem:
        """The input of a search."""
        names = [("exposed" if valley.exposed else "hidden") if self.contexts else "" for valley in self.valleys]
        sites = tuple(Site(i, Function.ALL_GATHER, (32 << 20) * (i + 1), 2, name) for i, name in enumerate(names))
        usable = tuple(tuple(pair for pair, _ in valley.twists) for valley in self.valleys)
        return Problem(sites, (self.stock,) * len(sites), self.ceiling, Knobs(), usable if any(usable) else ())

    @property
    def stock(self) -> CommConfig:
        """NCCL's own pick at each site."""
        return CommConfig(Algorithm.RING, Protocol.SIMPLE, self.ceiling, 512, STOCK_CHUNK)

    def truth(self, assignment: Assignment) -> Sample:
        """X, Y, Z and x_j of one iteration without noise, ns."""
        parts = [self._parts[i, config] for i, config in enumerate(assignment.configs)]
        covered = sum(x for (x, _), valley in zip(parts, self.valleys, strict=True) if not valley.exposed)
        exposed = sum(x for (x, _), valley in zip(parts, self.valleys, strict=True) if valley.exposed)
        y = self.compute + sum(tax for _, tax in parts)
        z = self.host + exposed + y + softplus(covered - y, self.corner * y)
        return Sample(z, covered + exposed, y, tuple(x for x, _ in parts)) if self.visible else Sample(z)

    @cached_property
    def _parts(self) -> _Parts:
        return _Parts(self)

    @cached_property
    def best(self) -> float:
        """The least Z found by descent over all configs of each site, from stock, from little and from random."""
        space, draw = Space(self.problem()), random.Random(7)
        choices = [list(space.configs(site)) for site in range(len(self.valleys))]
        starts = [space.stock, space.floor(space.stock)]
        starts += [Assignment(tuple(draw.choice(options) for options in choices)) for _ in range(3)]
        return min(self._descend(start, choices) for start in starts)

    def _descend(self, start: Assignment, choices: list[list[CommConfig]]) -> float:
        here, z = start, math.inf
        while (now := self.truth(here).z) < z - 1.0:
            z = now
            for site, options in enumerate(choices):
                here = min((here.with_config(site, option) for option in options), key=lambda a: self.truth(a).z)
        return z


class _Parts(dict):
    """(x_j, tax) by site and config, computed once."""

    def __init__(self, landscape: SecondLandscape) -> None:
        self._of = landscape

    def __missing__(self, key: tuple[int, CommConfig]) -> tuple[float, float]:
        site, config = key
        self[key] = self._of.valleys[site].times(config.over(self._of.stock))
        return self[key]


def draw_mixed(seed: int, *, visible: bool = True) -> tuple[SecondLandscape, float]:
    """The landscape of a seed in the population that a search is judged on: see :data:`BLOCKS`."""
    block = BLOCKS[block_of(seed)]
    alone, draw = block == "one communication", random.Random(f"protocols {seed}")
    landscape, noise = draw_landscape(seed, visible=visible, sites=1 if alone else 0)
    if block == "several" or (alone and draw.random() < 0.5):
        return landscape, noise
    gain = landscape.kind != "nothing" and (draw.random() < 0.5 if alone else block == "protocols that may gain")
    valleys = tuple(replace(valley, twists=_twists(gain, draw)) for valley in landscape.valleys)
    return replace(landscape, valleys=valleys), noise


def block_of(seed: int) -> int:
    """Which of :data:`BLOCKS` a seed of :func:`draw_mixed` is in."""
    return seed // (len(KINDS) * len(NOISES)) % len(BLOCKS)


def _twists(gain: bool, draw: random.Random) -> tuple[tuple[Pair, Twist], ...]:
    """LL128 may gain, LL never does: as NCCL's own have it for messages that last long enough to matter."""
    ll128 = Twist(
        draw.uniform(-0.15, 0.02) if gain else draw.uniform(0.02, 0.25), draw.uniform(-1.0, 0.5), draw.uniform(0.8, 1.1)
    )
    return (LL128, ll128), (LL, Twist(draw.uniform(0.4, 0.9), draw.uniform(-1.0, 0.0), draw.uniform(0.7, 1.0)))


def draw_landscape(seed: int, *, visible: bool = True, sites: int = 0) -> tuple[SecondLandscape, float]:
    """The landscape of a seed and the noise of its iterations: every kind with every noise in 24 seeds in a row.
    ``sites``: so many communications in each; 0 = two to six, by the seed."""
    draw = random.Random(f"second family {seed}")
    kind, noise = KINDS[seed % 6], NOISES[seed // 6 % 4]
    count = sites or SITES[(seed // 6 + seed) % 6]
    scarce = kind in ("bound", "steep")
    ceiling = draw.choice((4, 8) if scarce else (16, 24))
    # shares of stock's step: communication that compute may cover, and exposed communication
    covered = draw.uniform(0.7, 0.85) if scarce or kind == "ridge" else draw.uniform(0.2, 0.55)
    exposed = {"exposed": draw.uniform(0.15, 0.3), "nothing": draw.uniform(0.05, 0.15)}.get(kind, 0.0)
    apart = [kind in ("exposed", "nothing") and site >= (count + 1) // 2 for site in range(count)]
    weights = [draw.uniform(0.5, 1.5) for _ in range(count)]
    totals = {part: sum(w for w, a in zip(weights, apart, strict=True) if a == part) for part in (False, True)}
    valleys = []
    for weight, alone in zip(weights, apart, strict=True):
        time = STEP_NS * weight / totals[alone] * (exposed if alone else covered)
        valleys.append(_valley(kind, time, alone, math.log2(ceiling), draw))
    bound = scarce or kind == "ridge"
    compute = STEP_NS * (covered * draw.uniform(0.4, 0.8) if bound else 0.9 - exposed)
    landscape = SecondLandscape(
        kind, tuple(valleys), compute, STEP_NS * draw.uniform(0.02, 0.1), ceiling, draw.random() < 0.5,
        draw.uniform(0.03, 0.12), visible,
    )  # fmt: skip
    return landscape, noise


def _valley(kind: str, time: float, exposed: bool, top: float, draw: random.Random) -> Valley:
    taxed = kind in ("taxed", "exposed", "ridge") and not exposed
    best_v = {"bound": (7.0, 9.0), "steep": (7.5, 9.0), "ridge": (7.5, 9.5)}.get(kind, (9.0, 10.5))
    return Valley(
        time=time,
        exposed=exposed,
        top=top,
        knee=top + 1.0 if exposed or kind == "nothing" else top - draw.uniform(0.2, 2.0),
        climb=draw.uniform(0.4, 0.7),
        best_v=11.0 if kind == "nothing" else draw.uniform(*best_v),
        bend=draw.uniform(0.003, 0.03) if kind != "taxed" else draw.uniform(0.005, 0.02),
        tilt=draw.uniform(-1.5, -0.7) if kind == "ridge" else draw.uniform(-0.3, 0.0),
        tax=draw.uniform(0.04, 0.3) if taxed else 0.0 if kind == "nothing" else 0.02,
        power=draw.uniform(0.6, 1.4),
        chunk_tax=draw.uniform(0.2, 0.7),
        ripple=0.0 if kind == "nothing" else draw.uniform(0.0, 0.01),
        phase=draw.uniform(0.0, 6.0),
        steep=draw.uniform(2.3, 3.7) if kind == "steep" else 0.0,
        few=draw.uniform(6.2, 7.6) if top < 2.5 else draw.uniform(7.0, 8.4),
    )


class SecondJob(LandscapeDriver):
    """A job on such a landscape with a clock that counts iterations.

    Iterations have heavy tails (Student's t with 4 degrees of freedom), one in 200 is 1.3 to 4 times as long, and all
    wander together (an AR(1) process of twice the noise, correlated over 300 iterations).
    """

    DEGREES, RARE, MEMORY = 4, 0.005, 300.0

    def __init__(self, landscape: SecondLandscape, seed: int, noise: float) -> None:
        super().__init__(landscape, seed, noise)  # type: ignore[arg-type]  # it only asks for truth()
        self.clock = 0.0  # in iterations of stock
        self.lost = 0.0  # the same, by the noise-free truth: what slower candidates cost
        self._wander = self._random.gauss(0.0, 2.0 * noise)
        self._stock_z = self.truth(Assignment.stock(len(landscape.valleys))).z

    def measure(self, request: WindowRequest, should_cut: Callable[[Pairs], bool] | None = None) -> WindowResult:
        """One window; the clock advances by its iterations."""
        result = super().measure(request, should_cut)
        slower = self.truth(request.candidate).z / self._stock_z - 1.0
        self.lost += max(0.0, slower) * len(result.pairs)
        return result

    def run_until(self, session: TuningSession, limit: float) -> None:
        """Drive a session with a time limit, ``limit`` iterations of stock, as the controller does."""
        while (request := session.request()) is not None:
            result = self.measure(request, session.should_cut)
            session.set_time_left(max(0.0, limit - self.clock) / 2.0, "stopped: time limit reached")
            session.report(result)

    def _iteration(self, assignment: Assignment) -> Sample:
        keep = math.exp(-1.0 / self.MEMORY)
        wander = self._random.gauss(0.0, 2.0 * self.noise * math.sqrt(1.0 - keep * keep))
        self._wander = keep * self._wander + wander
        sample = self.truth(assignment).scaled(math.exp(self._wander + self.noise * self._heavy()))
        sample = sample.scaled(self._random.uniform(1.3, 4.0) if self._random.random() < self.RARE else 1.0)
        self.iteration += 1
        self.clock += sample.z / self._stock_z
        return sample

    def _heavy(self) -> float:
        """Student's t, scaled to a standard deviation of 1."""
        squares = sum(self._random.gauss(0.0, 1.0) ** 2 for _ in range(self.DEGREES)) / self.DEGREES
        return self._random.gauss(0.0, 1.0) / math.sqrt(squares) / math.sqrt(self.DEGREES / (self.DEGREES - 2))


def gains(seeds: int) -> dict[str, list[float]]:
    """The best gain of each kind, for a look at the family itself."""
    found: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for seed in range(seeds):
        landscape, _ = draw_landscape(seed)
        found[landscape.kind].append(landscape.truth(Assignment.stock(len(landscape.valleys))).z / landscape.best - 1.0)
    return found


def worst_over_stock(landscape: SecondLandscape) -> float:
    """Z of the slowest config that all sites share, over Z of stock."""
    space = Space(landscape.problem())
    count = len(landscape.valleys)
    each = itertools.product(*(space.ladder(0, dim) for dim in ("channels", "chunk")))
    zs = [landscape.truth(Assignment((CommConfig(channels=nc, chunk_bytes=c),) * count)).z for nc, c in each]
    return max(zs) / landscape.truth(space.stock).z
