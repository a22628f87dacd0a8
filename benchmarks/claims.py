# SPDX-License-Identifier: Apache-2.0
"""Numbers in the text of README.md, docs/ and pages of results, computed from the raw results.

``tests/contract/test_numbers.py`` looks for each of these phrases on its page, and on README.md and pages of docs/ for
figures that are in none of them. Tables between ``<!-- name:begin -->`` and ``<!-- name:end -->`` are written by ``make
readme`` and are not repeated here.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks import start_results
from benchmarks.jobs.paired_ratio import gain, told
from benchmarks.matrix.foreign_jobs import AGAIN as OFF_AGAIN
from benchmarks.matrix.foreign_jobs import OFF, ROUND, TUNED, mean_step
from benchmarks.matrix.page_values import result
from benchmarks.node_tables import table
from benchmarks.provenance import RESULTS
from benchmarks.readme_rows import (
    COST,
    COSTS,
    EQUAL,
    FIRST_8192,
    SOCKETS,
    Ratio,
    cost_text,
    first_slice,
    matrix,
    of_whole_processes,
    ratio,
    raw,
    rows,
)
from benchmarks.whole_run_jobs import AGAIN, LOADED, PLAIN, SEARCH
from benchmarks.whole_runs_page import AFTER, WHOLE, by_means, rounds
from lagom.bench.results import BenchRecord, cycles_of, results_of
from lagom.experiment.estimate import SpeedupEstimate
from lagom.experiment.store import read_record

MOVED, STRANDS = "weights_moved", ("turns", "turns_abreast")
#: Of tensor-parallel steps: eager with enough tokens, and in CUDA graphs.
HIDDEN = (("8b", 8192, "eager"), ("70b", 8192, "eager"), ("8b", 2048, "graphs"))
CHUNK = "set=any:>=1M:chunk=256K"


def of_readme() -> Iterator[str]:
    """Phrases of README.md."""
    by_hand = ratio(8, "host-guided-16384", CHUNK).value
    yield f"tokens {by_hand:.2f} times as fast on 8 GPUs"
    yield f"slower, {ratio(2, 'default-fsdp-8192', CHUNK).value:.3f}"
    yield f"more than {100 * EQUAL:.0f} % faster"
    yield f"within {100 * EQUAL:.0f} % of 1"
    yield f"{start_results.cost(start_results.PICTURED)} (`--budget 370s`)"
    best, default = ratio(8, "host-guided-16384", "guided").value, of_whole_processes("fsdp-16384", AFTER).value
    yield f"1.00 to {best:.2f} times as fast"
    yield f"{default:.2f} with the default strategy"
    windows = start_results.confirmed(start_results.TWO_WINDOWS)
    measured = [(row, row.ours) for row in rows() if isinstance(row.ours, Ratio)]
    sockets = [ours.value for row, ours in measured if row.regime is SOCKETS]
    yield f"made steps {min(sockets):.2f} to {max(sockets):.2f} times as fast (loopback)"
    yield f"{100 * (windows.value - 1):.1f} % where a job has symmetric buffers"
    costs = [100 * (1 - ours.value) for row, ours in measured if row.regime is COST and row.in_readme]
    yield f"{min(costs):.1f} to {max(costs):.1f} % slower"
    yield f"up to {100 * (1 - _first_slice_costs()[1]):.0f} %"
    yield f"all tests; {raw('test_times_202611')['latest']['whole_s'] / 60:.0f} minutes on 2 cores"
    hidden = [gain(row["samples_ns"], arm, MOVED)[0] for row in _strand_rows()[1] for arm in STRANDS]
    yield f"{min(hidden):.2f} to {max(hidden):.2f} times as fast by host memory"
    steps = _whole_steps("h200x2")
    whole = [gain(steps[key]["samples_ns"], "chosen")[0] for key in HIDDEN]
    yield f"{min(whole):.2f} to {max(whole):.2f} times as fast over NVLink"
    yield f"`lagom tune` made its steps {start_results.confirmed(start_results.ALLTOALL).value:.2f} times as fast"
    yield from _of_safety()


def _strand_rows() -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Over NVLink, by host memory."""
    return raw("strands_h200x2_202611")["rows"], raw("strands_host_h200x2_202611")["rows"]


def _of_safety() -> Iterator[str]:
    runs = {name: run for name, run in raw("safety_gpu_h200x8_202611").items() if "results_are_exact" in name}
    plans = [run["plans"]["committed"] for run in runs.values()]
    yield f"{raw('agreement_1000000')['calls_compared'] / 1e9:.0f} billion compared calls"
    yield f"{raw('kills_10000')['kills']:,} killed controllers"
    yield f"{sum(plans) // 1000},000 random plans"


def of_measured() -> Iterator[str]:
    """Phrases of docs/measured.md."""
    windows = start_results.confirmed(start_results.TWO_WINDOWS).value
    yield f"{100 * (windows - 1):.1f} % where the job has symmetric buffers"
    yield f"from nothing to {100 * (ratio(8, 'host-guided-16384', 'guided').value - 1):.0f} %"
    yield f"within {100 * EQUAL:.0f} % of 1"
    yield _text(start_results.confirmed(start_results.TWO_LAUNCHERS[0]))
    yield from _of_planned_rounds()
    yield " and ".join(f"{value:.3f}" for value in _first_slice_costs())
    yield from _of_another_process()
    mesh = "cost-fsdp-tp"
    plain_twice = by_means(rounds(raw(_file_of_cost(mesh)), mesh), (AGAIN,), PLAIN)
    yield f"plain over plain again was {Ratio.of(plain_twice).text}"
    yield f"DDP {cost_of('cost-ddp-8192', LOADED).text}"
    yield f"FSDP {cost_of('cost-fsdp-4096', LOADED).text}"
    yield f"{_cost_on_h100(TUNED).text} on 2 H100"
    yield start_results.none_is_faster(start_results.ALLTOALL_NVLINK)
    yield from _of_meshes()
    yield from _of_timed_calls()
    yield from _of_capture()
    yield from _of_the_plugin()


def _of_another_process() -> Iterator[str]:
    """FSDP with 8,192 tokens by host memory on four GPUs: what the search confirmed, plain twice in the next process,
    and what was set by hand on another machine."""
    row = "default-fsdp-8192"
    found = result(matrix(4), row, "auto")
    assert found is not None
    search = found["search"]
    yield f"with {Ratio(search['speedup'], search['low'], search['high']).text}"
    yield f"differs as much, {ratio(4, row, 'stock').text}"
    yield f"given {first_slice(FIRST_8192)[0].text}"


def _of_planned_rounds() -> Iterator[str]:
    """FSDP with two launchers: three rounds were added to the six that were planned, when these had been seen."""
    fsdp = start_results.TWO_LAUNCHERS[0]
    values = start_results.times_of_next_starts(fsdp, rounds=6)
    over = [_text(start_results.compared(values[base], values["found"])) for base in ("plain", "by hand")]
    yield f"in the six that were planned {over[0]} over plain NCCL and {over[1]} over by hand"


def _of_meshes() -> Iterator[str]:
    names = ("mesh-compile", "mesh-checkpointing", "mesh-fsdp-tp", "mesh-hsdp")
    found, again = (
        sorted(float(cost_text(name, field).split()[0]) for name in names) for field in ("speed", "speed_off")
    )
    yield f"{found[0]:.3f} to {found[-1]:.3f}"
    yield f"up to {100 * max(1 - again[0], again[-1] - 1):.1f} %"


def of_overlap() -> Iterator[str]:
    """Phrases of docs/guides/overlap.md: medians over cycles of the time of plain over that of what was chosen."""
    rows = raw("collective_matmul_h200x4_202611")["rows"]
    gains: dict[tuple[int, bool], list[float]] = {}
    for row in rows:
        gains.setdefault((row["ranks"], row["graphs"]), []).append(gain(row["samples_ns"], "auto")[0])
    for kind, text in (((4, False), "at TP 4"), ((2, False), "at TP 2"), ((4, True), "at TP 4 in CUDA graphs")):
        yield f"{min(gains[kind]):.2f} to {max(gains[kind]):.2f} {text}"
    eager = [row["samples_ns"] for row in rows if not row["graphs"]]
    (slower,) = (samples for samples in eager if gain(samples, "auto")[0] < 0.99)
    plain = statistics.median(slower["plain"]) / 1e6
    yield f"Below 0.99 was one of {len(eager)} rows, a call of {plain:.2f} ms"
    yield from _of_whole_steps()
    yield from _of_strands()


def _of_strands() -> Iterator[str]:
    """Over weight gradients moved, and memory over plain's."""
    nvlink, host = _strand_rows()
    stacks = [*nvlink, *host]
    for row in stacks:
        arms = [arm for arm in (*STRANDS, "matmul") if arm in row["samples_ns"]]
        yield "| " + " | ".join(told(gain(row["samples_ns"], arm, MOVED)) for arm in arms) + " |"
    by_copies = [told(gain(row["samples_ns"], "turns_abreast_copies", MOVED)) for row in stacks[:2]]
    yield f"{by_copies[0]} over NVLink and {by_copies[1]} in CUDA graphs"
    eager = [row["peak_bytes"] for row in stacks if "graphs" not in row["kind"]]
    (turns,), abreast = (sorted({round(100 * (peak[arm] / peak["plain"] - 1)) for peak in eager}) for arm in STRANDS)
    yield f"`turns` needs {turns} % more memory, `turns_abreast` {abreast[0]} to {abreast[-1]} %"


def of_strands_page() -> Iterator[str]:
    """Phrases of benchmarks/results/strands_h200x2_202611.md."""
    nvlink, host = _strand_rows()
    for row in [*nvlink, *host]:
        samples = row["samples_ns"]
        yield from _over_plain(samples)
        yield from (told(gain(samples, arm, MOVED)) for arm in samples.keys() - {"plain", "plain_again", MOVED})
    before = raw("strands_plan_h200x2_202611")["rows"]
    transposed = [gain(row["samples_ns"], "matmul")[0] for row in before if "matmul" in row["samples_ns"]]
    yield f"{min(transposed):.3f} in CUDA graphs and {max(transposed):.3f} without"
    planned = [row for row in [*before, *host] if "planned" in row["samples_ns"]]
    gains = [gain(row["samples_ns"], "planned", "turns")[0] for row in planned]
    yield f"gained {min(gains):.3f} to {max(gains):.3f} over turns"
    for row in planned:
        took = statistics.median(row["samples_ns"]["planned"])
        yield f"{row['predicted_ns']['planned'] / 1e6:.0f} ({took / 1e6:.0f}"
    tuned = read_record(RESULTS / "strands_tuned_h200x2_202611.json", BenchRecord)
    yield from (_text(one.ratio) for one in results_of(tuned) if one.ratio is not None)
    pairs = {name: [pair for window in own.values() for pair in window.x] for name, own in cycles_of(tuned).items()}
    for name in ("dhelix", "liger"):
        yield f"(X {statistics.median(ours for _, ours in pairs[name]) / 1e6:.0f} ms)"


def _whole_steps(hardware: str) -> dict[tuple[str, int, str], Any]:
    """Rows by model, tokens and kind."""
    rows = raw(f"tensor_parallel_step_{hardware}_202611")["rows"]
    return {(row["model"], row["tokens"], row["kind"]): row for row in rows}


def _of_whole_steps() -> Iterator[str]:
    rows = _whole_steps("h200x2")
    two, four = (
        {key: gain(row["samples_ns"], "chosen")[0] for key, row in measured.items()}
        for measured in (rows, _whole_steps("h200x4"))
    )
    for steps in (two, four):
        yield f"{steps['8b', 8192, 'eager']:.2f} (8B) and {steps['70b', 8192, 'eager']:.2f} (70B)"
        yield f"{steps['8b', 8192, 'dtensor']:.2f} by DTensor's styles"
    yield f"{two['8b', 2048, 'graphs']:.2f} for 8B with 2,048 tokens in CUDA graphs"
    yield f"{four['8b', 2048, 'graphs']:.2f} in CUDA graphs"
    theirs, ours, *_ = _dtensor_peaks()
    yield f"was {ours} MiB on each of two ranks, by torch's styles {theirs} MiB"
    peaks = [
        row["peak_bytes"] for (*_, kind), row in (*rows.items(), *_whole_steps("h200x4").items()) if kind == "eager"
    ]
    more = sorted((peak["chosen"] - peak["plain"]) / 2**20 for peak in peaks)
    yield f"for more streams: {more[0]:.0f} to {more[-1]:.0f} MiB in eager steps"
    yield f"slower, {_before_plain()[0]:.2f}; since calls become plain there it is {two['8b', 2048, 'eager']:.2f}"


def _dtensor_peaks() -> list[str]:
    """MiB of torch's and of lagom's styles, compiled, then not compiled."""
    peaks = _whole_steps("h200x1")["8b", 8192, "dtensor"]["peak_bytes"]
    return [f"{peaks[arm] / 2**20:,.0f}" for arm in ("plain", "chosen", "eager", "chosen_eager")]


def of_memory_page() -> Iterator[str]:
    """Phrases of benchmarks/results/tensor_parallel_step_h200x1_202611.md."""
    theirs, ours, theirs_eager, ours_eager = _dtensor_peaks()
    yield f"need {theirs} MiB and lagom's {ours} MiB; not compiled {theirs_eager} and {ours_eager} MiB"
    for row in _whole_steps("h200x1").values():
        yield from _over_plain(row["samples_ns"])
    before = _whole_steps("h200x2")["8b", 8192, "dtensor"]["peak_bytes_with_other_arms"]
    yield f"differed by {(before['chosen'] - before['plain']) / 2**20:,.0f} MiB"


def _before_plain() -> tuple[float, float, float]:
    """What was chosen call by call, in a step whose host lags behind; measured before such calls became plain."""
    (row,) = raw("tensor_parallel_step_h200x2_202611")["before calls became plain"]["rows"]
    return gain(row["samples_ns"], "chosen")


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
    yield _text(start_results.over_by_hand(start_results.TWO_SOCKETS))
    yield _text(start_results.speedup(start_results.runs(start_results.STOPPED), start_results.FOUND))
    for regime in (start_results.TWO_SOCKETS, start_results.STOPPED):
        yield _text(start_results.settled(regime))


def of_alltoall_page() -> Iterator[str]:
    """Phrases of benchmarks/results/start_settings_alltoall_h200x2_202611.md."""
    yield f"{_text(start_results.confirmed(start_results.ALLTOALL))}**"
    yield f"{len(start_results.runs(start_results.ALLTOALL))} compared processes"
    yield from (_text(start_results.channels_by_hand(tokens)) for tokens in (4096, 16384))
    third = start_results.ALLTOALL_THIRD
    yield f"{_text(start_results.confirmed(third))}** on fresh processes"
    yield f"in {len(start_results.runs(third))} compared processes and two calls"
    for search in (start_results.ALLTOALL, start_results.ALLTOALL_AGAIN, third):
        yield from (start_results.of_chunks(search, kind) for kind in ("none", "other", "chunk", "buffer"))
    name = start_results.ALLTOALL_NVLINK
    yield f"({len(start_results.runs(name))} processes, {start_results.minutes(name)} minutes)"
    yield from (start_results.of_design(name, capped) for capped in (None, False, True))
    yield f"took {start_results.after_search(name, 'auto')} ms"
    yield f"plain NCCL in turns {start_results.after_search(name, 'plain NCCL')}"


def of_whole_steps_page() -> Iterator[str]:
    """Phrases of benchmarks/results/tensor_parallel_step_h200x2_202611.md."""
    for row in _whole_steps("h200x2").values():
        yield from _over_plain(row["samples_ns"])
    yield told(_before_plain())


def _over_plain(samples: dict[str, list[float]]) -> Iterator[str]:
    """Of every arm, and plain over plain again."""
    yield told(gain(samples, "plain_again", "plain"))
    yield from (told(gain(samples, arm)) for arm in samples.keys() - {"plain", "plain_again"})


def of_start_page_of_two_h100() -> Iterator[str]:
    """Phrases of benchmarks/results/start_settings_h100x2_202611.md."""
    yield f"**{_text(start_results.confirmed(start_results.TWO_SOCKETS_LONG))}**"
    yield _text(start_results.by_hand(start_results.TWO_SOCKETS_LONG))
    yield _text(start_results.over_by_hand(start_results.TWO_SOCKETS_LONG))
    yield start_results.cost(start_results.TWO_SOCKETS_LONG)


def of_start_page_of_nodes() -> Iterator[str]:
    """Phrases of benchmarks/results/start_settings_nodes_h200x4_202611.md."""
    yield from _of_planned_rounds()
    for regime in start_results.TWO_LAUNCHERS:
        yield _text(start_results.confirmed(regime))
        yield from (" ".join(line.split()) for line in table(start_results.search(regime)))


def of_cost_page() -> Iterator[str]:
    """Phrases of benchmarks/results/cost_h100x2_202611.md."""
    yield from (_cost_on_h100(arm).text for arm in (TUNED, "loaded"))


def cost_of(job: str, arm: str = SEARCH) -> Ratio:
    """Mean step of whole processes without Lagom over that of an arm's, where nothing can be gained."""
    return of_whole_processes(job, WHOLE, _file_of_cost(job), arm)


def _file_of_cost(job: str) -> str:
    return next(file for file in COSTS if job in raw(file)["jobs"])


def _cost_on_h100(arm: str) -> Ratio:
    """The same on two H100, in rounds of benchmarks.matrix."""
    means: dict[str, list[float]] = {}
    for name, process in raw("cost_h100x2_202611")["rows"]["cost-fsdp-4096"]["arms"].items():
        means.setdefault(name.partition(ROUND)[0], []).append(_mean_step(process))
    return Ratio.of(start_results.compared(means[OFF] + means[OFF_AGAIN], means[arm]))


def _text(found: SpeedupEstimate) -> str:
    return Ratio.of(found).text


def _of_capture() -> Iterator[str]:
    two, one = raw("capture_h200x2_202611")["runs"], raw("capture_h200x1_202611")["cost_run"]
    eight = raw("capture_h200x8_202611")["runs"]["main"]
    yield " to ".join(_more(run["cost"]["on_over_off"], 1) for run in (two["twins"], eight))
    yield _more(two["twins"]["twins"]["after_over_before"], 2)
    yield _more(two["cost"]["cost"]["off_after_on_over_never_on"], 1)
    yield _more(one["cost"]["off_after_on_over_never_on"], 2)


def _of_the_plugin() -> Iterator[str]:
    times = raw("decision_latency_cpu_202611")["rows"]
    decided, recorded, off = (
        {
            field: [row[field] for row in times if row["scenario"] == scenario]
            for field in ("batch_ns", "median_ns", "p99_ns")
        }
        for scenario in ("program of 512 positions", "program, calls recorded", "mode off")
    )
    yield f"{_range(decided['batch_ns'])} ns, with recording {_range(recorded['batch_ns'])} ns"
    alone, above = (f"{_range(decided[field])} and {_range(recorded[field])} ns" for field in ("median_ns", "p99_ns"))
    yield f"with fences: {alone}, p99 {above}"
    yield f"`off` {off['batch_ns'][0]} ns"
    memory = raw("memory_202611")["runs"]
    peaks = sorted(run["controller_peak_bytes"] / 1e6 for run in memory)
    soaks = [raw(name)["largest"]["controller's memory"] / 1e6 for name in ("soak_30min", "soak_25min")]
    yield f"takes {memory[0]['region_bytes'] / 1e6:.1f} MB"
    yield f"{peaks[0]:.0f} to {peaks[-1]:.0f} MB at its peak in a demo, and {soaks[0]:.0f} and {soaks[1]:.0f} MB"
    agreed = raw("agreement_100000")
    yield f"{agreed['committed']:,} plans"
    yield f"{agreed['calls_compared']:,} calls compared"


def _range(values: list[float]) -> str:
    """``33–36``, or one number."""
    return "–".join(dict.fromkeys(f"{value:.0f}" for value in (min(values), max(values))))


def _first_slice_costs() -> list[float]:
    """Mean step of the job without Lagom over that of the job tuned live, search included; one process each."""
    modes = raw("first_slice_h200x4_202611")["parts"][0]["modes"]
    means = {name: _mean_step(mode) for name, mode in modes.items()}
    return [means["without"] / means[tuned] for tuned in ("environment_tune", "lagom_run")]


def _of_timed_calls() -> Iterator[str]:
    """The host's time of a call, median of all steps after the first tenth; 64 calls a step."""
    found: dict[str, list[float]] = {}
    for one in raw("timed_calls_shared_h200x1_202611")["processes"]:
        found.setdefault(one["arm"], []).extend(1e3 / 64 * ms for ms in one["launched_ms"][len(one["ms"]) // 10 :])
    plain, pinned, timed = (statistics.median(found[arm]) for arm in ("plain", "pinned", "pinned, recorded"))
    yield f"{timed:.0f} µs instead of {plain:.0f}"
    yield f"with rules by hand and nothing timed it was {pinned:.0f} µs"


def _mean_step(process: dict[str, Any]) -> float:
    found = mean_step(process["ms"])
    assert found is not None
    return found


def _more(found: dict[str, float], digits: int) -> str:
    """A ratio as per cent above 1."""
    value, low, high = (100 * (found[part] - 1) for part in ("median", "low", "high"))
    return f"{value:.{digits}f} % [{low:.{digits}f}, {high:.{digits}f}]"
