# SPDX-License-Identifier: Apache-2.0
"""The design as processes: which of its rows are still wanted, and the effects that the finished ones show."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

from lagom.start import StartGroup
from lagom.tune.compare import best_group, is_given_up, mean_log, times_of
from lagom.tune.design import LEAST_ROWS, Factor, Row, Screened, screen, suspects
from lagom.tune.stages import PLAIN, Tried, TunePlan, TuneTrial

#: The design is folded over where the smallest effect that it could show is larger.
FOLD_OVER = 0.012
#: After so many processes of a row of the design that broke down it is left out.
ROW_ATTEMPTS = 3


def combination(plan: TunePlan, tried: Sequence[Tried]) -> StartGroup | None:
    """What is confirmed beside the best group alone: what the fit chose on top of it, or the fastest process of the
    design, if that was the faster one when both were repeated; where the fit chose nothing, if it was faster each time
    than the best group, or plain NCCL. None if that is nothing, or the design is not over."""
    chosen, fastest = of_design(plan, tried)
    own = times_of(tried, fastest, "repeat") if fastest is not None else []
    # In this stage alone: what breaks down later must not change what is confirmed.
    if fastest is None or not own or is_given_up(tried, fastest, "repeat"):
        return chosen
    if chosen is None:
        base = times_of(tried, base_of(plan, tried), "repeat")
        return fastest if base and max(own) < min(base) else None
    is_ahead = mean_log(tried, chosen, "repeat") <= mean_log(tried, fastest, "repeat")
    return chosen if is_ahead and not is_given_up(tried, chosen, "repeat") else fastest


def repeated(plan: TunePlan, tried: Sequence[Tried]) -> tuple[StartGroup, ...]:
    """What runs again after the design: the fastest process, if there is one that the fit does not explain, and what it
    is compared with."""
    chosen, fastest = of_design(plan, tried)
    return () if fastest is None else (fastest, chosen or base_of(plan, tried))


def of_design(plan: TunePlan, tried: Sequence[Tried]) -> tuple[StartGroup | None, StartGroup | None]:
    """The best group with what the design's fit chose on top, and with what the fastest process was started with, where
    the fit does not explain it: the fit adds effects up, and those of two settings that do the same do not. None and
    None before the design is over."""
    if next(missing_rows(plan, tried), None) is not None:
        return None, None
    found = screened(plan, tried)
    row = _seen(plan, tried).rows[found.row] if plan.repeat and found.row is not None else None
    return _on_top(plan, tried, found.chosen), None if row == found.chosen else _on_top(plan, tried, row)


def base_of(plan: TunePlan, tried: Sequence[Tried]) -> StartGroup:
    """What the processes of the design had in force beside their own settings."""
    return best_group(plan, tried) or PLAIN


def _on_top(plan: TunePlan, tried: Sequence[Tried], settings: Mapping[str, str] | None) -> StartGroup | None:
    if not settings:
        return None
    name, base = " and ".join(f"{name}={value}" for name, value in settings.items()), base_of(plan, tried)
    return StartGroup(name if base is PLAIN else f"{base.name} with {name}", {**base.settings, **settings})


def screened(plan: TunePlan, tried: Sequence[Tried]) -> Screened:
    """What the processes of the design say so far."""
    seen = _seen(plan, tried)
    if len(seen.rows) < LEAST_ROWS // 2:
        return Screened()
    return _screen(tuple(tuple(row.items()) for row in seen.rows), tuple(seen.times))


@lru_cache(maxsize=32)
def _screen(rows: tuple[tuple[tuple[str, str], ...], ...], times: tuple[float, ...]) -> Screened:
    return screen([dict(row) for row in rows], times)


def is_folded(plan: TunePlan, tried: Sequence[Tried]) -> bool:
    """Whether the second pass is wanted, or has run: by the first pass alone, or what comes later would change what was
    decided."""
    first = [one for one in tried if one.round == 0]
    return plan.design > 1 and screened(plan, first).detectable > FOLD_OVER


def missing_rows(plan: TunePlan, tried: Sequence[Tried]) -> Iterator[TuneTrial]:
    """Rows of the design that have not run; those of the second pass where the first was too noisy."""
    leader = base_of(plan, tried)
    yield from _missing_plain(plan, tried)
    seen, once = _seen(plan, tried), len(plan.rows(1))
    for number in range(plan.design):
        if number and not is_folded(plan, tried):
            return
        order = list(_named_rows(plan).items())[once * number : once * (number + 1)]
        random.Random(f"{plan.seed} design {number}").shuffle(order)
        for name, row in sorted(order, key=lambda one: seen.failed[one[0]]):  # by then the suspected setting is known
            if name not in seen.done and seen.failed[name] < ROW_ATTEMPTS:
                yield TuneTrial(StartGroup(name, {**leader.settings, **_without(row, seen.banned)}), "design", number)


def most_rows(plan: TunePlan, tried: Sequence[Tried]) -> int:
    """How many processes of the design may still come, if both of its passes are wanted."""
    seen = _seen(plan, tried)
    rows = sum(name not in seen.done and seen.failed[name] < ROW_ATTEMPTS for name in _named_rows(plan))
    return rows + sum(1 for _ in _missing_plain(plan, tried))


def _missing_plain(plan: TunePlan, tried: Sequence[Tried]) -> Iterator[TuneTrial]:
    """Where no group was screened, plain NCCL is run twice: what is clearly lost is known by it."""
    done = sum(one.group == PLAIN.name for one in tried)
    if plan.design and not plan.groups:
        yield from (TuneTrial(PLAIN, "design", 0) for _ in range(2 - done))


def _named_rows(plan: TunePlan) -> dict[str, Row]:
    """The processes of the design, of all passes."""
    return {f"design {number}": row for number, row in enumerate(plan.rows(plan.design), 1)}


@dataclass(slots=True)
class _DesignRuns:
    """Of a design: ``rows`` that ran, as they ran, with their ``times`` and their names (``done``); how often others
    ``failed``; and the settings that broke them (``banned``)."""

    rows: list[Row] = field(default_factory=list)
    times: list[float] = field(default_factory=list)
    done: set[str] = field(default_factory=set)
    failed: Counter[str] = field(default_factory=Counter)
    banned: set[Factor] = field(default_factory=set)


def _seen(plan: TunePlan, tried: Sequence[Tried]) -> _DesignRuns:
    """In the order of time."""
    named, seen = _named_rows(plan), _DesignRuns()
    crashed: list[Row] = []
    for one in tried:
        if one.stage != "design" or one.group not in named:
            continue
        row = _without(named[one.group], seen.banned)
        if one.time is not None:
            seen.rows.append(row)
            seen.times.append(one.time)
            seen.done.add(one.group)
        else:
            seen.failed[one.group] += 1
            crashed.append(row)
            if found := suspects(crashed, seen.rows):
                seen.banned |= found
                crashed = [row for row in crashed if row == _without(row, found)]
    return seen


def broken_settings(plan: TunePlan, tried: Sequence[Tried]) -> set[Factor]:
    """Those with which processes of the design broke down."""
    return _seen(plan, tried).banned


def _without(row: Row, banned: set[Factor]) -> Row:
    if not banned:
        return row
    return {name: value for name, value in row.items() if Factor(name, value) not in banned}
