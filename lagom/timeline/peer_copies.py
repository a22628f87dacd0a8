# SPDX-License-Identifier: Apache-2.0
"""Copies between GPUs in a Kineto trace: named so that their names show it, as those of kernels do.

CUPTI calls a copy between two GPUs ``Memcpy PtoP`` where it knows both, and then Kineto also writes ``fromDevice`` and
``toDevice``. Where the memory of another GPU is mapped into this one's address space it may be a ``Memcpy DtoD`` like
any other: then what shows it is the operator ``symm_mem::…`` that made it. An operator that has PtoP copies too, is one
whose DtoD copies stay on their GPU (its own shard).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Any

from lagom.timeline.communication_kernels import IN_OPERATOR
from lagom.timeline.launch_events import LAUNCH_CATEGORIES, correlation_of

Event = dict[str, Any]

_OPERATOR = "symm_mem::"
_PEER, _LOCAL = "Memcpy PtoP", "Memcpy DtoD"
_COPIES = ("gpu_memcpy", "Memcpy")
_OPERATORS = ("cpu_op", "user_annotation")


def name_peer_copies(events: list[Any]) -> list[Any]:
    """The events of a trace, copies between GPUs by names that :data:`~lagom.timeline.communication_kernels.\
COMMUNICATION` has: ``Memcpy PtoP …``, or ``… in symm_mem::operator``."""
    copies = {place: event for place, event in enumerate(events) if _is_copy(event)}
    if not copies:
        return events
    operators = _operators_of_launches(events)
    made_by = {place: operators.get(correlation_of(event), "") for place, event in copies.items()}
    peers = {place for place, event in copies.items() if _is_between(event)}
    with_peers = {made_by[place] for place in peers} | {""}
    found = list(events)
    for place, event in copies.items():
        name, operator = event["name"], made_by[place]
        if place in peers:
            found[place] = {**event, "name": name.replace(_LOCAL, _PEER)}
        elif name.startswith(_LOCAL) and operator not in with_peers:
            found[place] = {**event, "name": f"{name}{IN_OPERATOR}{operator}"}
    return found


def _is_copy(event: Any) -> bool:
    return _is_of(event, _COPIES) and isinstance(event.get("name"), str) and isinstance(event.get("args"), dict)


def _is_between(event: Event) -> bool:
    origin, destination = (_number(event["args"].get(key)) for key in ("fromDevice", "toDevice"))
    return event["name"].startswith(_PEER) or (None not in (origin, destination) and origin != destination)


def _operators_of_launches(events: list[Any]) -> dict[int, str]:
    """Correlation number -> the outermost symmetric-memory operator in which that copy or kernel was launched."""
    operators = _operators(events)
    if not operators:
        return {}
    launches = [event for event in events if _is_of(event, LAUNCH_CATEGORIES)]
    found = {correlation_of(event): _span_at(operators.get(_thread(event), []), _span(event)) for event in launches}
    return {number: operator for number, operator in found.items() if operator is not None and number >= 0}


def _operators(events: list[Any]) -> dict[tuple[str, str], list[tuple[float, float, str]]]:
    """Process and thread -> begin, end and name of its symmetric-memory operators in order of time, outermost ones."""
    found: dict[tuple[str, str], list[tuple[float, float, str]]] = {}
    for event in events:
        if _is_of(event, _OPERATORS) and str(event.get("name")).startswith(_OPERATOR) and (span := _span(event)):
            found.setdefault(_thread(event), []).append((*span, str(event["name"]).removeprefix(_OPERATOR)))
    return {thread: _outermost(spans) for thread, spans in found.items()}


def _span_at(spans: list[tuple[float, float, str]], launch: tuple[float, float] | None) -> str | None:
    """The name of the operator that a launch begins in."""
    if launch is None:
        return None
    place = bisect_right(spans, launch[0], key=lambda span: span[0]) - 1
    return spans[place][2] if place >= 0 and launch[0] <= spans[place][1] else None


def _outermost(spans: list[tuple[float, float, str]]) -> list[tuple[float, float, str]]:
    """Spans in order of start, without those that begin inside another."""
    kept: list[tuple[float, float, str]] = []
    for span in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not kept or span[0] > kept[-1][1]:
            kept.append(span)
    return kept


def _is_of(event: Any, categories: tuple[str, ...]) -> bool:
    return isinstance(event, dict) and event.get("cat") in categories


def _thread(event: Event) -> tuple[str, str]:
    return str(event.get("pid")), str(event.get("tid"))


def _span(event: Event) -> tuple[float, float] | None:
    start, length = _number(event.get("ts")), _number(event.get("dur"))
    return None if start is None or length is None else (start, start + length)


def _number(value: Any) -> float | None:
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None
