# SPDX-License-Identifier: Apache-2.0
"""What a decision log gives reason to try at the next start.

A log measures configs of calls, not settings of a start: what follows from it is a proposal. One thing a job with
head-room does settle: that its search tried the further channels and kept none.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

from lagom import journal
from lagom.format import format_percent, format_site
from lagom.headroom import MOST_CHANNELS, Headroom, parse
from lagom.journal import CommState, RunState
from lagom.report.advice import Advice, Group, Standing


def advise_from_log(run: RunState) -> tuple[Advice, ...]:
    """Proposals of a log's newest job, and its verdict on head-room."""
    room = parse(run.start.headroom) if run.start is not None else None
    found: list[Advice] = []
    for search in run.searched:
        found += _of_search(search, _built(search), room, alone=len(run.comms) == 1)
    return (*found, *_send_recv(run.end))


def _built(comm: CommState) -> int | None:
    return comm.program.channels_built if comm.program is not None else None


def _of_search(search: CommState, built: int | None, room: Headroom | None, *, alone: bool) -> list[Advice]:
    outcome = search.outcome
    if outcome is None or outcome.verdict == "stopped":
        return []
    found = [_headroom_used(search, outcome, room)] if room is not None else _headroom_wanted(search, built)
    if outcome.verdict == "improved":
        found += [*_caps(search, outcome.reason, built, alone=alone), *_threads(search, outcome.reason)]
    return found


# -- head-room


def _headroom_wanted(search: CommState, built: int | None) -> list[Advice]:
    """The search ended at all the channels there are, at a site where fewer made the iteration slower."""
    if built is None or built >= MOST_CHANNELS:
        return []
    ends = [
        (place, move) for place in range(len(search.sites)) if (move := _last_channel_paid(search, place)) is not None
    ]
    if not ends:
        return []
    place, move = ends[0]
    higher = min(MOST_CHANNELS, max(built + 8, built * 4 // 3))
    evidence = (
        f"{len(ends)} of {len(search.sites)} sites ended at NCCL's own {built} channels, the most it built, and "
        f"the last ones still helped, as at {format_site(search.sites[place])}: {move.reason} (move #{move.number})"
    )
    room = Headroom(higher, built)
    return [
        Advice("head-room: more channels than NCCL builds by itself", Standing.PROPOSAL, evidence,
               room.environment(), arms=(f"headroom={room}",))
    ]  # fmt: skip


def _last_channel_paid(search: CommState, place: int) -> journal.Move | None:
    """The move that shows it: up to all channels was faster, or down from them slower, with nothing else changed. Only
    of a site that the search left at all of them."""
    if place >= len(search.chosen) or search.chosen[place].channels is not None:
        return None
    for at, move in reversed(list(enumerate(search.moves))):
        before = [earlier.candidate for earlier in search.moves[:at]]
        up = move.verdict == "better" and any(_only_channels(old, move.candidate, place) for old in before)
        down = move.verdict == "worse" and any(_only_channels(move.candidate, old, place) for old in before)
        if up or down:
            return move
    return None


def _only_channels(
    fewer: Sequence[journal.ConfigRecord], all_of_them: Sequence[journal.ConfigRecord], place: int
) -> bool:
    """Whether two points differ in the channels of that site and in nothing else: fewer, or all. A move that changed
    other sites, too, says nothing of this one."""
    different = [(at, old, new) for at, (old, new) in enumerate(zip(fewer, all_of_them, strict=False)) if old != new]
    return [at for at, _, _ in different] == [place] and all(
        old.channels is not None and old.model_copy(update={"channels": None}) == new for _, old, new in different
    )


def _headroom_used(search: CommState, outcome: journal.Outcome, room: Headroom) -> Advice:
    """The job had it: the search tried more channels than stock's, and either keeps some or gave them back."""
    kept = _channels_above(room.stock, search.chosen)
    measured = (move.candidate for move in search.moves if move.verdict not in ("more", "missing"))
    tried = _channels_above(room.stock, chain.from_iterable(measured))
    kept_none = f"the job had it; {', '.join(map(str, tried))} channels were tried and none was kept"
    if kept and outcome.verdict == "improved" and outcome.speedup is not None:
        evidence = (
            f"a job with it ended on up to {kept[-1]} channels, {outcome.reason}; that is tuning and head-room "
            "together against plain NCCL, and what head-room adds to tuning was not measured"
        )
    elif not tried:
        evidence = f"the job had it, and its search never went above plain NCCL's {room.stock} channels"
    elif outcome.cut_short:
        evidence = f"{kept_none}, but the search was cut short"
    else:
        seen = f"at a resolution of {format_percent(outcome.resolvable or 0)}"
        evidence = f"{kept_none}, {seen}: start without, and save the memory"
        return Advice(f"head-room {room}", Standing.NO_GAIN, evidence, arms=(f"headroom={room}",))
    return Advice(f"head-room {room}", Standing.PROPOSAL, evidence, room.environment(), arms=(f"headroom={room}",))


def _channels_above(least: int, configs: Iterable[journal.ConfigRecord]) -> list[int]:
    return sorted({config.channels for config in configs if config.channels is not None and config.channels > least})


# -- caps and threads for a whole group


def _caps(search: CommState, reason: str, built: int | None, *, alone: bool) -> list[Advice]:
    """Every site that was tuned ended on fewer channels: a cap for the group would hold even without the tuner."""
    chosen = [config.channels for config in search.chosen]
    cap = max((channels for channels in chosen if channels is not None), default=None)
    if cap is None or None in chosen or (built is not None and cap >= built):
        return []
    name = search.given_name
    evidence = (
        f"every tuned site of {name or 'the communicator'} runs on at most {cap} channels, {reason}; "
        "that was measured with a config a call, not as one cap for the group"
    )
    groups = (Group(name, cap, alone),) if name else ()
    what = f"at most {cap} CTAs for {name or 'this process group'}, without the tuner"
    return [Advice.of_variable(what, evidence, "NCCL_MAX_CTAS", cap, groups)]


def _threads(search: CommState, reason: str) -> list[Advice]:
    chosen = {config.threads for config in search.chosen if config.threads is not None}
    if len(chosen) != 1:
        return []
    threads = chosen.pop()
    evidence = (
        f"{threads} threads a channel are part of the config that was kept per call, {reason}; not measured by "
        "themselves"
    )
    return [Advice.of_variable(f"{threads} threads a CTA for every call", evidence, "NCCL_NTHREADS", threads)]


# -- send/recv


def _send_recv(end: journal.JobEnd | None) -> list[Advice]:
    """EP's AlltoAll and pipeline sends: NCCL asks no tuner about them. By hand no setting helped everywhere: what was
    9 % faster on one machine through host memory gained nothing, or lost, on another."""
    calls = [
        (record.name or f"communicator {record.communicator}", record.send_recv)
        for record in (end.not_asked if end is not None else ())
        if record.send_recv
    ]
    if not calls:
        return []
    names, counts = zip(*calls, strict=True)
    evidence = (
        f"{sum(counts)} send/recv calls (AlltoAll among them) on {', '.join(names)}; their channels, chunk and buffer "
        "stand at init, and which helps depends on the transport: `lagom tune -- CMD` finds it out and tries them"
    )
    return [Advice("start settings for send/recv and AlltoAll", Standing.PROPOSAL, evidence)]
