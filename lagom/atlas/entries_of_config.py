# SPDX-License-Identifier: Apache-2.0
"""Entries of the atlas from a saved config: one for each communicator whose search ended on something faster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, ValidationError

from lagom.atlas.entry import AtlasEntry, Found, Ratio, key_of, size_class
from lagom.config_file import SavedConfig, Section, find_evidence
from lagom.journal import ConfigRecord
from lagom.records import CommConfig, Site


class _Outcome(BaseModel):
    verdict: str
    speedup: Ratio
    speedup_low: Ratio
    speedup_high: Ratio


class _Proof(BaseModel):
    """What an entry needs of the evidence."""

    outcome: _Outcome
    x_ns: float | None = None
    y_ns: float | None = None
    context: list[str] = []


def entries_of(config: SavedConfig, origin: str) -> Iterator[AtlasEntry]:
    """``origin``: which run, for people; no path of the user's belongs in it."""
    for section in config.sections:
        proof = _proof_of(find_evidence(config.evidence, section.ranks, section.ordinal))
        fingerprint = config.fingerprint
        if proof is None or section.program is None or section.assignment is None or fingerprint.p2p is None:
            continue
        key = key_of(
            gpu=fingerprint.gpu,
            nccl_version=fingerprint.nccl_version,
            peer_access=fingerprint.p2p,
            ranks=section.ranks,
            nodes=section.nodes,
            x=proof.x_ns,
            y=proof.y_ns,
        )
        outcome = proof.outcome
        yield AtlasEntry(
            key=key,
            found=_found_in(section, proof.context),
            speedup=outcome.speedup,
            low=outcome.speedup_low,
            high=outcome.speedup_high,
            origin=origin,
        )


def found_at(sites: list[tuple[Site, CommConfig]]) -> tuple[Found, ...]:
    """One config for each function, size class and context: that of the first, so the heaviest, of its sites."""
    found: dict[tuple[str, int, str], Found] = {}
    for site, config in sites:
        function, size, context = site.function.word, size_class(site.bytes), site.context
        record = Found(function=function, size_class=size, context=context, config=ConfigRecord.of(config))
        found.setdefault((function, size, context), record)
    return tuple(found.values())


def _proof_of(evidence: Mapping[str, Any]) -> _Proof | None:
    try:
        proof = _Proof.model_validate(evidence)
    except ValidationError:
        return None
    is_proven = proof.outcome.verdict == "improved" and proof.outcome.speedup_low > 1.0
    return proof if is_proven else None


def _found_in(section: Section, contexts: list[str]) -> tuple[Found, ...]:
    """A saved config does not hold the contexts of its sites; the evidence does."""
    assert section.program is not None
    assert section.assignment is not None
    sites = section.program.sites
    known = contexts if len(contexts) == len(sites) else [""] * len(sites)
    in_context = [
        Site(site.index, site.function, site.bytes, site.calls_per_iteration, context)
        for site, context in zip(sites, known, strict=True)
    ]
    return found_at(list(zip(in_context, section.assignment.configs, strict=True)))
