# SPDX-License-Identifier: Apache-2.0
"""Rows that `lagom bench` answers: the arms of the row on the row's job."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from benchmarks.matrix.place import Place
from benchmarks.matrix.rows import Row
from lagom.bench.arm_words import parse_arms
from lagom.bench.results import BenchRecord, results_of
from lagom.bench.schedule import BenchSchedule, left
from lagom.bench.table import as_json
from lagom.experiment.arm import Kind
from lagom.experiment.request import Request
from lagom.experiment.runner import Clock, run_schedule
from lagom.experiment.store import FILE

SAMPLES = 40
PRELOAD = "LD_PRELOAD"
#: A tuning run may take this share of what is left, so that the others and the comparison get theirs; more where those
#: may follow in a later command; but no less than:
SEARCH_SHARE, SPREAD_SHARE, SEARCH_SECONDS = 0.28, 0.45, 100.0
REHEARSED = {"cycles": 2, "rounds": 2}


def run(row: Row, place: Place, earlier: dict[str, Any], budget: float) -> dict[str, Any]:
    """Go on from what an earlier session has measured."""
    arms = parse_arms(list(row.arms))
    request = Request(
        command=place.command(row),
        folder=place.folder / row.name,
        samples=SAMPLES,
        metric=place.metric() if any(arm.kind is Kind.PROCESS for arm in arms) else "",
        budget=budget,
        search_limit=max(SEARCH_SECONDS, (SPREAD_SHARE if row.spread else SEARCH_SHARE) * budget),
        environ=place.environ(row),
    )
    numbers = REHEARSED if place.rehearse else {"cycles": row.cycles, "rounds": row.rounds}
    return measured(BenchSchedule(request, arms, **numbers), earlier, _say(row))


def measured(schedule: BenchSchedule, earlier: dict[str, Any], say: Callable[[str], None]) -> dict[str, Any]:
    """Run a benchmark, or the rest of one; its record with every sample, and the results."""
    _restore(schedule.request, earlier)
    store = schedule.open_store()
    run_schedule(schedule, store, Clock(schedule.request.budget), say)
    record = store.record
    return {
        "complete": not left(schedule, record),
        "record": record.model_dump(mode="json", exclude_defaults=True),
        **{key: value for key, value in as_json(record, results_of(record)).items() if key != "command"},
    }


def _restore(request: Request, earlier: dict[str, Any]) -> None:
    """Put what an earlier session has measured where the benchmark looks for it. Another command line (other folders,
    another Python) is no other job, so it is made to fit; so is the path of the NCCL to preload, whose release the file
    of results holds us to. Any other variable that differs is refused."""
    request.folder.mkdir(parents=True, exist_ok=True)
    if "record" not in earlier or (request.folder / FILE).exists():
        return
    record = BenchRecord.model_validate({**earlier["record"], "command": list(request.command)})
    if PRELOAD in request.environ:
        record.environ[PRELOAD] = request.environ[PRELOAD]
    (request.folder / FILE).write_text(record.model_dump_json())


def _say(row: Row) -> Callable[[str], None]:
    return lambda text: print(f"  {row.name}: {text}", flush=True)
