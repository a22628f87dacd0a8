# SPDX-License-Identifier: Apache-2.0
"""What a kernel's name shows: a readable spelling, communication or compute, which collective, which sort of work.

CUPTI gives mangled names, Kineto demangled ones, our text dumps mangled ones cut at 60 characters. :func:`plain_name`
brings all to one spelling, :func:`label` makes it short enough for a table, :func:`family` says what sort of work it
is. A name can mislead: `ncclDevKernel_AllGather_RING_LL` is NCCL's only AllGather kernel and usually runs
SIMPLE.

The classes (:class:`KernelKind`) are those of HolisticTraceAnalysis (``nccl…Kernel`` is communication; memory copies
are neither communication nor compute), so that both tools compute the same X and Y; here collectives, which NCCL asks
its tuner about, are also separated from point-to-point, which it does not. Done once per distinct name, never per
kernel.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from lagom.records import Function


class KernelKind(IntEnum):
    """As ``enum lagom_span_kind`` of ``csrc/protocol/lagom_protocol.h``. OTHER: copies, memsets, synchronisation."""

    COMPUTE = 0
    COLLECTIVE = 1
    P2P = 2
    OTHER = 3


#: ``function`` of a kernel that is no collective known to the tuner.
NO_FUNCTION = 255

_NCCL = re.compile(r"^nccl\w*Kernel")
_OTHER = re.compile(r"^(Memcpy|Memset|dma)|^(Stream|Event|Context|Device) (Sync|Wait)")
_P2P = re.compile(r"SendRecv|AlltoAll|AllToAll", re.IGNORECASE)
_FUNCTIONS = (
    (re.compile(r"all_?gather", re.IGNORECASE), Function.ALL_GATHER),
    (re.compile(r"reduce_?scatter", re.IGNORECASE), Function.REDUCE_SCATTER),
    (re.compile(r"all_?reduce", re.IGNORECASE), Function.ALL_REDUCE),
    (re.compile(r"broadcast", re.IGNORECASE), Function.BROADCAST),
    (re.compile(r"reduce", re.IGNORECASE), Function.REDUCE),
)

_LENGTH = re.compile(r"\d+")
_LONGEST_LENGTH = 9  # digits; a longer number is damage
_ANONYMOUS = re.compile(r"^_GLOBAL__N_")
_FILE_OF_ANONYMOUS = re.compile(r"^_GLOBAL__N__[0-9a-f]+_\d+_(\w+?)_c(?:u|$)")
_TRAILING_HASH = re.compile(r"[_.][0-9a-f]{8,}.*$")

#: First match wins. Tensor-core work (matmul, attention) is bound by SMs; the rest mostly by memory bandwidth.
_FAMILIES = (
    ("matmul", re.compile(r"^(qkv|attn_out|gate|up|down|head|ffn\w*|fc\d|router)(_dgrad|_wgrad)?$")),  # the simulator's
    ("attention", re.compile(r"flash|fmha|sdpa|attention|attn", re.IGNORECASE)),
    ("matmul", re.compile(r"nvjet|gemm|cutlass|cublas|xmma|matmul|wgrad|dgrad|_mm\b|linear|splitK", re.IGNORECASE)),
    ("norm", re.compile(r"norm", re.IGNORECASE)),
    ("optimizer", re.compile(r"adam|foreach|multi_tensor|sgd|optimi[sz]er", re.IGNORECASE)),
    ("copy", re.compile(r"memcpy|memset|copy|chunk_cat|\bcat|CatArray|transpose|split_with_sizes|fill", re.IGNORECASE)),
    ("reduce", re.compile(r"reduce|softmax|sum_|cross_entropy|nll", re.IGNORECASE)),
    ("elementwise", re.compile(r"elementwise|triton|pointwise|silu|gelu|rope|rotary|activation", re.IGNORECASE)),
)
#: Families that a missing SM slows down even where memory is idle.
SM_BOUND = frozenset({"matmul", "attention"})


@lru_cache(maxsize=65536)
def plain_name(name: str) -> str:
    """Readable name of a possibly mangled, possibly truncated kernel name; unchanged where it is not mangled.

    ``_Z31ncclDevKernel_AllGather_RING_LL24nccl…`` → ``ncclDevKernel_AllGather_RING_LL``. Only nested names are taken
    apart (Itanium C++ ABI, <source-name> ::= <length> <identifier>); template arguments are left out.
    """
    if not name.startswith("_Z"):
        return name
    rest = name[3:] if name.startswith("_ZN") else name[2:]
    parts = _identifiers(rest, nested=name.startswith("_ZN"))
    if parts and (file := _FILE_OF_ANONYMOUS.match(parts[-1])):
        parts[-1] = file.group(1)  # cut off inside an anonymous namespace: its source file is all we have
    kept = [_TRAILING_HASH.sub("", part) for part in parts if not _ANONYMOUS.match(part)]
    return "::".join(kept) or name


def _identifiers(text: str, nested: bool) -> list[str]:
    parts: list[str] = []
    while (match := _LENGTH.match(text)) is not None and len(match.group()) <= _LONGEST_LENGTH:
        length = int(match.group())
        parts.append(text[match.end() : match.end() + length])
        text = text[match.end() + length :]
        if not nested:
            break
    return parts


@lru_cache(maxsize=65536)
def label(name: str, width: int = 44) -> str:
    """A short spelling for tables and plots: no return type, arguments, template arguments or namespaces."""
    text = plain_name(name)
    text = text.removeprefix("void ").replace("(anonymous namespace)::", "")
    text = text.split("(", 1)[0] if not text.startswith("(") else text
    text = text.split("<", 1)[0].split("::")[-1] or text
    if len(text) <= width:
        return text
    tail = width // 3  # variants often differ at the end: ..._TNT, ..._NNT
    return f"{text[: width - 1 - tail]}…{text[-tail:]}"


@lru_cache(maxsize=65536)
def family(name: str) -> str:
    """The sort of work: attention, matmul, norm, optimizer, copy, reduce, elementwise or other."""
    return next((word for word, pattern in _FAMILIES if pattern.search(name)), "other")


def kind_of(name: str) -> KernelKind:
    """The class of a kernel by its name, mangled or not."""
    plain = plain_name(name)
    if _NCCL.match(plain):
        return KernelKind.P2P if _P2P.search(plain) else KernelKind.COLLECTIVE
    return KernelKind.OTHER if _OTHER.match(plain) else KernelKind.COMPUTE


def function_of(name: str) -> int:
    """The collective that a kernel or operation name names, as :class:`Function`; :data:`NO_FUNCTION` if none."""
    return next((int(function) for pattern, function in _FUNCTIONS if pattern.search(plain_name(name))), NO_FUNCTION)


def is_symmetric(name: str) -> bool:
    """A symmetric-memory kernel: ``ncclSymk…``, launched without NCCL asking its tuner."""
    return plain_name(name).startswith("ncclSym")
