# SPDX-License-Identifier: Apache-2.0
"""Values that all packages share: functions, configs, sites, problems, assignments, samples.

Plain frozen values, no behaviour beyond their own arithmetic. Sizes are bytes, times are nanoseconds unless a name says
otherwise. The numbering of the enums is NCCL's (stable 2.19..2.32) and that of ``csrc/protocol/lagom_protocol.h``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Literal

from lagom.format import format_config, format_site


def printable(text: str) -> str:
    """What a terminal or a text file may be given: names come from elsewhere and may hold control characters."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def readable_name(job_key: str) -> str:
    """``lagom.myjob uid=0 boot=... host=-`` -> ``myjob``: what a job is called where no log names it."""
    return printable(job_key.split(" uid=", 1)[0].removeprefix("lagom.") or "?")[:60]


class Function(IntEnum):
    """A collective that reaches NCCL's tuner."""

    BROADCAST = 0
    REDUCE = 1
    ALL_GATHER = 2
    REDUCE_SCATTER = 3
    ALL_REDUCE = 4

    @property
    def word(self) -> str:
        """The spelling used in rules, saved configs and logs, e.g. ``allgather``."""
        return self.name.lower().replace("_", "")


class Algorithm(IntEnum):
    """NCCL's algorithms (A)."""

    TREE = 0
    RING = 1
    COLLNET_DIRECT = 2
    COLLNET_CHAIN = 3
    NVLS = 4
    NVLS_TREE = 5
    PAT = 6


class Protocol(IntEnum):
    """NCCL's wire protocols (P)."""

    LL = 0
    LL128 = 1
    SIMPLE = 2


@dataclass(frozen=True, slots=True)
class CommConfig:
    """What one collective should use; ``None`` leaves that knob to NCCL.

    A, P, NC, NT and C of the paper (Table 1). The sixth, transport, is fixed when NCCL builds a communicator.
    """

    algorithm: Algorithm | None = None
    protocol: Protocol | None = None
    channels: int | None = None
    threads: int | None = None
    chunk_bytes: int | None = None

    @property
    def is_stock(self) -> bool:
        """True if every knob is left to NCCL."""
        return self == STOCK

    def over(self, base: CommConfig) -> CommConfig:
        """This config with its open knobs filled from ``base`` (what would really run on top of NCCL's pick)."""
        return CommConfig(
            self.algorithm if self.algorithm is not None else base.algorithm,
            self.protocol if self.protocol is not None else base.protocol,
            self.channels if self.channels is not None else base.channels,
            self.threads if self.threads is not None else base.threads,
            self.chunk_bytes if self.chunk_bytes is not None else base.chunk_bytes,
        )

    def __str__(self) -> str:
        return format_config(self)


STOCK = CommConfig()


@dataclass(frozen=True, slots=True)
class Site:
    """Calls that share one config because they play the same part in an iteration.

    ``index`` is the site's place in the plan and in every :class:`Assignment`. ``context`` is ``"exposed"``,
    ``"hidden"`` or ``""`` where no timeline was recorded.
    """

    index: int
    function: Function
    bytes: int
    calls_per_iteration: int = 1
    context: str = ""

    def __str__(self) -> str:
        return format_site(self)


@dataclass(frozen=True, slots=True)
class Knobs:
    """What may be set on this communicator: the stock NCCL at hand decides (facts: 2.22-2.29 no chunk; >= 2.30.3
    chunk)."""

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

    @property
    def stock_channels(self) -> list[int]:
        """Channels that NCCL takes at each site, all that it built where that is not known."""
        return [pick.channels or self.channels_ceiling for pick in self.stock]


Choice = Mapping[int, CommConfig]
"""One alternative of a search: configs by site (several sites where they must share one)."""


@dataclass(frozen=True, slots=True)
class Assignment:
    """One config for every site, by site index."""

    configs: tuple[CommConfig, ...]

    @classmethod
    def stock(cls, sites: int) -> Assignment:
        """NCCL untouched at each of ``sites`` sites."""
        return cls((STOCK,) * sites)

    @classmethod
    def of(cls, configs: Mapping[int, CommConfig], sites: int) -> Assignment:
        """From a sparse mapping; sites it does not name stay stock."""
        return cls(tuple(configs.get(index, STOCK) for index in range(sites)))

    def __getitem__(self, site: int) -> CommConfig:
        return self.configs[site]

    def __len__(self) -> int:
        return len(self.configs)

    def with_config(self, site: int, config: CommConfig) -> Assignment:
        """A copy with one site changed."""
        return Assignment(self.configs[:site] + (config,) + self.configs[site + 1 :])

    @property
    def is_stock(self) -> bool:
        """True if no site is changed."""
        return all(config.is_stock for config in self.configs)


@dataclass(frozen=True, slots=True)
class Sample:
    """One iteration as measured. Over ranks: ``x`` is the minimum (the last to arrive waits least, so its communication
    time is the true one), ``y`` the maximum, ``z`` the mean (all ranks of a job take equally long,
    and a mean has less noise than the maximum that :class:`lagom.timeline.ranks.StepTimes` calls ``z_max``).

    ``z`` iteration time; ``x`` communication busy time; ``y`` compute busy time; ``x_by_site`` communication time of
    each site's calls together. Nanoseconds; ``None`` where this tier of measurement cannot see it.
    """

    z: float
    x: float | None = None
    y: float | None = None
    x_by_site: tuple[float, ...] | None = None

    def scaled(self, factor: float) -> Sample:
        """Every time multiplied by ``factor``."""
        times = None if self.x_by_site is None else tuple(value * factor for value in self.x_by_site)
        return replace(
            self,
            z=self.z * factor,
            x=None if self.x is None else self.x * factor,
            y=None if self.y is None else self.y * factor,
            x_by_site=times,
        )


@dataclass(frozen=True, slots=True)
class Observation:
    """One measured window: medians in ns (``None`` where unseen) and the relative standard error of those medians.

    Times of different windows must be comparable: the caller takes out drift (ratio to the incumbent of the window).
    """

    assignment: Assignment
    z: float | None
    y: float | None = None
    x_by_site: tuple[float, ...] | None = None
    error: float = 0.005


# -- how a search judges


MoveVerdict = Literal["baseline", "better", "worse", "tie", "more", "missing", "confirmed", "rejected", "compared"]
"""What a window came to: ``more``: not decided yet, measured again; ``missing``: it brought nothing; ``confirmed`` and
``rejected``: a test on fresh samples; ``compared``: a named arm beside stock (`lagom bench`)."""
Against = Literal["stock", "incumbent", "point"]
"""What a verdict compares a candidate with: NCCL's choice, the config in force, or a point that a strategy named."""
OutcomeVerdict = Literal["improved", "stock_is_best", "cut_short", "stopped", "compared"]
"""How a search ended; ``compared``: named arms were measured, nothing was searched."""
