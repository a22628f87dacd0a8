# SPDX-License-Identifier: Apache-2.0
"""Rules of NVIDIA's example tuner to Lagom's rules and back. README.md says how the two differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lagom.convert import nccl_csv
from lagom.convert.entries import Line, RuleEntry, Taken, Topology, UnsupportedRule, Written
from lagom.convert.rule_coverage import RuleCoverage
from lagom.convert.rule_order import cut, each_function, fallbacks, same_place, settle
from lagom.wire.plan import Rule

__all__ = ["RuleEntry", "Taken", "Topology", "Written", "convert_csv", "convert_rules"]


def convert_csv(text: str, topology: Topology | None = None) -> Taken:
    """The rules of a CSV file for communicators of one size (None: of any)."""
    return settle(nccl_csv.read(text, topology))


def convert_rules(entries: Sequence[RuleEntry]) -> Written:
    """Rules as a CSV file, in their order."""
    lines: list[Line] = []
    refused: list[RuleEntry] = []
    unused: list[RuleEntry] = []  # of a pair that no call can have: Lagom leaves their calls to NCCL
    for entry in entries:
        try:
            new = _lines(entry, [*refused, *unused])
        except UnsupportedRule as error:
            refused.append(replace(entry, why=str(error)))
            continue
        for line in new:
            if why := nccl_csv.no_kernel(line.rule):
                unused.append(RuleEntry(line.where, line.rule, why, line.only))
            else:
                lines.append(line)
    taken = [RuleEntry(line.where, line.rule, only=line.only) for line in lines]
    here, there = "the other tuner goes on to", "the tuner that reads this goes on to"
    notes = dict.fromkeys(f"{entry}, so that these calls are left to NCCL" for entry in unused)
    remarks = (nccl_csv.MISSES, *notes, *(remark.replace(here, there) for remark in fallbacks(taken)))
    return Written(nccl_csv.write(lines), len(lines), tuple(refused), remarks)


def _lines(entry: RuleEntry, left: Sequence[RuleEntry]) -> list[Line]:
    """The lines for one rule, without the calls that rules before it leave to NCCL (``left``); raises
    :class:`UnsupportedRule` if any part of it cannot be expressed."""
    assert entry.rule is not None
    if entry.is_refused:
        raise UnsupportedRule(entry.why)
    _check_complete(entry.rule)
    before = [one.rule for one in left if one.rule is not None and same_place(one.only, entry.only)]
    parts = [one for part in cut(entry.rule, RuleCoverage(before)) for one in each_function(part)]
    return [Line(entry.where, part, entry.only) for part in parts]


def _check_complete(rule: Rule) -> None:
    config = rule.config
    if config.is_stock:
        raise UnsupportedRule("it leaves everything to NCCL, and the format has no such line")
    if config.threads is not None:
        raise UnsupportedRule("threads (nt) can be set by no other tuner; leave them out with --without nt")
    if config.chunk_bytes is not None:
        raise UnsupportedRule("the format has no chunk size; leave it out with --without chunk")
    if config.algorithm is None or config.protocol is None:
        raise UnsupportedRule(
            "it leaves algorithm or protocol to NCCL, and the format must name both; say which with --fill ALGO/PROTO"
        )
