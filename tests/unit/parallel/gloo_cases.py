# SPDX-License-Identifier: Apache-2.0
"""Cases that every rank of a gloo job runs, one after the other in one process group; a job's module has them as
functions with ``@case`` (four ranks) or ``@case_of_two``, where more ranks show nothing else and cost several times as
much, and ends with :func:`run_cases`. A line of JSON for each: its name, and by rank what went wrong."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

RANKS, RANK = int(os.environ["WORLD_SIZE"]), int(os.environ["RANK"])
#: Of the process group. Ranks wait for one that compiles, on a busy machine for minutes.
LIMIT_S = 600
CASES: list[Callable[[], None]] = []


def case(function: Callable[[], None], ranks: int = 4) -> Callable[[], None]:
    if ranks == RANKS:
        CASES.append(function)
    return function


case_of_two = functools.partial(case, ranks=2)


@contextlib.contextmanager
def raises(error: type[Exception], words: str) -> Iterator[None]:
    found = ""
    try:
        yield
    except error as raised:
        found = str(raised)
    assert words in found, found or f"no {error.__name__} was raised"


def run_cases() -> None:
    """Those that ``ONLY`` names a part of, up to the first that goes wrong: ranks may be anywhere in it."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=timedelta(seconds=LIMIT_S))
    for function in CASES:
        if os.environ.get("ONLY", "") not in function.__name__:
            continue
        wrong = ""
        try:
            function()
        except Exception:  # noqa: BLE001 - whatever it is, it is the result of the case
            wrong = traceback.format_exc()
        every: list[Any] = [None] * RANKS
        dist.all_gather_object(every, wrong)
        if RANK == 0:
            print(json.dumps({"case": function.__name__, "wrong": every}), flush=True)
        if any(every):
            break
    sys.stdout.flush()
    os._exit(0)
