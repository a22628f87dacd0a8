# SPDX-License-Identifier: Apache-2.0
"""The results of a conversion: rules that were taken, rules that were refused and why, and remarks."""

from __future__ import annotations

from dataclasses import dataclass, field

from lagom.records import CommConfig
from lagom.wire.plan import Rule


class UnsupportedRule(ValueError):
    """A line or rule that the other form cannot express; the text is a clause that says why."""


@dataclass(frozen=True, slots=True)
class Topology:
    """``ranks`` of a communicator over ``nodes``."""

    ranks: int
    nodes: int

    def __str__(self) -> str:
        return f"{self.ranks} ranks on {self.nodes} node{'s' if self.nodes > 1 else ''}"


@dataclass(frozen=True, slots=True)
class RuleEntry:
    """One line of the other format, or one rule of ours. ``where`` names it (``line 7``); ``only``: the one size of
    communicator it is for, None = all. A refused one says ``why``; its rule, if known, still keeps
    its calls from later rules.
    """

    where: str
    rule: Rule | None
    why: str = ""
    only: Topology | None = None

    @property
    def is_refused(self) -> bool:
        """Whether it cannot be expressed in the other form."""
        return bool(self.why)

    def __str__(self) -> str:
        return f"{self.where}: {self.why}"


@dataclass(slots=True)
class Reading:
    """A file of the other format, in its order. ``remarks``: what differs, or was left out because it can never match
    here."""

    entries: list[RuleEntry] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Taken:
    """The outcome of an import."""

    rules: tuple[Rule, ...]
    refused: tuple[RuleEntry, ...]
    remarks: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Line:
    """One rule as a line of the other format: one collective, algorithm and protocol named."""

    where: str
    rule: Rule
    only: Topology | None

    @property
    def config(self) -> CommConfig:
        """What it sets."""
        return self.rule.config


@dataclass(frozen=True, slots=True)
class Written:
    """The outcome of an export."""

    text: str
    lines: int
    refused: tuple[RuleEntry, ...]
    remarks: tuple[str, ...]
