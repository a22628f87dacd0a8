"""The page about the matrix, from its raw results: every row with regime, NCCL version, n, A/A, interval, command."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.matrix import harmless
from benchmarks.matrix.judged import (
    against_others,
    in_processes,
    over_stock,
    reached,
    setting,
    threads,
    told,
    with_interval,
)
from benchmarks.matrix.rows import Row, rows
from benchmarks.provenance import described, since

Data = dict[str, Any]
CELLS = {
    "Phi-2": ("fsdp-phi2_2b", "tp-phi2_2b"),
    "Llama-3-8B": ("fsdp-llama3_8b", "tp-llama3_8b"),
    "MPT-7B": ("fsdp-mpt_7b", "tp-mpt_7b"),
    "OLMoE-1B-7B": ("ep-olmoe_1b_7b",),
    "DeepSeek-MoE-16B": ("ep-deepseek_moe_16b",),
}
#: What the parts of a verdict say, where their names do not.
WORDS = {
    "exits": "exit codes",
    "loss_difference": "losses differ by at most",
    "loss_difference_off": "of two runs without us by",
    "speed": "mean step of the job without us over that of the job tuned live, its search included",
    "speed_loaded": "over that of the job with the plugin loaded and no controller",
    "speed_off": "of two runs without us over each other",
    "largest_difference": "losses differ at most",
}
MISSING = "not measured"
UNCOMPARED = "not measured: kept stock, and was not run against the job without us"
#: With this commit Z became the mean over ranks; before it was the slowest rank's. Results name these older commits,
#: listed so that a page is the same in a clone without history.
MEAN_OVER_RANKS = "15f90d4"
SLOWEST_RANK = {"b30de68", "7d7a349", "afd03a7", "2d60d69", "be62249", "15b070f"}
ASKED_GPUS = 8
TWIN = re.compile(r"arm (\S+) is left out: here it is the same as (\S+?)\.?$")


def page(data: Data, pictures: list[str]) -> str:
    """The whole page."""
    parts = (
        _head(data), headline(data), _pictures(pictures), against_others(data), _cells(data), _tuning(data),
        _comm_only(data), in_processes(data), threads(data), _contention(data), _numbers(data), _each(data),
        _missing(data),
    )  # fmt: skip
    return "\n".join(line for part in parts for line in (*part, "")).rstrip() + "\n"


# -- reading results


def result(data: Data, row: str, arm: str) -> Data | None:
    """One arm of a row; None if it was not measured."""
    arms = data["rows"].get(row, {}).get("results", [])
    return next((one for one in arms if one["arm"] == arm), None)


def speed(found: Data | None) -> str:
    """``1.144 [1.137, 1.151]``, or a dash."""
    if found is None or found["speedup"] is None:
        return "–"
    return with_interval(found["speedup"], found["low"], found["high"], found["pairs"])


def kept_stock(found: Data | None) -> bool:
    """Whether a search ended with stock left as it is. One that was stopped has proved nothing."""
    search = (found or {}).get("search") or {}
    return found is not None and found["speedup"] is None and search.get("verdict") in ("stock_is_best", "cut_short")


def ending(found: Data) -> str:
    """How a search that left stock in place ended. Records of before commit 7676c6e call each end "stock is best" and
    name the limit in their reason alone."""
    search = found.get("search") or {}
    limited = search.get("verdict") == "cut_short" or "seconds of searching are over" in search.get("reason", "")
    return "cut short, nothing found" if limited else "stock is best"


def outcome(data: Data, row: Row) -> str:
    """The number of the arm a target is for, or how its search ended. That stock equals stock is no measurement of the
    job under the tuner: the rows ``cost-*`` hold that to the job without it."""
    found = result(data, row.name, row.arm)
    return ending(found) if found is not None and kept_stock(found) else speed(found)


def is_older(data: Data, entry: Data) -> bool:
    """Whether a row's Z is the slowest rank's: it was measured before Z became the mean over ranks."""
    return data["sessions"][entry.get("session", 0)].get("commit") in SLOWEST_RANK


def z_is(data: Data, entry: Data) -> str:
    """Which definition of Z a row was measured with, where it is not today's."""
    return "Z: the slowest rank (older definition)" if is_older(data, entry) else ""


# -- parts of the page


def _head(data: Data) -> Iterator[str]:
    yield "# Everything that has to be seen on GPUs"
    yield ""
    for number, session in enumerate(data["sessions"]):
        if not any(entry.get("session") == number for entry in data["rows"].values()):
            continue
        told = [f"{session['gpus']} x {session.get('gpu') or 'no GPU'}", f"torch {session.get('torch', '?')}"]
        told += [f"NCCL {session.get('nccl') or '?'} as bundled", session["began"]]
        if session.get("commit"):
            told.append(described(session["commit"]))
        if session["rehearsed"]:
            told.append(f"**a rehearsal ({session['rehearsed']}): none of these numbers is of a GPU**")
        yield f"- session {number + 1}: {', '.join(told)}"
        yield f"  `python -m benchmarks.matrix {' '.join(session['arguments'])}`"
        if session.get("commit"):
            yield f"  {since(session['commit'])}"
    yield ""
    yield "Speed-ups are over stock NCCL in the same job: short blocks in the order stock, arm, arm, stock, arms"
    yield "shuffled in each cycle, Z the mean over ranks (rows with the older definition, the slowest rank, say so);"
    yield "Hodges-Lehmann medians of paired ratios and signed-rank 95 %"
    yield "intervals, n pairs. `NCCL_NVLS_ENABLE=0`. Raw samples are in the JSON file of the same name; this page is"
    yield "made from it by `python -m benchmarks.matrix_page`."
    if any(session["gpus"] != ASKED_GPUS for session in data["sessions"]):
        yield f"What is asked is asked of {ASKED_GPUS} GPUs: with fewer, less is communicated."


def headline(data: Data) -> Iterator[str]:
    """The table of targets."""
    yield "## What was to be seen"
    yield ""
    yield "| row | regime | NCCL | asked | measured | n | stock against stock | reached |"
    yield "|---|---|---|---|---|---|---|---|"
    for row in rows():
        if row.target is None:
            continue
        found, noise = result(data, row.name, row.arm), result(data, row.name, "stock")
        pairs = found["pairs"] if found else 0
        cells = (row.name, row.regime_text, nccl(data, row), row.asks, f"`{row.arm}` {outcome(data, row)}", str(pairs))
        yield "| " + " | ".join(cells) + f" | {speed(noise)} | {_verdict_on(row, found, noise)} |"


def _verdict_on(row: Row, found: Data | None, noise: Data | None) -> str:
    return UNCOMPARED if kept_stock(found) else reached(row, found, noise)


def nccl(data: Data, row: Row) -> str:
    """The release that the row's jobs ran with, as they told it or else the session; what it asks for until then."""
    entry = data["rows"].get(row.name, {})
    told = next((run["nccl"] for run in entry.get("record", {}).get("runs", []) if run.get("nccl")), "")
    if told or "session" not in entry:
        return told or row.nccl
    session = data["sessions"][entry["session"]]
    return session.get("nccl_230" if row.nccl == "2.30" else "nccl") or row.nccl


def _pictures(names: list[str]) -> Iterator[str]:
    for name in names:
        yield f"![{name}]({name})"


def _cells(data: Data) -> Iterator[str]:
    yield "## The paper's matrix"
    yield ""
    yield "| model | parallelism | regime | lagom | comm-only | best cap | stock against stock |"
    yield "|---|---|---|---|---|---|---|"
    for model, cells in CELLS.items():
        for cell in cells:
            for regime in ("host", "nvlink"):
                yield _cell(data, model, f"cell-{cell}-{regime}", cell.partition("-")[0].upper(), regime)


def _cell(data: Data, model: str, name: str, parallelism: str, regime: str) -> str:
    where = {"host": "host path", "nvlink": "NVLink"}[regime]
    if name not in data["rows"]:
        return f"| {model} | {parallelism} | {where} | {MISSING} | | | |"
    row = next(row for row in rows() if row.name == name)
    told = [outcome(data, row), speed(comm_only(data, name)), speed(result(data, name, "static"))]
    return f"| {model} | {parallelism} | {where} | {' | '.join(told)} | {speed(result(data, name, 'stock'))} |"


def comm_only(data: Data, row: str) -> Data | None:
    """What comm-only tuning would use: its proposal where the final A/B turned it down."""
    return result(data, row, "autoccl:proposed") or result(data, row, "autoccl")


def _tuning(data: Data) -> Iterator[str]:
    yield "## What tuning took"
    yield ""
    yield "| row | strategy | configs | iterations | lost (stock iterations) | its own final A/B | verdict |"
    yield "|---|---|---|---|---|---|---|"
    for name, entry in data["rows"].items():
        for one in entry.get("results", []):
            if (search := one.get("search")) is not None:
                gain = "–" if search["speedup"] is None else f"{search['speedup']:.3f}"
                if search["low"] is not None and search["high"] is not None:
                    gain += f" [{search['low']:.3f}, {search['high']:.3f}]"
                cells = (name, one["arm"], search["configs"], search["iterations"], f"{search['lost']:.1f}", gain)
                end = ending(one) if kept_stock(one) else search["verdict"].replace("_", " ")
                yield "| " + " | ".join(map(str, cells)) + f" | {end} |"
    yield ""
    yield "Aimed at: `guided` with at most 12 configs and 15 iterations lost."


def _comm_only(data: Data) -> Iterator[str]:
    found = [(name, comm_only(data, name)) for name in data["rows"]]
    known = [(name, one) for name, one in found if one is not None and one["low"] is not None]
    slower = [(name, one) for name, one in known if one["high"] < 1.0]
    unknown = sum(one is not None and one["speedup"] is not None and one["low"] is None for _, one in found)
    measured = len(known)
    yield "## Does tuning communication alone lose to stock? (the paper: 0.87x where compute is the bottleneck)"
    yield ""
    if not measured:
        yield f"{MISSING.capitalize()}."
    elif slower:
        words = "; ".join(f"{name} {speed(one)}" for name, one in slower)
        yield f"Reproduced in {len(slower)} of {measured} rows: {words}."
    else:
        yield f"Not in any of {measured} rows measured here."
    if unknown:
        yield f"{unknown} more have too few pairs for an interval and say nothing."


def _contention(data: Data) -> Iterator[str]:
    yield "## Contention: x, y and z beside each other (the paper's figures 3 and 5)"
    yield ""
    yield "x is that of the rank that waited least; y and z are the slowest rank's here (`jobs/contention.py`)."
    for name in ("fig3-library", "fig3-waves", "fig5"):
        yield ""
        entry = data["rows"].get(name)
        if entry is None or not entry.get("visits"):
            yield f"{name}: {MISSING}."
            continue
        yield f"### {name}"
        yield ""
        yield "Speed-ups over stock are paired by cycle; the setting `stock` is held to `stock again`."
        yield ""
        yield "| part | setting | x, ms | y, ms | z, ms | iterations | y over stock | z over stock |"
        yield "|---|---|---|---|---|---|---|---|"
        for part, knobs, samples in points_of(entry):
            speeds = " | ".join(told(over_stock(entry, part, knobs, what)) for what in (1, 2))
            yield f"{_point(part, knobs, samples)} {speeds} |"


def points_of(entry: Data) -> list[tuple[str, Data, list[list[Any]]]]:
    """(part, knobs, samples of all visits) of each setting, in the order of the figure."""
    found: dict[tuple[str, str], tuple[str, Data, list[list[Any]]]] = {}
    for visit in entry["visits"]:
        key = (visit["part"], setting(visit["knobs"]))
        found.setdefault(key, (visit["part"], visit["knobs"], []))[2].extend(visit["samples"])
    return sorted(found.values(), key=lambda point: (point[0], list(point[1].values())))


def medians(samples: list[list[Any]]) -> tuple[list[float], float, float] | None:
    """(x of each collective, y, z) medians, ms; None without samples."""
    if not samples:
        return None
    x = [statistics.median(values) for values in zip(*(sample[0] for sample in samples), strict=True)]
    return x, statistics.median(s[1] for s in samples), statistics.median(s[2] for s in samples)


def _point(part: str, knobs: Data, samples: list[list[Any]]) -> str:
    found = medians(samples)
    if found is None:
        return f"| {part} | {setting(knobs)} | – | – | – | 0 |"
    x, y, z = found
    return f"| {part} | {setting(knobs)} | {' + '.join(f'{v:.3f}' for v in x)} | {y:.3f} | {z:.3f} | {len(samples)} |"


def _numbers(data: Data) -> Iterator[str]:
    """Rows that are not comparisons of speed."""
    yield "## Numerics, harmlessness, standing aside"
    yield ""
    for row in rows():
        entry = data["rows"].get(row.name)
        if row.kind in ("bench", "sweep") or entry is None:
            continue
        said = verdict_of(row, entry) or entry.get("skipped") or entry.get("error") or {}
        text = in_words(said) if isinstance(said, dict) else str(said)
        yield f"- **{row.name}** ({row.asks}): {text or 'see below'}."


def verdict_of(row: Row, entry: Data) -> Data:
    """What a row without arms of speed has shown. Step times are judged anew from the raw samples: records of before
    this was mended hold ratios of medians, which leave a search's cost out."""
    judged_anew = row.kind == "harmless" and "arms" in entry
    found: Data = harmless.verdict(entry["arms"]) if judged_anew else entry.get("verdict", {})
    return found


def in_words(verdict: Data) -> str:
    """What a row without arms of speed has shown."""
    return "; ".join(f"{WORDS.get(name, name.replace('_', ' '))}: {_plain(value)}" for name, value in verdict.items())


def _plain(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if isinstance(value, dict):
        return ", ".join(f"{name} {_plain(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_plain, value)) or "nothing"
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _each(data: Data) -> Iterator[str]:
    yield "## Every row"
    for name, entry in data["rows"].items():
        if not entry.get("results"):
            continue
        row = entry["row"]
        yield ""
        yield f"### {name}"
        yield ""
        short = "" if entry.get("complete") else "; cut short"
        older = f"; {z_is(data, entry)}" if z_is(data, entry) else ""
        yield f"`{row['script']} {' '.join(row['options'])}`, {_environ(row)}{short}{older}"
        yield ""
        yield "| arm | speed-up | n | would see | an iteration | compared |"
        yield "|---|---|---|---|---|---|"
        for one in entry["results"]:
            yield _arm(one)
        yield from twins(entry)
        yield from (f"\n- {remark}" for remark in _remarks(entry))


def _remarks(entry: Data) -> Iterator[str]:
    """As they were kept, but for the end of searches that old records call by another name."""
    ends = {one["arm"]: ending(one) for one in entry["results"] if kept_stock(one)}
    for remark in entry.get("remarks", []):
        arm = remark.partition(":")[0]
        yield remark.replace("stock is best", ends.get(arm, "stock is best"))


def twins(entry: Data) -> Iterator[str]:
    """The arms that were left out for being another one, with its numbers."""
    known = {one["arm"]: one for one in entry["results"]}
    for remark in entry.get("remarks", []):
        found = TWIN.search(remark)
        if found is not None and found[2] in known:
            yield _arm({**known[found[2]], "arm": f"{found[1]} (here the same as {found[2]})"})


def _environ(row: Data) -> str:
    variables = {"host": "`NCCL_P2P_DISABLE=1`", "nvlink": "NVLink", "sockets": "sockets"}[row["regime"]]
    more = "".join(f" `{name}={value}`" for name, value in row["environ"].items())
    return f"{variables}{more}, NCCL {row['nccl']}"


def _arm(one: Data) -> str:
    seen = "–" if one["resolvable"] is None else f"{one['resolvable']:.1%}"
    in_job = one["pairing"].startswith("within")
    typical = "–" if one["iteration"] is None else f"{one['iteration'] / (1e6 if in_job else 1):.4g}"
    how = f"{one['pairing']}, {one['measured_by']}"
    return f"| {one['arm']} | {speed(one)} | {one['pairs']} | {seen} | {typical} | {how} |"


def _missing(data: Data) -> Iterator[str]:
    absent = [row.name for row in rows() if row.name not in data["rows"]]
    partial = [name for name, entry in data["rows"].items() if not entry.get("complete")]
    yield "## Missing"
    yield ""
    yield f"Rows without a measurement: {', '.join(absent) or 'none'}."
    yield f"Rows that were cut short: {', '.join(partial) or 'none'}."
