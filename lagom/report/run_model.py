# SPDX-License-Identifier: Apache-2.0
"""What the text of a report consists of: plain values, in NCCL's words where NCCL has one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from lagom.doctor.config_fit import ConfigFit
from lagom.journal import Verdict
from lagom.records import CommConfig


@dataclass(frozen=True, slots=True)
class TriedConfig:
    """A config that was tried at a site. ``ratio`` is Z of the candidate over Z of the config in force then (below 1 is
    faster), ``speedup`` Z of plain NCCL over Z of the candidate, each with its 95 % interval; ``over_incumbent``: the
    speed-up over the config in force, None where that is plain NCCL. ``decision`` is `lagom log`'s word. Times in ns.
    """

    number: int
    iteration: int | None
    config: CommConfig
    joint: bool  # other sites were changed in the same move
    verdict: str
    decision: str
    kept: bool  # the search went on from it: it was faster, or as fast with fewer resources
    phase: str  # of the search, in the strategy's word
    reason: str
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None
    speedup: float | None = None
    speedup_low: float | None = None
    speedup_high: float | None = None
    over_incumbent: float | None = None
    pairs: int = 0
    h: float | None = None
    x: float | None = None
    y: float | None = None
    z: float | None = None

    @property
    def settled(self) -> bool:
        """False for a window that only asked for more samples, or brought none."""
        return self.verdict not in ("more", "missing")


@dataclass(frozen=True, slots=True)
class SiteReport:
    """One site: NCCL's own choice (open fields: not seen), ours (open fields: left to NCCL), and how it came to that.
    Communication times an iteration, ns, from the windows that proved the config."""

    index: int
    function: str
    bytes: int
    calls: int
    context: str
    stock: CommConfig | None
    ours: CommConfig
    trials: tuple[TriedConfig, ...] = ()
    stock_ns: float | None = None
    ours_ns: float | None = None
    evidence: str = ""  # why ``ours`` is in force here, where a log says so


@dataclass(frozen=True, slots=True)
class NotTuned:
    """Calls that no tuner is asked about, or could not change; ``count`` None: it is not known how many."""

    what: str
    count: int | None
    why: str
    instead: str = ""


@dataclass(frozen=True, slots=True)
class CommReport:
    """One communicator: its sites, the proof for all of them together, and what could not be tuned on it."""

    name: str
    ranks: int
    answer: str
    channels_built: int | None = None
    headroom: bool = False  # then these are stock's, and more were built
    tier: str = ""
    period: int = 0
    z: float | None = None  # an iteration under plain NCCL, ns
    proof: str = ""
    proven: bool = False  # else ``proof`` is only why the search ended
    cost: str = ""
    sites: tuple[SiteReport, ...] = ()
    rules: tuple[str, ...] = ()  # for calls that belong to no site
    not_tuned: tuple[NotTuned, ...] = ()


@dataclass(frozen=True, slots=True)
class RunReport:
    """All of it. ``facts`` are label and value, for the head."""

    source: str
    kind: Literal["log", "config"]
    verdict: Verdict | None = None  # of a log
    is_simulated: bool = False
    start: str = ""  # whether a saved config's start settings are in force, or the evidence for them
    nothing: str = ""  # what to say of a log in which no communicator was seen
    facts: tuple[tuple[str, str], ...] = ()
    communicators: tuple[CommReport, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    fit: ConfigFit | None = None
    remarks: tuple[str, ...] = ()
