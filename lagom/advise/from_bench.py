"""What a benchmark has measured of settings that only a start can change: its env=, static= and headroom= arms."""

from __future__ import annotations

from pathlib import Path

from lagom.advise.model import Advice, Standing
from lagom.bench.arms import parse_arms
from lagom.bench.results import Result, results_of
from lagom.bench.store import BenchRecord, read_record
from lagom.headroom import NoHeadroom, parse

#: A gain below this is not worth a setting that somebody has to remember.
WORTH = 1.005


def from_bench(path: Path) -> tuple[tuple[Advice, ...], tuple[str, ...]]:
    """(advices, best first; remarks) of a file of results; raises :class:`BadBench`."""
    return from_record(read_record(path), str(path))


def from_record(record: BenchRecord, source: str) -> tuple[tuple[Advice, ...], tuple[str, ...]]:
    """The same of a record in memory."""
    results = results_of(record)
    measured = [result for result in results if _environment(result.arm) or _is_start(result.arm)]
    judged = [(result, _judge(result, source)) for result in measured if result.ratio is not None]
    judged.sort(key=lambda pair: -(pair[0].ratio.value if pair[0].ratio is not None else 0.0))
    notes = {result.arm: result.note for result in results}
    seen = {result.arm for result, _ in judged}
    missing = [arm for arm in record.arms if _is_start(arm) and arm not in seen]
    return tuple(advice for _, advice in judged), tuple(
        f"{arm} ({source}): {notes.get(arm) or 'nothing could be measured'}" for arm in missing
    )


def _is_start(arm: str) -> bool:
    return arm.startswith(("env=", "headroom=", "static=", "own:static="))


def _judge(result: Result, source: str) -> Advice:
    ratio = result.ratio
    assert ratio is not None
    interval = f" [{ratio.low:.3f}, {ratio.high:.3f}]" if ratio.has_interval else ", too few pairs for an interval"
    evidence = f"{ratio.value:.3f}× stock{interval} in {ratio.pairs} pairs of {result.pairing} ({source})"
    gain = ratio.has_interval and ratio.low > 1.0 and ratio.value >= WORTH
    standing = Standing.GAIN if gain else Standing.NO_GAIN if ratio.has_interval else Standing.PROPOSAL
    if standing is Standing.NO_GAIN and ratio.low <= 1.0 <= ratio.high:
        evidence += f"; an effect of {100 * ratio.resolvable:.1f} % would have shown"
    return Advice(_what(result.arm), standing, evidence, _environment(result.arm), arms=(result.arm,))


def _what(arm: str) -> str:
    word, _, value = arm.removeprefix("own:").partition("=")
    return {"static": f"at most {value} CTAs for everything", "headroom": f"head-room {value}"}.get(word, value)


def _environment(arm: str) -> dict[str, str]:
    """What an arm would be as exports; empty where it is not one of the start."""
    word, _, value = arm.removeprefix("own:").partition("=")
    if word == "static" and value:
        return {"NCCL_MAX_CTAS": value}
    if word == "headroom" and ":" in value:
        try:
            room = parse(value)
        except NoHeadroom:
            return {}
        return {} if room is None else room.environment()
    if word == "env":
        found = next(one for one in parse_arms([arm]) if one.name == arm)
        return {name: text for name, text in found.environ.items() if not name.startswith("LAGOM_")}
    return {}
