"""Which kernels are communication, and which collective they are.

Done once per distinct name, never per kernel. The classes are those of HolisticTraceAnalysis (``nccl…Kernel`` is
communication; memory copies are neither communication nor compute), so that both tools speak of the same X and Y; ours
also tells collectives, which NCCL asks its tuner about, from point-to-point, which it does not.
"""

from __future__ import annotations

import re
from enum import IntEnum

from lagom.records import Function
from lagom.timeline.kernel_names import plain_name


class Kind(IntEnum):
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


def kind_of(name: str) -> Kind:
    """The class of a kernel by its name, mangled or not."""
    plain = plain_name(name)
    if _NCCL.match(plain):
        return Kind.P2P if _P2P.search(plain) else Kind.COLLECTIVE
    return Kind.OTHER if _OTHER.match(plain) else Kind.COMPUTE


def function_of(name: str) -> int:
    """The collective that a kernel or operation name speaks of, as :class:`Function`; :data:`NO_FUNCTION` if none."""
    return next((int(function) for pattern, function in _FUNCTIONS if pattern.search(plain_name(name))), NO_FUNCTION)


def is_symmetric(name: str) -> bool:
    """A symmetric-memory kernel: launched without NCCL asking its tuner (facts: ``ncclSymk…``)."""
    return plain_name(name).startswith("ncclSym")
