# SPDX-License-Identifier: Apache-2.0
"""What one controller was asked to do."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from lagom.atlas import Atlas
from lagom.config_file import BEST_SO_FAR_NAME, FILE_NAME
from lagom.headroom import Headroom

#: Iterations that must have repeated before the first trial.
STABLE_ITERATIONS = 20


@dataclass(frozen=True, slots=True)
class Options:
    """Fixed for the controller's life. ``rules`` are those of ``--set`` at the start; the pins file replaces them."""

    directory: Path
    job: str = ""
    mode: str = "tune"
    strategy: str = "auto"
    rules: tuple[str, ...] = ()
    compare: tuple[str, ...] = ()  # configs to measure instead of searching, each "rule;rule"
    arms: Path | None = None  # file of the arms that `lagom bench` wants compared, instead of a search
    seed: int = 0
    record: bool = False  # keep calls.npy and kernels.npy
    profile_iterations: int = 0  # record so many iterations as they are, and tune nothing
    stable_iterations: int = STABLE_ITERATIONS
    headroom: Headroom | None = None  # channels beyond NCCL's own were built
    search_seconds: float | None = None  # proofs included; None = the policy's own limits
    search_percent: float | None = None  # of its iterations so far: what each search may have lost
    candidates: tuple[Path, ...] = ()  # saved configs whose assignments are tried first
    atlas: Atlas = field(default_factory=Atlas)  # what searches of other jobs found
    is_alone: bool = False  # search within this node even if the job spans others
    launcher: int | None = None  # our parent, which ends us: ranks may come late, and come back
    first_rank_seconds: float = 60.0

    @property
    def only_compares(self) -> bool:
        """Whether configs given by hand are measured once, instead of a search."""
        return bool(self.compare) or self.arms is not None

    @property
    def pins(self) -> Path:
        """The file ``lagom set`` writes: one rule a line."""
        return self.directory / "pins"

    @property
    def config(self) -> Path:
        """Where a confirmed improvement is kept."""
        return self.directory / FILE_NAME

    @property
    def best_so_far(self) -> Path:
        """Where a stopped search leaves what the next one tries first."""
        return self.directory / BEST_SO_FAR_NAME
