# SPDX-License-Identifier: Apache-2.0
"""How long each implementation takes for a call, and which one that makes the choice.

Time is the wall clock's between two points where the device has nothing left to do, over several calls one after the
other: the host's time for launches counts where it is longer than the device's, as it does in a job.
"""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Mapping

import torch

from lagom.parallel.rank_group import RankGroup
from lagom.parallel.said_once import log

Run = Callable[[], object]
#: Seconds that the rounds of a call may take, beside two calls of each implementation to get going.
BUDGET_S = 0.25
#: The same for the device's time alone.
AHEAD_BUDGET_S, AHEAD_CALLS, AHEAD_ROUNDS = 0.1, 2, 8
#: Calls one after the other, at least and at most, and how long they are to take together: of the first one the
#: launches show, while in a job they are hidden by what ran before.
CALLS, MOST_CALLS, SAMPLE_NS = 4, 16, 4e6
ROUNDS, FEWEST_ROUNDS = 12, 3
#: Of a fast GPU's clock; how much longer than usual launches can take; and a small collective beside them.
CYCLES_PER_NS, SLOW_HOST, MEETING_NS = 2.0, 2.0, 5e5
#: What is slower than this by its first timed calls is not measured further.
HOPELESS = 1.5
#: How much faster than plain something has to be to be chosen, and in what share of the rounds it has to be faster.
MARGIN, QUORUM = 1.01, 0.75


def measure(runs: Mapping[str, Run], group: RankGroup, device: torch.device, seed: int) -> dict[str, list[float]]:
    """Nanoseconds a call of each, round by round, of the slowest rank: the same on all ranks. A collective. ``runs``
    are the same names on every rank, ``plain`` first; what raises on a rank is left out on all, and where plain does,
    every rank raises. Of what is HOPELESS the first time stands for all rounds."""
    names = [name for name in runs if _works(name, runs[name], group, device)]
    first = group.largest([_time_of(runs[name], CALLS, group, device) for name in names], device)
    quick = {name: took for name, took in zip(names, first, strict=True) if took <= HOPELESS * first[0]}
    once = sum(quick.values())
    calls = max(CALLS, min(MOST_CALLS, int(SAMPLE_NS / quick["plain"])))
    if once * calls * FEWEST_ROUNDS > BUDGET_S * 1e9:
        calls = 1

    def time_of(name: str) -> float:
        return _time_of(runs[name], calls, group, device)

    found = _rounds(list(quick), time_of, min(ROUNDS, int(BUDGET_S * 1e9 / (once * calls))), group, device, seed)
    rounds = len(found["plain"])
    return {name: found.get(name, [took] * rounds) for name, took in zip(names, first, strict=True)}


def measure_ahead(
    runs: Mapping[str, Run], took: Mapping[str, float], group: RankGroup, device: torch.device, seed: int
) -> dict[str, list[float]]:
    """Nanoseconds a call that the device takes when the host has launched all before, as in a CUDA graph; otherwise as
    :func:`measure`. A collective. ``took``: what a call takes at most with its launches."""
    once = sum((1 + SLOW_HOST) * AHEAD_CALLS * took[name] + MEETING_NS for name in runs)

    def time_of(name: str) -> float:
        return _device_time_of(runs[name], took[name], group, device)

    return _rounds(list(runs), time_of, min(AHEAD_ROUNDS, int(AHEAD_BUDGET_S * 1e9 / once)), group, device, seed)


def _rounds(
    names: list[str], time_of: Callable[[str], float], count: int, group: RankGroup, device: torch.device, seed: int
) -> dict[str, list[float]]:
    """``count`` rounds, but not too few, each in another order: by name, the time of the slowest rank in each."""
    taken, shuffled = [], random.Random(seed)
    for _ in range(max(FEWEST_ROUNDS, count)):
        found = {name: time_of(name) for name in shuffled.sample(names, len(names))}
        taken += [found[name] for name in names]
    agreed = group.largest(taken, device)
    return {name: agreed[place :: len(names)] for place, name in enumerate(names)}


def best_of(times: Mapping[str, list[float]], base: str = "plain") -> str:
    """``base``, or what is clearly faster: by MARGIN in the median of the rounds, and faster in QUORUM of them."""
    best, most = base, MARGIN
    for name, took in times.items():
        gains = [usual / one for usual, one in zip(times[base], took, strict=True)]
        often = sum(gain > 1.0 for gain in gains) >= QUORUM * len(gains)
        if name != base and often and statistics.median(gains) >= most:
            best, most = name, statistics.median(gains)
    return best


def synchronize(device: torch.device) -> None:
    """Wait until the device has done everything."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _works(name: str, run: Run, group: RankGroup, device: torch.device) -> bool:
    """Two calls, of which the first may load kernels."""
    raised: Exception | None = None
    try:
        run()
        run()
        synchronize(device)
    except Exception as error:  # noqa: BLE001 - other ranks wait for what this one says
        raised = error
        log.info("%s raised an error while it was measured: %s", name, error)
    works = group.all_say(raised is None, device)
    if name == "plain" and not works:
        raise raised or RuntimeError("The product or its collective raised an error on another rank; see its output.")
    return works


def _time_of(run: Run, calls: int, group: RankGroup, device: torch.device) -> float:
    """Nanoseconds a call on this rank; all ranks begin together."""
    group.all_say(True, device)
    synchronize(device)
    begin = time.perf_counter_ns()
    for _ in range(calls):
        run()
    synchronize(device)
    return (time.perf_counter_ns() - begin) / calls


def _device_time_of(run: Run, took: float, group: RankGroup, device: torch.device) -> float:
    """Nanoseconds a call between two events, while the host is ahead of the device by what launches can take."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    group.all_say(True, device)
    torch.cuda._sleep(int(CYCLES_PER_NS * (SLOW_HOST * AHEAD_CALLS * took + MEETING_NS)))
    group.meet_on_device(device)
    begin.record()
    for _ in range(AHEAD_CALLS):
        run()
    end.record()
    synchronize(device)
    return begin.elapsed_time(end) * 1e6 / AHEAD_CALLS
