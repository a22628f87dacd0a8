"""The page about the first slice on GPUs, from its raw results.

    python -m benchmarks.first_slice_page benchmarks/results/first_slice_h200x4_202611.json [PART.json ...]

With parts (files written by ``benchmarks.first_slice --out``), they become the named file first, machine paths removed.
The page is written beside it (``.md``).
"""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.matrix.harmless import START_UP_STEPS, mean_step
from benchmarks.provenance import described, since
from lagom.records import format_bytes

PRIVATE = re.compile(r"/(?:[\w.-]+/)+(?=[\w.-])")


def merge(parts: list[Path], into: Path) -> None:
    """Put the parts into one file, every path cut to its last word: where it lay there is nobody's business."""
    texts = [PRIVATE.sub("", part.read_text()) for part in parts]
    into.write_text(json.dumps({"parts": [json.loads(text) for text in texts]}, indent=1) + "\n")


def page(results: dict[str, Any]) -> str:
    """The whole page."""
    parts = results["parts"]
    lines = ["# The first slice on GPUs", "", *_head(parts), "", *_changed(parts)]
    for part in parts:
        for name, section in SECTIONS.items():
            if name in part and "skipped" not in part[name]:
                lines += [
                    "",
                    *section(part, part[name]),
                    "",
                    f"`{_command(part)}` ({described(part['versions']['commit'])})",
                ]
    return "\n".join(lines) + "\n"


def _head(parts: list[dict[str, Any]]) -> Iterator[str]:
    versions, gpus = parts[0]["versions"], parts[0]["gpus"]
    yield f"{gpus} x {versions['gpu']} of one host, torch {versions['torch']}, Python {versions['python']}; NCCL"
    yield f"{versions['nccl']} as bundled, or 2.30.7 preloaded where said; `NCCL_NVLS_ENABLE=0`. Regimes: NVLink as is;"
    yield "the host-memory path with `NCCL_P2P_DISABLE=1`. The job is `benchmarks/jobs/fsdp.py`, unchanged"
    yield "throughout. Z is the slowest rank here (the older definition; today it is the mean over ranks). Raw"
    yield "samples are in the JSON file of the same name; this page is made from it by"
    yield "`python -m benchmarks.first_slice_page`."


def _changed(parts: list[dict[str, Any]]) -> Iterator[str]:
    for commit in dict.fromkeys(part["versions"]["commit"] for part in parts):
        yield f"- {described(commit)}: {since(commit)}"


def _channels(part: dict[str, Any], result: dict[str, Any]) -> Iterator[str]:
    yield "## NC pinned for AllGather, and pinned anew in mid-run (host path, bundled NCCL)"
    yield ""
    yield from _witness(result, f"`--set {result['rules'][0]}`, then `lagom set {result['rules'][1]}`")


def _threads(part: dict[str, Any], result: dict[str, Any]) -> Iterator[str]:
    yield "## NT pinned for AllGather (NVLink, bundled NCCL, `LAGOM_NT=1`)"
    yield ""
    yield from _witness(
        result, "`--set allgather:>=1M:nt=128`; RING/SIMPLE adds a warp of its own, so the block is 160"
    )


def _witness(result: dict[str, Any], what: str) -> Iterator[str]:
    yield f"{what}. Plans were agreed from call {', then call '.join(map(str, result['plan_starts']))} on. AllGather"
    yield "kernels as torch.profiler saw them, by the plan in force at that call:"
    yield ""
    yield "| rank | NCCL kernels in the trace | calls recorded | (grid, block) stock, then after each plan |"
    yield "|---|---|---|---|"
    counts = list(result["records"].values())
    for index, (rank, seen) in enumerate(result["ranks"].items()):
        grids = " → ".join(", ".join(f"({g}, {b})" for g, b in pairs) for pairs in seen["grid_and_block_by_plan"])
        yield f"| {rank} | {seen['kernels']} | {counts[index]['calls']} | {grids} |"


def _modes(part: dict[str, Any], result: dict[str, Any]) -> Iterator[str]:
    yield "## The same job without us, environment only, and under `lagom run` (NVLink, bundled NCCL, T = 4096)"
    yield ""
    yield "One process an arm, one after the other and not in shuffled rounds: there is no interval, and the spread"
    yield f"between runs (about 1 %) is in these figures. The mean is over all steps but the first {START_UP_STEPS},"
    yield "so it holds what the search cost these steps; the median leaves that out."
    yield ""
    yield "| arm | exit | mean step, ms | over the job without us | median step, ms | what the log holds |"
    yield "|---|---|---|---|---|---|"
    base = mean_step(result["without"]["ms"])
    for arm, run in result.items():
        counted = run.get("log", {}).get("events", {})
        told = ", ".join(f"{count} {kind}" for kind, count in counted.items()) or "-"
        mean = mean_step(run["ms"])
        cells = ("–", "–") if mean is None or base is None else (f"{mean:.1f}", f"{mean / base:.3f}")
        yield f"| {arm.replace('_', ' ')} | {run['exit']} | {' | '.join(cells)} | {run['median_ms']:.1f} | {told} |"


def _bitwise(part: dict[str, Any], result: dict[str, Any]) -> Iterator[str]:
    yield "## Bit by bit (host path, NCCL 2.30.7, deterministic kernels)"
    yield ""
    same, ours = result["stock_identical"], result["allgather_identical"]
    yield f"Losses of {result['steps']} steps: stock against stock {'identical' if same else 'DIFFER'}; stock against"
    yield f"`{result['rules'][0]}` (in force from call {result['committed'][0]['start_call']} on)"
    yield f"{'identical' if ours else 'DIFFER'}."


def _chunk(part: dict[str, Any], result: dict[str, Any]) -> Iterator[str]:
    yield f"## Configs named by hand, T = {_tokens(result)} (host path, NCCL 2.30.7, 3 layers)"
    yield ""
    yield "One job; blocks of two iterations in the order incumbent, candidate, candidate, incumbent, the first after"
    yield "each change dropped; Z is the slowest rank (older definition)."
    yield ""
    yield from _moves(result)


def _tune(part: dict[str, Any], result: dict[str, Any]) -> Iterator[str]:
    yield f"## `lagom run` by itself, T = {_tokens(result)} (host path, NCCL 2.30.7, 3 layers)"
    yield ""
    yield from _moves(result)
    yield ""
    yield "The profile it wrote:"
    yield ""
    yield "```"
    yield from (result["profile"] or "none").strip().splitlines()
    yield "```"


def _replay(part: dict[str, Any], result: dict[str, Any]) -> Iterator[str]:
    yield f"## That profile replayed without a controller, T = {_tokens(result)}"
    yield ""
    yield f"Exit {result['exit']}; all ranks ran the same grids at the same kernels: {result['ranks_agree']}."
    yield ""
    yield "| function | grid | from kernel |"
    yield "|---|---|---|"
    yield from (f"| {name} | {grid} | {first} |" for name, grid, first in next(iter(result["ranks"].values())))


def _moves(result: dict[str, Any]) -> Iterator[str]:
    told = result["log"]["told"]
    yield "| window | purpose | configs by site | pairs | Z candidate / incumbent [95 %] | X, ms | verdict |"
    yield "|---|---|---|---|---|---|---|"
    for move in (event for event in told if event["event"] == "move"):
        cells = (
            move["number"],
            move["purpose"],
            _configs(move["candidate"]),
            move["pairs"],
            _ratio(move),
            _ms(move["x"]),
        )
        yield "| " + " | ".join(map(str, cells)) + f" | {move['verdict']} |"
    for outcome in (event for event in told if event["event"] == "outcome"):
        yield ""
        yield f"**{outcome['verdict'].replace('_', ' ')}**: {outcome['reason']}. {outcome['configs']} configs in"
        yield f"{outcome['windows']} windows and {outcome['iterations']} iterations; time lost against stock while"
        yield f"searching: {outcome['regret_iterations']:.1f} iterations."


def _configs(configs: list[dict[str, Any]]) -> str:
    return " · ".join(map(_config, configs)) if any(map(_is_set, configs)) else "stock"


def _is_set(config: dict[str, Any]) -> bool:
    return any(value is not None for value in config.values())


def _config(config: dict[str, Any]) -> str:
    words = []
    if config["channels"]:
        words.append(f"nc={config['channels']}")
    if config["chunk_bytes"]:
        words.append(f"c={format_bytes(config['chunk_bytes'])}")
    return " ".join(words) or "–"


def _ratio(move: dict[str, Any]) -> str:
    """As logged; of a proof, which stands on its fresh samples alone, the median of those."""
    if move["purpose"] in ("confirm", "final") and move["samples"]:
        fresh = statistics.median(candidate["z"] / incumbent["z"] for incumbent, candidate in move["samples"])
        return f"{fresh:.3f} [{move['ratio_low']:.3f}, {move['ratio_high']:.3f}]"
    if move["ratio"] is not None:
        return f"{move['ratio']:.3f} [{move['ratio_low']:.3f}, {move['ratio_high']:.3f}]"
    ratios = [candidate["z"] / incumbent["z"] for incumbent, candidate in move.get("samples") or []]
    return f"{statistics.median(ratios):.3f} [{min(ratios):.3f} to {max(ratios):.3f}] (A/A)" if ratios else "–"


def _ms(nanoseconds: float | None) -> str:
    return "–" if nanoseconds is None else f"{nanoseconds / 1e6:.1f}"


def _tokens(result: dict[str, Any]) -> int:
    return int(result.get("tokens", 16384))


def _command(part: dict[str, Any]) -> str:
    words = [Path(word).name if word.startswith("/") else word for word in part["command"][1:]]
    return " ".join(["python -m benchmarks.first_slice", *words])


SECTIONS = {
    "channels": _channels,
    "threads": _threads,
    "modes": _modes,
    "bitwise": _bitwise,
    "chunk": _chunk,
    "tune": _tune,
    "replay": _replay,
}


def main() -> None:
    results, *parts = map(Path, sys.argv[1:])
    if parts:
        merge(parts, results)
    results.with_suffix(".md").write_text(page(json.loads(results.read_text())))


if __name__ == "__main__":
    main()
