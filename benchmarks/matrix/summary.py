# SPDX-License-Identifier: Apache-2.0
"""The table of docs/measured.md: every row that was measured, on whatever machine, from the files of raw results."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.matrix.page_values import (
    Data,
    comm_only,
    ending,
    in_words,
    is_older,
    kept_stock,
    nccl,
    result,
    speed,
    verdict_of,
)
from benchmarks.matrix.rows import BY_HAND, Row, rows
from benchmarks.template import render

NONE = "–"
#: Beside the name of a row whose Z is the slowest rank's, and what it stands for.
OLDER = "†"
FOOTNOTE = f"{OLDER} Z is the slowest rank's here (the older definition); in all other rows it is the mean over ranks."
STRATEGIES = ("lagom", "guided")
STOCK = ("stock", "own:stock")


def table(results: list[Data]) -> str:
    """Rows of compared arms, those on most GPUs first; under them what the rows without arms of speed showed."""
    known = [(measured[0], data) for data in results if (measured := [s["gpus"] for s in data["sessions"]])]
    known.sort(key=lambda one: -one[0])
    every = [(gpus, data, row) for gpus, data in known for row in rows()]
    text = render(
        "matrix_summary",
        compared=[cells for one in every for cells in _compared(*one)],
        settings=[setting for one in every for setting in _by_setting(*one)],
        verdicts=[verdict for one in every for verdict in _verdict(*one)],
    )
    return f"{text}\n{FOOTNOTE}" if OLDER in text else text.rstrip("\n")


def _name(data: Data, row: Row) -> str:
    """Marked, where its speed-ups are of the older definition of Z."""
    return f"`{row.name}`" + (OLDER if is_older(data, data["rows"][row.name]) else "")


def _compared(gpus: int, data: Data, row: Row) -> Iterator[tuple[str, ...]]:
    for strategy in STRATEGIES:
        found = result(data, row.name, strategy)
        if found is None or (search := found.get("search")) is None:
            continue
        others = (comm_only(data, row.name), result(data, row.name, "static"), _by_hand(data, row))
        took = f"{search['configs']} configs, {search['iterations']} iterations, {search['lost']:.1f} lost"
        name = f"{_name(data, row)}, {nccl(data, row)}"
        cells = (f"{gpus}", name, f"`{strategy}`", _gain(data, row, strategy, found))
        yield (*cells, *map(format_speed, others), format_speed(result(data, row.name, "stock")), took)


def _gain(data: Data, row: Row, strategy: str, found: Data) -> str:
    if found["speedup"] is not None:
        return f"**{format_speed(found)}**"
    if not kept_stock(found):
        return NONE
    proposed = result(data, row.name, f"{strategy}:proposed")
    return ending(found) + (f"; turned down: {format_speed(proposed)}" if proposed else "")


def _by_hand(data: Data, row: Row) -> Data | None:
    """The faster of the settings that were known before there was a search."""
    found = [one for arm in BY_HAND if (one := result(data, row.name, arm)) and one["speedup"] is not None]
    return max(found, key=lambda one: float(one["speedup"]), default=None)


def format_speed(found: Data | None) -> str:
    """``1.074 [1.065, 1.082], n = 16``; a dash where nothing was measured."""
    number = speed(found)
    return number if found is None or number == NONE or found["low"] is None else f"{number}, n = {found['pairs']}"


def _by_setting(gpus: int, data: Data, row: Row) -> Iterator[dict[str, Any]]:
    """A row that asks what a setting does, and searches for none."""
    found = {one["arm"]: one for one in data["rows"].get(row.name, {}).get("results", [])}
    settings = {arm: one for arm, one in found.items() if arm not in STOCK}
    if not settings or set(settings) & set(STRATEGIES):
        return
    yield {
        "name": _name(data, row),
        "gpus": gpus,
        "nccl": nccl(data, row),
        "asks": row.asks,
        "shown": [f"`{arm}` {format_speed(one)}" for arm, one in settings.items()],
        "noise": format_speed(next((found[arm] for arm in STOCK if arm in found), None)),
    }


def _verdict(gpus: int, data: Data, row: Row) -> Iterator[dict[str, Any]]:
    verdict = verdict_of(row, data["rows"].get(row.name, {}))
    if verdict:
        yield {"name": row.name, "gpus": gpus, "asks": row.asks, "words": in_words(verdict)}
