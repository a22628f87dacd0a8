"""What differs between NCCL releases as a tuner sees them: the ABI they look for, how they pick, how they clamp NC.

Facts: NCCL tags v2.20 .. v2.32, ``src/plugin/tuner.cc``, ``src/enqueue.cc`` (ncclGetAlgoInfo, topoGetAlgoInfo) and, for
2.31 on, ``src/tuning``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lagom.errors import LagomError


class UnknownNcclVersion(LagomError):
    """No imitation of that NCCL release exists."""


@dataclass(frozen=True, slots=True)
class NcclVersion:
    """One release family. ``code`` is NCCL's own number (23007 = 2.30.7); the API numbers are the newest it probes."""

    name: str
    code: int
    tuner_api: int
    profiler_api: int
    reads_back_valid_only: bool  # >= 2.31: -1 written over a valid entry wins; ties go to the highest id
    channels_only_lower: bool  # >= 2.31: the tuner's NC is an upper bound

    def pick(self, before: Sequence[float], after: Sequence[float]) -> int | None:
        """Index of the entry NCCL takes from the table after the tuner's edits; ``None`` if nothing is available.

        ``before`` is the table as NCCL offered it: from 2.31 on only entries valid there are read back.
        """
        if self.reads_back_valid_only:
            valid = [index for index, cost in enumerate(before) if cost >= 0.0]
            return min(valid, key=lambda index: (after[index], -index), default=None)
        valid = [index for index, cost in enumerate(after) if cost >= 0.0]
        return min(valid, key=lambda index: (after[index], index), default=None)

    def channels(self, stock: int, asked: int) -> int:
        """NC after the tuner asked for ``asked`` (0 = no opinion) where NCCL's own pick is ``stock``."""
        if asked <= 0:
            return stock
        return min(asked, stock) if self.channels_only_lower else asked


VERSIONS = {
    version.name: version
    for version in (
        NcclVersion("2.21", 22105, 2, 0, False, False),
        NcclVersion("2.22", 22203, 3, 0, False, False),
        NcclVersion("2.24", 22403, 4, 2, False, False),
        NcclVersion("2.27", 22707, 4, 4, False, False),
        NcclVersion("2.28", 22809, 5, 5, False, False),
        NcclVersion("2.29", 22907, 5, 6, False, False),
        NcclVersion("2.30", 23007, 6, 6, False, False),
        NcclVersion("2.31", 23102, 6, 7, True, True),
    )
}


def nccl_version(name: str) -> NcclVersion:
    """The release called ``name`` (``"2.30"``); :class:`UnknownNcclVersion` lists what there is."""
    if name not in VERSIONS:
        raise UnknownNcclVersion(f"no virtual NCCL {name!r}; choose one of {', '.join(VERSIONS)}.")
    return VERSIONS[name]
