# SPDX-License-Identifier: Apache-2.0
"""What the commands have in common that run the job's own command in order to measure it."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lagom.cli.common import console
from lagom.errors import UsageError

if TYPE_CHECKING:
    from lagom.bench.results import BenchRecord, Result
    from lagom.experiment.request import Request
    from lagom.tune import TunePlan, TuneRecord, TuneResult

#: Of the table of a comparison.
PIPE_COLUMNS = 140


@contextlib.contextmanager
def told_how_to_go_on(out: Path, say: Callable[[str], None]) -> Iterator[None]:
    """Where Ctrl-C or a signal ends it: the job has ended by then."""
    try:
        yield
    except (KeyboardInterrupt, SystemExit):
        with contextlib.suppress(OSError):  # the terminal may be gone: that was the signal
            how = f"the same command (--out {out}, without --fresh) continues from here"
            say(f"interrupted: {how}; only the process that was under way begins anew.")
        raise


def claim_folder(request: Request, say: Callable[[str], None], *, is_named: bool) -> None:
    """The folder of raw samples for this process; raises :class:`BadRecord` where it may not be used."""
    from lagom.experiment.results_folder import claim

    if risk := claim(request.folder, is_named=is_named):
        say(f"warning: {risk}")


def ask_for_direction(request: Request, say: Callable[[str], None]) -> None:
    """Where the metric's expression names a speed, and is taken for a time."""
    from lagom.experiment.metric import ASKS_DIRECTION, looks_like_throughput

    if looks_like_throughput(request.metric) and not request.higher_is_better:
        say(ASKS_DIRECTION)


def check_job(command: Sequence[str], metric: str, say: Callable[[str], None], nnodes: int | None = None) -> None:
    """Raises :class:`UsageError` for a command that is not there or that starts the ranks of one node of several, and
    for a metric that is no expression with one group. ``nnodes``: nodes of which each starts the command;
    None: those of one node cannot be measured alone."""
    if shutil.which(command[0]) is None:
        raise UsageError(f"the command '{command[0]}' is not found; give the job's command line after `--`.")
    if metric:
        from lagom.experiment.metric import compile_metric

        compile_metric(metric)
    _check_ranks(command, say, nnodes)


def _check_ranks(command: Sequence[str], say: Callable[[str], None], nnodes: int | None) -> None:
    """Nodes that measure for themselves come to different settings, and NCCL needs the same ones on every rank."""
    from lagom.launch.launchers import Ranks, check_node_count, read_command

    started = read_command(command, os.environ)
    instead = "give one command that starts the ranks of all nodes (srun, mpirun)"
    if nnodes is not None:
        instead += ", or start `lagom tune --nnodes N` with it on every node"
    if nnodes is not None and nnodes > 1:
        if started.ranks is Ranks.AWAY:
            raise UsageError(f"{started.why}: it is started once, for all nodes; leave --nnodes out.")
        check_node_count(command, nnodes, os.environ)
    elif started.ranks is Ranks.SOME:
        raise UsageError(f"{started.why}, and each node would choose settings of its own; {instead}.")
    elif started.ranks is Ranks.UNCLEAR:
        say(f"warning: {started.why}; if other nodes run ranks of this job, {instead}.")
    if started.lost:
        say(
            f"warning: {started.lost}; start lagom behind it, or have it pass every variable that is tried: the ranks "
            "run without the others."
        )


def show_tuned(plan: TunePlan, record: TuneRecord, result: TuneResult, *, as_json: bool) -> None:
    """What a search over start settings came to, on standard output."""
    from lagom.tune.result_table import print_result
    from lagom.tune.tune_result import as_json as to_json

    if as_json:
        print(json.dumps(to_json(plan, record, result), indent=1))
    else:
        print_result(plan, record, result, console())


def show_compared(record: BenchRecord, results: Sequence[Result], path: Path, *, as_json: bool) -> None:
    """What a comparison came to, on standard output. ``path``: of its raw samples."""
    from lagom.bench import table

    if as_json:
        print(json.dumps({**table.as_json(record, results), "samples": str(path)}, indent=1))
    else:
        table.show(record, results, path, console(PIPE_COLUMNS))
