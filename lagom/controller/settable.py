"""What a config by hand may ask for here: knobs that this NCCL or this job does not have are left out, and said.

A rank refuses a plan that sets threads where it cannot, since NCCL picks channels by threads and one rank without them
would differ from the others. So such a knob must not get into a plan at all.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from lagom.records import STOCK, CommConfig, Knobs, Site
from lagom.wire.plan import Rule

#: Knob of the search -> (field of a config, word in a rule, what it takes).
_NEEDS = {
    "threads": ("threads", "nt", "LAGOM_NT=1 and a build of NCCL whose threads lagom knows how to set"),
    "chunk": ("chunk_bytes", "chunk", "NCCL 2.30.3 or later"),
}


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
