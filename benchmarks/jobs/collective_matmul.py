# SPDX-License-Identifier: Apache-2.0
"""AllGather-matmul and matmul-ReduceScatter of lagom.parallel on the shapes of Llama 3, each way beside the others.

    python -m benchmarks.jobs.collective_matmul --ranks 4,2 --out FILE --seconds 300   # starts its own ranks
    python -m benchmarks.jobs.collective_matmul --table FILE                           # the table of a file

A sample is the wall clock's time between two points where the device has nothing left to do, over several calls one
after the other, of the slowest rank: the host's time for launches is in it. All arms come once a cycle, in another
order each time, until plain against plain is within 1 %. With --graphs the calls of an arm are a CUDA graph instead.
`by_hand` is what a user writes without lagom; `plain` runs twice. A row is written when it is done; the same --out
continues after an earlier end.
"""

from __future__ import annotations

import argparse
import dataclasses
import functools
import random
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import lagom.parallel as parallel
from benchmarks.jobs.arms import (
    Arms,
    Clock,
    Data,
    add_options,
    add_row,
    begin,
    cycles,
    join,
    leave,
    read,
)
from benchmarks.jobs.paired_ratio import gain, told
from lagom.parallel.torch_gate import public_collectives

ALL_GATHER, REDUCE_SCATTER = public_collectives()
#: Hidden size, columns of q, k and v, inner size of the MLP.
MODELS = {"8B": (4096, 6144, 14336), "70B": (8192, 10240, 28672), "tiny": (64, 96, 128)}
TOKENS = {"8B": (8192, 2048, 16384), "70B": (8192, 2048, 16384), "tiny": (64,)}
COPIES = ("copies", "copies_two_streams")
NAMED = ("plain", "fused", "looped", *COPIES, "auto")
SAMPLE_NS, MOST_CALLS = 6e6, 16
GRAPH_CALLS = 4


def shapes(models: list[str], ranks: int) -> list[Data]:
    """Those of a rank: `rows` of all ranks, inner size, columns. The middle number of tokens first: it matters most."""
    found = []
    for place in range(max(len(TOKENS[model]) for model in models)):
        for model in models:
            hidden, qkv, mlp = MODELS[model]
            for tokens in TOKENS[model][place : place + 1]:
                sizes = {
                    "AG→qkv": (hidden, qkv // ranks),
                    "AG→up": (hidden, 2 * mlp // ranks),
                    "out→RS": (hidden // ranks, hidden),
                    "down→RS": (mlp // ranks, hidden),
                }
                about = {"ranks": ranks, "model": model, "tokens": tokens}
                found += [{**about, "matmul": name, "sizes": list(one)} for name, one in sizes.items()]
    return found


def gather_arms(shape: Data, device: torch.device, pool: Tensor, dtype: torch.dtype) -> Arms:
    """Each way to gather and multiply."""
    group, rows, (inner, columns) = dist.group.WORLD, shape["tokens"] // shape["ranks"], shape["sizes"]
    x = torch.randn(rows, inner, device=device).to(dtype)
    pooled = pool[: rows * inner].view(rows, inner).copy_(x)
    weight = (torch.randn(columns, inner, device=device) / inner**0.5).to(dtype).t()  # as nn.Linear has it

    def by_hand() -> Tensor:
        gathered = x.new_empty(shape["tokens"], inner)
        ALL_GATHER(gathered, x, group=group)
        return torch.mm(gathered, weight)

    def by(name: str, source: Tensor) -> Tensor:
        return parallel.all_gather_matmul(source, [weight], group, implementation=name)[0]

    arms: dict[str, Callable[[], Tensor]] = {name: functools.partial(by, name, x) for name in NAMED}
    arms |= {"by_hand": by_hand, "plain_again": arms["plain"]}
    return arms | {f"{name}_pooled": functools.partial(by, name, pooled) for name in (*COPIES, "auto")}


def scatter_arms(shape: Data, device: torch.device, pool: Tensor, dtype: torch.dtype) -> Arms:
    """Each way to multiply and scatter."""
    group, (inner, columns) = dist.group.WORLD, shape["sizes"]
    x = torch.randn(shape["tokens"], inner, device=device).to(dtype)
    weight = (torch.randn(columns, inner, device=device) / (inner * shape["ranks"]) ** 0.5).to(dtype).t()

    def by_hand() -> Tensor:
        total = torch.mm(x, weight)
        own = x.new_empty(shape["tokens"] // shape["ranks"], columns)
        REDUCE_SCATTER(own, total, group=group)
        return own

    def by(name: str) -> Tensor:
        return parallel.matmul_reduce_scatter(x, weight, group, implementation=name)

    arms: dict[str, Callable[[], Tensor]] = {name: functools.partial(by, name) for name in NAMED}
    return arms | {"by_hand": by_hand, "plain_again": arms["plain"]}


def graphs_of(arms: Arms) -> Arms:
    """Each arm's calls as a CUDA graph, after a call that makes the choice. torch's fused ones are not captured."""
    found = {}
    for name, arm in arms.items():
        if name != "fused":
            arm()
            found[name] = _graph(arm)
    return found


def _graph(arm: Callable[[], Tensor]) -> Callable[[], Tensor]:
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(GRAPH_CALLS):
            result = arm()

    def replay() -> Tensor:
        graph.replay()
        return result

    return replay


def measured(arms: Arms, clock: Clock, seconds: float, shuffled: random.Random, per: int, since: int) -> Data:
    """Samples by arm, nanoseconds a call, cycle by cycle; equal on all ranks. ``per``: calls that an arm makes;
    ``since``: choices before this shape."""
    errors, failed = _errors(arms, clock, since)
    if "plain" in failed:
        raise RuntimeError(f"plain failed: {failed}")
    names = [name for name in arms if name not in failed]
    once = clock.agree([clock.time_of(arms["plain"], 3)[0]])[0]
    calls = max(3, min(MOST_CALLS, int(SAMPLE_NS / once)))
    timed = cycles({name: arms[name] for name in names}, clock, seconds, shuffled, calls, per)
    return {"calls": calls * per, "errors": errors, "failed": failed, **timed}


def _errors(arms: Arms, clock: Clock, since: int) -> tuple[dict[str, float], dict[str, str]]:
    """Largest difference from `by_hand`, over its largest value, on the worst rank; and which arms raised."""
    right = arms["by_hand"]().float()
    errors, failed = {}, {}
    for name, arm in arms.items():
        reason, error = "", 0.0
        try:
            found = arm().float()
            clock.wait()
            error = ((found - right).abs().max() / right.abs().max()).item()
        except RuntimeError as raised:
            reason = f"{type(raised).__name__}: {str(raised)[:300]}"
        worst, raised_anywhere = clock.agree([error if error == error else 1e9, float(bool(reason))])
        if raised_anywhere:
            failed[name] = reason or "it raised on another rank"
        else:
            errors[name] = worst
            if worst > 0.03:
                failed[name] = f"its result is wrong by {worst:.3g} of the largest value"
    refused = {name: why for one in parallel.choices()[since:] for name, why in one.refusals.items()}
    failed |= {arm: refused[name] for arm in arms if (name := arm.removesuffix("_pooled")) in refused}
    return errors, failed


def work(rank: int, options: argparse.Namespace, ranks: int, models: list[str], ends_at: float) -> None:
    """One rank."""
    device = join(rank, ranks, options.port, options.gloo)
    dtype = torch.bfloat16
    file, clock = Path(options.out), Clock(device, ends_at)
    wanted = [{**one, "graphs": options.graphs} for one in shapes(models, ranks)]
    todo = [one for one in wanted if _key(one) not in {_key(row) for row in read(file)["rows"]}]
    if options.tokens:
        todo = [one for one in todo if str(one["tokens"]) in options.tokens.split(",")]
    todo = todo[: options.most or None]
    most = max((one["tokens"] // ranks * one["sizes"][0] for one in todo), default=1)
    pool = parallel.empty((most,), dtype, dist.group.WORLD)
    with torch.no_grad():
        for number, shape in enumerate(todo):
            if clock.is_over():
                break
            torch.manual_seed(rank)
            arms = (gather_arms if shape["matmul"].startswith("AG") else scatter_arms)(shape, device, pool, dtype)
            if not parallel.memory():  # no symmetric memory here, so `pool` is ordinary
                arms = {name: arm for name, arm in arms.items() if not name.endswith("_pooled")}
            before, per = len(parallel.choices()), GRAPH_CALLS if options.graphs else 1
            # `arms` hold the inputs, which graphs only know by their addresses
            timed = graphs_of(arms) if options.graphs else arms
            row = {**shape, **measured(timed, clock, options.each, random.Random(number), per, before)}
            chosen = [one for one in parallel.choices()[before:] if one.source == "measured"]
            row["choices"] = [dataclasses.asdict(one) for one in chosen]
            if rank == 0:
                add_row(file, row)
                print(line(row), flush=True)
            del arms, timed
    leave(clock)


def line(row: Data) -> str:
    """A row of the table."""
    samples = row["samples_ns"]
    arms = ("fused", "looped", *COPIES, *(f"{name}_pooled" for name in COPIES))
    cells = [f"{row['ranks']}{', graph' * row['graphs']}", f"{row['model']} T={row['tokens']} {row['matmul']}"]
    cells += [f"{np.median(samples['plain']) / 1e6:.3f}", told(gain(samples, "plain_again", "plain"))]
    cells += [f"{gain(samples, 'by_hand')[0]:.3f}", *(_median(samples, arm) for arm in arms)]
    for place, auto in enumerate(("auto", "auto_pooled")):
        if auto not in samples:
            cells += ["–"] * 4
            continue
        chosen = row["choices"][place]["captured" if row["graphs"] else "chosen"]
        of_best = f"{gain(samples, auto, best_arm(samples, auto))[0]:.3f}"
        cells += [chosen, told(gain(samples, auto)), of_best, _median(samples, auto, "fused")]
    return "| " + " | ".join(cells) + " |"


def best_arm(samples: Mapping[str, list[float]], auto: str) -> str:
    """The fastest that `auto` could have chosen; with its input in symmetric memory also those without."""
    able = [arm for arm in samples if arm not in ("by_hand", "plain_again") and "auto" not in arm]
    able = [arm for arm in able if auto == "auto_pooled" or not arm.endswith("_pooled")]
    return min(able, key=lambda arm: np.median(samples[arm]))


def table(data: Data) -> str:
    """All rows as Markdown."""
    ways = ("by hand", "fused", "looped", "copies", "2 streams", "copies, pooled", "2 streams, pooled")
    autos = ("chosen", "speed-up", "over best", "over fused")
    head = ("TP", "shape", "plain, ms", "A/A", *ways, *autos, *(f"pooled: {name}" for name in autos))
    rows = sorted(data["rows"], key=lambda row: (row["graphs"], -row["ranks"], row["model"] != "8B", row["tokens"]))
    return "\n".join(["| " + " | ".join(head) + " |", "|" + "---|" * len(head), *map(line, rows)])


def summary(data: Data) -> str:
    """How often the choice is what it should be, by group size and regime: lines of Markdown."""
    lines = []
    kinds = sorted({(row["graphs"], row["ranks"]) for row in data["rows"]}, key=lambda one: (one[0], -one[1]))
    for graphs, ranks in kinds:
        for auto in ("auto", "auto_pooled"):
            every = [row["samples_ns"] for row in data["rows"] if (row["graphs"], row["ranks"]) == (graphs, ranks)]
            found = [samples for samples in every if auto in samples]
            if not found:
                continue
            gains = [gain(samples, auto)[0] for samples in found]
            near = sum(gain(samples, auto, best_arm(samples, auto))[0] >= 0.99 for samples in found)
            ahead = [gain(samples, auto, "fused")[0] >= 1.03 for samples in found if "fused" in samples]
            lines.append(
                f"- TP {ranks}{', CUDA graphs' * graphs}, `{auto}`: {len(found)} rows, {min(gains):.3f} to "
                f"{max(gains):.3f} of plain, below 0.99 in {sum(one < 0.99 for one in gains)}; within 1 % of the best "
                f"arm in {near}" + (f"; at least 1.03 of fused in {sum(ahead)}" if ahead else "")
            )
    return "\n".join(lines)


def _median(samples: Mapping[str, list[float]], arm: str, base: str = "") -> str:
    return f"{gain(samples, arm, base)[0]:.3f}" if {arm, base or "plain"} <= samples.keys() else "–"


def _key(row: Data) -> tuple[Any, ...]:
    return row["graphs"], row["ranks"], row["model"], row["tokens"], row["matmul"]


def main() -> None:
    """Starts the ranks of each group size, or prints the table of a file."""
    parser = argparse.ArgumentParser(description="lagom.parallel: each way of a collective and its matmul, in turns.")
    parser.add_argument("--ranks", default="4,2", help="sizes of the group, commas between")
    parser.add_argument("--each", type=float, default=4, help="time limit of the cycles of a shape, seconds")
    parser.add_argument("--models", default="8B,70B", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--tokens", default="", help="only these numbers of tokens, commas between")
    parser.add_argument("--most", type=int, default=0, help="shapes of a group size; 0 = all")
    parser.add_argument("--graphs", action="store_true", help="measure CUDA graphs of calls instead of calls")
    add_options(parser, "collective_matmul.json")
    options = parser.parse_args()
    if options.table:
        data = read(Path(options.table))
        print(f"{summary(data)}\n\n{table(data)}")
        return
    ends_at = time.monotonic() + options.seconds
    file = Path(options.out)
    if reason := begin(file, options.gloo):
        parser.error(reason)
    for ranks in map(int, options.ranks.split(",")):
        if not options.gloo and ranks > torch.cuda.device_count():
            print(f"{ranks} ranks: there are {torch.cuda.device_count()} GPUs, so this part is left out", flush=True)
            continue
        mp.spawn(work, (options, ranks, options.models.split(","), ends_at), nprocs=ranks)
    print(f"{summary(read(file))}\n\n{table(read(file))}")


if __name__ == "__main__":
    main()
