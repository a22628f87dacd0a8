# SPDX-License-Identifier: Apache-2.0
"""Plans and rules of the controller as the C structs that ranks read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lagom.errors import LagomError, UsageError
from lagom.format import format_exact_bytes
from lagom.records import Algorithm, Assignment, CommConfig, Function, Protocol, Site
from lagom.settings import split_rules
from lagom.wire.layout import ANY_FUNCTION, LEAVE, MAX_POSITIONS, MAX_RULES, MAX_SITES, ffi
from lagom.wire.library import library

NO_LIMIT = (1 << 64) - 1


class PlanTooLarge(LagomError):
    """More positions, sites or rules than a plan holds."""


class BadRule(LagomError):
    """A ``--set`` rule that cannot be read."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A config by function and size, for calls that belong to no program. ``function`` None = any; bounds are
    inclusive."""

    function: Function | None
    bytes_min: int
    bytes_max: int
    config: CommConfig

    def matches(self, function: int, size: int) -> bool:
        """Whether a call of ``size`` bytes falls under this rule."""
        return (self.function is None or self.function == function) and self.bytes_min <= size <= self.bytes_max


@dataclass(frozen=True, slots=True)
class Plan:
    """A schedule for one communicator: see ``struct lagom_plan``.

    Without ``candidate`` the plan is open-ended. With one it is a lease: from ``start_call`` until ``end_call``,
    alternating in blocks of ``alternate_iterations`` in the order incumbent, candidate, candidate, incumbent.
    """

    start_call: int
    sites: tuple[Site, ...] = ()
    positions: tuple[int, ...] = ()
    incumbent: Assignment = Assignment(())
    candidate: Assignment | None = None
    rules: tuple[Rule, ...] = ()
    end_call: int = 0
    alternate_iterations: int = 0


def parse_rule(text: str) -> Rule:
    """One rule of ``--set``, e.g. ``allgather:>=1M:nc=4,chunk=512K``; raises :class:`BadRule` with the reason."""
    rule, error = ffi.new("struct lagom_rule *"), ffi.new("char[256]")
    if "\0" in text:
        raise BadRule(f"{text!r:.80}: a rule has no zero byte in it.")
    if library().lagom_rule_parse(text.encode(errors="replace"), rule, error, 256) != 0:
        raise BadRule(ffi.string(error).decode(errors="replace"))
    return read_rule(rule)


def check_rules(rules: Sequence[str]) -> list[str]:
    """The rules, one each, as given; raises :class:`BadRule` on the first that cannot be read."""
    single = [rule for text in rules for rule in split_rules(text)]
    for rule in single:
        parse_rule(rule)
    return single


def choose_rules(options: Sequence[str] | None, variable: str) -> tuple[str, ...]:
    """The rules of --set, else those of LAGOM_SET; an empty text is refused; it does not mean a search."""
    rules = tuple(check_rules(options or [variable]))
    if not rules and (options or variable):
        name = "--set" if options else "LAGOM_SET"
        raise UsageError(f"{name} holds no rule; write one like allgather:>=1M:nc=4, or leave it out to search.")
    return rules


def format_rule(rule: Rule) -> str:
    """The rule as ``--set`` takes it: :func:`parse_rule` gives back the same. Stock is ``nc=0``: left to NCCL."""
    function = "any" if rule.function is None else rule.function.word
    knobs = ",".join(f"{name}={value}" for name, value in knob_words(rule.config).items())
    return f"{function}:{format_sizes(rule.bytes_min, rule.bytes_max)}:{knobs or 'nc=0'}"


def format_sizes(smallest: int, largest: int) -> str:
    """``any``, ``>=1M``, ``<=64K``, ``=436207616`` or ``1M-16M``; both bounds inclusive."""
    if smallest == largest:
        return f"={format_exact_bytes(smallest)}"
    if largest == NO_LIMIT:
        return "any" if smallest == 0 else f">={format_exact_bytes(smallest)}"
    return (
        f"{format_exact_bytes(smallest)}-{format_exact_bytes(largest)}"
        if smallest
        else f"<={format_exact_bytes(largest)}"
    )


def knob_words(config: CommConfig) -> dict[str, str]:
    """The knobs that a config sets, by their names in rules and saved configs."""
    named = {
        "algo": None if config.algorithm is None else config.algorithm.name.lower(),
        "proto": None if config.protocol is None else config.protocol.name.lower(),
        "nc": config.channels,
        "chunk": None if config.chunk_bytes is None else format_exact_bytes(config.chunk_bytes),
        "nt": config.threads,
    }
    return {name: str(value) for name, value in named.items() if value is not None}


def read_rule(rule: Any) -> Rule:
    """A ``struct lagom_rule`` as a value: its incumbent."""
    function = None if rule.function == ANY_FUNCTION else Function(rule.function)
    return Rule(function, int(rule.bytes_min), int(rule.bytes_max), read_config(rule.incumbent))


def read_config(config: Any) -> CommConfig:
    """A ``struct lagom_config`` (cffi or numpy row) as a value."""
    algorithm, protocol, channels, threads, chunk = (
        (config[name] for name in ("algorithm", "protocol", "channels", "threads", "chunk_bytes"))
        if not hasattr(config, "algorithm")
        else (config.algorithm, config.protocol, config.channels, config.threads, config.chunk_bytes)
    )
    return CommConfig(
        None if algorithm == LEAVE else Algorithm(int(algorithm)),
        None if protocol == LEAVE else Protocol(int(protocol)),
        int(channels) or None,
        int(threads) or None,
        int(chunk) or None,
    )


def fill_plan(plan: Plan, to: Any) -> None:
    """Writes ``plan`` into a zeroed ``struct lagom_plan``; raises :class:`PlanTooLarge` before anything is written."""
    _check_room("positions", plan.positions, MAX_POSITIONS)
    _check_room("sites", plan.sites, MAX_SITES)
    _check_room("rules", plan.rules, MAX_RULES)
    candidate = plan.candidate or plan.incumbent
    to.start_call, to.end_call = plan.start_call, plan.end_call
    to.alternate_iterations = plan.alternate_iterations
    to.flags = library().LAGOM_PLAN_HAS_CANDIDATE if plan.candidate is not None else 0
    to.position_count, to.site_count, to.rule_count = len(plan.positions), len(plan.sites), len(plan.rules)
    to.positions[0 : len(plan.positions)] = list(plan.positions)
    for site in plan.sites:
        entry = to.sites[site.index]
        entry.bytes, entry.function = site.bytes, int(site.function)
        _fill_config(entry.incumbent, plan.incumbent[site.index])
        _fill_config(entry.candidate, candidate[site.index])
    for index, rule in enumerate(plan.rules):
        entry = to.rules[index]
        entry.function = ANY_FUNCTION if rule.function is None else int(rule.function)
        entry.bytes_min, entry.bytes_max = rule.bytes_min, rule.bytes_max
        _fill_config(entry.incumbent, rule.config)
        _fill_config(entry.candidate, rule.config)


def _fill_config(entry: Any, config: CommConfig) -> None:
    entry.algorithm = LEAVE if config.algorithm is None else int(config.algorithm)
    entry.protocol = LEAVE if config.protocol is None else int(config.protocol)
    entry.channels = config.channels or 0
    entry.threads = config.threads or 0
    entry.chunk_bytes = config.chunk_bytes or 0


def _check_room(what: str, items: Sequence[object], room: int) -> None:
    if len(items) > room:
        raise PlanTooLarge(f"the plan has {len(items)} {what} and holds at most {room}.")
