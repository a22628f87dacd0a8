# SPDX-License-Identifier: Apache-2.0
"""The result of a search over start settings, and the files that it writes."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from lagom.config_file import Fingerprint, SavedConfig, save_config
from lagom.environment import conf_file, read_conf
from lagom.experiment.estimate import SpeedupEstimate, estimate_speedup
from lagom.experiment.store import FILE, BadRecord, RunRecord, cannot_be_written, read_record
from lagom.files import write_whole
from lagom.format import SIMULATED
from lagom.start import StartGroup
from lagom.tune.compare import is_given_up, times_of
from lagom.tune.live_search import found_by
from lagom.tune.screening import broken_settings, screened
from lagom.tune.stages import PLAIN, Tried, TunePlan, TuneRecord
from lagom.tune.trials import best_so_far, entrants, next_trial
from lagom.version import __version__

CONFIG, CONF = "config.lagom", "nccl.conf"

#: improved: the confirmed interval lies above 1. nothing_resolved: it holds 1. plain_is_best: every group was slower,
#: or the winner turned out to be. unfinished: processes are missing.
Verdict = Literal["improved", "nothing_resolved", "plain_is_best", "unfinished"]


@dataclass(frozen=True, slots=True)
class TuneResult:
    """``group``: the winner, as far as there is one; ``speedup`` over plain NCCL, from confirming processes alone;
    ``detectable``: the smallest effect, as a fraction, that the processes could have shown."""

    verdict: Verdict
    group: StartGroup | None = None
    speedup: SpeedupEstimate | None = None
    detectable: float | None = None

    @property
    def text(self) -> str:
        """In one sentence."""
        group = "" if self.group is None else self.group.name
        seen = "" if self.detectable is None else f", smallest detectable effect {self.detectable:.1%}"
        if self.verdict == "unfinished":
            best = f"; best so far, not confirmed: {group}" if group else ""
            return f"the search is not finished{best}"
        if self.verdict == "improved" and self.speedup is not None:
            return f"{group}: {self.speedup.text} over plain NCCL"
        if self.verdict == "nothing_resolved" and self.speedup is not None:
            return f"nothing resolved: {group} is {self.speedup.text} of plain NCCL{seen}"
        if self.verdict == "nothing_resolved":
            return f"nothing resolved: no start setting that was tried makes it faster{seen}"
        return f"plain NCCL is best: no start setting that was tried is faster{seen}"


def tried_of(runs: Sequence[RunRecord], higher_is_better: bool) -> list[Tried]:
    """The processes of a record as the search sees them; a speed becomes a time. One that the budget cut off before it
    gave a value says nothing about its group."""
    asked = (run for run in runs if run.stage and not (run.ended == "budget" and run.value is None))
    values = ((run, run.counted or None) for run in asked)
    return [
        Tried(run.arm, run.stage, run.round, 1.0 / value if value and higher_is_better else value)
        for run, value in values
    ]


def find_result(plan: TunePlan, tried: Sequence[Tried]) -> TuneResult:
    """What the processes so far say. The combination has to be faster than the best group alone, which else wins."""
    if next_trial(plan, tried) is not None:
        return TuneResult("unfinished", best_so_far(plan, tried))
    found = screened(plan, tried)
    detectable = found.detectable if math.isfinite(found.detectable) else None
    winner = _winner(plan, tried)
    speedup = None if winner is None else estimate_speedup(_confirming(tried, PLAIN), _confirming(tried, winner))
    if speedup is None:
        return TuneResult("plain_is_best" if detectable is None else "nothing_resolved", None, None, detectable)
    verdict: Verdict = "improved" if speedup.is_faster else "plain_is_best" if speedup.high < 1 else "nothing_resolved"
    return TuneResult(verdict, winner, speedup, speedup.detectable)


def _winner(plan: TunePlan, tried: Sequence[Tried]) -> StartGroup | None:
    known = (group for group in entrants(plan, tried, "confirm") if _confirming(tried, group))
    groups = [group for group in known if not is_given_up(tried, group, "confirm")]
    if len(groups) < 2:
        return groups[0] if groups else None
    combined, leader = groups
    gain = estimate_speedup(_confirming(tried, leader), _confirming(tried, combined))
    return combined if gain is not None and gain.is_faster else leader


def _confirming(tried: Sequence[Tried], group: StartGroup) -> list[float]:
    return times_of(tried, group, "confirm")


def saved_config(
    result: TuneResult, runs: Sequence[RunRecord], metric: str, live: SavedConfig | None = None
) -> SavedConfig | None:
    """What was found for jobs like this one: the start settings, and what a live search inside them found (``live``);
    None where neither is faster."""
    if result.verdict != "improved" or result.group is None or result.speedup is None:
        return live
    # A process may have ended before its ranks were seen to have described themselves.
    last = max((run for run in runs if run.stage == "confirm"), key=lambda run: (run.ranks, run.ranks_seen))
    major, minor, patch = (int(part) for part in (last.nccl or "0.0.0").split("."))
    fingerprint = Fingerprint(
        nccl_version=major * 10000 + minor * 100 + patch, ranks=last.ranks, nodes=last.nodes, gpu=last.gpu,
        p2p=last.peer_access, simulated=any(run.simulated for run in runs),
    )  # fmt: skip
    settings, found = dict(result.group.settings), result.speedup
    gain = (found.value, found.low, found.high)
    evidence = evidence_of(settings, gain, found.count, metric or last.measure, last.ranks)
    sections, proofs = ((), ()) if live is None else (live.sections, live.evidence)
    return SavedConfig(fingerprint, sections, settings, (evidence, *proofs))


def evidence_of(
    settings: Mapping[str, str], gain: tuple[float, float, float], processes: Sequence[int], measure: str, ranks: int
) -> dict[str, Any]:
    """Of start settings, as a saved config keeps it. ``gain``: speed-up over plain NCCL and its 95 % interval."""
    return {
        "lagom": __version__, "start": dict(settings), "speedup": gain[0], "low": gain[1], "high": gain[2],
        "processes": list(processes), "measure": measure, "ranks": ranks, "ordinal": None,
    }  # fmt: skip


@dataclass(frozen=True, slots=True)
class PlainNccl:
    """What "plain NCCL" was: an empty environment it often is not. ``variables`` of the caller, ``files`` that NCCL
    reads."""

    variables: Mapping[str, str] = field(default_factory=dict)
    files: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @property
    def settings(self) -> dict[str, str]:
        """Everything that is set already; the environment wins."""
        found: dict[str, str] = {}
        for values in reversed(list(self.files.values())):
            found |= values
        return {**found, **self.variables}

    @property
    def text(self) -> str:
        """In one sentence."""
        parts = [f"{name}={value}" for name, value in self.variables.items()]
        parts += [f"{name}={value} ({file})" for file, values in self.files.items() for name, value in values.items()]
        return f"plain NCCL here means: {', '.join(parts)}" if parts else "plain NCCL: no NCCL_ variable is set"


def found_in(folder: Path) -> tuple[str, ...]:
    """The files that :func:`write_found` writes, where the folder holds a search: elsewhere they are others', as
    the saved config in the log folder of a job."""
    try:
        read_record(folder / FILE, TuneRecord)
    except BadRecord:
        return ()
    return (CONFIG, CONF)


def refuse_others(folder: Path) -> None:
    """Raises :class:`lagom.experiment.store.BadRecord` where :func:`write_found` would write over what is of no search
    here, as the saved config in the log folder of a job."""
    there = [name for name in (CONFIG, CONF) if os.path.lexists(folder / name)]
    if there and not found_in(folder):
        raise BadRecord(
            f"{folder / there[0]} is of no search of lagom tune in this folder; name another with --out, or move it."
        )


def write_found(saved: SavedConfig, folder: Path, text: str) -> tuple[Path, Path]:
    """Write a saved config, with ``text`` as its comment, and its start settings in a file for NCCL_CONF_FILE; returns
    both paths. Without start settings there is no second file. Raises :class:`lagom.experiment.store.BadRecord`."""
    config, conf = folder / CONFIG, folder / CONF
    try:
        save_config(saved, config, remark=text)
        if saved.environment:
            is_simulated = saved.fingerprint.simulated
            write_whole(conf, conf_text(saved.environment, conf_file(os.environ), is_simulated=is_simulated))
    except OSError as error:
        raise cannot_be_written(config, error) from error
    return config, conf


def conf_text(settings: Mapping[str, str], hidden: Path, *, is_simulated: bool = False) -> str:
    """A file for NCCL_CONF_FILE. It hides another one (``lagom.environment.conf_file``), whose lines are therefore kept
    in front."""
    lines = [f"{name}={value}" for name, value in {**read_conf(hidden), **settings}.items()]
    head = SIMULATED if is_simulated else "written by lagom tune; export NCCL_CONF_FILE=this file"
    return "\n".join([f"# {head}", *lines]) + "\n"


def as_json(plan: TunePlan, record: TuneRecord, result: TuneResult) -> dict[str, Any]:
    """The result as plain values; times as the metric gives them, or seconds. ``effects``: ln of the time with these
    settings over that without, beyond what each does alone."""
    tried = tried_of(record.runs, record.higher_is_better)
    return {
        "simulated": any(run.simulated for run in record.runs),
        "verdict": result.verdict,
        "text": result.text,
        "settings": {} if result.group is None else dict(result.group.settings),
        "speedup": None if result.speedup is None else asdict(result.speedup),
        "detectable": result.detectable,
        "effects": [
            {"settings": {one.name: one.value for one in effect.factors}, "log": effect.log, "error": effect.error}
            for effect in screened(plan, tried).effects
        ],
        "broken": {one.name: one.value for one in sorted(broken_settings(plan, tried))},
        "while_running": None if (live := found_by(record.runs)) is None else live.outcome,
        "planned": plan.most_processes,
        "nodes": record.nodes,
        "processes": [
            {"group": run.arm, "stage": run.stage, "round": run.round, "value": run.counted, "seconds": run.seconds,
             "why": run.reason, "node": run.node}
            for run in record.runs if run.stage
        ],
    }  # fmt: skip
