"""NCCLX's rules as CSV. Two layouts are about, told apart by their columns (meta-pytorch/torchcomms#3044):

    collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks[,chunkSize]
    collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks[,numPipeOps[,regBuff[,chunkSize]]]

A line of eight columns can be either: -1 is numPipeOps, 0 means nothing in both, a size that can be one is chunkSize,
and anything else is refused. Commas inside ``()`` and ``[]`` belong to an interval.
"""

from __future__ import annotations

from dataclasses import replace

from lagom.exchange import words
from lagom.exchange.ncclx import Foreign, per_rank, take, topology_words
from lagom.exchange.result import Entry, Line, Reading
from lagom.exchange.sizes import format_interval
from lagom.exchange.topology import Topology
from lagom.exchange.words import NotSaid

COLUMNS = "collective,bytesPerRank,algorithm,protocol,channels,nNodes,nLocalRanks,chunkSize"
REQUIRED, SHORT, LONG = 7, 8, 10
SMALLEST_CHUNK = 16384


def read(text: str, topology: Topology | None) -> Reading:
    """Every line, in order."""
    reading = Reading()
    for number, line in enumerate(text.split("\n"), 1):
        stripped = line.strip()
        if not stripped or stripped.startswith("#") or stripped.split(",")[0].strip() == "collective":
            continue
        try:
            take(f"line {number}", _foreign(split(stripped)), topology, reading)
        except NotSaid as error:
            reading.entries.append(Entry(f"line {number}", None, str(error)))
    return reading


def split(line: str) -> list[str]:
    """At the commas that stand outside of brackets."""
    fields, depth = [""], 0
    for letter in line:
        if letter == "," and depth == 0:
            fields.append("")
            continue
        depth = max(0, depth + (letter in "([") - (letter in ")]"))
        fields[-1] += letter
    return [field.strip() for field in fields]


def _foreign(fields: list[str]) -> Foreign:
    if not REQUIRED <= len(fields) <= LONG:
        raise NotSaid(f"it has {len(fields)} columns, and {REQUIRED} to {LONG} are wanted: {COLUMNS}")
    if len(fields) != SHORT:
        return Foreign(*fields)
    chunk = words.number(fields[7], "the eighth column") if fields[7] else 0
    if chunk not in (-1, 0) and chunk < SMALLEST_CHUNK:
        raise NotSaid(
            f"its eighth column is {chunk}: too small for a chunkSize, and at numPipeOps no rule of Lagom looks"
        )
    return replace(Foreign(*fields[:7]), chunk=str(max(0, chunk)))


def write(lines: list[Line]) -> str:
    """The file. Every line must have passed :func:`lagom.exchange.ncclx.check`."""
    head = [f"# Written by `lagom export`, for NCCLX_TUNER_CONFIG_FILE (NCCLX from July 2026 on).\n# {COLUMNS}"]
    return "\n".join([*head, *map(_line, lines)]) + "\n"


def _line(line: Line) -> str:
    config, (nodes, local) = line.config, topology_words(line)
    assert line.rule.function is not None
    assert config.algorithm is not None
    assert config.protocol is not None
    chunk = f",{config.chunk_bytes}" if config.chunk_bytes is not None else ""
    return (
        f"{line.rule.function.word},{format_interval(per_rank(line))},{config.algorithm.name.lower()},"
        f"{config.protocol.name.lower()},{config.channels or -1},{nodes},{local}{chunk}"
    )
