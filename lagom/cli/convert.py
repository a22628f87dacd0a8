# SPDX-License-Identifier: Apache-2.0
"""``lagom convert``: rules of NVIDIA's example tuner as Lagom's, and Lagom's as a file for NVIDIA's example tuner."""

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
    from lagom.convert import RuleEntry, Taken, Topology
    from lagom.convert.source import Picks
    from lagom.records import CommConfig

REFUSED = 2
CONFIG_SUFFIX = ".lagom"
CONFIG_TITLE = b"lagom-config "  # how such a file begins
LARGEST_MIB = 4  # of a CSV file: tuners' files have some hundred lines
EMPTY = "no rule is left to write, so nothing is written: a file without rules is no stand-in for none at all."


def convert(
    source: Annotated[
        str,
        typer.Argument(
            metavar="[SOURCE]",
            help="A CSV file of NVIDIA's example tuner; or a saved config, a log folder, or rules in quotes. Default: "
            "the newest ./lagom-*.",
            show_default=False,
            autocompletion=log_folders,
        ),
    ] = "",
    target: Annotated[
        Path | None,
        typer.Argument(metavar="[TARGET]", help="The file to write; default: standard output.", show_default=False),
    ] = None,
    ranks: Annotated[
        int,
        typer.Option(
            metavar="N",
            help="Ranks of the communicators that the rules are for; a saved config knows its own.",
            min=0,
            show_default=False,
        ),
    ] = 0,
    nodes: Annotated[int, typer.Option(metavar="N", help="Nodes they span.", min=1)] = 1,
    communicators: Annotated[
        int,
        typer.Option(
            metavar="N", help="To a saved config: how many communicators of that size the job has.", min=1, max=16
        ),
    ] = 1,
    fill: Annotated[
        str,
        typer.Option(
            metavar="ALGO/PROTO",
            help="To a CSV file: ALGO/PROTO where a rule leaves both to NCCL; default: NCCL's choice, from the log.",
        ),
    ] = "",
    without: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KNOB",
            help="To a CSV file: leave a knob out of every rule, chunk or nt. The result is not the config that was "
            "tuned.",
            show_default=False,
            autocompletion=one_of(("chunk", "nt")),
        ),
    ] = None,
    partial: Annotated[
        bool, typer.Option("--partial", help="Convert what can be converted, and list the rest.")
    ] = False,
) -> None:
    """Convert a CSV file of NVIDIA's example tuner to Lagom's rules or a saved config, or one of these to such a file.

    SOURCE decides the direction. A line or rule that the other form cannot express is refused by name, and then nothing
    is written unless --partial is given.
    """
    topology, pair = _topology(ranks, nodes), _pair(fill)
    if _is_csv(source):
        taken = _read_csv(Path(source), topology)
        _report(taken.remarks, taken.refused, partial=partial)
        if target is None:
            _print_rules(taken, ranks)
        else:
            _write_config(target, taken, Path(source).name, topology, communicators)
        return
    rules = ":" in source and not Path(source).exists()
    if rules and target is not None and target.suffix == CONFIG_SUFFIX:
        taken = _take_rules(source, topology)
        _report(taken.remarks, taken.refused, partial=partial)
        _write_config(target, taken, "rules by hand", topology, communicators)
        return
    entries, picks = _from_rules(source, topology) if rules else _from_config(_find_config(source))
    _write_csv(target, _ready(entries, picks, pair, without or []), partial=partial)


# -- what the arguments mean


def _is_csv(source: str) -> bool:
    """Whether it names a file that is neither a saved config nor a log; any other file is read as CSV."""
    from lagom.journal import LOG_NAME

    path = Path(source)
    if not source or path.is_dir() or path.name == LOG_NAME or not path.exists():
        return False
    try:
        with open_regular(path) as file:
            return file.read(len(CONFIG_TITLE)) != CONFIG_TITLE
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror}); check the path and its permissions.") from error


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


# -- from a CSV file


def _read_csv(path: Path, topology: Topology | None) -> Taken:
    """The rules of a file, with or without the byte-order mark of spreadsheets, and with any line ends."""
    from lagom.convert import convert_csv, nccl_csv

    with open_regular(path) as file:
        data = file.read((LARGEST_MIB << 20) + 1)
    if len(data) > LARGEST_MIB << 20:
        raise UsageError(f"{path} is larger than {LARGEST_MIB} MiB, and no tuner's rules are; check the path.")
    text = data.decode("utf-8-sig", errors="replace").replace("\r\n", "\n").replace("\r", "\n")
    if not nccl_csv.looks_right(text):
        raise UsageError(f"{path} is neither a CSV file of NVIDIA's example tuner nor a saved config; check the path.")
    return convert_csv(text, topology)


def _print_rules(taken: Taken, ranks: int) -> None:
    from lagom.wire.plan import format_rule

    if ranks and taken.rules:
        _say(f"these rules hold for every communicator of a job; a saved config binds them to those of {ranks} ranks")
    for rule in taken.rules:
        typer.echo(format_rule(rule))
    if not taken.rules:
        _say("no rule is left that could ever match.")


def _write_config(path: Path, taken: Taken, origin: str, topology: Topology | None, communicators: int) -> None:
    from lagom.config_file import Fingerprint, SavedConfig, Section, save_config

    if topology is None:
        raise UsageError("a saved config is for communicators of one size; name it with --ranks and --nodes.")
    sections = [Section(topology.ranks, topology.nodes, ordinal, rules=taken.rules) for ordinal in range(communicators)]
    try:
        save_config(SavedConfig(Fingerprint(), tuple(sections)), path, remark=f"converted from {origin}")
    except OSError as error:
        raise UsageError(f"{path} cannot be written ({error.strerror}); name another file.") from error
    _say(f"{path}: {len(taken.rules)} rule(s); replay it with `lagom run --config {path} -- ...`")


# -- to a CSV file


def _from_rules(source: str, only: Topology | None) -> tuple[list[RuleEntry], Picks]:
    from lagom.convert.source import of_rules
    from lagom.wire.plan import check_rules, parse_rule

    return of_rules([parse_rule(rule) for rule in check_rules([source])], only), {}


def _take_rules(source: str, only: Topology | None) -> Taken:
    from lagom.convert.entries import Reading
    from lagom.convert.rule_order import settle

    return settle(Reading(_from_rules(source, only)[0]))


def _from_config(path: Path) -> tuple[list[RuleEntry], Picks]:
    from lagom.config_file import load_config, refuse_simulated
    from lagom.convert.source import of_sections, picks_beside

    refuse_simulated(path)  # a CSV file could not say what it is
    saved = load_config(path)
    for name, value in saved.environment.items():
        _say(f"note: the saved config was measured with {name}={value}; set it yourself where the file is used")
    return of_sections(saved.sections), picks_beside(path)


def _find_config(named: str) -> Path:
    """The saved config meant by a file, a log folder, its log, or nothing; it may lie in a folder without a log."""
    from lagom.config_file import saved_in
    from lagom.journal import LOG_NAME, find_log

    source = Path(named) if named else None
    if source is not None and not source.exists():
        raise UsageError(
            f"there is no {source}; name a CSV file, a saved config or a log folder, or write rules in quotes."
        )
    if source is not None and not source.is_dir() and source.name != LOG_NAME:
        return source
    if source is not None and saved_in(source).exists() and not (source / LOG_NAME).exists():
        return saved_in(source)
    log = find_log(source)
    path = saved_in(log.parent)
    if _is_stale(path, log):
        _say(f"note: {path} is of an earlier job than the newest one in its log")
    if not path.exists():
        raise UsageError(f"there is no {path}: nothing was found there that is better than stock; name a saved config.")
    return path


def _is_stale(path: Path, log: Path) -> bool:
    from lagom.errors import JournalError
    from lagom.journal.log_status import is_of_an_earlier_job

    try:
        return is_of_an_earlier_job(path, log)
    except JournalError:
        return False  # the saved config is what is wanted


def _ready(entries: list[RuleEntry], picks: Picks, given: CommConfig, without: Sequence[str]) -> list[RuleEntry]:
    """With the knobs left out that shall be, and algorithm and protocol filled in where they were left to NCCL."""
    from lagom.convert.source import fill, strip

    for knob in without:
        if knob not in ("chunk", "nt"):
            raise UsageError(f"--without wants chunk or nt, not '{knob}'.")
    filled, from_log = fill(strip(entries, without), picks, given)
    if from_log:
        _say(f"{from_log} rule(s) name the algorithm and protocol that NCCL itself chose when this was measured")
    return filled


def _write_csv(target: Path | None, entries: Sequence[RuleEntry], *, partial: bool) -> None:
    from lagom.convert import convert_rules

    if target is not None and target.suffix == CONFIG_SUFFIX:
        raise UsageError(
            f"a saved config becomes a CSV file, and {target} is named like a saved config; name it like rules.csv."
        )
    written = convert_rules(entries)
    _report(written.remarks, written.refused, partial=partial)
    if not written.lines:
        _say(EMPTY)
        raise typer.Exit(REFUSED)
    if target is None:
        sys.stdout.write(written.text)
    else:
        write_named(target, written.text)
        _say(f"{target}: {written.lines} line(s)")


# -- what is said


def _report(remarks: Sequence[str], refused: Sequence[RuleEntry], *, partial: bool) -> None:
    """Remarks, and every refusal by name; exits with an error if there is one and --partial is not given."""
    for remark in remarks:
        _say(f"note: {remark}")
    for entry in refused:
        _say(f"refused: {entry}")
    if refused and not partial:
        _say(f"{len(refused)} cannot be expressed in the other form, so nothing is written; --partial takes the rest.")
        raise typer.Exit(REFUSED)


def _say(text: str) -> None:
    """On stderr. Words of the CSV file are among these: none may control the terminal."""
    from lagom.records import printable

    print(f"lagom: {printable(text)}", file=sys.stderr, flush=True)
