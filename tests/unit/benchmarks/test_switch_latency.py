# SPDX-License-Identifier: Apache-2.0
"""No call around a switch waits for anybody; what did would be named."""

from __future__ import annotations

import pytest

from benchmarks import switch_latency as bench
from benchmarks.native import PLUGIN
from tests.tiers import amount


def test_no_call_around_a_switch_waits() -> None:
    if not PLUGIN.exists():
        pytest.skip("the plugin is not built; run `make native`")
    result = bench.measure(PLUGIN, share=amount(8, 4))
    assert bench.waited(result) == []
    assert {one.moment for one in result.moments} >= {bench.STEADY, bench.ACKNOWLEDGED, bench.ALONE, "start: in force"}
    assert all(one.samples > 0 for one in result.moments)
    assert all(one.system_calls == "none" or "not checked" in one.system_calls for one in result.rounds)
    assert [one.plans > 0 for one in result.live] == [False, True], "hardly a plan was agreed under live publishing"


def test_what_waits_is_named() -> None:
    times = (1.0, 1.0, 1.0, 1.0, 1.0, 10)  # median, p90, ...
    moments = [
        bench.Moment("p", bench.STEADY, 50.0, *times),
        bench.Moment("p", bench.ACKNOWLEDGED, 9000.0, *times),
        bench.Moment("p", "start: in force", 900.0, *times),
    ]
    rounds = [bench.Rounds("p", 10, 1, 2, "made")]
    live = [bench.Live("p", "a controller sleeps", 10, 0, 3, 50.0, *times)]
    assert bench.waited(bench.SwitchLatency(moments, rounds, live)) == [
        "p: 1 allocations in 10 rounds",
        "p: 2 times a rank gave its processor away",
        "p: a round makes system calls",
        "a controller sleeps: 3 times a rank gave its processor away",
        "p, start: in force: 900 ns, steady 50 ns",
    ]
