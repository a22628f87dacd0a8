# SPDX-License-Identifier: Apache-2.0
"""The page of the matrix, made from its raw results: every row with regime, NCCL version, n, A/A, interval, command."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator
from typing import Any

from benchmarks.matrix import foreign_jobs
from benchmarks.matrix.rows import Row, rows
from benchmarks.matrix.verdicts import (
    against_others,
    ahead,
    format_ratio,
    in_processes,
    over_stock,
    reached,
    same,
    setting,
    threads,
    with_interval,
)
from benchmarks.provenance import described, since
from benchmarks.template import render
from lagom.experiment.request import MEASURES

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
    "loss_difference": "largest difference of losses",
    "loss_difference_off": "between two runs without Lagom",
    "speed": "mean step of the job without Lagom over that of the job tuned live, search included",
    "speed_off": "ratio of two runs without Lagom",
    "largest_difference": "largest difference of losses",
    "standing_aside": "fallback to NCCL",
}
CONTENTION = ("fig3-library", "fig3-waves", "fig5")
MISSING = "not measured"
UNCOMPARED = "not measured: the search kept stock, and no job without Lagom ran for comparison"
#: With this commit Z became the mean over ranks; before it was the slowest rank's. Results name these older commits,
#: listed so that a page is the same in a clone without history.
MEAN_OVER_RANKS = "15f90d4"
SLOWEST_RANK = {"b30de68", "7d7a349", "afd03a7", "2d60d69", "be62249", "15b070f"}
ASKED_GPUS = 8
TWIN = re.compile(r"arm (\S+) is left out: here it is the same as (\S+?)\.?$")


def page(data: Data, pictures: list[str]) -> str:
    """The whole page, by ``templates/matrix.md.j2``."""
    return render(
        "matrix",
        sessions=list(_sessions(data)),
        fewer_gpus=any(session["gpus"] != ASKED_GPUS for session in data["sessions"]),
        asked_gpus=ASKED_GPUS,
        targets=_targets(data),
        pictures=pictures,
        against_others=list(against_others(data)),
        cells=list(_cells(data)),
        tuning=list(_tuning(data)),
        comm_only=_comm_only(data),
        in_processes=list(in_processes(data)),
        threads=list(threads(data)),
        contention=[(name, _points(data["rows"].get(name) or {})) for name in CONTENTION],
        others=list(_others(data)),
        each=list(_each(data)),
        absent=[row.name for row in rows() if row.name not in data["rows"]],
        partial=[name for name, entry in data["rows"].items() if not entry.get("complete")],
        missing=MISSING,
        format_ratio=format_ratio,
        ahead=ahead,
        same=same,
    )


def headline(data: Data) -> str:
    """The table of targets alone."""
    return render("matrix_targets", targets=_targets(data))


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
    """Whether a search ended with stock left as it is. A search that was stopped shows nothing."""
    search = (found or {}).get("search") or {}
    return found is not None and found["speedup"] is None and search.get("verdict") in ("stock_is_best", "cut_short")


def ending(found: Data) -> str:
    """How a search that left stock in place ended."""
    search = found.get("search") or {}
    return "cut short, nothing found" if search.get("verdict") == "cut_short" else "stock is best"


def outcome(data: Data, row: Row) -> str:
    """The number of the arm a target is for, or how its search ended. Stock against stock does
    not measure the job under the tuner; the rows ``cost-*`` compare that with the job without it."""
    found = result(data, row.name, row.arm)
    return ending(found) if found is not None and kept_stock(found) else speed(found)


def is_older(data: Data, entry: Data) -> bool:
    """Whether a row's Z is the slowest rank's: it was measured before Z became the mean over ranks."""
    return data["sessions"][entry.get("session", 0)].get("commit") in SLOWEST_RANK


def z_is(data: Data, entry: Data) -> str:
    """Which definition of Z a row was measured with, where it is not today's."""
    return "Z: the slowest rank (older definition)" if is_older(data, entry) else ""


# -- parts of the page


def _sessions(data: Data) -> Iterator[Data]:
    for number, session in enumerate(data["sessions"]):
        if not any(entry.get("session") == number for entry in data["rows"].values()):
            continue
        parts = [f"{session['gpus']} x {session.get('gpu') or 'no GPU'}", f"torch {session.get('torch', '?')}"]
        parts += [f"NCCL {session.get('nccl') or '?'} as bundled", session["began"]]
        commit = session.get("commit")
        parts += [described(commit)] if commit else []
        if session["rehearsed"]:
            parts.append(f"**a rehearsal ({session['rehearsed']}): none of these numbers is of a GPU**")
        arguments = " ".join(session["arguments"])
        changed = since(commit) if commit else ""
        yield {"number": number + 1, "text": ", ".join(parts), "arguments": arguments, "since": changed}


def _targets(data: Data) -> list[tuple[str, ...]]:
    found = ((row, result(data, row.name, row.arm), result(data, row.name, "stock")) for row in rows())
    return [
        (row.name, row.regime_text, nccl(data, row), row.asks, f"`{row.arm}` {outcome(data, row)}",
         str(ours["pairs"] if ours else 0), speed(noise), _verdict_on(row, ours, noise))
        for row, ours, noise in found
        if row.target is not None
    ]  # fmt: skip


def _verdict_on(row: Row, found: Data | None, noise: Data | None) -> str:
    return UNCOMPARED if kept_stock(found) else reached(row, found, noise)


def nccl(data: Data, row: Row) -> str:
    """The release that the row's jobs recorded, or else the session; before a run, the one that the row asks for."""
    entry = data["rows"].get(row.name, {})
    release = next((run["nccl"] for run in entry.get("record", {}).get("runs", []) if run.get("nccl")), "")
    if release or "session" not in entry:
        return release or row.nccl
    session = data["sessions"][entry["session"]]
    return session.get("nccl_230" if row.nccl == "2.30" else "nccl") or row.nccl


def _cells(data: Data) -> Iterator[Data]:
    for model, cells in CELLS.items():
        for cell in cells:
            for regime, where in (("host", "host path"), ("nvlink", "NVLink")):
                numbers = _cell(data, f"cell-{cell}-{regime}")
                yield {
                    "model": model,
                    "parallelism": cell.partition("-")[0].upper(),
                    "where": where,
                    "numbers": numbers,
                }


def _cell(data: Data, name: str) -> list[str]:
    if name not in data["rows"]:
        return [MISSING, *"–––"]
    row = next(row for row in rows() if row.name == name)
    arms = (comm_only(data, name), result(data, name, "static"), result(data, name, "stock"))
    return [outcome(data, row), *map(speed, arms)]


def comm_only(data: Data, row: str) -> Data | None:
    """What comm-only tuning would use: its proposal where the final A/B turned it down."""
    return result(data, row, "autoccl:proposed") or result(data, row, "autoccl")


def _tuning(data: Data) -> Iterator[tuple[Any, ...]]:
    for name, entry in data["rows"].items():
        for one in entry.get("results", []):
            if (search := one.get("search")) is not None:
                gain = "–" if search["speedup"] is None else f"{search['speedup']:.3f}"
                if search["low"] is not None and search["high"] is not None:
                    gain += f" [{search['low']:.3f}, {search['high']:.3f}]"
                end = ending(one) if kept_stock(one) else search["verdict"].replace("_", " ")
                yield name, one["arm"], search["configs"], search["iterations"], f"{search['lost']:.1f}", gain, end


def _comm_only(data: Data) -> Data:
    found = [(name, comm_only(data, name)) for name in data["rows"]]
    known = [(name, one) for name, one in found if one is not None and one["low"] is not None]
    return {
        "measured": len(known),
        "slower": [f"{name} {speed(one)}" for name, one in known if one["high"] < 1.0],
        "unknown": sum(one is not None and one["speedup"] is not None and one["low"] is None for _, one in found),
    }


def _points(entry: Data) -> list[tuple[str, ...]]:
    return [
        (*_point(part, knobs, samples), *(format_ratio(over_stock(entry, part, knobs, what)) for what in (1, 2)))
        for part, knobs, samples in (points_of(entry) if entry.get("visits") else ())
    ]


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


def _point(part: str, knobs: Data, samples: list[list[Any]]) -> tuple[str, ...]:
    found = medians(samples)
    if found is None:
        return part, setting(knobs), "–", "–", "–", "0"
    x, y, z = found
    return part, setting(knobs), " + ".join(f"{v:.3f}" for v in x), f"{y:.3f}", f"{z:.3f}", str(len(samples))


def _others(data: Data) -> Iterator[tuple[Row, str]]:
    """Rows that are not comparisons of speed."""
    for row in rows():
        entry = data["rows"].get(row.name)
        if row.kind not in ("bench", "sweep") and entry is not None:
            said = verdict_of(row, entry) or entry.get("skipped") or entry.get("error") or {}
            yield row, in_words(said) if isinstance(said, dict) else str(said)


def verdict_of(row: Row, entry: Data) -> Data:
    """What a row without arms of speed has shown. Step times are judged anew from the raw samples: records of before
    this was mended hold ratios of medians, which leave a search's cost out."""
    judged_anew = row.kind == "foreign_jobs" and "arms" in entry
    found: Data = foreign_jobs.verdict(entry["arms"]) if judged_anew else entry.get("verdict", {})
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


def _each(data: Data) -> Iterator[Data]:
    for name, entry in data["rows"].items():
        if not entry.get("results"):
            continue
        row = entry["row"]
        short = "" if entry.get("complete") else "; cut short"
        older = f"; {z_is(data, entry)}" if z_is(data, entry) else ""
        yield {
            "name": name,
            "command": " ".join([row["script"], *row["options"]]),
            "environ": _environ(row),
            "remark": short + older,
            "arms": [*map(_arm, entry["results"]), *twins(entry)],
            "remarks": entry.get("remarks", []),
        }


def twins(entry: Data) -> Iterator[tuple[Any, ...]]:
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


def _arm(one: Data) -> tuple[Any, ...]:
    seen = "–" if one["resolvable"] is None else f"{one['resolvable']:.1%}"
    in_job = one["measured_by"] not in MEASURES
    typical = "–" if one["iteration"] is None else f"{one['iteration'] / (1e6 if in_job else 1):.4g}"
    return one["arm"], speed(one), one["pairs"], seen, typical, f"{one['pairing']}, {one['measured_by']}"
