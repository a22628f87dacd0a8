# SPDX-License-Identifier: Apache-2.0
"""Numbers in the text of README.md, docs/measured.md and the page of start settings, computed from the raw results.

``tests/contract/test_numbers.py`` looks for each of these phrases on its page. Tables between ``<!-- name:begin -->``
and ``<!-- name:end -->`` are written by ``make readme`` and are not repeated here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

from benchmarks import start_results
from benchmarks.matrix.foreign_jobs import AGAIN, LOADED, OFF, ROUND, TUNED, mean_step
from benchmarks.matrix.page_values import verdict_of
from benchmarks.matrix.rows import rows
from benchmarks.node_tables import table
from benchmarks.readme_rows import RESULTS, Ratio, matrix, ratio
from lagom.experiment.estimate import SpeedupEstimate


def of_readme() -> Iterator[str]:
    """Phrases of README.md."""
    best = ratio(8, "host-guided-16384", "guided").value
    yield f"steps were 1.00 to {best:.2f} times as fast"
    sockets, windows = (
        start_results.confirmed(name) for name in (start_results.TWO_SOCKETS, start_results.TWO_WINDOWS)
    )
    yield f"made steps {sockets.value:.2f} times as fast (loopback)"
    yield _text(start_results.confirmed(start_results.TWO_SOCKETS_LONG))
    yield f"{100 * (windows.value - 1):.1f} % where a job has symmetric buffers"
    yield f"{_cost('cost-ddp-8192')} to {100 * (1 - _first_slice_costs()[1]):.0f} % slower"
    yield ratio(4, "nvlink-fsdp-4096", "lagom:proposed").text
    yield ratio(2, "host-fsdp-8192", "set=any:>=1M:chunk=256K").text
    yield start_results.cost(start_results.PICTURED)


def of_measured() -> Iterator[str]:
    """Phrases of docs/measured.md."""
    for part, kind, marks in ((2, "chunk", "**"), (3, "chunk", ""), (3, "tune", "**"), (1, "tune", "")):
        found = _first_slice(part, kind)
        yield found.text.replace(f"{found.value:.3f}", f"{marks}{found.value:.3f}{marks}", 1)
    yield " and ".join(f"{value:.3f}" for value in _first_slice_costs())
    yield _speed_text("cost-ddp-8192")
    yield _speed_text("cost-ddp-8192", "speed_loaded").partition(", n")[0]
    yield from of_cost_page()
    yield _speed_text("cost-fsdp-4096").replace(": no interval", ", no interval")
    meshes = sorted(_speed(name) for name in ("mesh-compile", "mesh-checkpointing", "mesh-fsdp-tp", "mesh-hsdp"))
    yield f"{meshes[0]:.3f} to {meshes[-1]:.3f}"
    yield from _of_start_settings()
    yield from _of_capture()
    yield from _of_the_plugin()


def of_start_page() -> Iterator[str]:
    """Phrases of benchmarks/results/start_settings_h200x1_202611.md."""
    yield f"time-sliced {start_results.cost('time-sliced')}, MPS {start_results.cost('mps')}"
    for regime in ("time-sliced", "mps"):
        yield f"**{_text(start_results.confirmed(regime))}**"


def of_start_page_of_two() -> Iterator[str]:
    """Phrases of benchmarks/results/start_settings_h200x2_202611.md."""
    for regime in (start_results.TWO_SOCKETS, start_results.TWO_WINDOWS):
        yield f"**{_text(start_results.confirmed(regime))}**"
    yield _text(start_results.by_hand(start_results.TWO_SOCKETS))
    yield _text(start_results.speedup(start_results.runs(start_results.STOPPED), start_results.FOUND))
    for regime in (start_results.TWO_SOCKETS, start_results.STOPPED):
        yield _text(start_results.settled(regime))


def of_start_page_of_two_h100() -> Iterator[str]:
    """Phrases of benchmarks/results/start_settings_h100x2_202611.md."""
    yield f"**{_text(start_results.confirmed(start_results.TWO_SOCKETS_LONG))}**"
    yield _text(start_results.by_hand(start_results.TWO_SOCKETS_LONG))
    yield start_results.cost(start_results.TWO_SOCKETS_LONG)


def of_start_page_of_nodes() -> Iterator[str]:
    """Phrases of benchmarks/results/start_settings_nodes_h200x2_202611.md."""
    for regime in start_results.TWO_LAUNCHERS:
        yield _text(start_results.confirmed(regime))
        yield from (" ".join(line.split()) for line in table(start_results.search(regime)))


def of_cost_page() -> Iterator[str]:
    """Phrases of benchmarks/results/cost_h100x2_202611.md."""
    yield from (_pooled_cost(arm) for arm in (TUNED, LOADED))


def _of_start_settings() -> Iterator[str]:
    yield ratio(2, "host-ddp-8192", "auto:proposed").text
    searches = start_results.TWO_SOCKETS, start_results.TWO_SOCKETS_LONG, start_results.TWO_WINDOWS
    for regime in (*searches, "time-sliced", "mps", *start_results.TWO_LAUNCHERS):
        yield _text(start_results.confirmed(regime))
    for base, in_turns in product(("plain", "by hand"), (True, False)):
        yield _text(start_results.next_starts(start_results.TWO_LAUNCHERS[0], base, in_turns=in_turns))
    yield _text(start_results.next_start())
    processes = [run for run in start_results.raw()["ddp, time-sliced"]["runs"] if run["value"] is not None]
    yield _text(start_results.speedup(processes, start_results.FOUND))


def _text(found: SpeedupEstimate) -> str:
    return Ratio.of(found).text


def _of_capture() -> Iterator[str]:
    two, one = _raw("capture_h200x2_202611")["runs"], _raw("capture_h200x1_202611")["cost_run"]
    eight = _raw("capture_h200x8_202611")["runs"]["main"]
    yield " to ".join(_more(run["cost"]["on_over_off"], 1) for run in (two["twins"], eight))
    yield _more(two["twins"]["twins"]["after_over_before"], 2)
    yield _more(two["cost"]["cost"]["off_after_on_over_never_on"], 1)
    yield _more(one["cost"]["off_after_on_over_never_on"], 2)


def _of_the_plugin() -> Iterator[str]:
    times = _raw("decision_latency_cpu_202611")["rows"]
    for scenario in ("program of 512 positions", "program, calls recorded"):
        batch = [round(row["batch_ns"]) for row in times if row["scenario"] == scenario]
        yield f"{batch[0]}–{batch[-1]} ns"
    peaks = sorted(run["controller_peak_bytes"] / 1e6 for run in _raw("memory_202611")["runs"])
    yield f"{peaks[0]:.0f} to {peaks[-1]:.0f} MB"
    agreed = _raw("agreement_100000")
    yield f"{agreed['committed']:,} plans"
    yield f"{agreed['calls_compared']:,} calls compared"


def _raw(name: str) -> Any:
    return json.loads((RESULTS / f"{name}.json").read_text())


def _first_slice(part: int, kind: str) -> Ratio:
    """What a search, or a comparison of configs named by hand, came to."""
    told = _raw("first_slice_h200x4_202611")["parts"][part][kind]["log"]["told"]
    (end,) = [event for event in told if event["event"] == "outcome"]
    return Ratio(end["speedup"], end["speedup_low"], end["speedup_high"])


def _first_slice_costs() -> list[float]:
    """Mean step of the job without Lagom over that of the job tuned live, search included; one process each."""
    modes = _raw("first_slice_h200x4_202611")["parts"][0]["modes"]
    means = {name: _mean_step(mode) for name, mode in modes.items()}
    return [means["without"] / means[tuned] for tuned in ("environment_tune", "lagom_run")]


def _mean_step(process: dict[str, Any]) -> float:
    found = mean_step(process["ms"])
    assert found is not None
    return found


def _speed(name: str) -> float:
    """Mean step of whole processes without Lagom over that of the job tuned live, search included."""
    return float(_speed_text(name).split()[0])


def _speed_text(name: str, compared: str = "speed") -> str:
    """The same with its interval, or with how many rounds there are. ``compared``: a field of the row's verdict."""
    row = next(row for row in rows() if row.name == name)
    data = next(found for found in map(matrix, (2, 4)) if name in found["rows"])
    return str(verdict_of(row, data["rows"][name])[compared])


def _pooled_cost(arm: str) -> str:
    """Mean step of all processes without Lagom over that of an arm's, on two H100: FSDP, 4,096 tokens."""
    arms = _raw("cost_h100x2_202611")["rows"]["cost-fsdp-4096"]["arms"]
    means: dict[str, list[float]] = {}
    for name, process in arms.items():
        means.setdefault(name.partition(ROUND)[0], []).append(_mean_step(process))
    return _text(start_results.compared(means[OFF] + means[AGAIN], means[arm]))


def _cost(name: str) -> str:
    return f"{100 * (1 - _speed(name)):.1f}"


def _more(found: dict[str, float], digits: int) -> str:
    """A ratio as per cent above 1."""
    value, low, high = (100 * (found[part] - 1) for part in ("median", "low", "high"))
    return f"{value:.{digits}f} % [{low:.{digits}f}, {high:.{digits}f}]"
