"""``lagom import`` and ``lagom export``: rules of other tuners in, rules of ours out."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from lagom.cli.complete import log_folders, one_of
from lagom.errors import UsageError
from lagom.files import open_regular, write_named

if TYPE_CHECKING:
    from lagom.convert import Entry, Taken, Topology
    from lagom.convert.source import Picks
    from lagom.records import CommConfig

REFUSED = 2
PROFILE_NAME = "profile.lagom"
LARGEST_MIB = 4  # of a file to import: tuners' files have some hundred lines
EMPTY = "no rule is left to write, so nothing is written: a file without rules is no stand-in for none at all."


def import_rules(
    file: Annotated[Path, typer.Argument(help="The other tuner's file.", exists=True, dir_okay=False)],
    ranks: Annotated[
        int, typer.Option(help="Ranks of the communicators that the rules are for.", min=0, show_default=False)
    ] = 0,
    nodes: Annotated[int, typer.Option(help="Nodes they span.", min=1)] = 1,
    profile: Annotated[
        Path | None,
        typer.Option(help="Write a profile for such communicators instead of printing rules.", show_default=False),
    ] = None,
    communicators: Annotated[
        int, typer.Option(help="With --profile: how many communicators of that size the job has.", min=1, max=16)
    ] = 1,
    partial: Annotated[bool, typer.Option("--partial", help="Take what can be taken, and list the rest.")] = False,
) -> None:
    """Turn another tuner's rules into rules for `lagom run --set`, or into a profile.

    A line that cannot be said in such rules is refused by name, and then nothing is printed unless --partial is given.
    """
    from lagom import convert

    if profile is not None and not ranks:
        raise UsageError("a profile is for communicators of one size; name it with --ranks and --nodes.")
    text = _read(file)
    taken = convert.import_rules(text, _topology(ranks, nodes))
    _report(taken.remarks, taken.refused, partial=partial)
    if profile is not None:
        _write_profile(profile, taken, file, ranks, nodes, communicators)
        return
    if ranks and taken.rules:
        _say(f"these rules will hold for every communicator of a job; --profile binds them to those of {ranks} ranks")
    _print_rules(taken)


def export_rules(
    source: Annotated[
        Path | None,
        typer.Argument(
            metavar="[PROFILE]",
            help="A profile or a log folder; default: the newest ./lagom-*.",
            show_default=False,
            autocompletion=log_folders,
        ),
    ] = None,
    rules: Annotated[
        list[str] | None,
        typer.Option("--set", help="Export these rules instead of a profile; may be repeated.", show_default=False),
    ] = None,
    ranks: Annotated[
        int, typer.Option(help="With --set: only for communicators of that many ranks.", min=0, show_default=False)
    ] = 0,
    nodes: Annotated[int, typer.Option(help="With --set: and that many nodes.", min=1)] = 1,
    fill: Annotated[
        str, typer.Option(help="ALGO/PROTO where a rule leaves both to NCCL; default: NCCL's own pick, from the log.")
    ] = "",
    without: Annotated[
        list[str] | None,
        typer.Option(
            help="Leave a knob out of every rule: chunk or nt. What is left is another config than was tuned.",
            show_default=False,
            autocompletion=one_of(("chunk", "nt")),
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", help="Write to this file.", show_default=False)] = None,
    partial: Annotated[bool, typer.Option("--partial", help="Write what can be said, and list the rest.")] = False,
) -> None:
    """Write a profile, or rules, as a file for NVIDIA's example tuner.

    What the other format cannot say (places in the program, threads, chunks) is refused by name, and then nothing is
    written unless --partial is given; nor is a file in which no rule is left.
    """
    from lagom import convert

    if rules and source is not None:
        raise UsageError("give either a profile or --set rules.")
    given = _pair(fill)
    entries, picks = _from_rules(rules, _topology(ranks, nodes)) if rules else _from_profile(_profile(source))
    written = convert.export_rules(_ready(entries, picks, given, without or []))
    _report(written.remarks, written.refused, partial=partial)
    if not written.lines:
        _say(EMPTY)
        raise typer.Exit(REFUSED)
    if out is None:
        sys.stdout.write(written.text)
    else:
        write_named(out, written.text)
        _say(f"{out}: {written.lines} line(s)")


def _topology(ranks: int, nodes: int) -> Topology | None:
    from lagom.convert import Topology

    if ranks and ranks < nodes:
        raise UsageError(f"{ranks} ranks cannot span {nodes} nodes.")
    return Topology(ranks, nodes) if ranks else None


def _pair(text: str) -> CommConfig:
    from lagom.convert.entries import UnsupportedRule
    from lagom.convert.nccl_csv import algorithm, protocol
    from lagom.records import CommConfig

    if not text:
        return CommConfig()
    words = text.lower().split("/")
    try:
        if len(words) != 2:
            raise UnsupportedRule(f"'{text}' is no pair")
        return CommConfig(algorithm(words[0]), protocol(words[1]))
    except UnsupportedRule as error:
        raise UsageError(f"--fill wants ALGO/PROTO, like ring/simple: {error}.") from error


# -- where an export comes from


def _from_rules(rules: Sequence[str], only: Topology | None) -> tuple[list[Entry], Picks]:
    from lagom.cli.pin import check_rules
    from lagom.convert.source import of_rules
    from lagom.wire.plan import parse_rule

    return of_rules([parse_rule(rule) for rule in check_rules(list(rules))], only), {}


def _from_profile(path: Path) -> tuple[list[Entry], Picks]:
    from lagom.convert.source import of_sections, picks_beside
    from lagom.profile_file import read_environment, read_profile

    for name, value in read_environment(path).items():
        _say(f"note: the profile was measured with {name}={value}; set it yourself where the file is used")
    return of_sections(read_profile(path)[1]), picks_beside(path)


def _profile(source: Path | None) -> Path:
    """The profile meant by a file, a log folder, its log, or nothing; it may lie in a folder without a log."""
    from lagom.journal import LOG_NAME, find_log

    if source is not None and not source.is_dir() and source.name != LOG_NAME:
        return source
    if source is not None and (source / PROFILE_NAME).exists() and not (source / LOG_NAME).exists():
        return source / PROFILE_NAME
    log = find_log(source)
    path = log.parent / PROFILE_NAME
    if _is_stale(path, log):
        _say(f"note: {path} is of an earlier job than the one that its log tells of")
    if not path.exists():
        raise UsageError(f"there is no {path}: nothing was found there that is better than stock; name a profile.")
    return path


def _is_stale(path: Path, log: Path) -> bool:
    from lagom.errors import JournalError
    from lagom.journal.log_status import is_of_an_earlier_job

    try:
        return is_of_an_earlier_job(path, log)
    except JournalError:
        return False  # the profile is what is wanted


def _ready(entries: list[Entry], picks: Picks, given: CommConfig, without: Sequence[str]) -> list[Entry]:
    """With the knobs left out that shall be, and algorithm and protocol filled in where they were left to NCCL."""
    from lagom.convert.source import fill, strip

    for knob in without:
        if knob not in ("chunk", "nt"):
            raise UsageError(f"--without wants chunk or nt, not '{knob}'.")
    filled, from_log = fill(strip(entries, without), picks, given)
    if from_log:
        _say(f"{from_log} rule(s) name the algorithm and protocol that NCCL itself chose when this was measured")
    return filled


# -- what is said and written


def _report(remarks: Sequence[str], refused: Sequence[Entry], *, partial: bool) -> None:
    """Remarks, and every refusal by name; leaves with an error if there is one and not all shall be taken."""
    for remark in remarks:
        _say(f"note: {remark}")
    for entry in refused:
        _say(f"refused: {entry}")
    if refused and not partial:
        _say(f"{len(refused)} cannot be said in the other form, so nothing is written; --partial takes the rest.")
        raise typer.Exit(REFUSED)


def _print_rules(taken: Taken) -> None:
    from lagom.wire.plan import format_rule

    for rule in taken.rules:
        typer.echo(format_rule(rule))
    if not taken.rules:
        _say("no rule is left that could ever match.")


def _write_profile(path: Path, taken: Taken, origin: Path, ranks: int, nodes: int, communicators: int) -> None:
    from lagom.profile_file import Fingerprint, Section, write_profile

    sections = [Section(ranks, nodes, ordinal, rules=taken.rules) for ordinal in range(communicators)]
    try:
        write_profile(path, Fingerprint(), sections, f"imported from {origin.name}")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); name another file.") from error
    _say(f"{path}: {len(taken.rules)} rule(s); replay it with `lagom run --profile {path} -- ...`")


def _read(path: Path) -> str:
    """The file, with or without the mark that spreadsheets put in front, and whatever its lines end with."""
    try:
        with open_regular(path) as file:
            data = file.read((LARGEST_MIB << 20) + 1)
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); check the path and its permissions.") from error
    if len(data) > LARGEST_MIB << 20:
        raise UsageError(f"{path} is larger than {LARGEST_MIB} MiB, and no tuner's rules are; check the path.")
    return data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")


def _say(text: str) -> None:
    """On stderr. Words of the other tuner's file are among these: none may steer the terminal."""
    from lagom.records import printable

    print(f"lagom: {printable(text)}", file=sys.stderr, flush=True)
