"""``lagom advise``: what to start the next job with, measured or with the command that would measure it."""

from __future__ import annotations

import itertools
import json
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.errors import UsageError
from lagom.files import check_named

if TYPE_CHECKING:
    from lagom.report.advice import Advices

BENCH_FOLDER = "advise"  # in the log folder: what --try measured


def advise(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LOG] [-- CMD...]",
            help="Log folder or decisions.jsonl, default: the newest ./lagom-*; with --try the job's command.",
            show_default=False,
        ),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", help="The log folder, where a command is given.", show_default=False)
    ] = None,
    bench: Annotated[
        list[Path] | None,
        typer.Option(
            help="Results of `lagom bench` (a folder); may be repeated. What --try measured is found.",
            show_default=False,
        ),
    ] = None,
    try_it: Annotated[
        bool,
        typer.Option("--try", help="Measure the proposals on the job (-- CMD), in shuffled processes, then advise."),
    ] = False,
    metric: Annotated[
        str, typer.Option(help="As in `lagom bench`: where the job prints an iteration's time.", show_default=False)
    ] = "",
    rounds: Annotated[
        int | None,
        typer.Option(
            help="Processes of each proposal with --try; default: enough for so many to be told from chance.",
            min=1,
            show_default=False,
        ),
    ] = None,
    budget: Annotated[
        float | None, typer.Option(help="Seconds that --try may take.", min=1, show_default=False)
    ] = None,
    export: Annotated[
        bool, typer.Option("--export", help="Only `export` lines, of what was measured to be worth it.")
    ] = False,
    megatron: Annotated[
        Path | None,
        typer.Option(help="Write a file for Megatron's --nccl-communicator-config-path.", show_default=False),
    ] = None,
    profile: Annotated[
        Path | None,
        typer.Option(help="Write the log's profile with the measured environment to this file.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="As one JSON object.")] = False,
) -> None:
    """Advise on what only the start of a job can change: channels of AlltoAll and send/recv, head-room, caps, threads.

    Measured advice comes with its numbers; everything else is a proposal, with the command that would measure it.

    Example: lagom advise --try --metric "step time: ([0-9.]+)" -- torchrun --nproc-per-node 8 train.py
    """
    from lagom.journal.log_status import is_of_an_earlier_job
    from lagom.report import advice_text as output

    for file in filter(None, (megatron, profile)):  # before --try spends its time
        check_named(file)
    log, command = _what(words or [], directory, try_it)
    found = gathered(log, bench or [])
    if try_it:
        _measure(found, log.parent / BENCH_FOLDER, command, metric, rounds, budget)
        found = gathered(log, bench or [])
    if megatron is not None:
        _write(megatron, output.megatron(found) or "# lagom advise: no process group to cap.\n")
    if profile is not None:
        mine = log.parent / "profile.lagom"
        if is_of_an_earlier_job(mine, log):
            print(f"lagom: note: {mine} is of an earlier job than the one that its log tells of", file=sys.stderr)
        asked = output.write_into_profile(found, mine, profile)
        print(f"lagom: {profile} asks for {asked or 'nothing'}", file=sys.stderr)
    if as_json:
        typer.echo(json.dumps(output.as_json(found), indent=1))
    elif export:
        typer.echo("\n".join(output.exports(found)) or "# nothing was measured to be worth it")
    else:
        typer.echo("\n".join(output.lines(found, shlex.join(command) or "CMD")))


def _what(words: list[str], directory: Path | None, try_it: bool) -> tuple[Path, list[str]]:
    """(the log, the job's command)."""
    from lagom.journal import find_log, find_written

    if try_it:
        if not words:
            raise UsageError("--try runs the job; give its command line after `--`.")
        if shutil.which(words[0]) is None:
            raise UsageError(f"the command '{words[0]}' is not found; give the job's command line after `--`.")
        return find_log(directory), words
    if len(words) > 1:
        raise UsageError("one log at a time; a job's command goes with --try.")
    return find_written(Path(words[0]) if words else directory), []


def gathered(log: Path, bench: list[Path]) -> Advices:
    """Everything that a log and benchmarks say; what --try measured before is found beside the log."""
    from lagom.bench.store import FILE
    from lagom.journal import RunState, read
    from lagom.report.advice import Advices, joined
    from lagom.report.advice_from_bench import from_bench
    from lagom.report.advice_from_log import from_log

    folders = [*bench, *(file.parent for file in sorted(log.parent.glob(f"{BENCH_FOLDER}*/{FILE}")))]
    told = [from_bench(folder / FILE if folder.is_dir() else folder) for folder in folders]
    measured = [advice for advices, _ in told for advice in advices]
    remarks = tuple(remark for _, found in told for remark in found)
    return Advices(str(log), joined(from_log(RunState(read(log))), measured), remarks)


def _measure(
    found: Advices, folder: Path, command: list[str], metric: str, rounds: int | None, budget: float | None
) -> None:
    """The proposals' arms, by `lagom bench`; what is in the folder already is not measured again."""
    from lagom.bench import Request, parse_arms, run_bench
    from lagom.report.advice_from_bench import rounds_for
    from lagom.report.advice_text import judged_arms, proposed_arms

    arms = proposed_arms(found)
    if not arms:
        print("lagom: there is no proposal to measure.", file=sys.stderr)
        return
    place, arms = _place_of(folder, arms)
    request = Request(
        command=tuple(command), arms=parse_arms(["stock", *arms]), folder=place.absolute(), metric=metric,
        rounds=rounds or rounds_for(judged_arms(arms)), budget=budget,
    )  # fmt: skip
    run_bench(request, lambda text: print(f"lagom: {text}", file=sys.stderr, flush=True))


def _place_of(folder: Path, arms: tuple[str, ...]) -> tuple[Path, tuple[str, ...]]:
    """(where these arms are measured, all arms of that benchmark): the folder that has them all already, so that it
    goes on, else the next that is free: proposals change with what is known, and a benchmark's arms do not."""
    from lagom.bench.store import FILE, read_record

    for number in itertools.count(1):
        place = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        if not (place / FILE).exists():
            break
        known = tuple(arm for arm in read_record(place / FILE).arms if arm not in ("stock", "own:stock"))
        if set(arms) <= set(known):
            return place, known
    return place, arms


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); name another file.") from error
