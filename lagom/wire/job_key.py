# SPDX-License-Identifier: Apache-2.0
"""The key of a job, as its ranks derive it from their environment, and the file of the region that belongs to it."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

from lagom.wire.layout import PATH_BYTES, ffi
from lagom.wire.library import library
from lagom.wire.region import RegionRefused
from lagom.wire.views import read_name

#: How the variables begin that name a job, or where its region lies.
JOB_VARIABLES = ("LAGOM_", "NCCL_HOSTID", "TORCHELASTIC_", "MASTER_", "SLURM_", "PMI")


def job_key(first_comm_id: int = 0) -> str | None:
    """The key the ranks of this environment would use; ``None`` if no variable names a job."""
    out = ffi.new(f"char[{PATH_BYTES}]")
    named = library().lagom_job_key(out, first_comm_id)
    return read_name(out) if named else None


def region_path(key: str) -> Path:
    """The file of a job key's region; raises :class:`RegionRefused` where LAGOM_SHM_DIR is too long."""
    out = ffi.new(f"char[{PATH_BYTES}]")
    if not library().lagom_region_path(os.fsencode(key), out):
        raise RegionRefused("LAGOM_SHM_DIR is too long (230 bytes at most); name a shorter folder.")
    return Path(read_name(out))


def key_and_region(environ: Mapping[str, str]) -> tuple[str, Path]:
    """The job key that ranks with exactly these naming variables derive, and the file of their region."""
    with _variables_only_of(environ):
        key = job_key()
        assert key is not None, "LAGOM_JOB_ID names the job"
        return key, region_path(key)


@contextlib.contextmanager
def _variables_only_of(environ: Mapping[str, str]) -> Iterator[None]:
    """Inside, the naming variables of this process are those of ``environ`` and no others; C's getenv sees it too."""
    before = {name: value for name, value in os.environ.items() if name.startswith(JOB_VARIABLES)}
    for name in before:
        del os.environ[name]
    os.environ.update(environ)
    try:
        yield
    finally:
        for name in environ:
            os.environ.pop(name, None)
        os.environ.update(before)
