# SPDX-License-Identifier: Apache-2.0
"""``sim_vs_paper``: every figure of the paper beside the simulator's, generated from the JSON, with the likely reason
where they differ. The text is ``benchmarks/templates/sim_vs_paper.md.j2``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from benchmarks import paper as published
from benchmarks.paper.measured import Measured
from benchmarks.suite.ablations import slope
from benchmarks.suite.runs import Row, pick
from benchmarks.template import render

Data = dict[str, Any]
#: Seconds that the whole suite may take on two cores.
TIME_LIMIT = 600
COLUMNS = (
    "speedup_stock", "speedup_autoccl", "speedup_static", "oracle_ratio", "configs", "windows", "regret_iterations",
)  # fmt: skip


def report(suite: Data, data: Data, on_gpus: Sequence[Measured] = ()) -> str:
    """The whole page. ``suite``: sim_suite's JSON; ``data``: ``simulated.everything()``; ``on_gpus``: measured."""
    chunks = list(data["fig3"]["by_chunk"].values())
    return render(
        "sim_vs_paper",
        published=published,
        meta=suite["meta"],
        time_limit=TIME_LIMIT,
        fig3={**data["fig3"], "grows": chunks[-1][1] / chunks[0][1]},
        fig5=_figure_5(data["fig5"]),
        one=data["fig8"]["pattern_1"],
        two=data["fig8"]["pattern_2"],
        figure_7=list(_figure_7(suite["rows"])),
        sensitivity=data["sensitivity"],
        configs=list(_configs(suite["convergence"])),
        slopes=list(_slopes(suite["convergence"])),
        on_gpus=on_gpus,
        targets=suite["targets"],
        ablations=suite["ablations"],
        as_printed=[row["speedup_proposed"] for row in pick(suite["rows"], strategy="as_printed")],
        columns=COLUMNS,
        rows=pick(suite["rows"], knobs="stock_2_30"),
    )


def _figure_5(data: Data) -> dict[str, str]:
    paths = data["paths"]
    moved = {name: (path[0][0] - path[-1][0], path[-1][1] - path[0][1]) for name, path in paths.items()}
    return {
        "moved": "; ".join(f"{name}: X -{won:.2f} ms, Y +{lost:.2f} ms" for name, (won, lost) in moved.items()),
        "h": ", ".join(f"{name} {value:.3f}" for name, value in data["h"].items()),
        "first": min(data["h"], key=data["h"].__getitem__),
    }


_KNOBS = {"fork": "paper's fork", "stock_2_30": "stock NCCL 2.30"}
_KINDS = (("fsdp", "FSDP", published.FSDP), ("tp", "TP", published.TP), ("ep", "EP", published.EP))


def _figure_7(rows: list[Row]) -> Iterator[tuple[str, tuple[float, float], list[str]]]:
    for preset, cluster in (("a40_nvlink", "A, NVLink"), ("a40_pcie", "B, PCIe")):
        for kind, name, paper in _KINDS:
            for knobs, label in _KNOBS.items():
                mine = [r for r in pick(rows, preset=preset, knobs=knobs) if r["workload"].startswith(kind)]
                if mine:
                    yield f"{name}, cluster {cluster}, {label}", paper, _ranges(mine)


def _ranges(rows: list[Row]) -> list[str]:
    ours = [(name, "speedup_stock") for name in ("auto", "lagom", "guided")]
    columns = (*ours, ("autoccl", "speedup_proposed"))
    values = [[r[column] for r in pick(rows, strategy=strategy)] for strategy, column in columns]
    return [f"{min(v):.3f}-{max(v):.3f}" for v in (*values, [r["oracle_speedup"] for r in rows])]


def _configs(rows: list[Row]) -> Iterator[tuple[int, str, dict[str, float]]]:
    for preset in dict.fromkeys(r["preset"] for r in rows):
        for count in sorted({r["communications"] for r in rows}):
            found = {r["strategy"]: r["configs"] for r in pick(rows, preset=preset, communications=count)}
            if found:
                yield count, preset, found


def _slopes(rows: list[Row]) -> Iterator[tuple[str, str, float, float, float]]:
    """Straight lines through the configs, with how straight they are."""
    for preset in dict.fromkeys(r["preset"] for r in rows):
        for name in ("auto", "lagom", "guided", "autoccl"):
            line = slope(rows, name, preset)
            if math.isfinite(line[0]):
                yield (name, preset, *line)
