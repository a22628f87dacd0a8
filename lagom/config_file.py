# SPDX-License-Identifier: Apache-2.0
"""Writes and reads the saved config: the one text file that replays a tuning run without a controller.

The format is defined by ``csrc/config/config_text.h``. Replay happens inside the plugin, so reading is done by the
plugin's own C code.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lagom import environment as environment_variables
from lagom.errors import LagomError
from lagom.files import write_whole
from lagom.program.detect import CallProgram
from lagom.program.sites import TunedProgram
from lagom.records import Assignment, CommConfig, Function, Site, printable
from lagom.settings import is_simulated
from lagom.wire.config_refusal import ConfigRefusal
from lagom.wire.layout import ffi
from lagom.wire.library import library
from lagom.wire.plan import NO_LIMIT, Rule, read_config, read_rule

TITLE = "lagom-config 1"  # the first line
#: How a comment begins that holds evidence: one JSON object. The plugin passes over it like over any comment.
EVIDENCE = "#: "
FILE_NAME = "config.lagom"  # in a log folder
#: Beside it: what a stopped search measured as the best and has not proven.
BEST_SO_FAR_NAME = "best_so_far.lagom"
NAME_BYTES = 64  # LAGOM_NAME_BYTES, with the zero at the end


class BadConfig(LagomError):
    """A saved config that cannot be read."""


def saved_in(folder: Path) -> Path:
    """Where a log folder holds its saved config."""
    return folder / FILE_NAME


def without_comments(text: str) -> str:
    """What a saved config decides: nodes that found it together have the same, with comments of their own."""
    return "".join(f"{line}\n" for line in text.split("\n") if line and not line.startswith("#"))


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """The jobs that a saved config is valid for; a zero or empty field is not compared."""

    nccl_version: int = 0
    ranks: int = 0
    nodes: int = 0
    gpu: str = ""
    p2p: bool | None = None
    simulated: bool = False  # found in a simulated job: for no real one

    def lines(self) -> Iterable[str]:
        """``fingerprint`` lines of the fields that are known."""
        if self.nccl_version:
            yield f"fingerprint nccl {self.nccl_version}"
        if self.ranks:
            yield f"fingerprint ranks {self.ranks}"
        if self.nodes:
            yield f"fingerprint nodes {self.nodes}"
        if _writable(self.gpu):
            yield f'fingerprint gpu "{self.gpu}"'
        if self.p2p is not None:
            yield f"fingerprint p2p {int(self.p2p)}"
        if self.simulated:
            yield "fingerprint simulated 1"


@dataclass(frozen=True, slots=True)
class Section:
    """One communicator of a saved config."""

    ranks: int
    nodes: int
    ordinal: int
    name: str = ""
    program: TunedProgram | None = None
    assignment: Assignment | None = None  # of the program's sites, all of them
    rules: tuple[Rule, ...] = ()

    def calls(self) -> list[tuple[Site, CommConfig]]:
        """Each call of the program's cycle with its config; empty where only rules were found."""
        if self.program is None or self.assignment is None:
            return []
        return [(self.program.sites[index], self.assignment[index]) for index in self.program.positions]

    def lines(self) -> Iterable[str]:
        """The section, without a final newline."""
        name = f' name="{self.name}"' if _writable(self.name) else ""
        yield f"communicator ranks={self.ranks} nodes={self.nodes} ordinal={self.ordinal}{name}"
        if self.program is not None and self.assignment is not None:
            for site in self.program.sites:
                yield f"site {site.index} {site.function.word} {site.bytes}{_knobs(self.assignment[site.index])}"
            yield f"program {_positions(self.program.positions)}"
        for rule in self.rules:
            function = "any" if rule.function is None else rule.function.word
            upper = "-" if rule.bytes_max == NO_LIMIT else str(rule.bytes_max)
            yield f"rule {function} {rule.bytes_min} {upper}{_knobs(rule.config)}"
        yield "end"


@dataclass(frozen=True, slots=True)
class SavedConfig:
    """The configs that a tuning run found, as its run file holds them: ready to be replayed without a controller.

    Attributes
    ----------
    fingerprint : Fingerprint
        The jobs it is valid for: NCCL version, ranks, nodes, GPU, peer access; a field that is empty is not compared.
    sections : tuple of Section
        One for each communicator: its program with a config for every site, or rules by function and size.
    environment : dict of str to str
        Variables that the job must be started with.
    evidence : tuple of dict
        How the configs were found, one JSON object a communicator; sizes in bytes, times in ns.
    """

    fingerprint: Fingerprint
    sections: tuple[Section, ...]
    environment: dict[str, str] = field(default_factory=dict)
    evidence: tuple[dict[str, Any], ...] = ()


def load_config(path: str | os.PathLike[str]) -> SavedConfig:
    """Read a saved config with the code that replays it.

    Parameters
    ----------
    path : path
        The file that a tuning run wrote into its log folder.

    Returns
    -------
    SavedConfig
        When an iteration was seen and how long it took is not saved: those fields of a section's program are 0.

    Raises
    ------
    BadConfig
        The plugin could not read the file; the message has the reason and the line.
    """
    with _loaded(Path(path)) as config:
        needs = (config.environment[index] for index in range(config.environment_count))
        return SavedConfig(
            _read_fingerprint(config.fingerprint),
            tuple(_read_section(config.sections[index]) for index in range(config.section_count)),
            {_text(entry.name): _text(entry.value) for entry in needs},
            tuple(read_evidence(Path(path))),
        )


def save_config(config: SavedConfig, path: str | os.PathLike[str], *, remark: str = "") -> None:
    """Write a saved config in one step: no reader sees an incomplete file.

    Parameters
    ----------
    config : SavedConfig
        What :func:`load_config` gives back.
    path : path
        The file; one that exists is replaced.
    remark : str, optional
        Comment lines for people.

    Raises
    ------
    lagom.environment.BadEnvironment
        ``config.environment`` has a variable that no saved config may ask for.
    OSError
        The file cannot be written.
    """
    needs = list(_environment_lines(config.environment))
    comments = [f"# {printable(line)}" for line in remark.splitlines()]
    body = itertools.chain.from_iterable(section.lines() for section in config.sections)
    evidence = [EVIDENCE + json.dumps(one, separators=(",", ":")) for one in config.evidence]
    lines = [TITLE, *comments, *config.fingerprint.lines(), *needs, *body, *evidence]
    write_whole(Path(path), "\n".join(lines) + "\n")


def read_evidence(path: Path) -> list[dict[str, Any]]:
    """The evidence of a saved config, in order; empty where it holds none. Lines that are damaged are left out."""
    found = []
    for line in path.read_text(errors="replace").splitlines():
        if line.startswith(EVIDENCE):
            try:
                value = json.loads(line.removeprefix(EVIDENCE))
            except (ValueError, RecursionError):
                continue
            found += [value] if isinstance(value, dict) else []
    return found


def find_evidence(evidence: Iterable[Mapping[str, Any]], ranks: int, ordinal: int) -> Mapping[str, Any]:
    """Of :func:`read_evidence`, what is kept of one communicator; empty where that is nothing."""
    return next((one for one in evidence if (one.get("ranks"), one.get("ordinal")) == (ranks, ordinal)), {})


def check_config(path: Path) -> None:
    """Raises :class:`BadConfig` with the reason, and the line, if the plugin could not read that saved config."""
    with _loaded(path):
        pass


def refuse_simulated(path: Path, environ: Mapping[str, str] | None = None) -> None:
    """Raises :class:`BadConfig` for a saved config of a simulated job, unless ``environ`` starts another one: before
    its variables are set, which nothing takes back once the ranks refuse it."""
    if load_config(path).fingerprint.simulated and not is_simulated(environ):
        refusal = ConfigRefusal("simulated", "simulated", "real")
        raise BadConfig(f"the saved config {path} is refused: {refusal.clause}; `lagom run -- CMD` tunes your own job.")


def _writable(text: str) -> bool:
    """Whether a quoted name can be read back: process groups and GPUs are named elsewhere, and may be named anything.
    One that cannot is left out, which means any."""
    return 0 < len(text.encode(errors="replace")) < NAME_BYTES and text.isprintable() and '"' not in text


def _environment_lines(environment: Mapping[str, str]) -> Iterable[str]:
    for name, value in environment.items():
        if name not in environment_variables.KNOWN or not environment_variables.fits(value):
            raise environment_variables.BadEnvironment(f"a saved config cannot ask for {name}={value!r}; leave it out.")
        yield f'environment {name} "{value}"'


def _knobs(config: CommConfig) -> str:
    named = {
        "algo": None if config.algorithm is None else config.algorithm.name.lower(),
        "proto": None if config.protocol is None else config.protocol.name.lower(),
        "nc": config.channels,
        "chunk": config.chunk_bytes,
        "nt": config.threads,
    }
    return "".join(f" {key}={value}" for key, value in named.items() if value is not None)


def _positions(positions: tuple[int, ...]) -> str:
    runs = ((site, len(list(group))) for site, group in itertools.groupby(positions))
    return " ".join(f"{count}x{site}" if count > 1 else str(site) for site, count in runs)


@contextmanager
def _loaded(path: Path) -> Iterator[Any]:
    config, error = ffi.new("struct lagom_config_file *"), ffi.new("char[256]")
    if library().lagom_config_file_load(os.fsencode(path), config, error, 256) != 0:
        raise _bad_config(path, error)
    try:
        yield config
    finally:
        library().lagom_config_file_free(config)


def _bad_config(path: Path, error: Any) -> BadConfig:
    """The C half's reason, with the file named once: some reasons begin with its name."""
    said = ffi.string(error)
    named = b"the saved config " + os.fsencode(path) + b" "
    reason = b"it " + said[len(named) :] if said.startswith(named) else said
    if named.startswith(said):  # a long path, and the reason cut off
        reason = b"it cannot be read."
    return BadConfig(f"the saved config {path} cannot be used: {reason.decode(errors='replace')}")


def _read_fingerprint(print_: Any) -> Fingerprint:
    return Fingerprint(
        nccl_version=int(print_.nccl_version),
        ranks=int(print_.ranks),
        nodes=int(print_.nodes),
        gpu=ffi.string(print_.gpu).decode(errors="replace"),
        p2p=None if print_.p2p < 0 else bool(print_.p2p),
        simulated=bool(print_.simulated),
    )


def _text(field: Any) -> str:
    return str(ffi.string(field).decode(errors="replace"))


def _read_section(section: Any) -> Section:
    plan = section.content
    program, assignment = _read_program(plan) if plan.position_count else (None, None)
    return Section(
        ranks=int(section.rank_count),
        nodes=int(section.node_count),
        ordinal=int(section.ordinal),
        name=ffi.string(section.name).decode(errors="replace"),
        program=program,
        assignment=assignment,
        rules=tuple(read_rule(plan.rules[index]) for index in range(plan.rule_count)),
    )


def _read_program(plan: Any) -> tuple[TunedProgram, Assignment]:
    positions = tuple(int(plan.positions[index]) for index in range(plan.position_count))
    sites = tuple(
        Site(index, Function(plan.sites[index].function), int(plan.sites[index].bytes), positions.count(index))
        for index in range(plan.site_count)
    )
    shapes = tuple((sites[site].function, sites[site].bytes) for site in positions)
    program = CallProgram(shapes, 0, len(shapes), iterations_seen=0, iteration_ns=0.0)
    configs = tuple(read_config(plan.sites[index].incumbent) for index in range(plan.site_count))
    return TunedProgram(program, sites, positions, len(sites)), Assignment(configs)
