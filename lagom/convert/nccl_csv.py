# SPDX-License-Identifier: Apache-2.0
"""The CSV of NVIDIA's example tuner (NVIDIA/nccl, plugins/tuner/example), 2.27.3 and later.

    collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps[,regBuff]]

Bytes are getCollInfo's nBytes, both ends included: the same number that our rules look at. -1 = any. The first line
that matches wins. What the plugin as shipped does otherwise than its README says:

* a word it does not know becomes allreduce, ring or simple without a word; here it is refused;
* ``channels`` -1 is documented as NCCL's default, but such calls run on ONE channel, as do all calls that match no line
  (it sets nChannels to 1 before it looks). 0 leaves the channels to NCCL, and that is what we write;
* it reads columns by their place, and a header as a rule; here a header with the columns in another order is refused;
* a pair that NCCL has no kernel for is passed over, as one that NCCL does not offer: such a line is left out.

Tuners for RCCL read the same file; algorithm and protocol -1 leave both to the library there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeVar

from lagom.convert.entries import Line, Reading, RuleEntry, Topology, UnsupportedRule
from lagom.convert.rule_coverage import Interval, Pair, pair_of
from lagom.records import Algorithm, CommConfig, Function, Protocol
from lagom.wire.plan import NO_LIMIT, Rule

Word = TypeVar("Word", Function, Algorithm, Protocol)

COLUMNS = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"
#: The place of each column by its name without case and underscores, and by other spellings in public files.
PLACES = {word: place for place, word in enumerate(COLUMNS.lower().replace("_", "").split(","))} | {
    "collective": 0, "colltype": 0, "algo": 3, "proto": 4, "nchannels": 5, "nodes": 6, "ranks": 7, "pipeops": 8,
}  # fmt: skip
REQUIRED, MOST = 8, 10
LONGEST_LINE = 255  # the plugin reads lines into 256 bytes and takes the rest for another line
ONE_CHANNEL = (
    "channels -1 is taken as documented, NCCL's default; the example plugin itself runs such calls on one channel"
)
MISSES = (
    "a call that matches no line runs on ONE channel under NVIDIA's example plugin as shipped (2.27.3 to 2.30); under "
    "Lagom it is left to NCCL"
)
LEFT_TO_LIBRARY = (
    "algorithm and protocol -1 are taken as tuners for RCCL take them, left to the library; NVIDIA's example plugin "
    "takes them for ring and simple"
)
FUNCTIONS = {function.word: function for function in Function}
ALGORITHMS = {algorithm.name.lower(): algorithm for algorithm in Algorithm}
PROTOCOLS = {protocol.name.lower(): protocol for protocol in Protocol}
#: What NCCL has kernels for (its generator in nccl:src/device); protocols other than SIMPLE for RING and TREE alone.
_GATHER = (Algorithm.RING, Algorithm.COLLNET_DIRECT, Algorithm.NVLS, Algorithm.PAT)
KERNELS: Mapping[Function, tuple[Algorithm, ...]] = {
    Function.BROADCAST: (Algorithm.RING,), Function.REDUCE: (Algorithm.RING,), Function.ALL_GATHER: _GATHER,
    Function.REDUCE_SCATTER: _GATHER, Function.ALL_REDUCE: tuple(one for one in Algorithm if one != Algorithm.PAT),
}  # fmt: skip
_NUMBER = re.compile(r"[+-]?[0-9]{1,20}")
#: Why a filter cannot be taken.
FILTER_REASONS = {
    "regBuff": "registration is local to a rank, so ranks could differ",
    "numPipeOps": "how many calls NCCL had in its group at that moment",
}


def read(text: str, topology: Topology | None) -> Reading:
    """Every line, in order, up to a header with other columns. Without ``topology`` lines for one size of communicator
    are refused."""
    reading = Reading()
    for number, line in enumerate(text.split("\n"), 1):
        where = f"line {number}"
        if header := _header(line):
            if why := _other_columns(header):
                reading.entries.append(RuleEntry(where, None, why))
                break
            continue
        if not line.strip() or line.strip().startswith("#"):
            continue
        try:
            entry = _entry(where, line, topology, reading)
        except UnsupportedRule as error:
            entry = RuleEntry(where, None, str(error))
        if entry is not None:
            reading.entries.append(entry)
    if any(not entry.is_refused for entry in reading.entries):
        reading.remarks.append(MISSES)
    return reading


def _header(line: str) -> list[str]:
    """The columns that a line names, with or without a number sign (``# Format: collective_type,...``); empty for every
    other line."""
    comment, text = line.strip().startswith("#"), line.strip()
    if comment:
        text = text.lstrip("#").rpartition(":")[2]
    fields = [field.strip() for field in text.split(",")]
    if any(map(_is_number, fields)):
        return []
    known = sum(_place(field) is not None for field in fields)
    return fields if known >= (max(REQUIRED, len(fields)) if comment else 2) else []


def _place(column: str) -> int | None:
    return PLACES.get(re.sub(r"[^a-z]", "", column.lower()))


def _other_columns(header: Sequence[str]) -> str:
    """Why the lines behind a header cannot be read; empty if its columns are those of the format."""
    for place, column in enumerate(header):
        if _place(column) != place:
            wanted = f"reads {COLUMNS.split(',')[place]}" if place < MOST else "reads nothing"
            return (
                f"its column {place + 1} is {column}, where the example plugin {wanted}, whatever a header says; put "
                f"the columns and their names in this order: {COLUMNS}; no line behind it is taken"
            )
    return ""


def _is_number(text: str) -> bool:
    return _NUMBER.fullmatch(text) is not None


def _entry(where: str, line: str, topology: Topology | None, reading: Reading) -> RuleEntry | None:
    fields = [field.strip() for field in line.split(",")]
    if not REQUIRED <= len(fields) <= MOST or "" in fields:
        raise UnsupportedRule(
            f"it has {len([f for f in fields if f])} fields, and {REQUIRED} to {MOST} are wanted: {COLUMNS}"
        )
    if len(line.encode()) > LONGEST_LINE:
        raise UnsupportedRule(f"the example plugin reads only {LONGEST_LINE} characters of a line")
    rule = _rule(fields, where, reading)
    if rule.bytes_min > rule.bytes_max:
        reading.remarks.append(f"{where} is left out: no size lies between {rule.bytes_min} and {rule.bytes_max}")
        return None
    if why := no_kernel(rule):
        reading.remarks.append(f"{where} is left out: {why}, and the tuner goes on to the next line")
        return None
    try:
        if _is_elsewhere(where, fields[6], fields[7], topology, reading):
            return None
        for text, name in zip(fields[8:], ("numPipeOps", "regBuff"), strict=False):
            wildcard(text, name)
    except UnsupportedRule as error:
        return RuleEntry(where, rule, str(error), topology)
    return RuleEntry(where, rule, only=topology)


def _rule(fields: list[str], where: str, reading: Reading) -> Rule:
    count = number(fields[5], "channels")
    if count == -1 and ONE_CHANNEL not in reading.remarks:
        reading.remarks.append(ONE_CHANNEL)
    config = CommConfig(*_pair(fields[3], fields[4], reading), channels(count))
    return Rule(function(fields[0]), _size(fields[1], "min_bytes"), _size(fields[2], "max_bytes"), config)


def _pair(first: str, second: str, reading: Reading) -> Pair:
    if "-1" not in (first, second):
        return algorithm(first), protocol(second)
    if first != second:
        raise UnsupportedRule("only one of algorithm and protocol is -1; a tuner that knows -1 wants it for both")
    if LEFT_TO_LIBRARY not in reading.remarks:
        reading.remarks.append(LEFT_TO_LIBRARY)
    return None, None


def no_kernel(rule: Rule) -> str:
    """Why no call can ever have the pair of a rule for one collective; a clause, empty if one can."""
    chosen, wire = pair_of(rule)
    if rule.function is None or chosen is None:
        return ""
    word, kernels = chosen.name.lower(), KERNELS[rule.function]
    if chosen not in kernels:
        there = ", ".join(one.name.lower() for one in kernels)
        return f"NCCL has no {word} for {rule.function.word}, only {there}"
    if wire not in (None, Protocol.SIMPLE) and chosen not in (Algorithm.RING, Algorithm.TREE):
        return f"NCCL has {word} only with simple"
    return ""


def _size(text: str, name: str) -> int:
    size = number(text, name)
    if not 0 <= size <= NO_LIMIT:
        raise UnsupportedRule(f"{name} {text} is no size")
    return size


def _is_elsewhere(where: str, nodes: str, ranks: str, topology: Topology | None, reading: Reading) -> bool:
    """Whether the line is for communicators of another size than the one asked about."""
    wanted = {"nodes": number(nodes, "nNodes"), "ranks": number(ranks, "nRanks")}
    named = {name: value for name, value in wanted.items() if value != -1}
    if not named:
        return False
    said = " and ".join(f"{value} {name}" for name, value in named.items())
    if topology is None:
        raise UnsupportedRule(f"it is only for communicators of {said}; name yours with --ranks and --nodes")
    here = {"nodes": topology.nodes, "ranks": topology.ranks}
    if all(here[name] == value for name, value in named.items()):
        return False
    reading.remarks.append(f"{where} is left out: it is for {said}, and these rules are for {topology}")
    return True


def looks_right(text: str) -> bool:
    """Whether the first line that is no comment has as many fields as a rule; True for a file without any."""
    lines = (line.strip() for line in text.splitlines())
    first = next((line for line in lines if line and not line.startswith("#")), "," * MOST)
    return first.count(",") >= REQUIRED - 1


def write(lines: list[Line]) -> str:
    """The file."""
    head = [
        "# Written by `lagom convert`, for NCCL_TUNER_CONFIG_FILE of NVIDIA's example tuner plugin.",
        f"# {COLUMNS}",
    ]
    head.append("# channels 0 = NCCL's own choice (-1 would mean one channel in the plugin as shipped)")
    return "\n".join([*head, *map(_line, lines)]) + "\n"


def _line(line: Line) -> str:
    rule, config = line.rule, line.config
    assert rule.function is not None
    assert config.algorithm is not None
    assert config.protocol is not None
    nodes, ranks = (line.only.nodes, line.only.ranks) if line.only is not None else (-1, -1)
    pair = f"{config.algorithm.name.lower()},{config.protocol.name.lower()}"
    sizes = Interval(rule.bytes_min, rule.bytes_max)
    return f"{rule.function.word},{sizes.smallest},{sizes.largest},{pair},{config.channels or 0},{nodes},{ranks},-1,-1"


# -- words and numbers: unknown ones are refused; NVIDIA's reader would take them for others


def function(word: str) -> Function:
    """Raises :class:`UnsupportedRule` with the list."""
    return _one_of(FUNCTIONS, word, "collective")


def algorithm(word: str) -> Algorithm:
    """Raises :class:`UnsupportedRule` with the list."""
    return _one_of(ALGORITHMS, word, "algorithm")


def protocol(word: str) -> Protocol:
    """Raises :class:`UnsupportedRule` with the list."""
    return _one_of(PROTOCOLS, word, "protocol")


def number(text: str, name: str) -> int:
    """A whole decimal number; raises :class:`UnsupportedRule`."""
    if not _is_number(text.strip()):
        raise UnsupportedRule(f"{name} '{text}' is no whole number")
    return int(text)


def wildcard(text: str, name: str) -> None:
    """A filter that Lagom's rules do not have: only ``-1``, any, can be taken."""
    if text.strip() and number(text, name) != -1:
        raise UnsupportedRule(
            f"it is only for {name} {text.strip()}, which no rule of Lagom looks at ({FILTER_REASONS[name]})"
        )


def channels(count: int) -> int | None:
    """``-1`` and ``0`` leave them to NCCL; raises :class:`UnsupportedRule` for what is no number of channels."""
    if count in (-1, 0):
        return None
    if not 1 <= count <= 64:
        raise UnsupportedRule(f"{count} channels: NCCL has 1 to 64")
    return count


def _one_of(words: Mapping[str, Word], word: str, what: str) -> Word:
    found = words.get(word)
    if found is None:
        raise UnsupportedRule(f"there is no {what} '{word}'; it is one of: {', '.join(words)}")
    return found
