# SPDX-License-Identifier: Apache-2.0
"""The design as processes: which of its rows are still wanted, and the effects that the finished ones show."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache

from lagom.start import StartGroup
from lagom.tune.compare import best_group
from lagom.tune.design import LEAST_ROWS, Factor, Row, Screened, screen, suspects
from lagom.tune.plan import PLAIN, Plan, Trial, Tried

#: The design is folded over where the smallest effect that it could show is larger.
FOLD_OVER = 0.012
#: After so many processes of a row of the design that broke down it is left out.
ROW_ATTEMPTS = 3


def combination(plan: Plan, tried: Sequence[Tried]) -> StartGroup | None:
    """The best group with what the design chose on top; None if that is nothing, or the design is not over."""
    chosen = screened(plan, tried).chosen if next(missing_rows(plan, tried), None) is None else None
    if not chosen:
        return None
    leader = best_group(plan, tried) or StartGroup("")
    name = " and ".join(f"{name}={value}" for name, value in chosen.items())
    return StartGroup(f"{leader.name} with {name}" if leader.name else name, {**leader.settings, **chosen})


def screened(plan: Plan, tried: Sequence[Tried]) -> Screened:
    """What the processes of the design say so far."""
    rows, times, _ = _ran(plan, tried)
    return (
        _screen(tuple(tuple(row.items()) for row in rows), tuple(times)) if len(rows) >= LEAST_ROWS // 2 else Screened()
    )


@lru_cache(maxsize=32)
def _screen(rows: tuple[tuple[tuple[str, str], ...], ...], times: tuple[float, ...]) -> Screened:
    return screen([dict(row) for row in rows], times)


def is_folded(plan: Plan, tried: Sequence[Tried]) -> bool:
    """Whether the second pass is wanted, or has run: by the first pass alone, or what comes later would change what was
    decided."""
    first = [one for one in tried if one.round == 0]
    return plan.design > 1 and screened(plan, first).detectable > FOLD_OVER


def missing_rows(plan: Plan, tried: Sequence[Tried]) -> Iterator[Trial]:
    """Rows of the design that have not run; those of the second pass where the first was too noisy."""
    leader = best_group(plan, tried) or StartGroup("")
    yield from _missing_plain(plan, tried)
    _, _, banned = _ran(plan, tried)
    for number in range(plan.design):
        if number and not is_folded(plan, tried):
            return
        order = list(enumerate(plan.rows(plan.design)))[len(plan.rows(1)) * number : len(plan.rows(1)) * (number + 1)]
        random.Random(f"{plan.seed} design {number}").shuffle(order)
        failed = Counter(one.group for one in tried if one.stage == "design" and one.time is None)
        done = {one.group for one in tried if one.stage == "design" and one.time is not None}
        wanted = [(row_name(place), row) for place, row in order]
        for name, row in sorted(wanted, key=lambda one: failed[one[0]]):  # by then the suspected setting is known
            if name not in done and failed[name] < ROW_ATTEMPTS:
                yield Trial(StartGroup(name, {**leader.settings, **_without(row, banned)}), "design", number)


def _missing_plain(plan: Plan, tried: Sequence[Tried]) -> Iterator[Trial]:
    """Where no group was screened, plain NCCL is run twice: what is clearly lost is known by it."""
    done = sum(one.group == PLAIN.name for one in tried)
    if plan.design and not plan.groups:
        yield from (Trial(PLAIN, "design", 0) for _ in range(2 - done))


def row_name(place: int) -> str:
    """Of a process of the design."""
    return f"design {place + 1}"


def _ran(plan: Plan, tried: Sequence[Tried]) -> tuple[list[Row], list[float], set[Factor]]:
    """The rows that ran, as they ran, with their times; and the settings that broke others, in the order of time."""
    rows = {row_name(place): row for place, row in enumerate(plan.rows(plan.design))}
    ran: list[Row] = []
    times: list[float] = []
    crashed: list[Row] = []
    banned: set[Factor] = set()
    for one in tried:
        if one.stage != "design" or one.group not in rows:
            continue
        row = _without(rows[one.group], banned)
        if one.time is not None:
            ran.append(row)
            times.append(one.time)
        else:
            crashed.append(row)
            if found := suspects(crashed, ran):
                banned |= found
                crashed = [row for row in crashed if row == _without(row, found)]
    return ran, times, banned


def broken_settings(plan: Plan, tried: Sequence[Tried]) -> set[Factor]:
    """Those with which processes of the design broke down."""
    return _ran(plan, tried)[2]


def _without(row: Row, banned: set[Factor]) -> Row:
    if not banned:
        return row
    return {name: value for name, value in row.items() if Factor(name, value) not in banned}
