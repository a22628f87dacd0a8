"""The rule files of NCCLX's built-in tuner (meta-pytorch/torchcomms, comms/ncclx/meta/tuner), CSV and JSON alike.

A rule is a filter {collective, bytesPerRank, nNodes, nLocalRanks} and a config {algorithm, protocol, channels,
chunkSize}; the first that matches wins. bytesPerRank = nBytes / (nNodes x nLocalRanks), rounded down, of *every*
collective: for allgather and reducescatter that is the shard of a rank, for the others a rank's part of the whole
buffer. So a rule with sizes can only be turned into ours for a known size of communicator.

chunkSize is looked up again when NCCL asks for it, by the first rule with a chunkSize and that algorithm and protocol,
and bytesPerRank is then compared with what NCCL passes there: the share of one *channel*. So a chunkSize beside a
bytesPerRank does not mean what it seems to. An import takes it as it reads; an export refuses to write it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from lagom.exchange import words
from lagom.exchange.claims import Claims, pair_of
from lagom.exchange.order import meet, same_place
from lagom.exchange.result import Entry, Line, Reading
from lagom.exchange.sizes import ANY, Interval, format_interval, parse_interval
from lagom.exchange.topology import Topology
from lagom.exchange.words import NotSaid
from lagom.records import CommConfig, Function
from lagom.wire.plan import Rule

CHUNK_BESIDE_SIZES = (
    "chunkSize is taken for the calls that the rule's bytesPerRank names; NCCLX itself compares bytesPerRank with the "
    "bytes of one channel when it looks up chunk sizes"
)


@dataclass(frozen=True, slots=True)
class Foreign:
    """One rule as it stands there; texts not yet read are empty where they were not given."""

    collective: str
    bytes_per_rank: str
    algorithm: str
    protocol: str
    channels: str
    nodes: str
    local_ranks: str
    pipe_ops: str = ""
    registered: str = ""
    chunk: str = ""


def take(where: str, foreign: Foreign, topology: Topology | None, reading: Reading) -> None:
    """Adds the rule to the reading: taken, refused, or left out with a remark."""
    try:
        entry = _entry(where, foreign, topology, reading)
    except (NotSaid, ValueError) as error:
        entry = Entry(where, None, str(error))
    if entry is not None:
        reading.entries.append(entry)
        if entry.rule is not None and entry.rule.config.chunk_bytes is None:
            reading.chunkless.setdefault(pair_of(entry.rule), Claims()).add(entry.rule)


def _entry(where: str, foreign: Foreign, topology: Topology | None, reading: Reading) -> Entry | None:
    function, config = words.function(foreign.collective), _config(foreign)
    per_rank, nodes, local = (
        parse_interval(text or "*") for text in (foreign.bytes_per_rank, foreign.nodes, foreign.local_ranks)
    )
    rule = Rule(function, ANY.smallest, ANY.largest, config)  # stands before later ones, should it be refused
    try:
        if _is_elsewhere(where, nodes, local, topology, reading):
            return None
        sizes = _total(per_rank, topology)
        if sizes.is_empty:
            reading.remarks.append(f"{where} is left out: no size lies in {foreign.bytes_per_rank}")
            return None
        rule = replace(rule, bytes_min=sizes.smallest, bytes_max=sizes.largest)
        words.wildcard(foreign.pipe_ops, "numPipeOps")
        words.wildcard(foreign.registered, "regBuff")
    except NotSaid as error:
        return Entry(where, rule, str(error), topology)
    _remark_chunk(where, rule, reading)
    return Entry(where, rule, only=topology)


def _config(foreign: Foreign) -> CommConfig:
    chunk = words.number(foreign.chunk, "chunkSize") if foreign.chunk else 0
    if chunk < 0:
        raise NotSaid(f"chunkSize {chunk} is no size")
    return CommConfig(
        words.algorithm(foreign.algorithm),
        words.protocol(foreign.protocol),
        words.channels(words.number(foreign.channels, "channels") if foreign.channels else -1),
        None,
        chunk or None,
    )


def _total(per_rank: Interval, topology: Topology | None) -> Interval:
    if per_rank.is_everything:
        return per_rank
    if topology is None:
        raise NotSaid("its bytes are those of one rank; name the communicators it is for with --ranks and --nodes")
    return topology.total(per_rank)


def _is_elsewhere(where: str, nodes: Interval, local: Interval, topology: Topology | None, reading: Reading) -> bool:
    said = " and ".join(
        f"{name} {format_interval(wanted)}"
        for name, wanted in (("nNodes", nodes), ("nLocalRanks", local))
        if not wanted.is_everything
    )
    if not said:
        return False
    if topology is None:
        raise NotSaid(f"it is only for {said}; name your communicators with --ranks and --nodes")
    if topology.nodes in nodes and topology.local_ranks in local:
        return False
    reading.remarks.append(f"{where} is left out: it is for {said}, and these rules are for {topology}")
    return True


def _remark_chunk(where: str, rule: Rule, reading: Reading) -> None:
    """What NCCLX does otherwise with a chunkSize: it looks it up apart, also for calls that an earlier rule without one
    has decided."""
    if rule.config.chunk_bytes is None:
        return
    if not Interval(rule.bytes_min, rule.bytes_max).is_everything and CHUNK_BESIDE_SIZES not in reading.remarks:
        reading.remarks.append(CHUNK_BESIDE_SIZES)
    chunkless = reading.chunkless.get(pair_of(rule))
    if chunkless is not None and chunkless.meet(rule):
        lender = next(e for e in reading.entries if e.rule is not None and _lends(rule, e.rule))
        reading.remarks.append(
            f"in NCCLX the chunkSize of {where} is also used for the calls that {lender.where} decides; here the first "
            "rule that matches says everything"
        )


def _lends(rule: Rule, earlier: Rule) -> bool:
    return pair_of(rule) == pair_of(earlier) and earlier.config.chunk_bytes is None and meet(rule, earlier)


# -- the other way


def check(line: Line, before: list[Line]) -> None:
    """Raises :class:`NotSaid` if the format cannot say it."""
    if line.config.chunk_bytes is not None:
        _check_chunk(line, before)
    per_rank(line)


def _check_chunk(line: Line, before: list[Line]) -> None:
    if not Interval(line.rule.bytes_min, line.rule.bytes_max).is_everything:
        raise NotSaid(
            "NCCLX compares the sizes of a rule with a chunkSize with the bytes of one channel, not of the call; leave "
            "the sizes out, or the chunk with --without chunk"
        )
    for earlier in before:
        if same_place(earlier.only, line.only) and _lends(line.rule, earlier.rule):
            raise NotSaid(f"NCCLX would use its chunkSize for the calls of {earlier.where} too, which sets none")


def per_rank(line: Line) -> Interval:
    """The rule's sizes in bytes a rank; raises :class:`NotSaid` where no such interval means the same calls."""
    sizes = Interval(line.rule.bytes_min, line.rule.bytes_max)
    if sizes.is_everything:
        return sizes
    if line.only is None:
        raise NotSaid("the format counts bytes a rank; name the communicators it is for with --ranks and --nodes")
    assert line.rule.function is not None
    found = line.only.per_rank(line.rule.function, sizes)
    if found is None:
        raise NotSaid(_nearest(line.rule.function, sizes, line.only))
    return found


def _nearest(function: Function, sizes: Interval, only: Topology) -> str:
    near = only.total(Interval(sizes.smallest // only.divisor, sizes.largest // only.divisor))
    return (
        f"no bytesPerRank means these sizes of {function.word} on {only}: they do not begin and end at a multiple of "
        f"{only.divisor} bytes; the nearest that does is {near.smallest}-{near.largest}"
    )


def topology_words(line: Line) -> tuple[str, str]:
    """nNodes and nLocalRanks."""
    return ("*", "*") if line.only is None else (str(line.only.nodes), str(line.only.local_ranks))
