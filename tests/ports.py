# SPDX-License-Identifier: Apache-2.0
"""Ports that tests listen on."""

from __future__ import annotations

import contextlib
import os
import random
import socket

#: Of pytest-xdist; processes of a test that ask for ports must have it.
WORKER = "PYTEST_XDIST_WORKER"


def free_port() -> int:
    """Of this worker's own, below those that the kernel gives to anybody: nobody takes it before it is listened on."""
    worker = int(os.environ.get(WORKER, "gw0").removeprefix("gw"))
    while True:
        port = 10_000 + 100 * worker + random.SystemRandom().randrange(100)
        with socket.socket() as one, contextlib.suppress(OSError):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as the store does: else where one was just now
            one.bind(("127.0.0.1", port))
            return port
