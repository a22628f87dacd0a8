# SPDX-License-Identifier: Apache-2.0
"""What a switch costs the calls around it: ``python -m benchmarks.switch_latency [--json FILE] [--plugin SO]``.

Builds and runs ``switch_latency.c``: plans of three sizes are published, acknowledged, committed, come into force and
end, thousands of times; every call is timed alone and booked under what happened in it. Prints a table and ends with 1
if anything waited: a system call, a voluntary context switch, an allocation in a whole round, or a call that a stopped
partner made slower than :data:`BOUND` times a steady one. The one call that does real work is the acknowledgement: it
copies the plan, checks it and prepares the search for its period, once a plan and rank.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.native import PLUGIN, run
from tests.evidence import circumstances, save

STEADY, ACKNOWLEDGED, ALONE = "steady", "prepared: copied, checked, acknowledged", "steady, all others stopped"
#: Calls around a switch may differ from a steady call by this much: caches, not waiting for a process. The fastest
#: tenth is compared: on a busy machine most calls find cold caches, and a call that waits for somebody is never fast.
BOUND = 10.0


@dataclass(frozen=True, slots=True)
class Moment:
    """Calls in which the same thing happened. Nanoseconds a call, less the counter's own cost."""

    plan: str
    moment: str
    p10_ns: float
    median_ns: float
    p90_ns: float
    p99_ns: float
    p999_ns: float
    max_ns: float
    samples: int


@dataclass(frozen=True, slots=True)
class Rounds:
    """All calls of all rounds with plans of one size."""

    plan: str
    rounds: int
    allocations: int
    voluntary_switches: int
    system_calls: str  # none, made, or why it was not checked


@dataclass(frozen=True, slots=True)
class Live:
    """All calls while a controller in another process sleeps, or publishes as fast as it can."""

    plan: str
    live: str
    calls: int
    plans: int
    voluntary_switches: int
    p10_ns: float
    median_ns: float
    p90_ns: float
    p99_ns: float
    p999_ns: float
    max_ns: float
    samples: int


@dataclass(frozen=True, slots=True)
class SwitchLatency:
    """Everything one run shows."""

    moments: list[Moment]
    rounds: list[Rounds]
    live: list[Live]


def measure(plugin: Path, share: int = 1) -> SwitchLatency:
    """About 15 s, or a ``share``-th of it; raises ``CalledProcessError`` if the plugin does not do as it should."""
    lines = run("switch_latency", plugin, str(share))
    return SwitchLatency(
        [Moment(**line) for line in lines if "moment" in line],
        [Rounds(**line) for line in lines if "rounds" in line],
        [Live(**line) for line in lines if "live" in line],
    )


def waited(result: SwitchLatency) -> list[str]:
    """One sentence for each sign that a call waited for somebody."""
    wrong = []
    for one in result.rounds:
        wrong += [f"{one.plan}: {one.allocations} allocations in {one.rounds} rounds"] * (one.allocations > 0)
        wrong += [f"{one.plan}: {one.voluntary_switches} times a rank gave its processor away"] * (
            one.voluntary_switches > 0
        )
        wrong += [f"{one.plan}: a round makes system calls"] * (one.system_calls == "made")
    for live in result.live:
        wrong += [f"{live.live}: {live.voluntary_switches} times a rank gave its processor away"] * (
            live.voluntary_switches > 0
        )
    return wrong + _slower(result.moments)


def _slower(moments: list[Moment]) -> list[str]:
    steady = {one.plan: one.p10_ns for one in moments if one.moment == STEADY}
    slow = [one for one in moments if one.moment != ACKNOWLEDGED and one.p10_ns > BOUND * max(steady[one.plan], 20.0)]
    return [f"{one.plan}, {one.moment}: {one.p10_ns:.0f} ns, steady {steady[one.plan]:.0f} ns" for one in slow]


def table(result: SwitchLatency) -> str:
    """The figures for people."""
    lines = [f"{'':<44} {'median':>8} {'p90':>8} {'p99':>8} {'p99.9':>8} {'max':>10}  calls"]
    for rounds in result.rounds:
        lines.append(f"{rounds.plan}: {rounds.rounds} switches; system calls: {rounds.system_calls}")
        lines += [_row(one.moment, one) for one in result.moments if one.plan == rounds.plan]
    lines += [f"{result.live[0].plan}, live"] if result.live else []
    lines += [_row(f"{one.live}, {one.plans} agreed", one) for one in result.live]
    return "\n".join([*lines, "nanoseconds a call"])


def _row(name: str, one: Any) -> str:
    times = f"{one.median_ns:>8.0f} {one.p90_ns:>8.0f} {one.p99_ns:>8.0f} {one.p999_ns:>8.0f} {one.max_ns:>10.0f}"
    return f"  {name:<50} {times}  {one.samples}"


def evidence(result: SwitchLatency) -> dict[str, Any]:
    """The JSON of a result."""
    head = circumstances("every call of two ranks timed while plans are agreed, come into force and end")
    return {**head, "waited": waited(result), **asdict(result)}


def main(arguments: list[str] | None = None) -> int:
    """The command line; 0, or 1 if anything waited."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.switch_latency", description=__doc__)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures here")
    parser.add_argument("--plugin", type=Path, default=PLUGIN, help="library to measure")
    wanted = parser.parse_args(arguments)
    result = measure(wanted.plugin)
    print(table(result))
    if wanted.json is not None:
        save(wanted.json, evidence(result))
    for sentence in waited(result):
        print(f"waited: {sentence}")
    return 1 if waited(result) else 0


if __name__ == "__main__":
    sys.exit(main())
