# SPDX-License-Identifier: Apache-2.0
"""``python -m lagom.controller``: started by ``lagom run``, by the first rank, or by the demo; not by people."""

from __future__ import annotations

import argparse
import io
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any, TextIO

from lagom import headroom
from lagom.atlas import load_atlas
from lagom.controller.controller import Controller, lower_priority
from lagom.controller.options import STABLE_ITERATIONS, Options
from lagom.controller.session_choice import refuse_what_cannot_be_read
from lagom.errors import LagomError
from lagom.journal import Journal, Passthrough
from lagom.records import readable_name
from lagom.settings import read, split_rules
from lagom.wire.region import Region

ENDING = (signal.SIGTERM, signal.SIGINT)


def main(arguments: list[str] | None = None) -> int:
    """Run a controller until its job is over; 0, or 2 with one sentence on stderr."""
    wanted = _parser().parse_args(arguments)
    try:
        _run(wanted)
    except LagomError as error:
        print(f"lagom controller: {error}", file=sys.stderr)
        with Journal(wanted.dir) as log:  # where the job's first line told its reader to look
            log.write(Passthrough(reason=str(error)))
        return 2
    return 0


def _run(wanted: argparse.Namespace) -> None:
    options = Options(
        directory=wanted.dir,
        job=wanted.job,
        mode=wanted.mode,
        strategy=wanted.strategy or read("LAGOM_STRATEGY"),
        rules=tuple(wanted.set or split_rules(read("LAGOM_SET"))),
        compare=tuple(wanted.compare),
        arms=wanted.arms,
        seed=wanted.seed,
        record=wanted.record,
        profile_iterations=wanted.profile_iterations,
        stable_iterations=wanted.stable_iterations,
        search_seconds=wanted.search_seconds,
        search_percent=wanted.search_percent,
        headroom=headroom.parse(read("LAGOM_HEADROOM")),
        candidates=tuple(wanted.candidates),
        atlas=load_atlas(os.environ),
        is_alone=read("LAGOM_NODES") == "alone",
        launcher=wanted.launcher,
        first_rank_seconds=wanted.grace,
    )
    refuse_what_cannot_be_read(options)
    early: list[int] = []
    for number in ENDING:  # one of them while the region is being made would leave it behind
        signal.signal(number, lambda came, _: early.append(came))
    simulated = wanted.clock == "simulated"
    attached = (
        Region.attach(wanted.region)
        if wanted.region is not None
        else Region.create(wanted.job_key, simulated_clock=simulated)
    )
    lower_priority()
    with attached as region, Journal(options.directory) as log:
        options = replace(options, job=wanted.job or readable_name(region.job_key))
        controller = Controller(region, options, log)
        for number in ENDING:
            signal.signal(number, controller.stop)
        if early:
            controller.stop(early[0], None)
        print(f"lagom controller {os.getpid()}: {region.path}", flush=True)
        controller.run()
        region.close(unlink=True)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m lagom.controller", description=__doc__)
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--job-key", help="name of the job, as the ranks derive it")
    where.add_argument("--region", type=Path, help="file of an existing region")
    parser.add_argument("--dir", type=Path, required=True, help="log folder")
    parser.add_argument("--job", default="", help="the job's name for people")
    parser.add_argument(
        "--launcher", type=int, metavar="PID", help="our parent, which ends us: wait for ranks for ever"
    )
    parser.add_argument("--grace", type=float, default=60.0, help="seconds to wait for the first rank")
    parser.add_argument("--mode", default="tune")
    parser.add_argument("--strategy", default="", help="default: LAGOM_STRATEGY")
    parser.add_argument("--set", action="append", default=[], metavar="RULE")
    parser.add_argument("--compare", action="append", default=[], metavar="RULE;RULE")
    parser.add_argument("--arms", type=Path, metavar="FILE", help="compare the arms of this file (lagom bench)")
    parser.add_argument(
        "--candidates", type=Path, action="append", default=[], metavar="FILE", help="saved config to be tried first"
    )
    parser.add_argument("--record", action="store_true", help="keep the raw records in the log folder")
    parser.add_argument(
        "--profile-iterations", type=int, default=0, metavar="N", help="record N iterations as they are; tune nothing"
    )
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stable-iterations", type=int, default=STABLE_ITERATIONS)
    parser.add_argument("--search-seconds", type=float, help="proofs included; default: no limit in time")
    parser.add_argument("--search-percent", type=float, help="of its iterations, what each search may have lost")
    parser.add_argument("--clock", choices=("monotonic", "simulated"), default="monotonic")
    return parser


class _BestEffort(io.RawIOBase):
    """Writes to a descriptor; what cannot be written is lost."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def writable(self) -> bool:
        return True

    def write(self, data: Any, /) -> int:
        """As much of ``data`` as goes; says that it was all."""
        try:
            os.write(self._descriptor, data)
        except OSError:
            return len(data)
        return len(data)


def _stream(descriptor: int) -> TextIO:
    return io.TextIOWrapper(io.BufferedWriter(_BestEffort(descriptor)), "utf-8", write_through=True)


def ignore_write_errors() -> None:
    """From here on ``print`` never raises: output goes to a file, and a full disk must not end the controller."""
    sys.stdout, sys.stderr = _stream(1), _stream(2)


if __name__ == "__main__":
    ignore_write_errors()
    sys.exit(main())
