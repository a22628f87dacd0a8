# SPDX-License-Identifier: Apache-2.0
"""The report of a saved config: its configs, the job it is for, whether it would be replayed here, and the evidence
that was written into it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from lagom.config_file import Fingerprint, Section, find_evidence, load_config
from lagom.doctor.config_fit import fit
from lagom.errors import LagomError
from lagom.format import (
    describe_interval,
    describe_rule,
    format_interval,
    format_payback,
    format_percent,
    format_version,
)
from lagom.records import STOCK, CommConfig
from lagom.report.run_model import CommReport, RunReport, SiteReport


def build_config_report(path: Path) -> RunReport:
    """The report on a saved config file; raises BadConfig where the plugin could not read it either."""
    saved = load_config(path)
    parts = [
        _communicator(section, find_evidence(saved.evidence, section.ranks, section.ordinal))
        for section in saved.sections
    ]
    return RunReport(
        source=str(path),
        kind="config",
        is_simulated=saved.fingerprint.simulated,
        start=_started(saved.evidence),
        facts=_facts(saved.fingerprint, saved.evidence),
        communicators=tuple(parts),
        environment=saved.environment,
        fit=fit(path, saved.fingerprint, os.environ),
    )


def describe_proof(path: Path) -> str:
    """What a config of one communicator gained where it was made; empty where that is not known, or not any more."""
    try:
        saved = load_config(path)
    except (OSError, LagomError):
        return ""
    if len(saved.sections) != 1:
        return ""
    (section,) = saved.sections
    return _proven(_mapping(find_evidence(saved.evidence, section.ranks, section.ordinal).get("outcome")))


def _started(evidence: Sequence[Mapping[str, Any]]) -> str:
    """The evidence for the start settings, as `lagom tune` wrote it."""
    proof = next((one for one in evidence if one.get("start")), {})
    speedup, ends = proof.get("speedup"), [proof.get(name) for name in ("low", "high")]
    if not isinstance(speedup, float):
        return ""
    interval = format_interval(*(end if isinstance(end, float) else None for end in ends))
    counts = _list(proof.get("processes"))
    processes = f" ({' and '.join(map(str, counts))} processes)" if counts else ""
    return f"Its start settings: {speedup:.3f}x {interval} over plain NCCL where they were measured{processes}."


def _facts(fingerprint: Fingerprint, evidence: Sequence[Mapping[str, Any]]) -> tuple[tuple[str, str], ...]:
    p2p = {None: "", True: "with GPU peer access", False: "without GPU peer access"}[fingerprint.p2p]
    facts = [
        ("made for NCCL", format_version(fingerprint.nccl_version)),
        ("GPU", fingerprint.gpu),
        ("ranks", str(fingerprint.ranks or "")),
        ("nodes", str(fingerprint.nodes or "")),
        ("path", p2p),
        ("by job", str(evidence[0].get("job", "")) if evidence else ""),
    ]
    return tuple((label, value) for label, value in facts if value)


def _communicator(section: Section, proof: Mapping[str, Any]) -> CommReport:
    outcome = _mapping(proof.get("outcome"))
    confirmed = _mapping(proof.get("confirmed"))
    name = section.name or f"communicator {section.ordinal} of {section.ranks} ranks"
    return CommReport(
        name=name,
        ranks=section.ranks,
        answer=_answer(outcome, confirmed),
        channels_built=built if isinstance(built := proof.get("channels_built"), int) else None,
        period=len(section.program.positions) if section.program is not None else 0,
        z=proof.get("z_ns") if isinstance(proof.get("z_ns"), float) else None,
        proof=str(outcome.get("reason") or confirmed.get("reason") or ""),
        proven=outcome.get("verdict") == "improved",
        cost=_cost(outcome),
        sites=_sites(section, proof),
        rules=tuple(map(describe_rule, section.rules)),
    )


def _proven(outcome: Mapping[str, Any]) -> str:
    speedup = outcome.get("speedup")
    if outcome.get("verdict") != "improved" or not isinstance(speedup, float):
        return ""
    ends = (outcome.get(name) for name in ("speedup_low", "speedup_high"))
    interval = describe_interval(*(end if isinstance(end, float) else None for end in ends))
    return f"Where it was made, the job ran {speedup:.3f}× as fast as with plain NCCL{interval}."


def _answer(outcome: Mapping[str, Any], confirmed: Mapping[str, Any]) -> str:
    if proven := _proven(outcome):
        return proven
    if confirmed:
        return "It holds the best confirmed configs of a search that did not come to its final A/B."
    return "It holds no evidence of how its configs were found: written by hand, or pinned."


def _cost(outcome: Mapping[str, Any]) -> str:
    if not outcome:
        return ""
    lost = outcome.get("regret_iterations")
    seen = outcome.get("resolvable")
    text = (
        f"{outcome.get('configs')} configs in {outcome.get('windows')} windows, {outcome.get('iterations')} iterations"
    )
    payback = outcome.get("payback_iterations")
    if isinstance(lost, float):
        paid = format_payback(payback if isinstance(payback, float) else None)
        text += f", {lost:.1f} of them lost against plain NCCL{paid}"
    return text + (f"; a gain of {format_percent(seen)} would have shown" if isinstance(seen, float) else "")


def _sites(section: Section, proof: Mapping[str, Any]) -> tuple[SiteReport, ...]:
    if section.program is None or section.assignment is None:
        return ()
    stock, contexts = _list(proof.get("stock")), _list(proof.get("context"))
    return tuple(
        SiteReport(
            index=site.index,
            function=site.function.word,
            bytes=site.bytes,
            calls=site.calls_per_iteration,
            context=str(contexts[site.index]) if site.index < len(contexts) else "",
            stock=_config(stock[site.index]) if site.index < len(stock) else None,
            ours=section.assignment[site.index],
        )
        for site in section.program.sites
    )


def _config(value: Any) -> CommConfig | None:
    """A config as the evidence holds it; evidence is a comment, so anything may stand there."""
    from pydantic import ValidationError

    from lagom.journal import ConfigRecord

    try:
        return None if value is None else ConfigRecord.model_validate(value).config()
    except (ValidationError, ValueError):
        return STOCK


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
