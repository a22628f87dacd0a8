# SPDX-License-Identifier: Apache-2.0
"""Where an export's rules come from: ``--set`` rules, or a saved config with what NCCL picked where it was measured.

A saved config says what to do at each *position* of a program; the other formats know only function and size. So a site
becomes a rule for exactly its size if no other site of that shape wants something else, and is refused if one does.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from lagom.config_file import Section
from lagom.convert.entries import RuleEntry, Topology
from lagom.errors import JournalError
from lagom.journal import Program, RunState, find_log, read
from lagom.records import STOCK, Assignment, CommConfig, Function, Site
from lagom.wire.plan import Rule, format_rule

#: NCCL's own pick of (function, bytes), by the size of the communicator.
Picks = dict[tuple[Topology, Function, int], CommConfig]


def of_rules(rules: Sequence[Rule], only: Topology | None) -> list[RuleEntry]:
    """Rules given by hand."""
    return [RuleEntry(f"rule {format_rule(rule)}", rule, only=only) for rule in rules]


def of_sections(sections: Sequence[Section]) -> list[RuleEntry]:
    """The communicators of a saved config, one by one; those that other formats cannot distinguish must agree."""
    entries: list[RuleEntry] = []
    first: dict[Topology, tuple[Section, list[RuleEntry]]] = {}
    for section in sections:
        only = Topology(section.ranks, section.nodes)
        mine = list(_of_section(section, only))
        known = first.setdefault(only, (section, mine))
        if known[0] is section:
            entries += mine
        elif _meaning(known[1]) != _meaning(mine):
            size = f"it is for another communicator of the same size as {_name(known[0])}"
            entries += [replace(entry, why=f"{size}, and the format cannot distinguish them") for entry in mine]
    return entries


def _meaning(entries: Sequence[RuleEntry]) -> list[tuple[Rule | None, str]]:
    return [(entry.rule, entry.why) for entry in entries]


def _name(section: Section) -> str:
    return section.name or f"communicator {section.ordinal} of {section.ranks} ranks"


def _of_section(section: Section, only: Topology) -> Iterator[RuleEntry]:
    name = _name(section)
    if section.program is not None and section.assignment is not None:
        yield from _of_sites(section, section.program.sites, section.assignment, only)
    for rule in section.rules:
        yield RuleEntry(f"{name}: rule {format_rule(rule)}", rule, only=only)


def _of_sites(section: Section, sites: Sequence[Site], assignment: Assignment, only: Topology) -> Iterator[RuleEntry]:
    """Stock sites need no rule, unless a site of the same shape, or a rule behind it, would speak for them."""
    for site in sites:
        config = assignment[site.index]
        twins = {
            assignment[other.index] for other in sites if (other.function, other.bytes) == (site.function, site.bytes)
        }
        overruled = any(rule.matches(site.function, site.bytes) for rule in section.rules)
        if config == STOCK and len(twins) == 1 and not overruled:
            continue
        rule = Rule(site.function, site.bytes, site.bytes, config)
        apart = "the saved config distinguishes calls of this size by their place in the iteration"
        why = "" if len(twins) == 1 else apart
        yield RuleEntry(f"{_name(section)}: site {site.index} {site}", rule, why, only)


def fill(entries: Iterable[RuleEntry], picks: Picks, given: CommConfig) -> tuple[list[RuleEntry], int]:
    """Algorithm and protocol where a rule leaves them open: what was ``given``, else NCCL's own pick there as the log
    recorded it. Also returns how many were taken from the log."""
    out, from_log = [], 0
    for entry in entries:
        rule = entry.rule
        if (
            rule is not None
            and entry.only is not None
            and rule.function is not None
            and rule.bytes_min == rule.bytes_max
        ):
            pick = picks.get((entry.only, rule.function, rule.bytes_min))
        else:
            pick = None
        filled = entry if rule is None else replace(entry, rule=_filled(rule, given, pick))
        from_log += filled.rule != entry.rule and given.algorithm is None
        out.append(filled)
    return out, from_log


def _filled(rule: Rule, given: CommConfig, pick: CommConfig | None) -> Rule:
    """NCCL picks a pair: the other half of a pair that is half given is not ours to guess."""
    config = rule.config
    if config.algorithm is not None or config.protocol is not None:
        return rule
    source = given if given.algorithm is not None else pick
    if source is None:
        return rule
    return replace(rule, config=replace(config, algorithm=source.algorithm, protocol=source.protocol))


def picks_beside(config: Path) -> Picks:
    """What NCCL picked by itself, from the log in the saved config's folder; empty without one."""
    picks: Picks = {}
    with contextlib.suppress(JournalError):
        for comm in RunState(read(find_log(config.parent)), keep_samples=False).comms.values():
            if comm.communicator is not None and comm.program is not None:
                only = Topology(comm.communicator.ranks, comm.communicator.nodes)
                picks.update(_picks(comm.program, only))
    return picks


def _picks(program: Program, only: Topology) -> Picks:
    words = {function.word: function for function in Function}
    picks: Picks = {}
    for site in program.sites:
        if site.stock is None or site.function not in words:
            continue
        try:
            picks[only, words[site.function], site.bytes] = site.stock.config()
        except ValueError:  # a name this lagom does not know
            continue
    return picks


def strip(entries: Iterable[RuleEntry], without: Sequence[str]) -> list[RuleEntry]:
    """The rules without the knobs named: ``chunk``, ``nt``."""
    out = []
    for entry in entries:
        rule = entry.rule
        if rule is not None and without:
            config = rule.config
            config = replace(config, chunk_bytes=None) if "chunk" in without else config
            config = replace(config, threads=None) if "nt" in without else config
            entry = replace(entry, rule=replace(rule, config=config))
        out.append(entry)
    return out
