"""What NCCL ran without asking a tuner, and what can be done about it instead."""

from __future__ import annotations

from collections.abc import Iterable

from lagom import journal
from lagom.explain.model import NotTuned

_SEND_RECV = "NCCL has no tuner for it; its channels and chunk are fixed when the communicator is built"
_P2P_KNOBS = "NCCL_MAX_P2P_NCHANNELS, NCCL_P2P_NVL_CHUNKSIZE at the next start: `lagom advise`"
_SYMMETRIC = "kernels on window-registered buffers choose their own, few CTAs"
_COPY_ENGINE = "copy engines move the data; no SM is taken"
_NOTHING = "asked without an algorithm on offer, as for candidates of symmetric kernels"
_CAPTURED = "a captured choice stands for the life of the graph, so nothing was tried here after the capture"


def told(record: journal.NotAsked | None, reasons: Iterable[str]) -> tuple[NotTuned, ...]:
    """Every kind of call that was seen, with its count; kinds that never came are left out."""
    found = [] if record is None else _counted(record)
    return (*found, *(NotTuned("everything here", None, reason) for reason in reasons))


def _counted(record: journal.NotAsked) -> list[NotTuned]:
    kinds = [
        ("send/recv and AlltoAll", record.send_recv, _SEND_RECV, _P2P_KNOBS),
        ("symmetric kernels", record.symmetric, _SYMMETRIC, "NCCL_SYM_CTAS, NCCL_WIN_ENABLE=0"),
        ("copy-engine collectives", record.copy_engine, _COPY_ENGINE, "NCCL_CTA_POLICY"),
        ("calls without an algorithm on offer", record.nothing_offered, _NOTHING, ""),
    ]
    found = [NotTuned(what, count, why, instead) for what, count, why, instead in kinds if count]
    if record.captured:
        found.append(NotTuned("CUDA graphs", None, _CAPTURED, "replay a profile: it is in force at capture"))
    if record.send_recv is None:
        blind = "only the profiler half (NCCL_PROFILER_PLUGIN) hears of it"
        found.append(NotTuned("send/recv, AlltoAll, copy engines", None, blind))
    return found
