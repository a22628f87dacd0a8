# SPDX-License-Identifier: Apache-2.0
"""What a decision log gives reason to try at the next start.

A log measures configs of calls, not settings of a start: what follows from it is a proposal. One thing a job with
head-room does settle: that its search tried the further channels and kept none.
"""

from __future__ import annotations

from collections.abc import Sequence

from lagom import journal
from lagom.format import format_percent, format_site
from lagom.headroom import MOST_CHANNELS, Headroom, parse
from lagom.journal import CommState, RunState
from lagom.report.advice import Advice, Group, Standing

#: Channels of send/recv worth a try, as shares of what NCCL derives: p2pnChannels is a power of two.
_P2P_SHARES = (2, 4)
_P2P_CHUNKS = {"NCCL_P2P_NVL_CHUNKSIZE": (262144, 1048576)}


def advise_from_log(run: RunState) -> tuple[Advice, ...]:
    """Proposals of a log's newest job, and its verdict on head-room."""
    room = parse(run.start.headroom) if run.start is not None else None
    found: list[Advice] = []
    for search in run.searched:
        found += _of_search(search, _built(search), room, alone=len(run.comms) == 1)
    most = max((built for comm in run.comms.values() if (built := _built(comm))), default=None)
    return (*found, *_send_recv(run.end, most))


def _built(comm: CommState) -> int | None:
    return comm.program.channels_built if comm.program is not None else None


def _of_search(search: CommState, built: int | None, room: Headroom | None, *, alone: bool) -> list[Advice]:
    outcome = search.outcome
    if outcome is None or outcome.verdict == "stopped":
        return []
    found = [_headroom_used(search, room)] if room is not None else _headroom_wanted(search, built)
    return [*found, *_caps(search, built, alone=alone), *_threads(search)]


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
    outcome = search.outcome
    assert outcome is not None
    if place >= len(outcome.configs_chosen) or outcome.configs_chosen[place].channels is not None:
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
    """Whether two points differ at that site (and others changed with it) only in channels: fewer, or all."""
    pairs = list(zip(fewer, all_of_them, strict=False))
    different = [(old, new) for old, new in pairs if old != new]
    return (
        place < len(pairs)
        and pairs[place] in different
        and all(old.channels is not None and old.model_copy(update={"channels": None}) == new for old, new in different)
    )


def _headroom_used(search: CommState, room: Headroom) -> Advice:
    """The job had it: the search tried more channels than stock's, and either keeps some or gave them back."""
    outcome = search.outcome
    assert outcome is not None
    above = [c.channels for c in outcome.configs_chosen if c.channels is not None and c.channels > room.stock]
    what, arms = f"head-room {room}", (f"headroom={room}",)
    if above and outcome.verdict == "improved" and outcome.speedup is not None:
        evidence = (
            f"a job with it ended on up to {max(above)} channels, {outcome.reason}; that is tuning and head-room "
            "together against plain NCCL, and what head-room adds to tuning was not measured"
        )
        return Advice(what, Standing.PROPOSAL, evidence, room.environment(), arms=arms)
    measured = [move for move in search.moves if move.verdict not in ("more", "missing")]
    tried = {c.channels for move in measured for c in move.candidate if (c.channels or 0) > room.stock}
    if not tried:
        evidence = f"the job had it, and its search never went above plain NCCL's {room.stock} channels"
        return Advice(what, Standing.PROPOSAL, evidence, room.environment(), arms=arms)
    channels = ", ".join(map(str, sorted(filter(None, tried))))
    kept_none = f"the job had it; {channels} channels were tried and none was kept"
    if outcome.cut_short:
        evidence = f"{kept_none}, but the search was cut short"
        return Advice(what, Standing.PROPOSAL, evidence, room.environment(), arms=arms)
    seen = f"at a resolution of {format_percent(outcome.resolvable or 0)}"
    evidence = f"{kept_none}, {seen}: start without, and save the memory"
    return Advice(what, Standing.NO_GAIN, evidence, arms=arms)


# -- caps and threads for a whole group


def _caps(search: CommState, built: int | None, *, alone: bool) -> list[Advice]:
    """Every site that was tuned ended on fewer channels: a cap for the group would hold even without the tuner."""
    outcome = search.outcome
    assert outcome is not None
    chosen = [config.channels for config in outcome.configs_chosen]
    if outcome.verdict != "improved" or not chosen or None in chosen:
        return []
    cap = max(channels for channels in chosen if channels is not None)
    if built is not None and cap >= built:
        return []
    name = search.communicator.name if search.communicator is not None else ""
    evidence = (
        f"every tuned site of {name or 'the communicator'} runs on at most {cap} channels, {outcome.reason}; "
        "that was measured with a config a call, not as one cap for the group"
    )
    groups = (Group(name, cap, alone),) if name else ()
    return [
        Advice(f"at most {cap} CTAs for {name or 'this process group'}, without the tuner", Standing.PROPOSAL,
               evidence, {"NCCL_MAX_CTAS": str(cap)}, groups, (f"env=NCCL_MAX_CTAS={cap}",))
    ]  # fmt: skip


def _threads(search: CommState) -> list[Advice]:
    outcome = search.outcome
    assert outcome is not None
    chosen = {config.threads for config in outcome.configs_chosen if config.threads is not None}
    if outcome.verdict != "improved" or len(chosen) != 1:
        return []
    threads = chosen.pop()
    evidence = (
        f"{threads} threads a channel are part of the config that was kept per call, {outcome.reason}; not measured "
        "by themselves"
    )
    return [
        Advice(f"{threads} threads a CTA for every call", Standing.PROPOSAL, evidence, {"NCCL_NTHREADS": str(threads)},
               arms=(f"env=NCCL_NTHREADS={threads}",))
    ]  # fmt: skip


# -- send/recv


def _send_recv(end: journal.JobEnd | None, built: int | None) -> list[Advice]:
    """EP's AlltoAll and pipeline sends: NCCL asks no tuner about them."""
    records = end.not_asked if end is not None else ()
    count = sum(record.send_recv or 0 for record in records)
    if not count:
        return []
    where = ", ".join(record.name or f"communicator {record.communicator}" for record in records if record.send_recv)
    evidence = f"{count} send/recv calls (AlltoAll among them) on {where}; their channels and chunk stand at init"
    channels = _power_of_two(built or 32)
    lower = [str(channels // share) for share in _P2P_SHARES if channels // share >= 1]
    found = [
        Advice(f"{value} channels for send/recv and AlltoAll (NCCL derives {channels} from its own)", Standing.PROPOSAL,
               evidence, {"NCCL_MAX_P2P_NCHANNELS": value}, arms=(f"env=NCCL_MAX_P2P_NCHANNELS={value}",))
        for value in lower
    ]  # fmt: skip
    for name, values in _P2P_CHUNKS.items():
        found += [
            Advice(f"chunks of {value >> 10} KiB for send/recv over NVLink (NCCL's own: 512)", Standing.PROPOSAL,
                   evidence, {name: str(value)}, arms=(f"env={name}={value}",))
            for value in values
        ]  # fmt: skip
    return found


def _power_of_two(count: int) -> int:
    return 1 << max(count - 1, 0).bit_length()
