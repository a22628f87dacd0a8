"""What the programs that read these files do with a call, written anew from their documentation and sources: the other
side's word against which ours is held. Small on purpose; shares nothing with lagom.exchange."""

from __future__ import annotations

import json
from dataclasses import dataclass

FUNCTIONS = ("broadcast", "reduce", "allgather", "reducescatter", "allreduce")


@dataclass(frozen=True)
class Call:
    """One getCollInfo on a communicator."""

    function: str
    bytes: int
    nodes: int
    ranks: int
    registered: int = 0


@dataclass(frozen=True)
class Decision:
    """None = NCCL's own."""

    algorithm: str
    protocol: str
    channels: int | None
    chunk: int | None = None


def nccl_example(text: str, call: Call) -> Decision | None:
    """NVIDIA's example tuner: first line that matches; inclusive bytes; -1 is any; channels 0 and (documented) -1 keep
    NCCL's."""
    for line in text.splitlines():
        if not line or line.startswith("#"):
            continue
        f = line.split(",")
        filters = [int(f[6]), int(f[7]), int(f[9]) if len(f) > 9 else -1]
        asked = [call.nodes, call.ranks, call.registered]
        if f[0] != call.function or not int(f[1]) <= call.bytes <= int(f[2]):
            continue
        if any(wanted not in (-1, given) for wanted, given in zip(filters, asked, strict=True)):
            continue
        return Decision(f[3], f[4], int(f[5]) if int(f[5]) > 0 else None)
    return None


def within(interval: object, value: int) -> bool:
    """NCCLX's interval grammar."""
    text = str(interval).strip()
    if text in ("*", ""):
        return True
    if text[0] not in "[(":
        return value == int(text)
    low, high = text[1:-1].split(",")
    above = not low.strip() or (value >= int(low) if text[0] == "[" else value > int(low))
    below = not high.strip() or (value <= int(high) if text[-1] == "]" else value < int(high))
    return above and below


def ncclx(rules: list[dict[str, dict[str, object]]], call: Call) -> Decision | None:
    """NCCLX: first rule that matches by bytes / (nodes x ranks a node); chunkSize by a search of its own, here for a
    channel that carries everything."""
    local = call.ranks // call.nodes
    per_rank = call.bytes // max(1, call.nodes * local)

    def matches(rule: dict[str, dict[str, object]]) -> bool:
        f = rule["filter"]
        return (
            f["collective"] == call.function
            and within(f.get("bytesPerRank", "*"), per_rank)
            and within(f.get("nNodes", "*"), call.nodes)
            and within(f.get("nLocalRanks", "*"), local)
        )

    first = next((rule["config"] for rule in rules if matches(rule)), None)
    if first is None:
        return None
    pair = (first["algorithm"], first["protocol"])
    chunks = [
        rule["config"]["chunkSize"]
        for rule in rules
        if rule["config"].get("chunkSize")
        and (rule["config"]["algorithm"], rule["config"]["protocol"]) == pair
        and matches(rule)
    ]
    channels = int(str(first.get("channels", -1)))
    chunk = int(str(chunks[0])) if chunks else None
    return Decision(str(pair[0]), str(pair[1]), channels if channels > 0 else None, chunk)


def ncclx_json(text: str) -> list[dict[str, dict[str, object]]]:
    """Its JSON."""
    rules: list[dict[str, dict[str, object]]] = json.loads(text)["rules"]
    return rules


def ncclx_csv(text: str) -> list[dict[str, dict[str, object]]]:
    """Its CSV of seven or eight columns."""
    rules: list[dict[str, dict[str, object]]] = []
    for line in text.splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        fields, depth = [""], 0
        for letter in line:
            depth += (letter in "([") - (letter in ")]")
            if letter == "," and depth == 0:
                fields.append("")
            else:
                fields[-1] += letter
        filters = dict(zip(("collective", "bytesPerRank"), fields[:2], strict=True))
        filters |= {"nNodes": fields[5], "nLocalRanks": fields[6]}
        config: dict[str, object] = {"algorithm": fields[2], "protocol": fields[3], "channels": int(fields[4])}
        config["chunkSize"] = int(fields[7]) if len(fields) > 7 else 0
        rules.append({"filter": dict(filters), "config": config})
    return rules
