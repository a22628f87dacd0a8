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
import json
import os
import platform
import random
import subprocess
import time
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import Tensor

import lagom.parallel as parallel
from lagom.files import write_whole
from lagom.parallel.said_once import log
from lagom.parallel.torch_gate import public_collectives

Data = dict[str, Any]
ALL_GATHER, REDUCE_SCATTER = public_collectives()
Arms = Mapping[str, Callable[[], Tensor]]
#: Hidden size, columns of q, k and v, inner size of the MLP.
MODELS = {"8B": (4096, 6144, 14336), "70B": (8192, 10240, 28672), "tiny": (64, 96, 128)}
TOKENS = {"8B": (8192, 2048, 16384), "70B": (8192, 2048, 16384), "tiny": (64,)}
COPIES = ("copies", "copies_two_streams")
NAMED = ("plain", "fused", "looped", *COPIES, "auto")
SAMPLE_NS, MOST_CALLS = 6e6, 16
GRAPH_CALLS = 4
FEWEST_CYCLES, MOST_CYCLES = 12, 48


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


class Clock:
    """Times arms on all ranks at once."""

    def __init__(self, device: torch.device, ends_at: float) -> None:
        self.device, self.ends_at = device, ends_at

    def is_over(self) -> bool:
        """Whether the time limit is reached, as rank 0 sees it."""
        return self.agree([time.monotonic() - self.ends_at if dist.get_rank() == 0 else -1e9])[0] > 0

    def agree(self, numbers: list[float]) -> list[float]:
        """The largest over ranks."""
        values = torch.tensor(numbers, dtype=torch.float64, device=self.device)
        dist.all_reduce(values, dist.ReduceOp.MAX)
        return values.tolist()

    def wait(self) -> None:
        """Until the device has nothing left to do."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def time_of(self, arm: Callable[[], Tensor], calls: int) -> tuple[float, float]:
        """Nanoseconds a call, and those of them until the host had launched all."""
        arm()
        self.agree([0.0])
        self.wait()
        begin = time.perf_counter_ns()
        for _ in range(calls):
            arm()
        launched = time.perf_counter_ns()
        self.wait()
        return (time.perf_counter_ns() - begin) / calls, (launched - begin) / calls


def measured(arms: Arms, clock: Clock, seconds: float, shuffled: random.Random, per: int, since: int) -> Data:
    """Samples by arm, nanoseconds a call, cycle by cycle; equal on all ranks. ``per``: calls that an arm makes;
    ``since``: choices before this shape."""
    errors, failed = _errors(arms, clock, since)
    if "plain" in failed:
        raise RuntimeError(f"plain failed: {failed}")
    names = [name for name in arms if name not in failed]
    once = clock.agree([clock.time_of(arms["plain"], 3)[0]])[0]
    calls = max(3, min(MOST_CALLS, int(SAMPLE_NS / once)))
    samples: dict[str, list[float]] = {name: [] for name in names}
    hosts: dict[str, list[float]] = {name: [] for name in names}
    began = time.monotonic()
    while True:
        found = {name: clock.time_of(arms[name], calls) for name in shuffled.sample(names, len(names))}
        flat = [found[name][which] for which in (0, 1) for name in names]
        *times, elapsed = clock.agree([*flat, time.monotonic() - began])
        for place, name in enumerate(names):
            samples[name].append(round(times[place] / per))
            hosts[name].append(round(times[len(names) + place] / per))
        cycles = len(samples["plain"])
        _, low, high = gain(samples, "plain_again", "plain")
        if cycles >= MOST_CYCLES or elapsed > seconds or (cycles >= FEWEST_CYCLES and low > 0.99 and high < 1.01):
            break
    return {"calls": calls * per, "errors": errors, "failed": failed, "samples_ns": samples, "host_ns": hosts}


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


def gain(samples: Mapping[str, list[float]], arm: str, base: str = "") -> tuple[float, float, float]:
    """Time of `base` over that of `arm`, paired by cycle: median and 95 % bootstrap. Default base: both plain arms."""
    bases = [base] if base else ["plain", "plain_again"]
    ratios = np.mean([samples[one] for one in bases], axis=0) / np.array(samples[arm])
    draws = np.random.default_rng(1).choice(ratios, (1000, len(ratios)))
    low, high = np.quantile(np.median(draws, axis=1), (0.025, 0.975))
    return float(np.median(ratios)), float(low), float(high)


def work(rank: int, options: argparse.Namespace, ranks: int, models: list[str], ends_at: float) -> None:
    """One rank."""
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(options.port + ranks), LAGOM_CACHE="off")
    is_cuda = not options.gloo
    device = torch.device("cuda", rank) if is_cuda else torch.device("cpu")
    if is_cuda:
        torch.cuda.set_device(rank)
    else:
        torch.set_num_threads(1)
    limit = timedelta(seconds=60)
    backend, own = ("nccl", device) if is_cuda else ("gloo", None)
    dist.init_process_group(backend, rank=rank, world_size=ranks, timeout=limit, device_id=own)
    if rank:
        log.setLevel("ERROR")
    dtype = torch.bfloat16
    file, clock = Path(options.out), Clock(device, ends_at)
    wanted = [{**one, "graphs": options.graphs} for one in shapes(models, ranks)]
    todo = [one for one in wanted if _key(one) not in {_key(row) for row in _read(file)["rows"]}]
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
                kept = _read(file)
                kept["rows"].append(row)
                write_whole(file, json.dumps(kept, ensure_ascii=False) + "\n")
                print(line(row), flush=True)
            del arms, timed
    clock.agree([0.0])
    clock.wait()
    os._exit(0)


def line(row: Data) -> str:
    """A row of the table."""
    samples = row["samples_ns"]
    arms = ("fused", "looped", *COPIES, *(f"{name}_pooled" for name in COPIES))
    cells = [f"{row['ranks']}{', graph' * row['graphs']}", f"{row['model']} T={row['tokens']} {row['matmul']}"]
    cells += [f"{np.median(samples['plain']) / 1e6:.3f}", _told(gain(samples, "plain_again", "plain"))]
    cells += [f"{gain(samples, 'by_hand')[0]:.3f}", *(_median(samples, arm) for arm in arms)]
    for place, auto in enumerate(("auto", "auto_pooled")):
        if auto not in samples:
            cells += ["–"] * 4
            continue
        chosen = row["choices"][place]["captured" if row["graphs"] else "chosen"]
        of_best = f"{gain(samples, auto, best_arm(samples, auto))[0]:.3f}"
        cells += [chosen, _told(gain(samples, auto)), of_best, _median(samples, auto, "fused")]
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
    told = []
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
            told.append(
                f"- TP {ranks}{', CUDA graphs' * graphs}, `{auto}`: {len(found)} rows, {min(gains):.3f} to "
                f"{max(gains):.3f} of plain, below 0.99 in {sum(one < 0.99 for one in gains)}; within 1 % of the best "
                f"arm in {near}" + (f"; at least 1.03 of fused in {sum(ahead)}" if ahead else "")
            )
    return "\n".join(told)


def _median(samples: Mapping[str, list[float]], arm: str, base: str = "") -> str:
    return f"{gain(samples, arm, base)[0]:.3f}" if {arm, base or "plain"} <= samples.keys() else "–"


def _told(found: tuple[float, float, float]) -> str:
    return "{:.3f} [{:.3f}, {:.3f}]".format(*found)


def _key(row: Data) -> tuple[Any, ...]:
    return row["graphs"], row["ranks"], row["model"], row["tokens"], row["matmul"]


def _read(file: Path) -> Data:
    return json.loads(file.read_text())


def _about(options: argparse.Namespace) -> Data:
    """What the numbers depend on."""
    commit = os.environ.get("LAGOM_COMMIT") or _printed("git", "rev-parse", "--short=8", "HEAD")
    names = ("NCCL_", "TORCH_", "NVSHMEM_", "OMP_", "LAGOM_", "CUDA_DEVICE_MAX")
    environment = {name: value for name, value in sorted(os.environ.items()) if name.startswith(names)}
    versions = {"torch": torch.__version__, "python": platform.python_version()}
    hardware = f"{os.cpu_count()} CPU cores"
    if not options.gloo:
        driver = _printed("nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader").split("\n")[0]
        name = torch.cuda.get_device_name(0)
        hardware = f"{torch.cuda.device_count()} x {name} of one host, {hardware}, driver {driver}"
        versions["nccl"] = ".".join(map(str, torch.cuda.nccl.version()))
    date = datetime.now(timezone.utc).date().isoformat()
    regime = "gloo on CPU: a rehearsal, no measurement" if options.gloo else "NVLink"
    about = {"commit": commit, "date": date, "hardware": hardware, "versions": versions, "regime": regime}
    return {**about, "dtype": "bfloat16", "environment": environment, "rows": []}


def _printed(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def main() -> None:
    """Starts the ranks of each group size, or prints the table of a file."""
    parser = argparse.ArgumentParser(description="lagom.parallel: each way of a collective and its matmul, in turns.")
    parser.add_argument("--ranks", default="4,2", help="sizes of the group, commas between")
    parser.add_argument("--out", default="collective_matmul.json", help="FILE; one that exists is continued")
    parser.add_argument("--seconds", type=float, default=540, help="time limit of the whole")
    parser.add_argument("--each", type=float, default=4, help="time limit of the cycles of a shape, seconds")
    parser.add_argument("--models", default="8B,70B", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--tokens", default="", help="only these numbers of tokens, commas between")
    parser.add_argument("--most", type=int, default=0, help="shapes of a group size; 0 = all")
    parser.add_argument("--graphs", action="store_true", help="measure CUDA graphs of calls instead of calls")
    parser.add_argument("--gloo", action="store_true", help="rehearsal on the CPU")
    parser.add_argument("--port", type=int, default=29600)
    parser.add_argument("--table", default="", help="FILE: print its table and measure nothing")
    options = parser.parse_args()
    if options.table:
        data = _read(Path(options.table))
        print(f"{summary(data)}\n\n{table(data)}")
        return
    ends_at = time.monotonic() + options.seconds
    file, about = Path(options.out), _about(options)
    if not file.exists():
        write_whole(file, json.dumps(about) + "\n")
    elif any(_read(file)[name] != about[name] for name in ("commit", "hardware", "versions", "regime")):
        parser.error(f"{file} was measured with other code or elsewhere; give another --out")
    for ranks in map(int, options.ranks.split(",")):
        if not options.gloo and ranks > torch.cuda.device_count():
            print(f"{ranks} ranks: there are {torch.cuda.device_count()} GPUs, so this part is left out", flush=True)
            continue
        mp.spawn(work, (options, ranks, options.models.split(","), ends_at), nprocs=ranks)
    print(f"{summary(_read(file))}\n\n{table(_read(file))}")


if __name__ == "__main__":
    main()
