# SPDX-License-Identifier: Apache-2.0
"""How numbers, sizes, durations, versions, configs and intervals read, in logs, on terminals and on pages.

Everything that Lagom prints is formatted here, so that a value reads alike wherever it stands. The other direction, the
exact syntax of ``--set``, is :mod:`lagom.wire.plan`'s. Times are nanoseconds and sizes bytes, as everywhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

UNKNOWN = "-"
#: The first sentence about every result of a job whose GPUs were a model's.
SIMULATED = "Simulated: no GPU was measured, and what was found fits no job of yours."
_NO_LIMIT = (1 << 64) - 1  # of a rule that has no upper bound
_UNITS = (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))

#: NCCL's own spelling of what its enumerations and our logs write in lower case.
_NCCL_NAMES = {
    "broadcast": "Broadcast", "reduce": "Reduce", "allgather": "AllGather", "reducescatter": "ReduceScatter",
    "allreduce": "AllReduce", "tree": "Tree", "ring": "Ring", "collnet_direct": "CollNetDirect",
    "collnet_chain": "CollNetChain", "nvls": "NVLS", "nvls_tree": "NVLSTree", "pat": "PAT", "ll": "LL",
    "ll128": "LL128", "simple": "Simple",
}  # fmt: skip


# -- sizes and numbers


def format_bytes(count: int) -> str:
    """``416M``, ``512K``, ``1.5G``: powers of 1024, one decimal where it is not whole."""
    for unit, power in _UNITS:
        if count >= power:
            text = f"{count / power:.1f}".removesuffix(".0")
            return f"{text}{unit}"
    return str(count)


def format_exact_bytes(count: int) -> str:
    """``416M``, ``512K``, ``436207617``: with a unit only where nothing is lost."""
    for unit, power in _UNITS:
        if count and count % power == 0:
            return f"{count // power}{unit}"
    return str(count)


def format_count(count: int, what: str, plural: str = "") -> str:
    """``1 rank``, ``8 ranks``."""
    return f"{count} {what if count == 1 else plural or what + 's'}"


def format_variables(variables: Mapping[str, str]) -> str:
    """``A=1 B=2``, as a shell takes it."""
    return " ".join(f"{name}={value}" for name, value in variables.items())


def format_number(value: float, digits: int = 2) -> str:
    """With that many decimals; ``-`` for NaN."""
    return UNKNOWN if math.isnan(value) else f"{value:.{digits}f}"


def format_percent(share: float | None, digits: int = 1) -> str:
    """A fraction as ``11.4 %``; ``-`` where it is not known."""
    return UNKNOWN if share is None or math.isnan(share) else f"{100 * share:.{digits}f} %"


def format_factor(factor: float) -> str:
    """``1.38×``; ``-`` for NaN."""
    return UNKNOWN if math.isnan(factor) else f"{factor:.2f}×"


def format_rate(value: float | None) -> str:
    """A rate a second, three digits; ``-`` where it is not known."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


# -- times


def format_time(ns: float | None) -> str:
    """``75.9 ms``, ``12.3 µs``: three significant digits; ``-`` where it is not known."""
    if ns is None or math.isnan(ns):
        return UNKNOWN
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if abs(ns) >= size:
            value = ns / size
            digits = 2 if abs(value) < 9.995 else 1 if abs(value) < 99.95 else 0
            return f"{value:.{digits}f} {unit}"
    return f"{ns:.0f} ns" if ns else "0"


def format_clock(t: float) -> str:
    """``09:31:02``, local, of seconds since 1970; ``--:--:--`` for an invalid time."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(t))
    except (ValueError, OverflowError, OSError):
        return "--:--:--"


def format_elapsed(seconds: float) -> str:
    """``0:03:12``."""
    whole = max(0, int(seconds))
    return f"{whole // 3600}:{whole // 60 % 60:02}:{whole % 60:02}"


# -- comparisons


def format_interval(low: float | None, high: float | None) -> str:
    """A 95 % interval as ``[0.949, 0.966]``; empty where it is not known."""
    return "" if low is None or high is None else f"[{low:.3f}, {high:.3f}]"


def describe_interval(low: float | None, high: float | None) -> str:
    """The same in a sentence: `` (95 % interval 1.087 to 1.111)``."""
    return "" if low is None or high is None else f" (95 % interval {low:.3f} to {high:.3f})"


def format_speedup(ratio: float, low: float | None = None, high: float | None = None) -> str:
    """``1.143x plain NCCL [1.137, 1.151]``: the time under plain NCCL over ours, with its 95 % interval."""
    return " ".join(part for part in (f"{ratio:.3f}x plain NCCL", format_interval(low, high)) if part)


def format_payback(iterations: float | None) -> str:
    """``, paid back after 5,300 iterations``, two digits: of the tuned job, until they have saved what the search lost.
    Empty for ``None``: there is nothing to pay back, or nothing that does."""
    if iterations is None or not math.isfinite(iterations):
        return ""
    count = max(1, math.ceil(iterations))
    rounded = round(count, 2 - len(str(count)))
    return f", paid back after {rounded:,} iteration{'s' if rounded != 1 else ''}"


# -- NCCL's things


def format_version(version: int | Sequence[int]) -> str:
    """``2.30.7`` of ``ncclGetVersion``'s number (23007) or of (2, 30, 7); empty for 0, which is not known."""
    if isinstance(version, int):
        if not version:
            return ""
        version = version // 10000, version // 100 % 100, version % 100
    return ".".join(map(str, version))


def format_config(config: Any) -> str:
    """``ring simple nc=3 chunk=256K``, or ``stock``: a config's value or its record in a log, whose names need not be
    those of any NCCL that we know."""
    names = [value for value in (config.algorithm, config.protocol) if value is not None]
    parts = [value if isinstance(value, str) else value.name.lower() for value in names]
    if config.channels is not None:
        parts.append(f"nc={config.channels}")
    if config.chunk_bytes is not None:
        parts.append(f"chunk={format_bytes(config.chunk_bytes)}")
    if config.threads is not None:
        parts.append(f"nt={config.threads}")
    return " ".join(parts) or "stock"


def format_site(site: Any) -> str:
    """``allgather 416M hidden``: a site, or its record in a log."""
    function = site.function if isinstance(site.function, str) else site.function.word
    return " ".join(part for part in (function, format_bytes(site.bytes), site.context) if part)


def nccl_name(value: Any) -> str:
    """``AllGather`` of ``allgather``, ``Ring`` of Algorithm.RING; as it is where NCCL has no such name."""
    word = value if isinstance(value, str) else value.name.lower()
    return _NCCL_NAMES.get(word, _NCCL_NAMES.get(word.replace("_", ""), word))


def describe_rule(rule: Any) -> str:
    """``allgather from 1M to 16M: nc=4``: a rule of --set for people."""
    function = "any" if rule.function is None else rule.function.word
    bounds = [f"from {format_bytes(rule.bytes_min)}"] if rule.bytes_min else []
    if rule.bytes_max < _NO_LIMIT:
        bounds.append(f"to {format_bytes(rule.bytes_max)}")
    return f"{function} {' '.join(bounds) or 'of any size'}: {format_config(rule.config)}"
