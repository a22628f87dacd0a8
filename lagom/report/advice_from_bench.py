# SPDX-License-Identifier: Apache-2.0
"""What a benchmark has measured of settings that only a start can change: its env= and headroom= arms.

Only what a process was started with counts as measured. A cap within the job (``static=``, ``own:static=``) was a
config of every call, not a variable of the start: of those the best becomes a proposal. Head-room runs under a search,
so it is judged beside ``own:auto``, the same search without it; beside stock it would be credited with the tuning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lagom.bench.arm_words import HEADROOM_STRATEGY, parse_variables
from lagom.bench.results import OWN_STOCK, BenchRecord, Result, process_logs, results_of
from lagom.experiment.estimate import SpeedupEstimate, estimate_from_pairs
from lagom.experiment.store import read_record
from lagom.format import format_percent
from lagom.headroom import NoHeadroom, parse
from lagom.report.advice import Advice, Standing
from lagom.search import statistics

#: A gain below this is not worth a setting that somebody has to remember.
WORTH = 1.005
OWN_TUNED = f"own:{HEADROOM_STRATEGY}"
_NAMES = {OWN_STOCK: "stock", OWN_TUNED: "lagom without head-room"}


def advise_from_bench(path: Path) -> tuple[tuple[Advice, ...], tuple[str, ...]]:
    """(advices, best first; remarks) of a file of results; raises :class:`BadRecord`."""
    return advise_from_record(read_record(path, BenchRecord), str(path))


def advise_from_record(record: BenchRecord, source: str) -> tuple[tuple[Advice, ...], tuple[str, ...]]:
    """The same of a record in memory."""
    results = results_of(record)
    starts = [arm for arm in record.arms if arm.startswith(("env=", "headroom="))]
    pairs = {arm: compare_paired(record, arm, _reference(arm)) for arm in starts}
    found = [one for one in pairs.values() if one is not None]
    beyond_chance = select_beyond_chance(found)
    notes = {result.arm: result.note for result in results}
    advices, remarks = [], []
    for arm, pair in pairs.items():
        if pair is not None:
            advices.append(_judge(pair, arm in beyond_chance, len(found), source))
        elif (alone := _without_lagom_beside(record, arm, source)) is not None:
            advices.append(alone)
        else:
            remarks.append(f"{arm} ({source}): {notes.get(arm) or 'nothing could be measured'}")
    advices.sort(key=lambda advice: -advice.speedup)
    return (*advices, *_cap(results, source)), tuple(remarks)


def _reference(arm: str) -> str:
    """What an arm is held against: the same but for what it sets."""
    return OWN_TUNED if arm.startswith("headroom=") else OWN_STOCK


def _judge(found: Paired, is_beyond_chance: bool, arms: int, source: str) -> Advice:
    ratio = found.ratio
    evidence = f"{_told(ratio, _NAMES[found.beside])} of rounds of processes ({source})"
    standing = Standing.NO_GAIN if ratio.has_interval else Standing.PROPOSAL
    if is_worth_it(ratio):
        standing = Standing.GAIN if is_beyond_chance else Standing.PROPOSAL
        if not is_beyond_chance:
            evidence += f"; the best of {arms} arms may look like that by chance: more --rounds would decide"
    elif ratio.has_interval and ratio.low <= 1.0 <= ratio.high:
        evidence += f"; an effect of {format_percent(ratio.detectable)} would have shown"
    return Advice(_what(found.arm), standing, evidence, _environment(found.arm), arms=(found.arm,), speedup=ratio.value)


def is_worth_it(ratio: SpeedupEstimate) -> bool:
    """Whether the interval lies above 1 and the gain is worth a setting."""
    return ratio.has_interval and ratio.low > 1.0 and ratio.value >= WORTH


def _told(ratio: SpeedupEstimate, beside: str) -> str:
    interval = f" [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.has_interval else ", too few pairs for an interval,"
    return f"{ratio.value:.3f}× {beside}{interval} in {ratio.pairs} pairs"


def _without_lagom_beside(record: BenchRecord, arm: str, source: str) -> Advice | None:
    """Head-room that ran beside stock only: no measurement of head-room."""
    found = compare_paired(record, arm, OWN_STOCK) if _reference(arm) == OWN_TUNED else None
    if found is None:
        return None
    evidence = (
        f"{_told(found.ratio, 'stock')} together with tuning ({source}); what of that is head-room's shows only beside "
        f"{OWN_TUNED}, which was not run with it"
    )
    return Advice(_what(arm), Standing.PROPOSAL, evidence, _environment(arm), arms=(arm,))


def _cap(results: Iterable[Result], source: str) -> tuple[Advice, ...]:
    """The fastest cap of those that calls were given one by one."""
    better = [
        (result.ratio.value, cap, result)
        for result in results
        if (cap := _cap_of(result.arm)) and result.ratio is not None and is_worth_it(result.ratio)
    ]
    if not better:
        return ()
    _, cap, best = max(better, key=lambda one: one[0])
    assert best.ratio is not None
    evidence = (
        f"{_told(best.ratio, 'stock')} {best.pairing} ({source}), as a config of every call; no process was started "
        "with the variable"
    )
    return (Advice.of_variable(f"at most {cap} CTAs for everything", evidence, "NCCL_MAX_CTAS", cap),)


def _cap_of(arm: str) -> str:
    word, _, value = arm.removeprefix("own:").partition("=")
    return value if word == "static" else ""


def _what(arm: str) -> str:
    word, _, value = arm.partition("=")
    return f"head-room {value}, under lagom" if word == "headroom" else value


def _environment(arm: str) -> dict[str, str]:
    """What an arm is as exports: all that it set, or nothing."""
    word, _, value = arm.partition("=")
    if word == "headroom":
        try:
            room = parse(value) if ":" in value else None
        except NoHeadroom:
            room = None
        return {} if room is None else room.environment()
    return parse_variables(arm)


# -- an arm beside another one of the same rounds of processes, and which of many
# such comparisons are accepted

LEVEL = 0.05  # of all comparisons of one record together, two-sided
SPARE = 2  # rounds more than the fewest that can show anything: one pair may fall the wrong way


@dataclass(frozen=True, slots=True)
class Paired:
    """``ratio``: how many times as fast as ``beside``; ``p``: two-sided, of as much in that direction by chance."""

    arm: str
    beside: str
    ratio: SpeedupEstimate
    p: float


def compare_paired(record: BenchRecord, arm: str, beside: str) -> Paired | None:
    """The arm against another, by rounds that have both; None where there is none.

    A pair is two single processes, as everywhere in a benchmark (:func:`lagom.bench.results.process_logs`).
    """
    logs = process_logs(record, arm, beside)
    ratio = estimate_from_pairs(logs)
    return None if ratio is None else Paired(arm, beside, ratio, _p(logs))


def select_beyond_chance(found: Iterable[Paired]) -> frozenset[str]:
    """The arms that differ, of all that were looked at: Holm (1979), so that none of them does by chance in more than
    ``LEVEL`` of all records, however many arms were tried."""
    ordered = sorted(found, key=lambda one: one.p)
    passed: list[str] = []
    for place, one in enumerate(ordered):
        if one.p > LEVEL / (len(ordered) - place):
            break
        passed.append(one.arm)
    return frozenset(passed)


def count_rounds(arms: int) -> int:
    """Rounds in which one of so many arms can be shown to be better."""
    return statistics.fewest_pairs(LEVEL / 2 / max(arms, 1)) + SPARE


def _p(logs: Sequence[float]) -> float:
    values = np.asarray(logs, dtype=float)
    return min(1.0, 2.0 * min(statistics.signed_rank_p(values), statistics.signed_rank_p(-values)))
