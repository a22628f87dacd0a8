# SPDX-License-Identifier: Apache-2.0
"""What the system tests share: the native programs, job names of their own, shared memory of their own."""

from __future__ import annotations

import contextlib
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from lagom.errors import LagomError
from lagom.wire.job_key import key_and_region
from lagom.wire.library import plugin_path
from tests.system.programs import build
from tests.system.support import Job
from tests.system.warm import Server, forked_from


@pytest.fixture(scope="session")
def _server() -> Iterator[Server]:
    server = Server()
    yield server
    server.close()


@pytest.fixture(scope="module", autouse=True)
def _processes(request: pytest.FixtureRequest, _server: Server) -> Iterator[None]:
    """Ranks and controllers are forked from a server, but for modules that set FRESH_PROCESSES."""
    with contextlib.ExitStack() as stack:
        if not getattr(request.module, "FRESH_PROCESSES", False):
            stack.enter_context(forked_from(_server))
        yield


@pytest.fixture(scope="session")
def plugin() -> Path:
    """The built plugin."""
    try:
        return plugin_path()
    except LagomError as error:
        pytest.fail(str(error))


@pytest.fixture(scope="session")
def programs() -> Path:
    """Folder with every program of ``native/``, compiled and linked with liblagom."""
    return build()


@pytest.fixture
def job(tmp_path: Path) -> Iterator[Job]:
    """A fresh job; afterwards its region is gone whatever happened."""
    shared = tmp_path / "shm"
    shared.mkdir()
    environ = {
        "LAGOM_JOB_ID": f"test-{uuid.uuid4().hex[:12]}",
        "LAGOM_SHM_DIR": str(shared),
        "LAGOM_DIR": str(tmp_path / "log"),
        "LAGOM_MODE": "tune",
        "LAGOM_CONTROLLER": "none",
        "LAGOM_PYTHON": sys.executable,  # where a test lets a rank start it: a checkout has no `lagom` script beside it
    }
    key, region = key_and_region(environ)
    yield Job(environ, tmp_path / "log", region, key)
    if not region.is_dir():
        region.unlink(missing_ok=True)
