# SPDX-License-Identifier: Apache-2.0
"""A controller of one plan, as a process that can be killed: ``python publish.py KEY REQUEST.json``.

Attaches with the controller's lock, publishes the plan that the request describes, prints one JSON line at each step
and then sleeps until it is killed. Steps: ``published``, then ``committed`` (not with ``"poll": false``).
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from lagom.records import Assignment, CommConfig, Function, Site
from lagom.wire.plan import Plan
from lagom.wire.region import Publication, Region, Verdict

PATIENCE = 600.0


def say(**words: Any) -> None:
    """One line for the test."""
    print(json.dumps(words), flush=True)


def config_of(fields: dict[str, int]) -> CommConfig:
    """From the request's words: channels, chunk_bytes."""
    return CommConfig(**fields)  # type: ignore[arg-type]


def plan_at(request: dict[str, Any], start: int) -> Plan:
    """The request's plan from call ``start`` on."""
    calls = [(Function(function), size) for function, size in request["calls"]]
    shapes = list(dict.fromkeys(calls))
    sites = tuple(Site(index, *shape, calls.count(shape)) for index, shape in enumerate(shapes))
    lease = request.get("iterations", 0) * len(calls)
    candidate = Assignment((config_of(request["candidate"]),) * len(sites)) if lease else None
    return Plan(
        start_call=start,
        sites=sites,
        positions=tuple(shapes.index(call) for call in calls),
        incumbent=Assignment((config_of(request.get("incumbent", {})),) * len(sites)),
        candidate=candidate,
        end_call=start + lease if lease else 0,
        alternate_iterations=request.get("block", 0),
    )


def complete_communicator(region: Region, comm_id: int) -> int:
    """Index of the communicator once all its ranks have come."""
    while True:
        for view in region.communicators():
            if view.comm_id == comm_id and len(region.slots(view.index)) == view.rank_count:
                return view.index
        time.sleep(0.002)


def publish(region: Region, communicator: int, request: dict[str, Any], margin: int) -> Plan | None:
    """One offer, ``margin`` iterations ahead of the fastest rank; ``None`` if it could not be made."""
    period = len(request["calls"])
    _, _, largest = region.counters(communicator)
    plan = plan_at(request, (largest // period + margin) * period)
    result, _ = region.publish(communicator, plan)
    if result is not Publication.OK:
        return None
    say(step="published", start=plan.start_call, end=plan.end_call)
    return plan


def settled(region: Region, communicator: int) -> Verdict:
    """Poll until it is decided."""
    while (verdict := region.poll(communicator)) is Verdict.OPEN:
        time.sleep(0.0005)
    return verdict


def main(key: str, request: dict[str, Any]) -> None:
    """Publish, agree, say so, sleep."""
    region = Region.create(key, simulated_clock=True)
    communicator = complete_communicator(region, request["comm_id"])
    margin, end = request.get("margin", 4), time.monotonic() + PATIENCE
    while time.monotonic() < end:
        plan = publish(region, communicator, request, margin)
        if plan is None:
            time.sleep(0.002)
        elif not request.get("poll", True):
            break
        elif settled(region, communicator) is Verdict.COMMITTED:
            say(step="committed", start=plan.start_call, end=plan.end_call)
            break
        else:
            margin *= 2
    while True:
        time.sleep(60)


if __name__ == "__main__":
    main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()))
