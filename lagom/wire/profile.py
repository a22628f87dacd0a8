"""Reads a profile back, by the same C code that replays it: one reader, one truth."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lagom.errors import LagomError
from lagom.profile_file import Fingerprint, Section
from lagom.program.detect import Program
from lagom.program.sites import TunedProgram
from lagom.records import Assignment, Function, Site
from lagom.wire.layout import ffi
from lagom.wire.library import library
from lagom.wire.plan import read_config, read_rule


class BadProfile(LagomError):
    """A profile that cannot be read."""


def read_profile(path: Path) -> tuple[Fingerprint, tuple[Section, ...]]:
    """The fingerprint and every communicator's section; raises :class:`BadProfile` with the reason, and the line.

    A profile does not say when an iteration was seen, or how long it took: those fields of a section's program are 0.
    """
    with _loaded(path) as profile:
        return _fingerprint(profile.fingerprint), tuple(
            _section(profile.sections[index]) for index in range(profile.section_count)
        )


def read_environment(path: Path) -> dict[str, str]:
    """What the profile asks the job to be started with; raises :class:`BadProfile`."""
    with _loaded(path) as profile:
        entries = (profile.environment[index] for index in range(profile.environment_count))
        return {_text(entry.name): _text(entry.value) for entry in entries}


def check_profile(path: Path) -> None:
    """Raises :class:`BadProfile` with the reason, and the line, if the plugin could not read that profile."""
    with _loaded(path):
        pass


@contextmanager
def _loaded(path: Path) -> Iterator[Any]:
    profile, error = ffi.new("struct lagom_profile *"), ffi.new("char[256]")
    if library().lagom_profile_load(os.fsencode(path), profile, error, 256) != 0:
        raise _bad_profile(path, error)
    try:
        yield profile
    finally:
        library().lagom_profile_free(profile)


def _bad_profile(path: Path, error: Any) -> BadProfile:
    """What the C side said of a profile it could not load, with the profile named once: some of it begins with that."""
    said = ffi.string(error)
    named = b"the profile " + os.fsencode(path) + b" "
    reason = b"it " + said[len(named) :] if said.startswith(named) else said
    if named.startswith(said):  # a long path, and the reason cut off
        reason = b"it cannot be read."
    return BadProfile(f"the profile {path} cannot be used: {reason.decode(errors='replace')}")


def _fingerprint(print_: Any) -> Fingerprint:
    return Fingerprint(
        nccl_version=int(print_.nccl_version),
        ranks=int(print_.ranks),
        nodes=int(print_.nodes),
        gpu=ffi.string(print_.gpu).decode(errors="replace"),
        p2p=None if print_.p2p < 0 else bool(print_.p2p),
    )


def _text(field: Any) -> str:
    return str(ffi.string(field).decode(errors="replace"))


def _section(section: Any) -> Section:
    plan = section.content
    program, assignment = _program(plan) if plan.position_count else (None, None)
    return Section(
        ranks=int(section.rank_count),
        nodes=int(section.node_count),
        ordinal=int(section.ordinal),
        name=ffi.string(section.name).decode(errors="replace"),
        program=program,
        assignment=assignment,
        rules=tuple(read_rule(plan.rules[index]) for index in range(plan.rule_count)),
    )


def _program(plan: Any) -> tuple[TunedProgram, Assignment]:
    positions = tuple(int(plan.positions[index]) for index in range(plan.position_count))
    sites = tuple(
        Site(index, Function(plan.sites[index].function), int(plan.sites[index].bytes), positions.count(index))
        for index in range(plan.site_count)
    )
    shapes = tuple((sites[site].function, sites[site].bytes) for site in positions)
    program = Program(shapes, 0, len(shapes), steady=False, iterations_seen=0, iteration_ns=0.0)
    configs = tuple(read_config(plan.sites[index].incumbent) for index in range(plan.site_count))
    return TunedProgram(program, sites, positions, len(sites)), Assignment(configs)
