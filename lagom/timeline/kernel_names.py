# SPDX-License-Identifier: Apache-2.0
"""What a kernel's name shows: a readable spelling, communication or compute, which collective, which sort of work.

CUPTI gives mangled names, Kineto demangled ones, our text dumps mangled ones cut at 60 characters. :func:`plain_name`
brings all to one spelling, :func:`label` makes it short enough for a table, :func:`family` says what sort of work it
is. A name can mislead: `ncclDevKernel_AllGather_RING_LL` is NCCL's only AllGather kernel and usually runs
SIMPLE.

The classes (:class:`KernelKind`) are those of HolisticTraceAnalysis (``nccl…Kernel`` is communication; memory copies
within a GPU are neither communication nor compute), so that both tools compute the same X and Y where NCCL alone
communicates; kernels of other libraries and copies between GPUs are communication, too (``communication_kernels.py``).
Collectives, which NCCL asks its tuner about, are separated from the rest, which it does not. Done once per distinct
name, never per kernel.
"""

from __future__ import annotations

import re
from enum import IntEnum
from functools import lru_cache

from lagom.records import Function
from lagom.timeline.communication_kernels import COMMUNICATION, RESEMBLES, CommunicationKernels


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

_OTHER = re.compile(r"^(Memcpy|Memset|dma)|^(Stream|Event|Context|Device) (Sync|Wait)")
_P2P = re.compile(r"SendRecv|All_?to_?All", re.IGNORECASE)
#: Names of operations that NCCL does by sending and receiving ("Collective name" in a trace).
_P2P_OPERATION = re.compile(r"^(send|recv|gather|scatter|_?all_?to_?all)", re.IGNORECASE)
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
    text = _unwrapped(name)
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


def kind_of(name: str, operation: str = "") -> KernelKind:
    """The class of a kernel by its name, mangled or not, and where the name is of no collective by the ``operation``
    that a trace has for it."""
    found = communication_of(name)
    if found is None:
        return KernelKind.OTHER if _OTHER.match(plain_name(name)) else KernelKind.COMPUTE
    by_operation = function_of(name) == NO_FUNCTION and _P2P_OPERATION.match(operation)
    return KernelKind.P2P if found.p2p or _P2P.search(callable_name(name)) or by_operation else KernelKind.COLLECTIVE


@lru_cache(maxsize=65536)
def communication_of(name: str) -> CommunicationKernels | None:
    """The row of :data:`COMMUNICATION` that a kernel or copy is of, mangled or not; None if it is of none."""
    text = _unwrapped(name)
    return next((row for row in COMMUNICATION if row.pattern.match(text)), None)


def callable_name(name: str) -> str:
    """``vllm::cross_device_reduce_1stage`` of ``void vllm::cross_device_reduce_1stage<__half, 8>(vllm::RankData*)``."""
    return re.split(r"[<(]", _unwrapped(name), maxsplit=1)[0].strip()


def _unwrapped(name: str) -> str:
    """The readable name without return type and anonymous namespaces."""
    return _CALLED.sub("", plain_name(name)).replace("(anonymous namespace)::", "").replace("<unnamed>::", "")


def function_of(name: str) -> int:
    """The collective that a kernel or operation name names, as :class:`Function`; :data:`NO_FUNCTION` if none."""
    found = communication_of(name)
    if found is not None and found.function is not None:
        return int(found.function)
    return next((int(function) for pattern, function in _FUNCTIONS if pattern.search(plain_name(name))), NO_FUNCTION)


def function_word(function: int) -> str:
    """``allgather``; ``collective`` where it is not known which, ``p2p`` where it is none."""
    return {NO_FUNCTION: "p2p", UNKNOWN_COLLECTIVE: "collective"}.get(function) or Function(function).word


def is_unknown_communication(name: str) -> bool:
    """Whether a kernel counts as compute although its name says that it communicates."""
    return kind_of(name) == KernelKind.COMPUTE and RESEMBLES.match(callable_name(name)) is not None


def is_symmetric(name: str) -> bool:
    """A symmetric-memory kernel: ``ncclSymk…``, launched without NCCL asking its tuner."""
    return plain_name(name).startswith("ncclSym")


def is_foreign(name: str) -> bool:
    """Communication that is known not to be by NCCL's kernels, so that NCCL asks no tuner about it."""
    found = communication_of(name)
    return found is not None and not found.asks_tuner and not is_symmetric(name)
