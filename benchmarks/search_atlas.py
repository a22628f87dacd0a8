# SPDX-License-Identifier: Apache-2.0
"""What a candidate from the atlas is worth, on the second family of landscapes.

    python -m benchmarks.search_atlas --strategy auto --seeds 48

Each landscape is searched without a candidate (`none`) and with one that a search without limit found elsewhere: on the
same valleys with other sizes, 0.6 to 1.6 of communication and 0.8 to 1.25 of compute, as of another job on the machine
(`machine`); on another landscape of the same kind and ceiling (`kind`); on one of the other regime, X > Y for X <= Y
and the other way round, its channels scaled to the ceiling here (`wrong`). The candidate comes through ``lagom.atlas``,
by function and size class. Its key always fits, so that a wrong one is tried too.
"""

from __future__ import annotations

import argparse
import itertools
import os
import random
import statistics
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

from benchmarks.search_table import NO_LIMIT, SHORTEST, WORTH, TableRun, run_one, run_session
from benchmarks.second_family import SecondLandscape, draw_landscape
from lagom.atlas import AtlasEntry, Found, key_of
from lagom.atlas.entries_of_config import found_at
from lagom.atlas.match import suggest
from lagom.cost import FittedModel
from lagom.journal import ConfigRecord
from lagom.records import Assignment
from lagom.search import Suggestion, TuningSession, make_strategy
from lagom.search.session import CANDIDATE
from lagom.search.space import CHANNELS

KEY = key_of(gpu="second family", nccl_version=23007, peer_access=True, ranks=8, nodes=1)
OTHER_REGIME = {
    "bound": "taxed", "steep": "taxed", "ridge": "taxed", "taxed": "ridge", "exposed": "ridge", "nothing": "ridge",
}  # fmt: skip
LIMITS = (*SHORTEST, "0.5 s a step, 40 s", NO_LIMIT)
FAR = 10_000  # seeds of the other landscapes begin here
MOST_TRIED = 10  # other landscapes, until a search finds something on one


@dataclass(frozen=True, slots=True)
class AtlasRun:
    """``windows``, ``lost``: of the candidates, before they were confirmed or given up; iterations, by the noise-free
    truth. ``is_slower``: a candidate was, by that truth. ``was_kept``: one was confirmed."""

    run: TableRun
    tried: int = 0
    windows: int = 0
    lost: float = 0.0
    is_slower: bool = False
    was_kept: bool = False


def other_job(landscape: SecondLandscape, seed: int) -> SecondLandscape:
    """The same valleys with other times, as of another model on the same machine."""
    draw = random.Random(f"other job {seed}")
    less = draw.uniform(0.6, 1.6)
    valleys = tuple(replace(valley, time=valley.time * less) for valley in landscape.valleys)
    return replace(landscape, valleys=valleys, compute=landscape.compute * draw.uniform(0.8, 1.25))


def entry_from(strategy: str, landscape: SecondLandscape, noise: float, seed: int) -> AtlasEntry | None:
    """What a search without limit proves there."""
    problem = landscape.problem()
    session = TuningSession(make_strategy(strategy, problem, seed, model=FittedModel), problem, seed=seed)
    run_session(session, "XYZ", NO_LIMIT, landscape, noise)
    outcome = session.outcome
    if outcome is None or outcome.verdict != "improved":
        return None
    found = found_at(list(zip(problem.sites, outcome.assignment.configs, strict=True)))
    speedup, low, high = outcome.speedup or 1.0, outcome.speedup_low or 1.0, outcome.speedup_high or 1.0
    return AtlasEntry(key=KEY, found=found, speedup=speedup, low=low, high=high, origin=f"seed {seed}")


@cache
def entry_of_kind(strategy: str, kind: str, ceiling: int | None, seed: int) -> tuple[AtlasEntry, int] | None:
    """That of the first other landscape of the kind and ceiling on which something is found, and its ceiling."""
    others = range(FAR + 600 * seed, FAR + 600 * (seed + 1))
    drawn = ((other, *draw_landscape(other)) for other in others)
    alike = (one for one in drawn if one[1].kind == kind and ceiling in (None, one[1].ceiling))
    for other, landscape, noise in itertools.islice(alike, MOST_TRIED):
        if (entry := entry_from(strategy, landscape, noise, other)) is not None:
            return entry, landscape.ceiling
    return None


@cache
def entry_of_machine(strategy: str, seed: int) -> tuple[AtlasEntry, int] | None:
    """That of another job on the landscape of a seed."""
    landscape, noise = draw_landscape(seed)
    entry = entry_from(strategy, other_job(landscape, seed), noise, FAR + seed)
    return None if entry is None else (entry, landscape.ceiling)


def scaled(entry: AtlasEntry, then: int, ceiling: int) -> AtlasEntry:
    """With channels that are the same share of another ceiling."""

    def here(found: Found) -> Found:
        config = found.config.config()
        if config.channels is None:
            return found
        near = min((nc for nc in CHANNELS if nc <= ceiling), key=lambda nc: abs(nc - config.channels * ceiling / then))
        return found.model_copy(update={"config": ConfigRecord.of(replace(config, channels=near))})

    return entry.model_copy(update={"found": tuple(map(here, entry.found))})


def suggestions(strategy: str, which: str, seed: int, landscape: SecondLandscape) -> list[Suggestion]:
    """The candidates of one arm."""
    if which == "machine":
        found = entry_of_machine(strategy, seed)
    elif which == "kind":
        found = entry_of_kind(strategy, landscape.kind, landscape.ceiling, seed)
    else:
        found = entry_of_kind(strategy, OTHER_REGIME[landscape.kind], None, seed)
    if found is None:
        return []
    return suggest([scaled(*found, landscape.ceiling)], KEY, landscape.problem())


def run_with(strategy: str, which: str, seen: str, limit: str, seed: int) -> AtlasRun:
    """One search with the candidate of that arm."""
    landscape, noise = draw_landscape(seed, visible=seen == "XYZ")
    if which == "none":
        return AtlasRun(run_one(strategy, seen, limit, seed, landscape, noise))
    given, problem = suggestions(strategy, which, seed, landscape), landscape.problem()
    session = TuningSession(
        make_strategy(strategy, problem, seed, model=FittedModel), problem, seed=seed, suggest=lambda x, y: given
    )
    run = run_session(session, seen, limit, landscape, noise)
    stock = landscape.truth(Assignment.stock(len(problem.sites))).z
    slower = {each: landscape.truth(each).z / stock - 1.0 for each in session.candidates}
    moves = [move for move in session.moves if move.phase == CANDIDATE]
    kept = {move.candidate for move in session.moves if move.verdict == "confirmed"}
    return AtlasRun(
        run,
        len({move.candidate for move in moves}),
        len(moves),
        sum(max(0.0, slower[move.candidate]) * move.pairs for move in moves),
        any(value > 0.0 for value in slower.values()),
        any(each in kept for each in slower),
    )


def compare_atlas(strategy: str, seeds: int) -> Iterator[str]:
    """The lines of the comparison."""
    for seen in ("XYZ", "Z"):
        for limit in LIMITS:
            yield f"{strategy}, {seen}, {limit}"
            for which in ("none", "machine", "kind", "wrong"):
                yield f"  {which:>7}: {_line([run_with(strategy, which, seen, limit, seed) for seed in range(seeds)])}"


def _line(runs: list[AtlasRun]) -> str:
    worth = [one.run for one in runs if one.run.possible >= WORTH]
    share = statistics.fmean(run.gained / run.possible for run in worth)
    parts = [f"share {share:.2f}", f"lost {_spread([one.run.lost for one in runs])}"]
    parts.append(f"below 0.995 of stock {sum(one.run.gained < -0.005 for one in runs)} of {len(runs)}")
    tried = [one for one in runs if one.tried]
    slower = [one for one in tried if one.is_slower]
    if tried:
        kept = sum(one.was_kept for one in tried)
        parts.append(f"candidate tried in {len(tried)}, confirmed in {kept}, slower than stock in {len(slower)}")
    if slower:
        windows = [one.windows for one in slower]
        parts.append(f"their windows {np.mean(windows):.2f}, at most {max(windows)}")
        parts.append(f"lost by them {_spread([one.lost for one in slower])}")
    return "; ".join(parts)


def _spread(values: list[float]) -> str:
    return f"{np.median(values):.2f}, {np.quantile(values, 0.95):.2f}, {max(values):.2f}"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--strategy", default="auto")
    parser.add_argument("--seeds", type=int, default=48)
    wanted = parser.parse_args(arguments)
    for line in compare_atlas(wanted.strategy, wanted.seeds):
        print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
