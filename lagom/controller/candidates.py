# SPDX-License-Identifier: Apache-2.0
"""What earlier searches found for a communicator, from saved configs of this job and from the atlas: it is tried first
and never trusted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from lagom.atlas import AtlasEntry, key_of
from lagom.atlas.match import suggest
from lagom.config_file import Section, load_config
from lagom.controller.pinned_rules import by_first_rule
from lagom.errors import LagomError
from lagom.program import TunedProgram
from lagom.records import Assignment, CommConfig, Problem, Site
from lagom.search import Suggestion
from lagom.wire.views import CommunicatorView, ProcessView


def candidates_of(
    paths: Iterable[Path], communicator: CommunicatorView, program: TunedProgram, say: Callable[[str], None]
) -> list[Assignment]:
    """The assignments of the tuned sites of ``program`` that these saved configs hold, in order.

    A section counts if it has as many ranks and nodes, and either the same program (function and bytes of each
    position) or rules by function and size; in a file, sections of the same ordinal come first. Whether a value is
    legal here is left to the search. ``say`` hears a sentence for each file that cannot be read or has nothing for this
    communicator.
    """
    found: list[Assignment] = []
    for path in paths:
        try:
            sections = load_config(path).sections
        except (LagomError, OSError) as error:
            say(f"no candidates from {path}: {error}")
            continue
        fitting = [section for section in sections if _fits(section, communicator, program)]
        if not fitting:
            say(f"no candidates from {path} for communicator {communicator.index}: other ranks or calls")
        fitting.sort(key=lambda section: section.ordinal != communicator.ordinal)
        found += [_assignment(section, program) for section in fitting]
    return list(dict.fromkeys(found))


def suggest_from(
    entries: Sequence[AtlasEntry],
    communicator: CommunicatorView,
    process: ProcessView,
    problem: Problem,
    most: int,
    x: float | None,
    y: float | None,
) -> list[Suggestion]:
    """At most ``most`` candidates from the atlas. ``process``: one of the communicator's; ``x``, ``y``: of stock's
    iteration, ns."""
    here = key_of(
        gpu=process.gpu,
        nccl_version=process.nccl_version,
        peer_access=process.peer_access,
        ranks=communicator.rank_count,
        nodes=communicator.node_count,
        x=x,
        y=y,
    )
    return suggest(entries, here, problem, most)


def _fits(section: Section, communicator: CommunicatorView, program: TunedProgram) -> bool:
    if (section.ranks, section.nodes) != (communicator.rank_count, communicator.node_count):
        return False
    return section.program is None or section.program.program.positions == program.program.positions


def _assignment(section: Section, program: TunedProgram) -> Assignment:
    sites = program.sites[: program.tuned]
    if section.program is None or section.assignment is None:
        return Assignment(tuple(by_first_rule(section.rules, site) for site in sites))
    by_position = [section.assignment[site] for site in section.program.positions]
    return Assignment(tuple(_most_common(site, program.positions, by_position) for site in sites))


def _most_common(site: Site, positions: tuple[int, ...], configs: list[CommConfig]) -> CommConfig:
    """Sites may be cut otherwise than in the saved config, by what the timeline has shown: most of its calls decide."""
    return Counter(configs[at] for at, index in enumerate(positions) if index == site.index).most_common(1)[0][0]
