"""NCCL's vocabulary: how its documentation and its own log call what a config names."""

from __future__ import annotations

from lagom.format import describe_config, format_bytes
from lagom.records import Algorithm, CommConfig, Protocol

UNKNOWN = "not seen"


def default_chunk(word: str, config: CommConfig) -> int | None:
    """The chunk NCCL takes by itself for large messages, bytes; ``None`` where its rule needs more than this.

    calcCollChunking of NCCL 2.22 to 2.32: an eighth of the buffer, four steps of it for Ring/Simple of AllGather,
    ReduceScatter and AllReduce; LL halves the buffer. Under default buffer sizes.
    """
    if config.algorithm not in (Algorithm.RING, Algorithm.TREE) or config.protocol is None:
        return None
    if config.protocol is Protocol.LL:
        return 32 << 10
    if config.protocol is Protocol.LL128:
        return 576_000 if config.algorithm is Algorithm.RING else None
    wide = config.algorithm is Algorithm.RING and word in ("allgather", "reducescatter", "allreduce")
    return (2 << 20) if wide else 512 << 10


def by_itself(word: str, config: CommConfig | None) -> str:
    """What NCCL would do: what was seen, and its rule for what nothing shows."""
    if config is None or config == CommConfig():
        return UNKNOWN
    seen = describe_config(config)
    if config.channels is None:
        seen += ", channels not seen"
    chunk = default_chunk(word, config) if config.chunk_bytes is None else None
    return seen if chunk is None else f"{seen}, chunk {format_bytes(chunk)} (NCCL's rule, default buffers)"


def ours(config: CommConfig) -> str:
    """What is done instead, in terms of what is set."""
    return "as NCCL" if config.is_stock else f"{describe_config(config)}; the rest as NCCL"
