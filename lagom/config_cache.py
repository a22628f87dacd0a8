# SPDX-License-Identifier: Apache-2.0
"""Saved configs of jobs that were tuned before, kept for their next start.

One file an entry, ``configs/<working folder>-<job>.lagom`` in the cache folder: a saved config like any other, with a
comment that says whose it is, and one by which a damaged file is known. A file is replaced in one step, so that jobs at
once need no lock, and ranks read it as they read any saved config. ``unfinished/`` beside it holds the best so far of
searches that were interrupted, which proves nothing; what belongs to no single job is to lie in a folder of its own,
too.
"""

from __future__ import annotations

import hashlib
import heapq
import re
import stat
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from lagom.config_file import refuse_simulated
from lagom.errors import LagomError
from lagom.files import not_ours, read_own, write_whole
from lagom.wire.config_refusal import ConfigRefusal

#: In a word of a command: `lagom tune` puts the number of the process there.
PLACEHOLDER = "{trial}"
#: How the comment begins that holds the entry.
ENTRY = "# job: "
#: And the one that holds a digest of all other lines: a file that was cut is still a saved config, of other settings.
CHECK = "# check: "
SUFFIX = ".lagom"
#: What a file may say of when it was written: the year 9999 in any time zone.
LATEST = 253_402_000_000.0
WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class CacheRefused(LagomError):
    """The cache cannot be used, or a file of it: one sentence."""


class _Stored(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Job(_Stored):
    """A job as it is started. ``words``: those of its command that are the same at each start; ``program``: of these
    all that may make another program, so not its seed or output folder; ``variables``: those that make another job of
    the same command."""

    command: tuple[str, ...]
    folder: str
    variables: dict[str, str]
    words: tuple[str, ...] = ()  # empty: kept by an older release
    program: tuple[str, ...] = ()

    def is_same(self, other: Job) -> bool:
        """The placeholder, in a word of either command, stands for any text; what is around it must be the same."""
        return self.is_here(other) and _are_same(self.words or self.command, other.words or other.command)

    def is_like(self, other: Job) -> bool:
        """The same but for what is another at each start of one program."""
        return self.is_here(other) and _are_same(self.program, other.program)

    def is_here(self, other: Job) -> bool:
        """Whether it is started in the same folder, with the same variables."""
        return (self.folder, self.variables) == (other.folder, other.variables)


class Machine(_Stored):
    """``gpu``: its name; ``nccl``: version code of the NCCL that a job would load. Empty and 0 = none is known."""

    gpu: str = ""
    nccl: int = 0


class Entry(_Stored):
    """Whose config a file holds. ``written``: seconds since 1970; ``by``: the command; ``refused``: why it did not fit
    the job when it was used, None = it did. ``nodes``: that found it together, and have it in their caches;
    ``exchange``: where they met, an absolute folder or HOST:PORT."""

    job: Job
    machine: Machine
    written: float = Field(ge=0.0, le=LATEST, allow_inf_nan=False)
    by: str
    refused: ConfigRefusal | None = None
    nodes: int = Field(1, ge=1)
    exchange: str = ""


@dataclass(frozen=True, slots=True)
class CachedConfig:
    """A file of the cache, which is a saved config, and whose it is."""

    path: Path
    entry: Entry

    @property
    def origin(self) -> str:
        """``lagom tune on 2026-11-25``, local time."""
        return f"{self.entry.by} on {time.strftime('%Y-%m-%d', time.localtime(self.entry.written))}"


@dataclass(frozen=True, slots=True)
class Listing:
    """``configs``: the newest first; ``damaged``: a sentence for each file that cannot be used."""

    configs: list[CachedConfig] = field(default_factory=list)
    damaged: list[str] = field(default_factory=list)


class ConfigCache:
    """The configs below a cache folder, which is made when something is kept. Every method but :meth:`count` raises
    :class:`CacheRefused` where another user could have written what it holds, and OSError where it cannot be used.
    ``identify``: makes of a job in a file, which an older release may have written, the one that is compared."""

    def __init__(
        self,
        folder: Path,
        kind: Literal["configs", "unfinished"] = "configs",
        identify: Callable[[Job], Job] = lambda job: job,
    ) -> None:
        self.folder = folder
        self._configs = folder / kind
        self._identify = identify

    def check(self) -> None:
        """Raise :class:`CacheRefused` if one of the folders is not this user's alone; one that is not there is fine."""
        for folder in (self.folder, self._configs):
            try:
                reason = not_ours(folder) or _writable_by_others(folder)
            except FileNotFoundError:
                continue
            if reason:
                raise CacheRefused(f"the cache folder {folder} {reason}, so it is not used; LAGOM_CACHE names another.")

    def count(self) -> int:
        """How many files there are."""
        return len(list(self._configs.glob(f"*{SUFFIX}")))

    def of_folder(self, folder: str) -> Listing:
        """What is kept of jobs that were started in a working folder."""
        found = self._listing(f"{_digest(folder)}-*{SUFFIX}")
        return Listing([one for one in found.configs if one.entry.job.folder == folder], found.damaged)

    def everything(self, most: int) -> Listing:
        """What is kept of all jobs: the ``most`` files that were written last."""
        return self._listing(f"*{SUFFIX}", most)

    def _listing(self, pattern: str, most: int | None = None) -> Listing:
        self.check()
        found, paths = Listing(), self._configs.glob(pattern)
        for path in paths if most is None else heapq.nlargest(most, paths, key=_changed):
            try:
                config = self._read(path)
            except FileNotFoundError:  # removed since
                continue
            except (OSError, ValueError) as error:
                found.damaged.append(f"the cached config {path} is damaged, so it is not used; remove it ({error}).")
                continue
            found.configs.append(config)
        found.configs.sort(key=lambda config: config.entry.written, reverse=True)
        return found

    def keep(self, job: Job, machine: Machine, config: Path, by: str, *, nodes: int = 1, exchange: str = "") -> Path:
        """Keep a copy of a saved config, in place of what the job has here; returns its file. A command with the
        placeholder stays, because it says more than one without. ``nodes``, ``exchange``: as in :class:`Entry`."""
        refuse_simulated(config, job.variables)
        same = [one for one in self.of_folder(job.folder).configs if _is_for(one.entry, job, machine)]
        if not any(PLACEHOLDER in word for word in job.command):
            general = (one.entry.job for one in same if any(PLACEHOLDER in word for word in one.entry.job.command))
            job = next(general, job)
        name = f"{_digest(job.folder)}-{_digest(job.model_dump_json(), machine.model_dump_json())}{SUFFIX}"
        path = self._configs / name
        entry = Entry(job=job, machine=machine, written=time.time(), by=by, nodes=nodes, exchange=exchange)
        for folder in (self.folder, self._configs):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path, config.read_text(), entry)
        for one in same:
            if one.path != path:
                one.path.unlink(missing_ok=True)
        return path

    def drop(self, job: Job, machine: Machine) -> None:
        """Remove what the job has here."""
        for one in self.of_folder(job.folder).configs:
            if _is_for(one.entry, job, machine):
                one.path.unlink(missing_ok=True)

    def refuse(self, config: CachedConfig, refusal: ConfigRefusal) -> None:
        """Note that it did not fit the job. One that was replaced since is another's, and stays as it is."""
        self.check()
        try:
            if self._read(config.path).entry == config.entry:
                entry = config.entry.model_copy(update={"refused": refusal})
                _write(config.path, config.path.read_text(), entry)
        except (FileNotFoundError, ValueError):
            return

    def _read(self, path: Path) -> CachedConfig:
        """Raises ValueError or OSError where the file is not as it was written."""
        entry = _read_entry(path)
        return CachedConfig(path, entry.model_copy(update={"job": self._identify(entry.job)}))


def _are_same(ours: Sequence[str], theirs: Sequence[str]) -> bool:
    return len(ours) == len(theirs) and all(
        one == other or _stands_for(one, other) or _stands_for(other, one)
        for one, other in zip(ours, theirs, strict=True)
    )


def _stands_for(pattern: str, word: str) -> bool:
    """No blank and no shell operator is taken by the placeholder: in ``bash -c "train --out run-{trial}"`` it is a part
    of one word, not the rest of the script. Alone it is no option."""
    parts = pattern.split(PLACEHOLDER)
    if len(parts) == 1 or (word.startswith("-") and not pattern.startswith("-")):
        return False
    return re.fullmatch(r"[^\s;&|]*".join(map(re.escape, parts)), word) is not None


def _changed(path: Path) -> float:
    """When a file was written, by the file system; 0 where it is no more."""
    try:
        return path.lstat().st_mtime
    except OSError:
        return 0.0


def _is_for(entry: Entry, job: Job, machine: Machine) -> bool:
    return entry.machine == machine and entry.job.is_same(job)


def _writable_by_others(path: Path) -> str:
    return "may be written by others" if path.stat().st_mode & WRITABLE_BY_OTHERS else ""


def _digest(*texts: str) -> str:
    return hashlib.sha256("\0".join(texts).encode(errors="surrogateescape")).hexdigest()[:16]


def _read_entry(path: Path) -> Entry:
    text = read_own(path)
    if reason := _writable_by_others(path):
        raise ValueError(f"it {reason}")
    lines = text.removesuffix("\n").split("\n")  # a command may hold what splitlines() takes for an end, too
    if CHECK + _digest(*(line for line in lines if not line.startswith(CHECK))) not in lines or not text.endswith("\n"):
        raise ValueError("it does not hold what was written")
    line = next((line for line in lines if line.startswith(ENTRY)), "")
    try:
        return Entry.model_validate_json(line.removeprefix(ENTRY))
    except ValidationError as error:
        raise ValueError("it does not say whose it is") from error


def _write(path: Path, config: str, entry: Entry) -> None:
    """The entry after the first line, which is the format's title; one that is there already is replaced."""
    title, *rest = config.removesuffix("\n").split("\n")
    kept = (line for line in rest if not line.startswith((ENTRY, CHECK)))
    lines = [title, ENTRY + entry.model_dump_json(), *kept]
    write_whole(path, "\n".join([lines[0], CHECK + _digest(*lines), *lines[1:]]) + "\n", mode=0o600)
