# SPDX-License-Identifier: Apache-2.0
"""Rules pinned by hand: those of ``--set`` at the start, what ``lagom set`` writes into the log folder later, and which
of their knobs can be set here.

A rank refuses a plan that sets threads where it cannot, since NCCL picks channels by threads and one rank without them
would differ from the others. So knobs that this NCCL or this job does not have are left out of a plan, and said.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lagom.controller.options import Options
from lagom.files import read_own
from lagom.records import STOCK, CommConfig, Knobs, Site
from lagom.settings import split_rules
from lagom.wire.plan import BadRule, Rule, parse_rule

#: Knob of the search -> (field of a config, word in a rule, what it takes).
_NEEDS = {
    "threads": ("threads", "nt", "LAGOM_NT=1 and a build of NCCL whose threads lagom knows how to set"),
    "chunk": ("chunk_bytes", "chunk", "NCCL 2.30.3 or later"),
}


class PinnedRules:
    """The rules in force and the file that may replace them."""

    def __init__(self, options: Options) -> None:
        self._path = options.pins
        self.problems: list[str] = []
        self.rules: tuple[Rule, ...] = tuple(map(parse_rule, options.rules))
        self._stamp = self._stamp_now()

    def changed(self) -> tuple[Rule, ...] | None:
        """The new rules if the file was rewritten since the last look; an unreadable rule keeps the old ones."""
        stamp = self._stamp_now()
        if stamp == self._stamp:
            return None
        self._stamp, self.problems = stamp, []
        try:
            text = read_own(self._path) if stamp else ""
            self.rules = tuple(map(parse_rule, split_rules(text)))
        except (BadRule, OSError, UnicodeDecodeError) as error:
            self.problems.append(f"{self._path} was not followed: {error}")
        return self.rules

    def _stamp_now(self) -> tuple[int, int] | None:
        try:
            status = self._path.stat()
        except OSError:
            return None
        return status.st_mtime_ns, status.st_ino


def settable(config: CommConfig, knobs: Knobs) -> CommConfig:
    """``config`` without the knobs that cannot be set here."""
    missing = [field for knob, (field, _, _) in _NEEDS.items() if not getattr(knobs, knob)]
    return replace(config, **dict.fromkeys(missing))


def settable_rules(rules: Iterable[Rule], knobs: Knobs) -> tuple[Rule, ...]:
    """The rules with what can be set of them."""
    return tuple(replace(rule, config=settable(rule.config, knobs)) for rule in rules)


def by_first_rule(rules: Iterable[Rule], site: Site) -> CommConfig:
    """The config of the first rule that fits a site, else stock."""
    fitting = (rule.config for rule in rules if rule.matches(site.function, site.bytes))
    return next(fitting, STOCK)


def left_out(configs: Iterable[CommConfig], knobs: Knobs) -> list[str]:
    """One sentence for each knob that some config names and that cannot be set here."""
    asked = list(configs)
    return [
        f"{word}= is left out of what was given by hand: it takes {needs}."
        for knob, (field, word, needs) in _NEEDS.items()
        if not getattr(knobs, knob) and any(getattr(config, field) is not None for config in asked)
    ]
