# SPDX-License-Identifier: Apache-2.0
"""Which arms ``lagom bench`` wants compared within this job: from its file to assignments of this run's sites.

The file is written before anything is known of the job, so it says what is meant (a cap, rules, a file, a sweep);
here it meets the sites that were found, what NCCL picks at them, and the knobs there are.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from pydantic import BaseModel, ConfigDict, ValidationError

from lagom.controller.pinned_rules import by_first_rule, left_out, settable
from lagom.errors import LagomError
from lagom.records import STOCK, Assignment, CommConfig, Function, Problem, Site
from lagom.search.comparison import Arm
from lagom.search.space import CHANNELS, CHUNKS
from lagom.settings import split_rules
from lagom.wire.plan import parse_rule

#: A grid beyond this many points is thinned: a cycle of it would outlast most jobs' patience.
GRID_LIMIT = 48


class BadArms(LagomError):
    """The file of arms cannot be read, or an arm cannot be had on this job."""


class SiteWish(BaseModel):
    """A config for the calls of one site, as a log names them."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    function: str
    bytes: int
    context: str = ""
    channels: int | None = None
    threads: int | None = None
    chunk_bytes: int | None = None
    algorithm: int | None = None
    protocol: int | None = None


class ArmWish(BaseModel):
    """One arm. Exactly one of the ways to say it: nothing (stock), ``rules``, ``cap`` (with ``threads``), ``config``,
    ``sites``, ``sweep`` (every cap below what NCCL built) or ``grid`` (every cap with every chunk)."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    name: str
    rules: str = ""
    cap: int | None = None
    threads: int | None = None
    config: Path | None = None
    sites: tuple[SiteWish, ...] | None = None
    sweep: bool = False
    grid: bool = False


class ArmsFile(BaseModel):
    """The whole file."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    arms: tuple[ArmWish, ...]
    cycles: int = 8


def read_arms(path: Path) -> ArmsFile:
    """The file that ``lagom bench`` wrote; raises :class:`BadArms`."""
    try:
        return ArmsFile.model_validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise BadArms(f"the arms in {path} cannot be read: {error}") from error


def resolve(wishes: Sequence[ArmWish], problem: Problem, positions: Sequence[int]) -> tuple[list[Arm], list[str]]:
    """The arms as assignments of ``problem``'s sites, and a sentence for each that is not what was asked.

    ``positions`` are the site of each position of the iteration. An arm that comes out as stock although more was asked
    is left out and named; stock itself is always among the arms.
    """
    arms, remarks = {"stock": Arm("stock", Assignment.stock(len(problem.sites)))}, []
    for wish in wishes:
        try:
            found = list(_arms_of(wish, problem, positions))
        except BadArms as error:
            remarks.append(f"arm {wish.name} is left out: {error}")
            continue
        for arm, asked in found:
            remarks += [f"arm {arm.name}: {sentence}" for sentence in left_out(asked, problem.knobs)]
            # Caps of several origins often are one, and one above what NCCL built is stock.
            may_be_one = wish.cap is not None or arm.assignment.is_stock
            twins = [one for one in arms.values() if may_be_one and one.assignment == arm.assignment]
            if not twins:
                arms.setdefault(arm.name, arm)
                continue
            twin = twins[0]
            if arm.name != twin.name:
                remarks.append(f"arm {arm.name} is left out: here it is the same as {twin.name}")
            arms[twin.name] = replace(twin, sweep="")  # asked for by name too
    return list(arms.values()), list(dict.fromkeys(remarks))


def _arms_of(wish: ArmWish, problem: Problem, positions: Sequence[int]) -> Iterator[tuple[Arm, list[CommConfig]]]:
    """(arm, the configs that were asked for) of one wish; several of a sweep or grid."""
    if wish.sweep:
        for cap in _caps(problem):
            yield _everywhere(f"{wish.name}={cap}", problem, cap, wish.threads, None, sweep=wish.name)
    elif wish.grid:
        for channels, chunk in _grid(problem):
            name = f"{wish.name}:{CommConfig(channels=channels, chunk_bytes=chunk)}".replace(" ", ",")
            yield _everywhere(name, problem, channels, wish.threads, chunk, sweep=wish.name)
    elif wish.cap is not None:
        yield _everywhere(wish.name, problem, wish.cap, wish.threads, None)
    else:
        asked = _by_site(wish, problem, positions)
        configs = tuple(settable(config, problem.knobs) for config in asked)
        yield Arm(wish.name, Assignment(configs)), asked


def _by_site(wish: ArmWish, problem: Problem, positions: Sequence[int]) -> list[CommConfig]:
    if wish.config is not None:
        return _of_config(wish.config, problem, positions)
    if wish.sites is not None:
        return [_of_wishes(wish.sites, site) for site in problem.sites]
    rules = [parse_rule(text) for text in split_rules(wish.rules)]
    return [by_first_rule(rules, site) for site in problem.sites]


def _of_wishes(wishes: Sequence[SiteWish], site: Site) -> CommConfig:
    """The wish of the same function, size and context; without contexts that of the same function and size."""
    same = [wish for wish in wishes if (wish.function, wish.bytes) == (site.function.word, site.bytes)]
    exact = [wish for wish in same if wish.context == site.context]
    chosen = (exact or same)[:1]
    fields = ("algorithm", "protocol", "channels", "threads", "chunk_bytes")
    return CommConfig(**{name: getattr(chosen[0], name) for name in fields}) if chosen else STOCK


# -- caps


def _caps(problem: Problem) -> list[int]:
    """Rungs of the channel ladder below what NCCL takes at some site, highest first."""
    return [cap for cap in sorted(CHANNELS, reverse=True) if any(cap < own for own in problem.stock_channels)]


def _everywhere(
    name: str, problem: Problem, cap: int | None, threads: int | None, chunk: int | None, *, sweep: str = ""
) -> tuple[Arm, list[CommConfig]]:
    """One setting for all sites. A site that is below the cap anyway keeps its own channels."""
    asked = [
        CommConfig(channels=cap if cap is not None and cap < own else None, threads=threads, chunk_bytes=chunk)
        for own in problem.stock_channels
    ]
    return Arm(name, Assignment(tuple(settable(config, problem.knobs) for config in asked)), sweep), asked


def _grid(problem: Problem) -> list[tuple[int | None, int | None]]:
    """Caps x chunks without the point that is stock, thinned evenly to :data:`GRID_LIMIT`."""
    chunks: list[int | None] = [None]
    if problem.knobs.chunk:
        chunks += [chunk for chunk in CHUNKS if chunk < problem.chunk_ceiling]
    points = [point for point in itertools.product([None, *_caps(problem)], chunks) if point != (None, None)]
    step = max(1, -(-len(points) // GRID_LIMIT))
    return points[::step]


# -- saved configs


def _of_config(path: Path, problem: Problem, positions: Sequence[int]) -> list[CommConfig]:
    """What the saved config's program says for each of our sites, position by position; else its rules.

    Both programs are the same cycle of calls, but may begin it elsewhere: they are turned until they fit.
    """
    from lagom.config_file import load_config

    ours = [
        (problem.sites[site].function, problem.sites[site].bytes) if site < len(problem.sites) else None
        for site in positions
    ]
    sections = load_config(path).sections
    for section in sections:
        theirs = section.calls()
        turned = _turn([(site.function, site.bytes) for site, _ in theirs], ours)
        if turned is not None:
            configs = [config for _, config in theirs[turned:] + theirs[:turned]]
            return _one_each(configs, positions, len(problem.sites))
    rules = [rule for section in sections for rule in section.rules]
    if not rules:
        raise BadArms(f"no program of {path} is this job's")
    return [by_first_rule(rules, site) for site in problem.sites]


def _turn(theirs: list[tuple[Function, int]], ours: Sequence[tuple[Function, int] | None]) -> int | None:
    """By how much ``theirs`` begins earlier in the cycle than ``ours``; None if it is another cycle. Calls of sites
    that are too light to be tuned are None in ``ours`` and fit anything."""
    if len(theirs) != len(ours):
        return None
    for turned in range(len(theirs)):
        rotated = theirs[turned:] + theirs[:turned]
        if all(mine is None or mine == other for mine, other in zip(ours, rotated, strict=True)):
            return turned
    return None


def _one_each(configs: Sequence[CommConfig], positions: Sequence[int], sites: int) -> list[CommConfig]:
    """One config for each of our sites; refused where the saved config distinguishes calls that are one site here."""
    found: dict[int, CommConfig] = {}
    for site, config in zip(positions, configs, strict=True):
        if site < sites and found.setdefault(site, config) != config:
            raise BadArms("the saved config distinguishes calls that are one site in this run")
    return [found.get(site, STOCK) for site in range(sites)]
