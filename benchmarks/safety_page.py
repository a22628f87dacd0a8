# SPDX-License-Identifier: Apache-2.0
"""The safety table: tests of what could harm a job, and their results, from files in ``benchmarks/results``.

    python -m benchmarks.safety_page            # writes benchmarks/results/safety_202611.md

docs/safety.md holds the same rows (``make readme``). A row is here only if its evidence file is, and its
numbers are those of the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.provenance import described
from benchmarks.template import render
from lagom.format import format_percent

#: How long after it enters such a call a controller is killed at most (tests/soak/mines.py).
MICROSECONDS = 60
RESULTS = Path(__file__).parent / "results"
PAGE = RESULTS / "safety_202611.md"
Evidence = dict[str, Any]


class SafetyRow(NamedTuple):
    done: str
    seen: str
    command: str


def plans(found: Evidence) -> Iterator[SafetyRow]:
    """Plans agreed by virtual ranks while ranks pause and publishers are killed."""
    intruder = found["intruder"]
    done = [
        f"**{found['committed']:,} plans** agreed by {found['ranks']} virtual ranks on {found['communicators']} "
        "communicators",
        f"ranks paused {found['rank_pauses']:,} times, the publisher killed {found['publisher_kills']:,} times",
        f"a second publisher without the lock: {intruder['published']:,} plans, {intruder['torn']:,} random writes "
        f"over a plan, {intruder['stale']:,} swaps with an outdated switch word",
    ]
    seen = [
        f"{found['calls_compared']:,} calls compared, **{found['differences']} differences**",
        f"{intruder['stale_won']} of those swaps went through",
    ]
    yield row(done, seen, "make plans")


def kills(found: Evidence) -> Iterator[SafetyRow]:
    """Controllers forked from a warm process."""
    mines = sum(count for how, count in found["kills_by_how"].items() if how.startswith("mine"))
    done = [
        f"**{found['kills']:,} controllers killed -9** beside {found['ranks']} running ranks",
        f"{mines:,} of them within {MICROSECONDS} µs of entering a call that publishes, decides on a plan, sets what "
        "is recorded, drains a ring, takes control, sweeps the tables or writes the log, the others at any moment",
        f"{found['log']['offers_still_open_at_death']:,} died with an offer open, "
        f"{found['left_in_the_region'].get('a trial under way', 0):,} in a trial",
    ]
    seen = [
        f"{found['calls_compared']:,} calls compared, **{found['differences']} differences**",
        f"**{found['waits_in_a_call']} times** a rank gave up its processor inside a tuner call",
    ]
    yield row(done, seen, "make kills")


def soak(found: Evidence) -> Iterator[SafetyRow]:
    """Half an hour of all faults together."""
    injected, seen = found["injected"], found["seen"]
    hit = sum(injected[f"controllers {how}"] for how in ("killed", "stopped and restarted", "paused"))
    done = [
        f"**{found['seconds'] / 60:.0f} minutes** of tuning {seen['generations']} jobs of up to {found['ranks']} "
        f"virtual ranks, {seen['generations cut off']} of them cut off by the death of a rank",
        f"controllers killed, stopped or paused {hit:,} times, ranks paused {injected['ranks paused']:,} times",
        f"{injected['writes of noise']:,} random writes over rings, headers, plans",
    ]
    came = [
        f"{seen['plans in force']:,} plans in force, {seen['calls compared']:,} calls compared, "
        f"**{len(found['violations'])} violations**",
        f"{seen['calls as named']:,} calls ran what their plan names, {seen['calls past the end of a lease']:,} of "
        "them past the end of a lease",
        f"at most {found['largest'][CONTROLLERS_MEMORY] / 1e6:.0f} MB in a controller",
    ]
    yield row(done, came, "make soak")


FUZZ_MINUTES = 24
CONTROLLERS_MEMORY = "controller's memory"


def fuzzers(found: Evidence) -> Iterator[SafetyRow]:
    """Every C reader of what others wrote; no row before each has run as long as it should."""
    targets = found["targets"]
    least = min(target["cpu_seconds"] for target in targets.values()) / 60
    if least < FUZZ_MINUTES:
        return
    crashes = sum(target["crashes_since"] for target in targets.values())
    repaired = sum(len(target["crashes_found_and_repaired"]) for target in targets.values())
    executions = sum(target["executions"] for target in targets.values())
    done = [f"{len(targets)} fuzzers ({', '.join(sorted(targets))}), at least **{least:.0f} CPU minutes** each"]
    seen = [f"{executions:,} inputs, **{crashes} crashes**; {repaired} found and repaired before"]
    yield row(done, seen, "make fuzz")


def gpus(found: Evidence) -> Iterator[SafetyRow]:
    """Tests with NCCL on GPUs: a row for each test, found by how its name begins."""
    for test, one in found.items():
        for beginning, make in GPU_TESTS.items():
            if test.startswith(beginning):
                yield make(one, one.get("machine", found["about"]["machine"]))


def one_gpu(found: Evidence) -> Iterator[SafetyRow]:
    """Those tests that did not run on several GPUs."""
    return gpus({test: one for test, one in found.items() if test == "about" or not test.startswith(SEEN_ON_SEVERAL)})


def where(one: Evidence, machine: str) -> str:
    """The GPUs, and the way between them. On a GPU that ranks share, `nvlink` is a name only: nothing leaves it."""
    gpus = machine.partition(",")[0]
    shared = re.search(r"(\d+) ranks share it", machine)
    host = one.get("regime") == "host"
    way = "host memory" if host else "copies within it" if shared else "NVLink"
    return f"{gpus} shared by {shared[1]} ranks, {way}" if shared else f"{gpus}, {way}"


def combinations(one: Evidence) -> str:
    return f"{one['distinct function-size-config combinations run']:,} combinations of function, size and config"


def exact(one: Evidence, machine: str) -> SafetyRow:
    """Integer-valued data under random configs."""
    done = f"{where(one, machine)}, NCCL {one['nccl']}: **{one['plans']['committed']:,} random legal plans**"
    seen = [f"{one['iterations']:,} iterations of five collectives, **every element correct**"]
    seen += [f"{len(one['differing'])} differences between ranks"]
    seen += [f"judged {judged}" for judged in (one.get("judged"),) if judged]
    return row([done, combinations(one)], seen, "make test-gpu-safety")


def sanitized(one: Evidence, machine: str) -> SafetyRow:
    """The same, shorter, under memcheck."""
    done = f"{where(one, machine)}, NCCL {one['nccl']}, under compute-sanitizer: {one['plans']['committed']:,} plans"
    return row([done, combinations(one)], [f"**{one['errors']} errors**"], "make test-gpu-safety")


def training(one: Evidence, machine: str) -> SafetyRow:
    """FSDP for minutes."""
    done = f"{where(one, machine)}: {one['seconds'] / 60:.0f} minutes of FSDP, {one['plans']['committed']:,} plans"
    seen = [
        f"{one['steps']:,} steps; loss at most "
        f"{format_percent(one['largest_difference'], 2)} from the job without Lagom"
    ]
    return row([done], seen, "make test-gpu-safety")


def dead_controller(one: Evidence, machine: str) -> SafetyRow:
    """Killed in mid-tune."""
    done = f"{where(one, machine)}: the controller killed -9 while it tunes"
    return row([done], [f"{one['iterations']:,} iterations, every result exact"], "make test-gpu-safety")


def dead_rank(one: Evidence, machine: str) -> SafetyRow:
    """One rank killed in mid-tune, against the same without Lagom."""
    ours, alone = one["tuned"], one["stock"]
    seen = [f"exit code {ours['code']} after {ours['seconds']} s"]
    seen += [f"without Lagom {alone['code']}, {alone['seconds']} s"]
    return row([f"{where(one, machine)}: a rank killed -9 while its job is tuned"], seen, "make test-gpu-safety")


SEEN_ON_SEVERAL = ("test_results_are_exact", "test_killed")
GPU_TESTS = {
    "test_results_are_exact": exact,
    "test_no_illegal_memory_access": sanitized,
    "test_training_goes_on": training,
    "test_killed_controller": dead_controller,
    "test_killed_rank": dead_rank,
}


def row(done: list[str], seen: list[str], command: str) -> SafetyRow:
    """From its sentences."""
    return SafetyRow("; ".join(done), "; ".join(seen), command)


SOURCES: dict[str, Callable[[Evidence], Iterator[SafetyRow]]] = {
    "agreement_1000000.json": plans,
    "kills_10000.json": kills,
    "soak_30min.json": soak,
    "fuzz_202611.json": fuzzers,
    "safety_gpu_h200x8_202611.json": gpus,
    "safety_gpu_h200x2_202611.json": gpus,
    "safety_gpu_h200x1_202611.json": one_gpu,
}


def evidence() -> Iterator[tuple[str, Evidence]]:
    """The evidence files there are."""
    for name in SOURCES:
        path = RESULTS / name
        if path.exists():
            yield name, json.loads(path.read_text())


def rows() -> list[SafetyRow]:
    """Of all evidence there is."""
    return [one for name, found in evidence() for one in SOURCES[name](found)]


def table() -> str:
    """The table alone, for docs/safety.md."""
    return render("safety_table", rows=rows()).rstrip()


def page() -> str:
    """The table, and where each file comes from."""
    abouts = [(name, found.get("about", found)) for name, found in evidence()]
    sources = [
        (name, described(about["commit"]).removeprefix("commit ") if "commit" in about else "in the file", about)
        for name, about in abouts
    ]
    return render("safety", rows=rows(), sources=sources)


if __name__ == "__main__":
    PAGE.write_text(page())
    print(PAGE)
