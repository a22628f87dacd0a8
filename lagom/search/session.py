"""The tuning session: what the simulator and the live job both drive.

    while (request := session.request()) is not None:
        session.report(measure(request))

A request names two assignments, the incumbent (the best confirmed so far; stock at first) and a candidate. Whoever drives
measures them alternately within one window and hands back pairs. The session owns everything that decides: the strategy,
the statistics, the final A/B, what becomes incumbent. The driver owns everything that touches the world.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from lagom.records import Assignment, CommConfig, Sample, Site


@dataclass(frozen=True, slots=True)
class Knobs:
    """What may be set on this communicator: the stock NCCL at hand decides (facts: 2.22-2.29 no chunk; >= 2.30.3 chunk)."""

    channels: bool = True
    algorithm: bool = True
    chunk: bool = True
    threads: bool = False


@dataclass(frozen=True, slots=True)
class Problem:
    """What is to be tuned: the sites of one communicator's iteration, and what is legal there.

    ``stock[i]`` is NCCL's own pick at site i as far as it is known (channels and chunk may be ``None``).
    ``usable[i]`` are the (algorithm, protocol) pairs that this communicator already uses or that NCCL offers safely;
    empty = leave A and P alone. ``channels_ceiling`` is what NCCL built (24 on NVLink, 4 on the host path); NC is only
    ever lowered from there.
    """

    sites: tuple[Site, ...]
    stock: tuple[CommConfig, ...]
    channels_ceiling: int
    knobs: Knobs = Knobs()
    usable: tuple[tuple[tuple[int, int], ...], ...] = ()
    chunk_ceiling: int = 2 << 20


@dataclass(frozen=True, slots=True)
class WindowRequest:
    """Measure ``candidate`` against ``incumbent``: ``pairs`` pairs in the order incumbent, candidate, candidate,
    incumbent. ``purpose`` is ``baseline`` (both are the incumbent: A/A), ``trial`` or ``confirm``."""

    number: int
    incumbent: Assignment
    candidate: Assignment
    pairs: int
    purpose: str
    why: str


@dataclass(frozen=True, slots=True)
class WindowResult:
    """Pairs as measured; ``discarded`` pairs were spoilt (stragglers, irregular iterations). ``ended_early`` when the
    driver cut a clearly bad candidate. An empty ``pairs`` is a missing window and no error."""

    pairs: tuple[tuple[Sample, Sample], ...]  # (incumbent, candidate)
    discarded: int = 0
    ended_early: bool = False


@dataclass(frozen=True, slots=True)
class Move:
    """One logged decision: everything needed to replay and to explain it."""

    number: int
    purpose: str
    candidate: Assignment
    verdict: str  # better | worse | tie | missing | confirmed | rejected | baseline
    reason: str  # one sentence, with what ended it
    ratio: float | None = None  # candidate over incumbent in Z; < 1 is faster
    ratio_low: float | None = None  # 95 % interval
    ratio_high: float | None = None
    h: float | None = None  # Eq. 7, ns of compute lost per ns of communication won
    site: int | None = None  # the communication that was moved
    x: float | None = None  # candidate's medians, ns
    y: float | None = None
    z: float | None = None
    pairs: int = 0
    discarded: int = 0
    resolvable: float | None = None  # smallest effect (as a fraction of Z) these data could resolve
    lost_iterations: float = 0.0  # regret so far: time lost against stock while searching, in stock iterations


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a tuning run ended."""

    assignment: Assignment
    verdict: str  # improved | stock_is_best | stopped
    reason: str
    speedup: float | None  # of the final A/B, stock over tuned
    speedup_low: float | None
    speedup_high: float | None
    resolvable: float | None
    configs: int
    windows: int
    iterations: int
    regret_iterations: float
    moves: tuple[Move, ...] = field(default=())


# To be completed by lagom.search: class TuningSession with
#   __init__(self, strategy: Strategy, problem: Problem, policy: Policy = Policy(), seed: int = 0)
#   request(self) -> WindowRequest | None      None = the session is over
#   report(self, result: WindowResult) -> Move
#   should_cut(self, pairs: Sequence[tuple[Sample, Sample]]) -> bool    a clearly bad candidate, in mid-window
#   stop(self, reason: str) -> None            end at once on the incumbent
#   outcome -> Outcome | None                  set when over
