# SPDX-License-Identifier: Apache-2.0
"""Keeps "the first rule that matches" true when a rule in the middle cannot be converted.

If a refused rule were dropped, its calls would match a later rule that was not meant for them. So the sizes of a
refused rule are cut out of those behind it: its calls fall back to NCCL.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lagom.convert.entries import Reading, RuleEntry, Taken, Topology
from lagom.convert.rule_coverage import Interval, Pair, RuleCoverage, functions_of, pair_of
from lagom.records import Function
from lagom.wire.layout import MAX_RULES
from lagom.wire.plan import BadRule, Rule, format_rule, parse_rule

EVERY = set(Function)


def sizes_of(rule: Rule) -> Interval:
    """Its sizes."""
    return Interval(rule.bytes_min, rule.bytes_max)


def meet(rule: Rule, other: Rule) -> bool:
    """Whether some call falls under both."""
    functions = rule.function is None or other.function is None or rule.function == other.function
    return functions and sizes_of(rule).meets(sizes_of(other))


def same_place(one: Topology | None, other: Topology | None) -> bool:
    """Whether some communicator falls under both."""
    return one is None or other is None or one == other


def each_function(rule: Rule) -> list[Rule]:
    """``any`` as one rule a collective."""
    return [replace(rule, function=function) for function in functions_of(rule)]


def cut(rule: Rule, refused: RuleCoverage) -> list[Rule]:
    """What of a rule no refused rule before it would have taken, one collective each if it was cut."""
    if not refused.meet(rule):
        return [rule]
    return [part for single in each_function(rule) for part in _cut_one(single, refused)]


def _cut_one(rule: Rule, refused: RuleCoverage) -> list[Rule]:
    assert rule.function is not None
    parts = [sizes_of(rule)]
    for taken in refused.within(rule, rule.function):
        parts += parts.pop().without(taken)  # they come in order: only the last part can be met
        if not parts or parts[-1].largest < taken.smallest:
            break
    return [replace(rule, bytes_min=part.smallest, bytes_max=part.largest) for part in parts]


def settle(reading: Reading) -> Taken:
    """The rules of a reading in their order, fit to be put in force; what cannot be is refused by name."""
    rules: list[Rule] = []
    refused: list[RuleEntry] = []
    unread: list[str] = []  # before the last rule that is taken
    left = RuleCoverage()  # the calls of what was refused
    for entry in map(_sound, reading.entries):
        together = rules if entry.is_refused else _with(rules, entry, left)
        if len(together) > MAX_RULES:
            entry = replace(entry, why=f"a job holds at most {MAX_RULES} rules, and this would be one more")
        if entry.is_refused:
            refused.append(entry)
            if entry.rule is not None:
                left.add(entry.rule)
        else:
            rules = together
            unread = [one.where for one in refused if one.rule is None]
    remarks = (*reading.remarks, *fallbacks(reading.entries), *_blind(unread))
    return Taken(tuple(rules), tuple(refused), remarks)


def _blind(unread: Sequence[str]) -> list[str]:
    """Of a line that cannot be read it is not known which calls it would have taken."""
    if not unread:
        return []
    return [f"rules behind {', '.join(unread)} may take calls that were meant for it: it could not be read"]


def _with(rules: Sequence[Rule], entry: RuleEntry, left: RuleCoverage) -> list[Rule]:
    assert entry.rule is not None
    return merged([*rules, *cut(entry.rule, left)])


def _sound(entry: RuleEntry) -> RuleEntry:
    """Refused, if the plugin would not take its config."""
    if entry.is_refused or entry.rule is None:
        return entry
    try:
        parse_rule(format_rule(entry.rule))
    except BadRule as error:
        return replace(entry, why=str(error).rstrip("."))
    return entry


def merged(rules: Sequence[Rule]) -> list[Rule]:
    """Five neighbours that differ in nothing but the collective are one rule for ``any``."""
    out: list[Rule] = []
    for rule in rules:
        out.append(rule)
        tail = out[-len(Function) :]
        every = {one.function for one in tail} == EVERY
        if every and len({replace(one, function=None) for one in tail}) == 1:
            out[-len(Function) :] = [replace(rule, function=None)]
    return out


def fallbacks(entries: Sequence[RuleEntry]) -> list[str]:
    """A remark where a later rule is also a second choice: the other tuners go on where NCCL does not offer a pair."""
    taken = [entry for entry in entries if entry.rule is not None and not entry.is_refused]
    before: dict[tuple[Pair, Topology | None], RuleCoverage] = {}
    for later in taken:
        if _has_fallback(before, later):
            earlier = next(one for one in taken if _is_fallback(one, later))
            return [
                f"{later.where} begins where {earlier.where} also matches: where NCCL does not offer "
                f"{earlier.where}'s algorithm and protocol, the other tuner goes on to {later.where}, and Lagom "
                "leaves the call to NCCL"
            ]
        assert later.rule is not None
        if _names_a_pair(later.rule):
            before.setdefault((pair_of(later.rule), later.only), RuleCoverage()).add(later.rule)
    return []


def _names_a_pair(rule: Rule) -> bool:
    """Only then it may be that NCCL does not offer it."""
    return pair_of(rule) != (None, None)


def _has_fallback(before: Mapping[tuple[Pair, Topology | None], RuleCoverage], later: RuleEntry) -> bool:
    rule = later.rule
    assert rule is not None
    others = (
        coverage for (pair, only), coverage in before.items() if pair != pair_of(rule) and same_place(only, later.only)
    )
    return any(coverage.meet(rule) for coverage in others)


def _is_fallback(earlier: RuleEntry, later: RuleEntry) -> bool:
    if earlier.rule is None or later.rule is None or not same_place(earlier.only, later.only):
        return False
    is_other = _names_a_pair(earlier.rule) and pair_of(earlier.rule) != pair_of(later.rule)
    return is_other and meet(earlier.rule, later.rule)
