"""A look at a region from outside, for ``lagom doctor`` and the launcher: read-only, no lock taken."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from lagom.wire.layout import MAX_PROCESSES, ffi
from lagom.wire.library import library
from lagom.wire.region import ProcessView, _process_view, _text


@dataclass(frozen=True, slots=True)
class RegionView:
    """A region as found. ``fault`` is empty or says why it cannot be used (then the rest is empty)."""

    path: Path
    fault: str
    job_key: str = ""
    controller_alive: bool = False
    controller_pid: int = 0
    ranks_alive: tuple[ProcessView, ...] = ()

    @property
    def in_use(self) -> bool:
        """Whether anybody holds it."""
        return self.controller_alive or bool(self.ranks_alive)


def inspect(path: Path) -> RegionView:
    """Look at one region; never raises for what is in it."""
    lib = library()
    mapping = ffi.new("struct lagom_mapping *")
    fault = lib.lagom_region_inspect(mapping, os.fsencode(path))
    if fault != lib.LAGOM_REGION_OK:
        return RegionView(path, _text(lib.lagom_region_fault_text(fault)))
    try:
        header = mapping.region.header
        alive = (i for i in range(MAX_PROCESSES) if lib.lagom_region_process_alive(mapping, i))
        return RegionView(
            path,
            "",
            _text(header.job_key),
            bool(lib.lagom_region_controller_alive(mapping)),
            int(header.controller_pid),
            tuple(_process_view(i, mapping.region.processes[i]) for i in alive),
        )
    finally:
        lib.lagom_region_leave(mapping, False)


def unlink_if_unheld(path: Path) -> bool:
    """Remove a region that no living process holds any lock on, whatever is in it; True if it is gone."""
    library().lagom_region_remove_stale(os.fsencode(path))
    return not path.exists()
