# SPDX-License-Identifier: Apache-2.0
"""What ``lagom tune`` found on one H200 that two ranks share, and on two GPUs: speed-ups from raw samples, a picture.

``make readme`` writes the picture into docs/pictures.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from benchmarks.node_tables import times_of
from lagom.experiment.estimate import SpeedupEstimate, estimate_speedup
from lagom.start import StartGroup
from lagom.tune.compare import is_settled
from lagom.tune.stages import Tried

RESULTS = Path(__file__).parent / "results"
PLAIN, BY_HAND, FOUND = "plain NCCL", "4x4 sockets, 8 channels", "2x2 sockets, 8 channels"

#: Of the files of raw samples.
MEASURED_ON = ("h200x1", "h200x2", "h100x2", "nodes_h200x4", "alltoall_h200x2")
#: Of the searches on two GPUs; those of one are called time-sliced and mps.
TWO_SOCKETS, TWO_WINDOWS = "2 GPUs, sockets", "2 GPUs, symmetric windows"
STOPPED = "2 GPUs, sockets, first search"  # by its time limit
TWO_SOCKETS_LONG = "2 GPUs, sockets, T = 32768"
#: Of the searches with a launcher on each of two nodes.
TWO_LAUNCHERS = ("FSDP, two launchers", "DDP, two launchers")
PICTURED = TWO_SOCKETS
ALLTOALL, ALLTOALL_NVLINK = "AlltoAll, host memory", "AlltoAll, NVLink"
ALLTOALL_AGAIN = "AlltoAll, host memory, again"  # on another machine, cut off
ALLTOALL_THIRD = "AlltoAll, host memory, third machine"  # in two calls
#: What shortens the step by host memory, and what takes that away again.
CHUNK, SMALL_BUFFER = "NCCL_P2P_PCI_CHUNKSIZE", ("NCCL_BUFFSIZE", "1048576")
#: The setting of its design that takes P2P channels away over NVLink.
CAP = "NCCL_MAX_CTAS"
#: More P2P channels, which had been faster on four GPUs; in rounds of their own, each process by the median of its
#: steps from this one on.
MORE_CHANNELS, FIRST_STEADY = {"NCCL_MIN_P2P_NCHANNELS": "32"}, 15

#: Of the picture, in its own units.
WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 60, 20, 62, 62
FULL_SCALE_MS = 450
COLOURS = {PLAIN: "#616161", BY_HAND: "#e65100", FOUND: "#1565c0"}
LABELS = {PLAIN: "plain NCCL", BY_HAND: "by hand: 4 × 4 sockets", FOUND: "found: 2 × 2 sockets"}


@cache
def raw(hardware: str = "h200x1") -> dict[str, Any]:
    """The file of raw samples."""
    found: dict[str, Any] = json.loads((RESULTS / f"start_settings_{hardware}_202611.json").read_text())
    return found


def measured_on(regime: str) -> tuple[str, dict[str, Any]]:
    """The hardware of a search, as its file is named, and the whole file."""
    return next((name, raw(name)) for name in MEASURED_ON if regime in raw(name)["regimes"])


def search(regime: str) -> dict[str, Any]:
    """Command, record and what else was kept of a search."""
    found: dict[str, Any] = measured_on(regime)[1]["regimes"][regime]
    return found


def runs(regime: str) -> list[dict[str, Any]]:
    """The compared processes of a search, in the order in which they ran; each with its median step in milliseconds."""
    found: list[dict[str, Any]] = search(regime)["record"]["runs"]
    return [run for run in found if run["stage"]]


def group_of(run: dict[str, Any]) -> str:
    """The name of a process's group of settings: ``arm`` from record format 3 on."""
    found: str = run["group"] if "group" in run else run["arm"]
    return found


def speedup(processes: list[dict[str, Any]], group: str) -> SpeedupEstimate:
    """Of a group of settings over plain NCCL, among these processes. Raises ValueError where there are too few."""
    values = {name: [run["value"] for run in processes if group_of(run) == name] for name in (PLAIN, group)}
    return compared(values[PLAIN], values[group])


def compared(plain: list[float], ours: list[float]) -> SpeedupEstimate:
    """Of processes over those of plain NCCL. Raises ValueError where there are too few."""
    found = estimate_speedup(plain, ours)
    if found is None:
        raise ValueError("fewer than two processes of one of the two")
    return found


def _confirming(regime: str) -> tuple[list[dict[str, Any]], str]:
    """The confirming processes of a search, and the group that they confirm."""
    processes = [run for run in runs(regime) if run["stage"] == "confirm"]
    (found,) = {group_of(run) for run in processes} - {PLAIN}
    return processes, found


def confirmed(regime: str) -> SpeedupEstimate:
    """What the search reported: fresh processes alone."""
    processes, found = _confirming(regime)
    return speedup(processes, found)


def settled(regime: str) -> SpeedupEstimate:
    """What the search would have reported by the rule that ends its confirming rounds early."""
    processes, found = _confirming(regime)
    tried = [Tried(group_of(run), run["stage"], run["round"], run["value"]) for run in processes]
    most = max(run["round"] for run in processes) + 1
    rounds = next((count for count in range(most) if is_settled(tried, [StartGroup(found)], count)), most)
    return speedup([run for run in processes if run["round"] < rounds], found)


def by_hand(regime: str) -> SpeedupEstimate:
    """The setting that was known before the search; it ran in the first stages; so did its plain NCCL."""
    return speedup([run for run in runs(regime) if run["stage"] != "confirm"], BY_HAND)


def over_by_hand(regime: str) -> SpeedupEstimate:
    """What was found over the setting by hand, in the stages in which both ran."""
    processes = [run for run in runs(regime) if run["stage"] != "confirm"]
    values = {name: [run["value"] for run in processes if group_of(run) == name] for name in (BY_HAND, FOUND)}
    return compared(values[BY_HAND], values[FOUND])


def channels_by_hand(tokens: int) -> SpeedupEstimate:
    """Of the AlltoAll job with more P2P channels over plain NCCL, in rounds of these before the search."""
    values: dict[str, list[float]] = {}
    for process in raw("alltoall_h200x2")["p2p channels by hand"]["processes"]:
        if process["tokens"] == tokens:
            steady = statistics.median(process["ms"][FIRST_STEADY:])
            values.setdefault(str(process["settings"]), []).append(steady)
    return compared(values[str({})], values[str(MORE_CHANNELS)])


def of_design(regime: str, capped: bool | None) -> str:
    """Of a search's first stage, as a row of a table: how many processes with ``NCCL_MAX_CTAS``, or with other settings
    alone, or (None) with no setting; mean and range of their steps."""
    found = [run["value"] for run in runs(regime) if (CAP in run["settings"] if run["settings"] else None) == capped]
    return _as_row(found)


def _as_row(steps: list[float]) -> str:
    return f"{len(steps)} | {statistics.fmean(steps):.2f} ms | {min(steps):.2f} to {max(steps):.2f} |"


def of_chunks(regime: str, kind: str) -> str:
    """The same for AlltoAll by host memory. ``kind``: processes with no setting (``none``), without a chunk size
    (``other``), with one (``chunk``), or with one and a small buffer (``buffer``)."""
    found = [run["value"] for run in runs(regime) if run["stage"] == "design" and _kind_of(run["settings"]) == kind]
    return _as_row(found)


def _kind_of(settings: dict[str, str]) -> str:
    if CHUNK not in settings:
        return "other" if settings else "none"
    return "buffer" if SMALL_BUFFER in settings.items() else "chunk"


def none_is_faster(regime: str) -> str:
    """Raises ValueError where a process of the search with a setting took a shorter step than all without one."""
    plain, ours = (
        [run["value"] for run in runs(regime) if bool(run["settings"]) == with_one] for with_one in (False, True)
    )
    if min(ours) < min(plain):
        raise ValueError(f"{regime}: a process with a setting was faster than plain NCCL")
    return f"no process of a search's {len(ours)} other ones took a shorter step"


def after_search(regime: str, arm: str) -> str:
    """The medians of the steady steps of the starts that followed a search."""
    kept = search(regime)["processes after it"]
    return " and ".join(f"{statistics.median(one['ms'][FIRST_STEADY:]):.2f}" for one in kept if one["arm"] == arm)


def next_start() -> SpeedupEstimate:
    """The start after the search, which takes the config from the cache: medians of steps 4 to 12 of each process."""
    steps = raw()["next start, time-sliced"]["steps_ms"]
    values = {arm: [_median(process[3:]) for process in processes] for arm, processes in steps.items()}
    return compared(values["plain"], values["cached"])


def next_starts(regime: str, base: str, arm: str = "found") -> SpeedupEstimate:
    """Of the starts after a search by two launchers (``found``: from the caches of both nodes) over an arm."""
    values = times_of_next_starts(regime)
    return compared(values[base], values[arm])


def times_of_next_starts(regime: str, rounds: int | None = None) -> dict[str, list[float]]:
    """By arm, the median steps of those starts, in milliseconds; of the first ``rounds`` alone, where given."""
    kept = search(regime)
    which = [process for process in kept["processes"] if rounds is None or process["round"] < rounds]
    return times_of({**kept, "processes": which})


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2]


def minutes(regime: str) -> int:
    """How long the compared processes of a search took, without the time between two calls of a search in parts."""
    return round(sum(run["seconds"] for run in runs(regime)) / 60)


def cost(regime: str) -> str:
    """Processes and time; without the first process of a search, which shows the transport and is not recorded."""
    return f"{len(runs(regime))} compared processes in {minutes(regime)} minutes"


def picture() -> str:
    """Every process of a search as a point: its step time, in the order of the search."""
    return "\n".join(_lines(runs(PICTURED))) + "\n"


def _lines(processes: list[dict[str, Any]]) -> Iterator[str]:
    title = "Steps of FSDP, two H200 as two nodes, sockets over loopback: each process of lagom tune"
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img" '
        'font-family="Helvetica, Arial, sans-serif" font-size="13" fill="#1a1a2e">'
    )
    yield f"<title>{title}</title>"
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" rx="8" fill="#ffffff"/>'
    yield f'<text x="{LEFT}" y="24" font-size="14" font-weight="bold">{title}</text>'
    yield from _legend()
    yield from _grid()
    yield from _stages(processes)
    for number, run in enumerate(processes):
        colour = COLOURS[group_of(run)]
        yield f'<circle cx="{_x(number, processes):.1f}" cy="{_y(run["value"]):.1f}" r="5" fill="{colour}"/>'
    yield "</svg>"


def _legend() -> Iterator[str]:
    for place, (group, label) in enumerate(LABELS.items()):
        x = LEFT + 6 + 210 * place
        yield f'<circle cx="{x}" cy="44" r="5" fill="{COLOURS[group]}"/>'
        yield f'<text x="{x + 12}" y="49">{escape(label)}</text>'


def _grid() -> Iterator[str]:
    for value in range(0, FULL_SCALE_MS, 100):
        y = _y(value)
        yield f'<path d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}" stroke="#e0e0e0"/>'
        yield f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value}</text>'
    middle = (TOP + HEIGHT - BOTTOM) / 2
    yield f'<text transform="translate(16 {middle}) rotate(-90)" text-anchor="middle">milliseconds a step</text>'


def _stages(processes: list[dict[str, Any]]) -> Iterator[str]:
    """A line between two stages, and their names below."""
    names = [run["stage"] for run in processes]
    for stage in dict.fromkeys(names):
        first, count = names.index(stage), names.count(stage)
        middle = _x(first + (count - 1) / 2, processes)
        yield f'<text x="{middle:.1f}" y="{HEIGHT - BOTTOM + 22}" text-anchor="middle">{escape(stage)}</text>'
        if first:
            yield f'<path d="M{_x(first - 0.5, processes):.1f} {TOP}V{HEIGHT - BOTTOM + 26}" stroke="#bdbdbd"/>'
    middle = (LEFT + WIDTH - RIGHT) / 2
    ended = f"{cost(PICTURED)}; confirmed {confirmed(PICTURED).text}"
    yield f'<text x="{middle}" y="{HEIGHT - 14}" text-anchor="middle">{ended}</text>'


def _x(number: float, processes: list[dict[str, Any]]) -> float:
    return LEFT + (number + 0.5) / len(processes) * (WIDTH - LEFT - RIGHT)


def _y(value: float) -> float:
    return HEIGHT - BOTTOM - value / FULL_SCALE_MS * (HEIGHT - TOP - BOTTOM)
