# SPDX-License-Identifier: Apache-2.0
"""The job of `python -m lagom.demo.job`, with ranks that are forked from it: half a second of processor time less for
two of them. A script, since the job of a test is a command."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[2])

from lagom.sim.virtual.rank import main as rank
from tests.soak.forked import Forked, to_the_end


def forked(arguments: Sequence[str], environ: Mapping[str, str], said: Path, fd: int, *, aloud: bool = False) -> Forked:
    """Instead of :func:`lagom.sim.virtual.virtual_job.spawned`; ``fd`` is inherited."""
    errors = os.dup(2)

    def main(arguments: list[str]) -> int:
        if aloud:
            os.dup2(errors, 2)
        return to_the_end(rank, arguments)

    process = Forked(main, arguments, environ, said)
    os.close(errors)
    return process


if __name__ == "__main__":
    from lagom.demo import job

    job.spawned = forked  # type: ignore[assignment]
    job.main()
