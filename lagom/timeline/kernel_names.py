# SPDX-License-Identifier: Apache-2.0
"""What a kernel's name shows: a readable spelling, communication or compute, which collective, which sort of work.

CUPTI gives mangled names, Kineto demangled ones, our text dumps mangled ones cut at 60 characters. :func:`plain_name`
brings all to one spelling, :func:`label` makes it short enough for a table, :func:`family` says what sort of work it
is. A name can mislead: `ncclDevKernel_AllGather_RING_LL` is NCCL's only AllGather kernel and usually runs
SIMPLE.

The classes (:class:`KernelKind`) are those of HolisticTraceAnalysis (``nccl…Kernel`` is communication; memory copies
within a GPU are neither communication nor compute), so that both tools compute the same X and Y where NCCL alone
communicates; kernels of other libraries (``communication_kernels.py``) and copies between GPUs are communication, too.
Collectives, which NCCL asks its tuner about, are separated from the rest, which it does not. Done once per distinct
name, never per kernel.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from lagom.records import Function
from lagom.timeline.communication_kernels import find_communication, looks_like_communication


class KernelKind(IntEnum):
    """As ``enum lagom_span_kind`` of ``csrc/protocol/lagom_protocol.h``. P2P: communication that NCCL asks no tuner
    about. OTHER: copies within a GPU, memsets, synchronisation."""

    COMPUTE = 0
    COLLECTIVE = 1
    P2P = 2
    OTHER = 3


#: ``function`` of a kernel that is no collective known to the tuner.
NO_FUNCTION = 255
#: Of a collective, where neither its name nor the trace says which: NCCL runs several in one kernel, ``…_Generic``.
UNKNOWN_COLLECTIVE = 254

#: How a kernel is called whose name was not recorded, before a number of its own.
NAMELESS = "kernel#"

_NCCL = re.compile(r"^nccl\w*Kernel")
_OTHER = re.compile(r"^(Memcpy|Memset|dma)|^(Stream|Event|Context|Device) (Sync|Wait)")
_P2P = re.compile(r"Send|Recv|All_?to_?All", re.IGNORECASE)
#: As CUPTI and Kineto name a copy between GPUs.
_PEER_COPY = re.compile(r"^Memcpy (PtoP|P2P)")
_CALLED = re.compile(r"^(?:void |static )*")
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
    if _OTHER.match(plain):
        return KernelKind.P2P if _PEER_COPY.match(plain) else KernelKind.OTHER
    if (known := find_communication(callable_name(name))) is not None:
        return KernelKind.P2P if known.function is None else KernelKind.COLLECTIVE
    return KernelKind.COMPUTE


@lru_cache(maxsize=65536)
def callable_name(name: str) -> str:
    """``vllm::cross_device_reduce_1stage`` of ``void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)``."""
    text = _CALLED.sub("", plain_name(name)).replace("(anonymous namespace)::", "").replace("<unnamed>::", "")
    return re.split(r"[<(]", text, maxsplit=1)[0].strip()


def function_of(name: str) -> int:
    """The collective that a kernel or operation name names, as :class:`Function`; :data:`NO_FUNCTION` if none."""
    plain = plain_name(name)
    if not _NCCL.match(plain) and (known := find_communication(callable_name(name))) is not None:
        return NO_FUNCTION if known.function is None else int(known.function)
    return next((int(function) for pattern, function in _FUNCTIONS if pattern.search(plain)), NO_FUNCTION)


def function_word(function: int) -> str:
    """``allgather``; ``collective`` where it is not known which, ``p2p`` where it is none."""
    return {NO_FUNCTION: "p2p", UNKNOWN_COLLECTIVE: "collective"}.get(function) or Function(function).word


def is_point_to_point(operation: str) -> bool:
    """Whether an operation's name, as torch records it, is no collective that NCCL asks its tuner about."""
    return _P2P.search(operation) is not None


def is_unknown_communication(name: str) -> bool:
    """Whether a kernel counts as compute although its name says that it communicates."""
    return kind_of(name) == KernelKind.COMPUTE and looks_like_communication(callable_name(name))


def is_symmetric(name: str) -> bool:
    """A symmetric-memory kernel: ``ncclSymk…``, launched without NCCL asking its tuner."""
    return plain_name(name).startswith("ncclSym")


def is_nccls(name: str) -> bool:
    """A kernel of NCCL, or of RCCL, which has its names."""
    return _NCCL.match(plain_name(name)) is not None
