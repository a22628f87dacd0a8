"""NCCL's vocabulary: how its documentation and its own log call what a config names."""

from __future__ import annotations

from lagom.records import Algorithm, CommConfig, Function, Protocol, format_bytes

FUNCTIONS = {
    Function.BROADCAST: "Broadcast", Function.REDUCE: "Reduce", Function.ALL_GATHER: "AllGather",
    Function.REDUCE_SCATTER: "ReduceScatter", Function.ALL_REDUCE: "AllReduce",
}  # fmt: skip
ALGORITHMS = {
    Algorithm.TREE: "Tree", Algorithm.RING: "Ring", Algorithm.COLLNET_DIRECT: "CollNetDirect",
    Algorithm.COLLNET_CHAIN: "CollNetChain", Algorithm.NVLS: "NVLS", Algorithm.NVLS_TREE: "NVLSTree",
    Algorithm.PAT: "PAT",
}  # fmt: skip
PROTOCOLS = {Protocol.LL: "LL", Protocol.LL128: "LL128", Protocol.SIMPLE: "Simple"}
UNKNOWN = "not seen"


def function(word: str) -> str:
    """``AllGather`` for ``allgather``; as it is where NCCL has no such function."""
    return next((name for known, name in FUNCTIONS.items() if known.word == word), word)


def choice(config: CommConfig) -> str:
    """``Ring/Simple, 24 channels, 512 threads, chunk 2M``: what is known of it."""
    parts = []
    if config.algorithm is not None or config.protocol is not None:
        algorithm = "any" if config.algorithm is None else ALGORITHMS[config.algorithm]
        parts.append(algorithm + ("" if config.protocol is None else f"/{PROTOCOLS[config.protocol]}"))
    if config.channels is not None:
        parts.append(f"{config.channels} channel{'s' if config.channels != 1 else ''}")
    if config.threads is not None:
        parts.append(f"{config.threads} threads")
    if config.chunk_bytes is not None:
        parts.append(f"chunk {format_bytes(config.chunk_bytes)}")
    return ", ".join(parts)


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
    seen = choice(config)
    if config.channels is None:
        seen += ", channels not seen"
    chunk = default_chunk(word, config) if config.chunk_bytes is None else None
    return seen if chunk is None else f"{seen}, chunk {format_bytes(chunk)} (NCCL's rule, default buffers)"


def ours(config: CommConfig) -> str:
    """What is done instead, in terms of what is set."""
    return "as NCCL" if config.is_stock else f"{choice(config)}; the rest as NCCL"
