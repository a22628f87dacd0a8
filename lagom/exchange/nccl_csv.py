"""The CSV of NVIDIA's example tuner (NVIDIA/nccl, plugins/tuner/example), 2.27.3 and later.

    collective,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks[,numPipeOps[,regBuff]]

Bytes are getCollInfo's nBytes, both ends included: the same number that our rules look at. -1 = any. The first line
that matches wins. What the plugin as shipped does otherwise than its README says:

* a word it does not know becomes allreduce, ring or simple without a word; here it is refused;
* ``channels`` -1 is documented as NCCL's default, but such calls run on ONE channel, as do all calls that match no line
  (it sets nChannels to 1 before it looks). 0 leaves the channels to NCCL, and that is what we write.
"""

from __future__ import annotations

from lagom.exchange import words
from lagom.exchange.result import Entry, Line, Reading
from lagom.exchange.sizes import Interval
from lagom.exchange.topology import Topology
from lagom.exchange.words import NotSaid
from lagom.records import CommConfig
from lagom.wire.plan import NO_LIMIT, Rule

COLUMNS = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nNodes,nRanks,numPipeOps,regBuff"
HEADER_WORDS = ("collective_type", "collective", "colltype")
REQUIRED, MOST = 8, 10
LONGEST_LINE = 255  # the plugin reads lines into 256 bytes and takes the rest for another line
ONE_CHANNEL = (
    "channels -1 is taken as documented, NCCL's default; the example plugin itself runs such calls on one channel"
)
MISSES = (
    "a call that matches no line runs on ONE channel under NVIDIA's example plugin as shipped (2.27.3 to 2.30); under "
    "Lagom it is left to NCCL"
)


def read(text: str, topology: Topology | None) -> Reading:
    """Every line, in order. Without ``topology`` lines for one size of communicator are refused."""
    reading = Reading()
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#") or stripped.split(",")[0].strip() in HEADER_WORDS:
            continue
        try:
            entry = _entry(f"line {number}", line, topology, reading)
        except NotSaid as error:
            entry = Entry(f"line {number}", None, str(error))
        if entry is not None:
            reading.entries.append(entry)
    if any(not entry.is_refused for entry in reading.entries):
        reading.remarks.append(MISSES)
    return reading


def _entry(where: str, line: str, topology: Topology | None, reading: Reading) -> Entry | None:
    fields = [field.strip() for field in line.split(",")]
    if not REQUIRED <= len(fields) <= MOST or "" in fields:
        raise NotSaid(f"it has {len([f for f in fields if f])} fields, and {REQUIRED} to {MOST} are wanted: {COLUMNS}")
    if len(line.encode()) > LONGEST_LINE:
        raise NotSaid(f"it is longer than the {LONGEST_LINE} characters that the example plugin reads of a line")
    rule = _rule(fields, where, reading)
    if rule.bytes_min > rule.bytes_max:
        reading.remarks.append(f"{where} is left out: no size lies between {rule.bytes_min} and {rule.bytes_max}")
        return None
    try:
        if _is_elsewhere(where, fields[6], fields[7], topology, reading):
            return None
        _no_further_filter(fields)
    except NotSaid as error:
        return Entry(where, rule, str(error), topology)
    return Entry(where, rule, only=topology)


def _rule(fields: list[str], where: str, reading: Reading) -> Rule:
    count = words.number(fields[5], "channels")
    if count == -1 and ONE_CHANNEL not in reading.remarks:
        reading.remarks.append(ONE_CHANNEL)
    config = CommConfig(words.algorithm(fields[3]), words.protocol(fields[4]), words.channels(count))
    return Rule(words.function(fields[0]), _size(fields[1], "min_bytes"), _size(fields[2], "max_bytes"), config)


def _size(text: str, name: str) -> int:
    size = words.number(text, name)
    if not 0 <= size <= NO_LIMIT:
        raise NotSaid(f"{name} {text} is no size")
    return size


def _no_further_filter(fields: list[str]) -> None:
    for text, name in zip(fields[8:], ("numPipeOps", "regBuff"), strict=False):
        words.wildcard(text, name)


def _is_elsewhere(where: str, nodes: str, ranks: str, topology: Topology | None, reading: Reading) -> bool:
    """Whether the line is for communicators of another size than the one asked about."""
    wanted = {"nodes": words.number(nodes, "nNodes"), "ranks": words.number(ranks, "nRanks")}
    named = {name: value for name, value in wanted.items() if value != -1}
    if not named:
        return False
    said = " and ".join(f"{value} {name}" for name, value in named.items())
    if topology is None:
        raise NotSaid(f"it is only for communicators of {said}; name yours with --ranks and --nodes")
    here = {"nodes": topology.nodes, "ranks": topology.ranks}
    if all(here[name] == value for name, value in named.items()):
        return False
    reading.remarks.append(f"{where} is left out: it is for {said}, and these rules are for {topology}")
    return True


def write(lines: list[Line]) -> str:
    """The file."""
    head = ["# Written by `lagom export`, for NCCL_TUNER_CONFIG_FILE of NVIDIA's example tuner plugin.", f"# {COLUMNS}"]
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
