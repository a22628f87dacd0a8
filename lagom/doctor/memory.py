# SPDX-License-Identifier: Apache-2.0
"""Shared memory: is there room for a region, and what regions are there, alive or left over?"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from lagom.doctor import Finding, Level
from lagom.errors import LagomError
from lagom.format import format_bytes
from lagom.settings import read

AREA = "shared memory"
SHARE_OF_FREE = 4  # a region may take a quarter of what is free


def examine(environ: Mapping[str, str], *, clean: bool = False) -> list[Finding]:
    """Room and regions; ``clean`` removes those that no live process uses."""
    folder = Path(read("LAGOM_SHM_DIR", environ))
    return [check_room(folder), *check_regions(folder, clean=clean)]


def check_room(folder: Path) -> Finding:
    """Whether a region fits into a quarter of what is free there."""
    from lagom.wire.layout import ffi

    needed = ffi.sizeof("struct lagom_region")
    try:
        status = os.statvfs(folder)
        with tempfile.TemporaryFile(dir=folder):
            pass  # it is a folder, and this user may make files there
    except OSError as error:
        text = f"{folder} cannot be used ({error.strerror})"
        return Finding(Level.PROBLEM, AREA, text, "mount a tmpfs there, or set LAGOM_SHM_DIR to a folder in memory.")
    free = status.f_bavail * status.f_frsize
    text = (
        f"{folder} has {format_bytes(free)} free; a job needs {format_bytes(needed)} a node and takes at most a quarter"
    )
    if free < needed * SHARE_OF_FREE:
        remedy = "free some, give the container more (docker run --shm-size=1g), or set LAGOM_SHM_DIR."
        return Finding(Level.PROBLEM, AREA, text, remedy)
    return Finding(Level.OK, AREA, text)


def check_regions(folder: Path, *, clean: bool) -> list[Finding]:
    """One finding for each region of ours, live or stale."""
    findings = []
    for path in sorted(folder.glob(f"lagom-{os.getuid()}-*")):
        try:
            findings.append(_check_region(path, clean=clean))
        except LagomError as error:
            findings.append(Finding(Level.PROBLEM, AREA, f"{path}: {error}", "build the native half: `make native`."))
    return findings


def _check_region(path: Path, *, clean: bool) -> Finding:
    from lagom.wire.peek import peek_region
    from lagom.wire.region import unlink_if_unheld

    view = peek_region(path)
    if view.in_use:
        who = f"controller {view.controller_pid}" if view.controller_alive else "no controller"
        text = f"{path} is live: job {view.job_key}, {len(view.processes)} rank(s), {who}"
        libraries = sorted({rank.libnccl for rank in view.processes if rank.libnccl})
        if len(libraries) > 1:
            text += f"; its ranks loaded different NCCLs: {', '.join(libraries)}"
            return Finding(Level.PROBLEM, AREA, text, "start every rank with the same Python environment.")
        if view.places_refused:
            text += f"; {view.places_refused} times a rank found no place in which a communicator can be tuned"
            return Finding(Level.NOTE, AREA, text, "those fall back to NCCL; fewer process groups a node fit.")
        return Finding(Level.OK, AREA, text)
    reason = view.fault or f"nobody holds it; it was of job {view.job_key}"
    if not _is_file_of_ours(path):
        return Finding(Level.PROBLEM, AREA, f"{path} is no region: {reason}", "remove it by hand; it is in the way.")
    if clean and unlink_if_unheld(path):
        return Finding(Level.OK, AREA, f"{path} is removed: {reason}")
    if clean:
        remedy = "remove it by hand if no job of yours is running."
        return Finding(Level.PROBLEM, AREA, f"{path} cannot be removed: {reason}", remedy)
    return Finding(Level.NOTE, AREA, f"{path} is stale: {reason}", "`lagom doctor --clean` removes it.")


def _is_file_of_ours(path: Path) -> bool:
    """Nothing else under our name is ever removed by us: a link, a FIFO, a folder, another user's file."""
    try:
        status = path.lstat()
    except OSError:
        return False
    return stat.S_ISREG(status.st_mode) and status.st_uid == os.getuid()
