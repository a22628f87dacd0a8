# SPDX-License-Identifier: Apache-2.0
"""How often the search of `lagom tune` finds planted start settings, and how often it is wrong; simulated processes.

    python -m benchmarks.start_search [SEARCHES] > benchmarks/results/start_search_202611.json

The planted jobs are those of tests/unit/tune/test_full_search.py: 20 variables, one 10 % slower, one 1 % slower, the
others equal, and what each row adds; and a job that was measured on four GPUs. 200 searches of each take one to four
minutes on one core.
"""

from __future__ import annotations

import json
import sys

from tests.unit.tune import test_full_search as planted

NOISE = (0.01, 0.03)


def row(sigma: float) -> dict[str, object]:
    """Shares of the searches at this noise between processes."""
    plain = []
    for seed in range(planted.RUNS):
        where = planted.planted(seed)
        result, done = planted.tuned(planted.plan_of(sigma, seed), where, sigma, seed)
        plain.append((result.verdict == "improved", len(done)))
    repeated = [planted.of_nothing(sigma, seed) for seed in range(planted.RUNS)]
    return {
        "noise": sigma,
        "a pair, 8 % together, is found": planted.share(planted.winners(sigma, planted.both, pair=True)),
        "the trap (alone slower, together 2.2x) is found": planted.share(
            planted.winners(sigma, planted.both, trap=True)
        ),
        "one of 2 % alone is found": planted.share(planted.winners(sigma, lambda where: {where.better}, gains=True)),
        "nothing to gain: something is accepted": planted.share([accepted for accepted, _ in plain]),
        "processes with nothing to gain": [count for _, count in plain],
        "16 s a process: what does not add up is found": planted.share(
            [planted.found_on_four_gpus(sigma, seed) for seed in range(planted.RUNS)]
        ),
        "16 s a process, nothing to gain: something is accepted": planted.share([wrong for wrong, _ in repeated]),
        "16 s a process: processes with nothing to gain": [len(done) for _, done in repeated],
    }


def main() -> None:
    planted.RUNS = int(sys.argv[1]) if len(sys.argv) > 1 else 200
    print(json.dumps({"searches": planted.RUNS, "rows": [row(sigma) for sigma in NOISE]}, indent=1))


if __name__ == "__main__":
    main()
