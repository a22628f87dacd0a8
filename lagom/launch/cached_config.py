# SPDX-License-Identifier: Apache-2.0
"""The cached config of an earlier run: used at the start of the same job, updated at its end. Nothing here ends a job:
a problem with the cache only prints one sentence."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

from lagom import headroom
from lagom.config_cache import CachedConfig, ConfigCache, Entry, Job, Machine
from lagom.config_file import BEST_SO_FAR_NAME, load_config
from lagom.doctor.libraries import find_nccl
from lagom.environment import find_gpu, with_conf_files
from lagom.errors import LagomError
from lagom.experiment.fingerprint import env_fingerprint
from lagom.format import format_count
from lagom.journal import RunState, Verdict, refusal_of, verdict_of
from lagom.launch.job_arguments import arguments_that_stay
from lagom.launch.job_plan import local_rank
from lagom.launch.launchers import (
    Ranks,
    Started,
    is_one_of_its_node,
    read_command,
    starts_every_rank,
    words_that_stay,
)
from lagom.launch.status_text import ROOM, paste, shorten
from lagom.settings import cache_folder, is_simulated
from lagom.wire.config_refusal import ConfigRefusal

FAILURES = (OSError, ValueError, LagomError)
LIVE = "lagom run"
MOST_NAMED = 3  # by `lagom env`
#: Words of two commands that differ, where one may be taken for the other.
MOST_OTHER = 4


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the launchers of so many nodes agree on what they take from their caches. ``exchange``: an absolute folder,
    or HOST:PORT. 0 and empty: not told, so that it is as the config was found. ``is_remembered``: the place is that
    where the config was found, perhaps of nodes that are not this job's."""

    nodes: int = 0
    exchange: str = ""
    is_remembered: bool = False

    def with_entry(self, entry: Entry | None) -> Meeting | None:
        """With what the cache remembers; None where this node has nobody to meet, or does not know where."""
        of_cache = Meeting() if entry is None else Meeting(entry.nodes, entry.exchange)
        nodes, exchange = self.nodes or of_cache.nodes, self.exchange or of_cache.exchange
        return Meeting(nodes, exchange, not self.exchange) if nodes > 1 and exchange else None


NOT_TOLD = Meeting()


@dataclass(frozen=True, slots=True)
class CacheUse:
    """What a start takes from the cache. ``environ``: before anything was added; ``config``: to be replayed, None =
    there is none, or it may not be used; ``is_like``: it was found with another seed, output folder or the like;
    ``unfinished``: what an interrupted search had found, to be tried first; ``is_kept``: whether what a search finds is
    kept; ``meeting``: the config may only be used if the other nodes agree, and they wait for this one."""

    command: Sequence[str] = ()
    environ: Mapping[str, str] = field(default_factory=dict)
    config: CachedConfig | None = None
    is_like: bool = False
    unfinished: CachedConfig | None = None
    is_kept: bool = False
    remarks: tuple[str, ...] = ()
    meeting: Meeting | None = None

    def with_remark(self, text: str) -> CacheUse:
        """With one more line about it."""
        return replace(self, remarks=(*self.remarks, text))

    def without_config(self) -> CacheUse:
        """As if the cache held none for this job."""
        return replace(self, config=None, is_like=False, meeting=None)

    def at_end(self, run: RunState) -> Iterator[str]:
        """Keep what the job found, or note that its config did not fit; a line about it."""
        verdict = verdict_of(run)
        if self.config is not None and (refusal := self._refusal(run)) is not None:
            yield _refuse(self.config, refusal, self.environ)
        if self.is_kept and verdict == "improved" and run.end is not None and run.end.config:
            yield keep_config(self.command, Path(run.end.config), self.environ, LIVE).text
        if self.is_kept and run.start is not None and run.start.folder:
            yield from _keep_unfinished(self, verdict, Path(run.start.folder) / BEST_SO_FAR_NAME)

    @property
    def may_tune(self) -> bool:
        """Whether the job is searched where the config does not fit. One with start settings stays: they are in force
        already when that is known."""
        return self.config is not None and not _asks_for_a_start(self.config)

    def _refusal(self, run: RunState) -> ConfigRefusal | None:
        """Why the config did not fit this job; None where it did, or where it is that of a like one."""
        if self.is_like:
            return None
        if self.may_tune and run.start is not None and run.start.mode == "tune":  # so it was searched
            return run.refusal or ConfigRefusal("program")
        return refusal_of(run)


#: Of a job that has nothing to do with the cache.
NO_CACHE = CacheUse()


def find_cached(
    command: Sequence[str], environ: Mapping[str, str], *, may_use: bool, told: Meeting = NOT_TOLD
) -> CacheUse:
    """What the cache holds for a job. Where not every rank is started from here it is only named, unless the launchers
    of all nodes can agree on it: NCCL needs the same settings on every rank, and does not check that. ``told``: where
    they meet, as far as the user says so."""
    if local_rank(environ) not in (None, 0):
        return NO_CACHE
    use = _find(command, environ, may_use=may_use, told=told)
    if use.meeting is None and told.nodes > 1:
        return use.with_remark("nothing is agreed with other nodes: give --rdzv-endpoint HOST:PORT, or LAGOM_EXCHANGE")
    return use


def _find(command: Sequence[str], environ: Mapping[str, str], *, may_use: bool, told: Meeting) -> CacheUse:
    cache, before = _cache(environ), dict(environ)
    nothing = CacheUse(command, before, is_kept=cache is not None, meeting=told.with_entry(None))
    if cache is None:
        return NO_CACHE if nothing.meeting is None else nothing
    if not may_use:
        return nothing
    try:
        use = _look_up(cache, nothing, told)
    except FAILURES as error:
        return nothing.with_remark(_one_line(error))
    config = use.config
    if config is None or config.entry.refused:
        if use.unfinished:
            use = use.with_remark("an interrupted search of this job is continued: what it had found is tried first")
        return replace(use, config=None, is_like=False)
    use = replace(use, unfinished=None)
    started = read_command(command, environ)
    if _may_use(config.entry, use.meeting, started, before):
        text = f"its config was found with {shlex.join(config.entry.job.command)}"
        return use.with_remark(shorten(text, ROOM)) if use.is_like else use
    use = replace(use, config=None, is_like=False)
    return use.with_remark(
        f"tuned before: lagom run --config {paste(config.path)} -- CMD; nothing is set: "
        f"{_why_not(config.entry, use.meeting, started)}, and every rank must have the same settings"
    )


def _look_up(cache: ConfigCache, nothing: CacheUse, told: Meeting) -> CacheUse:
    """All that is there of this job, whether or not it may be used. A like job's config is looked for only
    where no other node could have another."""
    before, job = nothing.environ, _job(nothing.command, nothing.environ)
    found = cache.of_folder(job.folder)
    unfinished = _fitting(_unfinished(before).of_folder(job.folder).configs, job.is_same, before)
    config = _fitting(found.configs, job.is_same, before)
    meeting = told.with_entry(None if config is None or not is_one_of_its_node(before) else config.entry)
    is_like = config is None and meeting is None
    remarks = found.damaged[:1]
    if is_like:
        of_searches = list(filter(_is_of_a_search, found.configs))
        config = _fitting(of_searches, job.is_like, before)
        if config is None and unfinished is None:
            remarks += _why_another(found.configs, of_searches, job)
    elif config is not None and headroom.VARIABLE in load_config(config.path).environment:
        config = None  # head-room is only for who asks for it: it costs memory
    return replace(
        nothing, config=config, is_like=is_like, unfinished=unfinished, meeting=meeting, remarks=tuple(remarks)
    )


def _why_another(configs: Iterable[CachedConfig], of_searches: Sequence[CachedConfig], job: Job) -> list[str]:
    """A line about the newest config of a command with few other arguments, which is not used: who was told that the
    next start replays it wants to know why this one does not."""
    for config in configs:
        kept = config.entry.job
        if config.entry.refused or not kept.is_here(job):
            continue
        words = (job.program, kept.program) if config in of_searches else (job.words, kept.words)
        if what := _other_arguments(*words):
            return [shorten(f"not used, because of {what}: the config found with {shlex.join(kept.command)}", ROOM)]
    return []


def _other_arguments(ours: Sequence[str], theirs: Sequence[str]) -> str:
    """Those of the job that the config's does not have, or which are missing; empty where it is another command."""
    new, gone = [one for one in ours if one not in theirs], [one for one in theirs if one not in ours]
    is_near = 0 < len(new) + len(gone) <= MOST_OTHER and ours[:1] == theirs[:1] and len(ours) > len(new)
    return (" ".join(new) or f"no {' '.join(gone)}") if is_near else ""


def _may_use(entry: Entry, meeting: Meeting | None, started: Started, environ: Mapping[str, str]) -> bool:
    """Whether the config is put in force; where there is a ``meeting``, if all nodes agree."""
    if started.lost:
        return False
    if meeting is None:
        return started.ranks is Ranks.EVERY and entry.nodes == 1
    return entry.nodes == meeting.nodes and started.ranks is not Ranks.AWAY and is_one_of_its_node(environ)


def _why_not(entry: Entry, meeting: Meeting | None, started: Started) -> str:
    if entry.nodes != (meeting.nodes if meeting is not None else 1):
        return f"it was found on {format_count(entry.nodes, 'node')}"
    return started.lost or started.why


class Kept(NamedTuple):
    """Whether a config is in the cache now; ``text``: a line about it, empty where the cache is off."""

    is_kept: bool
    text: str = ""


def keep_config(
    command: Sequence[str],
    config: Path,
    environ: Mapping[str, str],
    by: str,
    *,
    nodes: int = 1,
    exchange: str = "",
) -> Kept:
    """Keep a saved config for the next start of the job.

    ``environ``: that the job was started with, before anything was added. ``by``: the command that found it. ``nodes``:
    those that found it together; each keeps it. ``exchange``: where they met, a folder or HOST:PORT; there they agree
    on it at the next start.
    """
    cache = _cache(environ)
    if cache is None:
        return Kept(False)
    try:
        job, machine = _job(command, environ), _machine(environ)
        if by == LIVE and _has_start_settings(cache, job, machine) and not load_config(config).environment:
            return Kept(False, "the config is not kept: that of lagom tune, which has start settings, stays")
        cache.keep(job, machine, config, by, nodes=nodes, exchange=exchange)
    except FAILURES as error:
        return Kept(False, f"the config is not kept for the next start: {_one_line(error)}")
    return Kept(True, f"the config is kept: {_what_follows(command, environ, nodes if exchange else 1)}")


def _what_follows(command: Sequence[str], environ: Mapping[str, str], nodes: int) -> str:
    if nodes > 1:
        return f"the next start of this job on {nodes} nodes replays it where all of them have it"
    if not starts_every_rank(command, environ):
        return "the next start of this job names it"
    return "the next start of this job replays it, without a search"


def _has_start_settings(cache: ConfigCache, job: Job, machine: Machine) -> bool:
    """Whether what the job has there gains by start settings, which a search in a running job does not know."""
    mine = (one for one in cache.of_folder(job.folder).configs if one.entry.job.is_same(job))
    usable = (one for one in mine if one.entry.machine == machine and not one.entry.refused)
    return any(map(_asks_for_a_start, usable))


def _asks_for_a_start(config: CachedConfig) -> bool:
    try:
        return bool(load_config(config.path).environment)
    except FAILURES:
        return False


def _unfinished(environ: Mapping[str, str]) -> ConfigCache:
    folder = cache_folder(environ)
    assert folder is not None
    return ConfigCache(folder, "unfinished", _identify)


def _keep_unfinished(use: CacheUse, verdict: Verdict, left: Path) -> Iterator[str]:
    """Keep what a search found that ended before its proof; forget it when a search of the job has come to its end."""
    try:
        job, machine = _job(use.command, use.environ), _machine(use.environ)
        if verdict in ("stopped", "cut_short") and left.is_file():
            _unfinished(use.environ).keep(job, machine, left, LIVE)
            yield "the search ended before its proof: the next start of this job tries what it had found first"
        elif verdict in ("improved", "stock_is_best"):
            _unfinished(use.environ).drop(job, machine)
    except FAILURES as error:
        yield shorten(f"what the search had found is not kept for the next start: {_one_line(error)}")


def cached_here(environ: Mapping[str, str]) -> Iterator[str]:
    """Lines about the configs of jobs that were started in the working folder, for who uses variables alone."""
    if (cache := _cache(environ)) is None:
        return
    try:
        found = cache.of_folder(str(Path.cwd()))
    except FAILURES as error:
        yield _one_line(error)
        return
    fitting = [config for config in found.configs if not config.entry.refused]
    fitting = [config for config in fitting if is_simulated(config.entry.job.variables) <= is_simulated(environ)]
    for config in fitting[:MOST_NAMED]:
        yield shorten(f"tuned before in this folder: {shlex.join(config.entry.job.command)}")
        yield f'to use it on every rank: eval "$(lagom env --config {paste(config.path)})"'


def _cache(environ: Mapping[str, str]) -> ConfigCache | None:
    folder = cache_folder(environ)
    return None if folder is None else ConfigCache(folder, identify=_identify)


def _job(command: Sequence[str], environ: Mapping[str, str]) -> Job:
    variables = env_fingerprint(with_conf_files(environ))
    return _identify(Job(command=tuple(command), folder=str(Path.cwd()), variables=variables))


def _identify(job: Job) -> Job:
    """With what tells it from other jobs, by its command and variables: as this release does it."""
    words = words_that_stay(job.command)
    more = {"words": tuple(words), "program": tuple(arguments_that_stay(words))}
    return job.model_copy(update={"variables": env_fingerprint(job.variables), **more})


def _machine(environ: Mapping[str, str]) -> Machine:
    return Machine(gpu=find_gpu(), nccl=find_nccl(environ))


def _fitting(
    configs: Iterable[CachedConfig], is_its: Callable[[Job], bool], environ: Mapping[str, str]
) -> CachedConfig | None:
    """The newest of the job on this machine. The machine is asked only if there is one of the job: it takes time."""
    of_job = [each for each in configs if is_its(each.entry.job)]
    machine = _machine(environ) if of_job else Machine()
    return next((config for config in of_job if config.entry.machine == machine), None)


def _is_of_a_search(config: CachedConfig) -> bool:
    """Whether it is for the iterations of one program only, so that nothing of it comes into force where other calls
    are made."""
    saved = load_config(config.path)
    of_programs = all(section.program is not None and not section.rules for section in saved.sections)
    return config.entry.by == LIVE and not config.entry.refused and not saved.environment and of_programs


def _refuse(config: CachedConfig, refusal: ConfigRefusal, environ: Mapping[str, str]) -> str:
    """A line that says so, and why it may be used again all the same."""
    cache = _cache(environ)
    assert cache is not None
    try:
        cache.refuse(config, refusal)
    except FAILURES as error:
        return shorten(f"the cached config does not fit this job, and that could not be noted: {_one_line(error)}")
    return shorten(f"the cached config is not used at the next start: {refusal.clause}", ROOM)


def _one_line(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"the cache of configs cannot be used: {error.filename or ''}: {error.strerror or error}"
    return str(error).splitlines()[0] if str(error) else type(error).__name__
