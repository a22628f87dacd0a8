# SPDX-License-Identifier: Apache-2.0
"""The report as text for a terminal or a pipe, and as JSON."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.text import Text

from lagom.config_file import saved_in
from lagom.format import (
    SIMULATED,
    format_bytes,
    format_config,
    format_count,
    format_speedup,
    format_time,
    format_variables,
    nccl_name,
)
from lagom.journal import replay_command
from lagom.records import Algorithm, CommConfig, Protocol
from lagom.report.advice import Advices
from lagom.report.advice_text import advice_to_json, format_advice
from lagom.report.run_model import CommReport, NotTuned, RunReport, SiteReport, TriedConfig

SCHEMA = 1
_STYLES = {"better": "green", "confirmed": "green", "worse": "red", "rejected": "red"}

Line = tuple[int, Text]


def show(
    report: RunReport,
    console: Console,
    advices: Advices | None = None,
    folder: Path | None = None,
    *,
    everything: bool = False,
) -> None:
    """All of it, the verdict first. ``folder``: the log's, where benchmarks of proposals go."""
    for indent, text in lines(report, advices, folder, everything=everything):
        width = max(console.width - indent, 20)
        for part in [text] if text.no_wrap else text.wrap(console, width) or [text]:
            part.rstrip()
            console.print(Text(" " * indent) + part, highlight=False, soft_wrap=True)


def lines(
    report: RunReport, advices: Advices | None = None, folder: Path | None = None, *, everything: bool = False
) -> Iterator[Line]:
    """(indent, text) of every line."""
    yield from _verdict(report, advices)
    saved = shlex.quote(str(saved_in(folder))) if folder is not None and saved_in(folder).is_file() else ""
    if command := replay_command(report.verdict, saved, is_simulated=report.is_simulated):
        yield 0, Text(f"Next: {command}", no_wrap=True)  # to be copied whole
    paragraphs = [
        _head(report),
        *(_communicator(part, everything) for part in report.communicators),
        _advice(advices, folder),
        ((0, Text(f"Remark: {remark}")) for remark in report.remarks),
    ]
    for paragraph in filter(None, map(list, paragraphs)):
        yield 0, Text("")
        yield from paragraph


def _head(report: RunReport) -> Iterator[Line]:
    yield 0, Text(f"{report.kind} {report.source}", style="dim")
    if report.facts:
        yield 0, Text(" · ".join(f"{label} {value}" for label, value in report.facts))
    if report.environment:
        what = "asks for this start" if report.kind == "config" else "started with"
        yield 0, Text(f"{what}: {format_variables(report.environment)}")


def _advice(advices: Advices | None, folder: Path | None) -> Iterator[Line]:
    if advices is None or not (advices.all or advices.remarks):
        return
    yield 0, Text("What only the next start can change", style="bold")
    for line in format_advice(advices, folder):
        words = line.lstrip()
        yield 2 + len(line) - len(words), Text(words, no_wrap="lagom bench" in words)  # to be copied whole


def _verdict(report: RunReport, advices: Advices | None) -> Iterator[Line]:
    """The first lines: that it is simulated, whether a saved config fits here, the result of the search, the settings
    for the next start."""
    if report.is_simulated:
        yield 0, Text(SIMULATED, style="yellow")
    yield from _fit(report)
    if report.start:
        yield 0, Text(report.start, style="bold")
    for part in report.communicators:
        who = f"{part.name}: " if len(report.communicators) > 1 else ""
        yield 0, Text(who + part.answer, style="" if report.start else "bold")
    if not report.communicators and report.kind == "log":
        yield 0, Text(report.nothing, style="bold")
    exported = None if advices is None else advices.exported
    if exported is not None:
        settings = format_variables(exported.environment)
        yield 0, Text(f"The next start gains from {settings}: {exported.evidence}.", style="bold")


def _fit(report: RunReport) -> Iterator[Line]:
    if report.fit is None:
        return
    open_points = f" (not compared: {', '.join(report.fit.unknown)})" if report.fit.unknown else ""
    if report.fit.refusal:
        yield 0, Text(f"Here it would be refused: {report.fit.refusal}", style="red")
    else:
        yield 0, Text(f"It fits this machine as far as can be checked without the job{open_points}.", style="green")


def _communicator(part: CommReport, everything: bool) -> Iterator[Line]:
    yield 0, Text(f"{part.name}, {part.ranks} ranks", style="bold")
    facts = [
        (part.period, f"{part.period} calls an iteration"),
        (part.z, f"{format_time(part.z)} under plain NCCL"),
        (part.channels_built, f"{part.channels_built} channels {'of plain NCCL' if part.headroom else 'built'}"),
        (part.tier, f"measured by {part.tier}"),
    ]
    proof = part.proof if everything else part.proof.split("; ")[0]
    labelled = [
        ("", ", ".join(text for known, text in facts if known)),
        ("proof: " if part.proven else "ended: ", proof),
        ("cost:  ", part.cost),
    ]
    yield from ((2, Text(label + text)) for label, text in labelled if text)
    yield from _rules(part)
    yield from chain.from_iterable(map(_site, part.sites)) if everything else _sites(part.sites)
    if part.not_tuned:
        yield 2, Text("Not tuned here:", style="bold")
        yield from ((4, Text(_not_tuned(one))) for one in part.not_tuned)


def _rules(part: CommReport) -> Iterator[Line]:
    """They take the place of what a search had found at the sites."""
    yield from ((2, Text(f"rule: {rule}")) for rule in part.rules)
    if part.rules and part.sites:
        yield 2, Text("By the search before these rules, and not in force now:")


def _sites(sites: Sequence[SiteReport]) -> Iterator[Line]:
    """A line each, what is left to NCCL together in one."""
    tuned = [site for site in sites if not site.ours.is_stock]
    left = [site for site in sites if site.ours.is_stock]
    for site in tuned:
        yield 2, _short(site)
    if left:
        what = "all sites" if not tuned else "the others"
        yield 2, Text(f"{what} as NCCL: {', '.join(_named(site) for site in left)}", style="dim")
    if any(site.trials for site in sites):
        yield 2, Text("`lagom report --all` shows every config that was tried.", style="dim")


def _named(site: SiteReport) -> str:
    return " ".join(part for part in (nccl_name(site.function), format_bytes(site.bytes), site.context) if part)


def _short(site: SiteReport) -> Text:
    """NCCL's choice, ours, the communication time before and after, and the evidence."""
    stock = None if site.stock is None else replace(site.stock, threads=None)
    times = ""
    if site.stock_ns and site.ours_ns is not None:
        times = f"; {format_time(site.stock_ns)} -> {format_time(site.ours_ns)} an iteration"
    by = f"; {site.evidence.split(';')[0]}" if site.evidence else ""
    found = Text(f"{_named(site)}: ")
    seen = format_config(stock) if stock is not None and not stock.is_stock else "not seen"
    found.append(f"{seen} -> ").append(format_config(site.ours), style="green").append(times + by)
    return found


def _site(site: SiteReport) -> Iterator[Line]:
    context = f" {site.context}" if site.context else ""
    times = f", {site.calls} call{'s' if site.calls != 1 else ''} an iteration"
    head = f"site {site.index}: {nccl_name(site.function)} {format_bytes(site.bytes)}{context}{times}"
    yield 2, Text(head, style="cyan")
    yield 4, Text(f"NCCL:  {describe_stock(site.function, site.stock)}")
    yield 4, Text(f"Lagom: {ours(site.ours)}", style="" if site.ours.is_stock else "green")
    if site.stock_ns and site.ours_ns is not None:
        times = f"{format_time(site.stock_ns)} -> {format_time(site.ours_ns)} an iteration"
        yield 4, Text(f"in the proof: its communication {times} ({100 * (site.ours_ns / site.stock_ns - 1):+.1f} %)")
    if site.evidence:
        yield 4, Text(f"evidence: {site.evidence}")
    yield from _why(site)


def _why(site: SiteReport) -> Iterator[Line]:
    settled = [trial for trial in site.trials if trial.settled]
    if not site.trials:
        return
    configs, good = {trial.config for trial in settled}, {trial.config for trial in settled if trial.kept}
    counts = f"{len(good)} kept, {len(configs - good)} not"  # of configs, each once however often it was measured
    yield 4, Text(f"tried: {format_count(len(configs), 'config')}: {counts}")
    for trial in sorted(settled, key=lambda one: one.number):
        where = "" if trial.iteration is None else f" it {trial.iteration}"
        tried = "as NCCL" if trial.config.is_stock else format_config(trial.config)
        what = f"#{trial.number}{where} {tried}{' (with other sites)' if trial.joint else ''}"
        text = f"{what}: {trial.decision}{_measured(trial)}: {trial.reason}"
        yield 6, Text(text, style=_STYLES.get(trial.verdict, ""))


def _measured(trial: TriedConfig) -> str:
    """Over plain NCCL, as everywhere; and over the config in force, with which it was run in turn."""
    parts = []
    if trial.speedup is not None:
        speedup = format_speedup(trial.speedup, trial.speedup_low, trial.speedup_high)
        parts.append(f"{speedup} in {format_count(trial.pairs, 'pair')}")
    if trial.over_incumbent is not None:
        parts.append(f"{trial.over_incumbent:.3f}x the incumbent")
    if trial.h is not None:
        parts.append(f"H {trial.h:.3g}")
    return "".join(f", {part}" for part in parts)


def _not_tuned(one: NotTuned) -> str:
    count = "" if one.count is None else f"{one.count} × "
    instead = f" (instead: {one.instead})" if one.instead else ""
    return f"{count}{one.what}: {one.why}{instead}"


def as_json(report: RunReport, advices: Advices | None = None) -> dict[str, Any]:
    """The same for programs: configs by NCCL's names, times in ns."""
    advice = {} if advices is None else {"advice": advice_to_json(advices)}
    return {"schema": SCHEMA, **_plain(asdict(report)), **advice}


def _plain(value: Any) -> Any:
    if isinstance(value, CommConfig):  # asdict does not reach into slots of other modules' tuples twice
        return _plain(asdict(value))
    if isinstance(value, dict):
        return {
            key: nccl_name(one) if one is not None and key in ("algorithm", "protocol") else _plain(one)
            for key, one in value.items()
        }
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


# -- in NCCL's words


def default_chunk(word: str, config: CommConfig) -> int | None:
    """The chunk NCCL takes by itself for large messages, bytes; ``None`` where its rule needs more than this.

    calcCollChunking of NCCL 2.22 to 2.32: an eighth of the buffer, four steps of it for Ring/Simple of AllGather,
    ReduceScatter and AllReduce; LL halves the buffer. Under default buffer sizes.
    """
    if config.algorithm not in (Algorithm.RING, Algorithm.TREE) or config.protocol is None:
        return None
    if config.protocol is Protocol.LL:
        return 32 << 10
    if config.protocol is Protocol.LL128:
        return 576_000 if config.algorithm is Algorithm.RING else None
    wide = config.algorithm is Algorithm.RING and word in ("allgather", "reducescatter", "allreduce")
    return (2 << 20) if wide else 512 << 10


def describe_stock(word: str, config: CommConfig | None) -> str:
    """What NCCL would do: what was seen, and its rule for what nothing shows."""
    if config is None or config == CommConfig():
        return "not seen"
    seen = format_config(config)
    if config.channels is None:
        seen += ", channels not seen"
    chunk = default_chunk(word, config) if config.chunk_bytes is None else None
    return seen if chunk is None else f"{seen} chunk={format_bytes(chunk)} (NCCL's rule, default buffers)"


def ours(config: CommConfig) -> str:
    """What is done instead, in terms of what is set."""
    return "as NCCL" if config.is_stock else f"{format_config(config)}; the rest as NCCL"
