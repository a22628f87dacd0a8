# SPDX-License-Identifier: Apache-2.0
"""``lagom bench --arms ... -- CMD...``: what each setting is worth on a job of the user's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lagom.cli.common import say
from lagom.cli.measured_job import ask_for_direction, check_job, claim_folder, show_compared, told_how_to_go_on

DEFAULT_ARMS = "stock,auto,static"
FOLDER = Path("lagom-bench")
DONE, NOTHING = 0, 1


def bench(
    command: Annotated[
        list[str], typer.Argument(help="The job's command, after `--`.", metavar="-- CMD...", show_default=False)
    ],
    arms: Annotated[
        list[str] | None,
        typer.Option(
            "--arms",
            help="What to compare, commas between; ARMS below says what each is. May be repeated. "
            f"Default: {DEFAULT_ARMS}.",
            metavar="ARMS",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="Folder of the raw samples. With the same folder the benchmark continues where it ended.",
            show_default=str(FOLDER),
        ),
    ] = None,
    cycles: Annotated[
        int, typer.Option(help="Shuffled cycles within a job; each gives two pairs an arm.", metavar="N", min=1)
    ] = 8,
    jobs: Annotated[int, typer.Option(help="Repeat the comparison in this many jobs.", metavar="N", min=1)] = 1,
    rounds: Annotated[int, typer.Option(help="Processes of each arm that needs its own.", metavar="N", min=1)] = 6,
    samples: Annotated[
        int,
        typer.Option(
            help="End such a process after this many steady samples. No effect when wall time is compared.",
            metavar="N",
            min=3,
        ),
    ] = 30,
    metric: Annotated[
        str,
        typer.Option(
            help="Regular expression with one group: an iteration's time in a line of the job's output. For arms that "
            "need processes of their own.",
            metavar="REGEX",
            show_default=False,
        ),
    ] = "",
    higher_is_better: Annotated[
        bool, typer.Option("--higher-is-better", help="The metric is a speed, not a time.")
    ] = False,
    budget: Annotated[
        float | None,
        typer.Option(help="Time limit; results so far are kept.", metavar="SECONDS", min=1, show_default=False),
    ] = None,
    run_limit: Annotated[
        float | None,
        typer.Option(help="Time limit of one process of the job.", metavar="SECONDS", min=1, show_default=False),
    ] = None,
    communicators: Annotated[
        int, typer.Option(help="How many process groups to measure, the busiest first.", metavar="N", min=1)
    ] = 1,
    seed: Annotated[int, typer.Option(help="Random seed of the order of arms and of searches.", metavar="N")] = 0,
    fresh: Annotated[bool, typer.Option("--fresh", help="Delete the earlier results in the folder.")] = False,
    json_out: Annotated[
        bool, typer.Option("--json", help="Print the results as JSON. Progress goes to stderr with and without it.")
    ] = False,
) -> None:
    """Compare settings on any job, stock against stock among them, with intervals.

    Arms that NCCL can take while it runs alternate with stock within one job; the others run in processes of their own,
    in shuffled order. The table says which, and what difference it could have seen.

    Example: lagom bench --arms stock,auto,static,off --metric "step time: ([0-9.]+)" -- torchrun train.py
    """
    from lagom.bench.arm_words import parse_arms
    from lagom.bench.results import results_of
    from lagom.bench.schedule import BenchSchedule, preview
    from lagom.experiment.process import leave_in_order
    from lagom.experiment.request import Request
    from lagom.experiment.results_folder import discard
    from lagom.experiment.runner import Clock, run_schedule

    check_job(command, metric, _say)
    request = Request(
        command=tuple(command),
        folder=(out or FOLDER).absolute(),
        samples=samples,
        metric=metric,
        higher_is_better=higher_is_better,
        budget=budget,
        run_limit=run_limit,
        communicators=communicators,
        seed=seed,
    )
    asked = parse_arms(arms or [DEFAULT_ARMS])  # refused before a folder is made or anything in it deleted
    claim_folder(request, _say, is_named=out is not None)
    ask_for_direction(request, _say)
    if fresh and (kept := discard(request.folder)):
        _say(kept)
    schedule = BenchSchedule(request, asked, cycles, jobs, rounds)
    store = schedule.open_store()  # a folder that cannot be continued is refused before anything is printed
    for sentence in preview(schedule):
        _say(sentence)
    leave_in_order()
    with told_how_to_go_on(out or FOLDER, _say):
        run_schedule(schedule, store, Clock(budget), _say)
    results = results_of(store.record)
    show_compared(store.record, results, store.path, as_json=json_out)
    raise typer.Exit(DONE if any(result.ratio for result in results) else NOTHING)


def _say(text: str) -> None:
    say("lagom bench: ", text)
