# SPDX-License-Identifier: Apache-2.0
"""What the atlas knows: entries that come with Lagom, those of this user's jobs, and how many are for this machine."""

from __future__ import annotations

from collections.abc import Mapping

from lagom.atlas import Atlas, load_atlas, nccl_release
from lagom.doctor import Finding, Level
from lagom.format import format_count

AREA = "atlas"


def examine(environ: Mapping[str, str], gpu: str, nccl: int) -> list[Finding]:
    """One finding. ``nccl``: version code of the NCCL that a job would load; 0 = none is known."""
    atlas = load_atlas(environ)
    if atlas.is_off:
        return [Finding(Level.OK, AREA, "off (LAGOM_ATLAS): no search tries what other jobs found")]
    shipped = format_count(len(atlas.shipped), "entry", "entries")
    text = f"{shipped} of Lagom's own, {len(atlas.own)} of this user's jobs"
    text += _for_here(atlas, gpu, nccl)
    if atlas.problem:
        return [Finding(Level.NOTE, AREA, f"{text}; {atlas.problem.rstrip('.')}", "as for cached configs.")]
    return [Finding(Level.OK, AREA, text)]


def _for_here(atlas: Atlas, gpu: str, nccl: int) -> str:
    if not gpu or not nccl:
        return "; the GPU or NCCL of a job is not known here"
    release = nccl_release(nccl)
    here = [entry.key for entry in atlas.entries if (entry.key.gpu, entry.key.nccl) == (gpu, release)]
    places = dict.fromkeys(f"{format_count(key.ranks, 'rank')} over {key.transport}" for key in here)
    listed = f" ({', '.join(places)})" if places else ""
    return f"; for {gpu} with NCCL {release}: {len(here)}{listed}"
