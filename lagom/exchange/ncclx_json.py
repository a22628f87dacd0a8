"""NCCLX's rules as JSON: ``{"rules": [{"filter": {...}, "config": {...}}, ...]}``, read by builds of it with folly."""

from __future__ import annotations

import json
from typing import Any

from lagom.errors import LagomError
from lagom.exchange.ncclx import Foreign, per_rank, take, topology_words
from lagom.exchange.result import Entry, Line, Reading
from lagom.exchange.sizes import format_interval
from lagom.exchange.topology import Topology
from lagom.exchange.words import NotSaid

FILTERS = ("collective", "bytesPerRank", "nNodes", "nLocalRanks", "numPipeOps", "regBuff")
CONFIGS = ("algorithm", "protocol", "channels", "chunkSize")


class NoRules(LagomError):
    """A file that is no list of rules at all."""


def read(text: str, topology: Topology | None) -> Reading:
    """Every rule, in order; raises :class:`NoRules` if it is no JSON of that shape."""
    try:
        found = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoRules(f'this is no rule file of NCCLX ({error}); it is written {{"rules": [...]}}.') from error
    rules = found.get("rules") if isinstance(found, dict) else None
    if not isinstance(rules, list):
        raise NoRules('this is no rule file of NCCLX: it is no object with an array "rules"; write {"rules": [...]}.')
    reading = Reading()
    for number, rule in enumerate(rules, 1):
        try:
            take(f"rule {number}", _foreign(rule), topology, reading)
        except NotSaid as error:
            reading.entries.append(Entry(f"rule {number}", None, str(error)))
    return reading


def _foreign(rule: Any) -> Foreign:
    filters, config = _part(rule, "filter", FILTERS), _part(rule, "config", CONFIGS)
    return Foreign(
        collective=filters.get("collective", ""),
        bytes_per_rank=filters.get("bytesPerRank", ""),
        algorithm=config.get("algorithm", ""),
        protocol=config.get("protocol", ""),
        channels=config.get("channels", ""),
        nodes=filters.get("nNodes", ""),
        local_ranks=filters.get("nLocalRanks", ""),
        pipe_ops=filters.get("numPipeOps", ""),
        registered=filters.get("regBuff", ""),
        chunk=config.get("chunkSize", ""),
    )


def _part(rule: Any, name: str, known: tuple[str, ...]) -> dict[str, str]:
    """``filter`` or ``config`` as texts. Keys that NCCLX passes over in silence are refused: they were meant to say
    something."""
    part = rule.get(name) if isinstance(rule, dict) else None
    if not isinstance(part, dict):
        raise NotSaid(f'it has no object "{name}"')
    for key, value in part.items():
        if key not in known:
            raise NotSaid(f'{name} "{key}" is none of: {", ".join(known)}')
        if isinstance(value, bool) or not isinstance(value, int | str):
            raise NotSaid(f'{name} "{key}" is neither a number nor a text')
    return {key: str(value).strip() for key, value in part.items()}


def write(lines: list[Line]) -> str:
    """The file. Every line must have passed :func:`lagom.exchange.ncclx.check`."""
    return json.dumps({"rules": [_rule(line) for line in lines]}, indent=2) + "\n"


def _rule(line: Line) -> dict[str, dict[str, str | int]]:
    config, (nodes, local) = line.config, topology_words(line)
    assert line.rule.function is not None
    assert config.algorithm is not None
    assert config.protocol is not None
    filters: dict[str, str | int] = {"collective": line.rule.function.word}
    given = {"bytesPerRank": format_interval(per_rank(line)), "nNodes": nodes, "nLocalRanks": local}
    filters.update({key: value for key, value in given.items() if value != "*"})
    out: dict[str, str | int] = {"algorithm": config.algorithm.name.lower(), "protocol": config.protocol.name.lower()}
    out.update({key: value for key, value in _numbers(line).items() if value is not None})
    return {"filter": filters, "config": out}


def _numbers(line: Line) -> dict[str, int | None]:
    return {"channels": line.config.channels, "chunkSize": line.config.chunk_bytes}
