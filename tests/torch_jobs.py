# SPDX-License-Identifier: Apache-2.0
"""Jobs of torch on gloo, one after the other, whose ranks are forked from one process that has imported torch: 0.3 s of
processor time a rank, not 3. `python -m tests.torch_jobs jobs.json MODULE ...`; the file holds a list of :class:`Job`,
modules are imported too. `python -m tests.torch_jobs SCRIPT OPTIONS` is one rank of a launcher.

A rank ends without Python's own end, where gloo's threads can abort it ("terminate called without an active exception",
torch 2.13: `destroy_process_group` leaves them running).
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import traceback
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import NamedTuple

from tests.ports import WORKER, free_port

ROOT = Path(__file__).resolve().parents[1]
#: Imported once for all: what the jobs need, and what torch imports at the first step of an optimizer.
NEEDED = ("torch._dynamo", "torch.distributed.fsdp", "torch.distributed.tensor.parallel", "torch.distributed.nn")
#: What the first compilation imports: seconds, on every rank that compiles, unless they are forked with it.
COMPILER = ("torch._dynamo.backends.debugging", "torch._dynamo.repro.after_aot", "torch._inductor.select_algorithm")
QUIET = {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false", "CUDA_VISIBLE_DEVICES": ""}


@dataclass(frozen=True)
class Job:
    """A script with its options, on so many ranks; ``environ``: all that its ranks find there, None = as it is."""

    name: str
    command: list[str]
    output: str  # a file, of both streams
    ranks: int = 2
    environ: dict[str, str] | None = None


class Done(NamedTuple):
    """How a job ended."""

    code: int
    said: str


def run(
    jobs: Sequence[Job],
    folder: Path,
    environ: Mapping[str, str],
    before: Sequence[str] = (),
    python: str = sys.executable,
    imports: Sequence[str] = (),
) -> dict[str, Done]:
    """How each ended, by name. ``before``: what stands before the command, like ``lagom run --``; ``imports``:
    modules that ranks are forked with, imported before NEEDED."""
    listed = folder / "jobs.json"
    listed.write_text(json.dumps([asdict(job) for job in jobs]))
    command = [*before, python, "-m", __name__, str(listed), *imports]
    shown = {**environ, **QUIET, "PYTHONPATH": str(ROOT), WORKER: os.environ.get(WORKER, "gw0")}
    done = subprocess.run(command, cwd=folder, env=shown, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    codes = json.loads((folder / "codes.json").read_text())
    return {job.name: Done(codes[job.name], Path(job.output).read_text()) for job in jobs}


def _code_of(job: Job) -> int:
    """0, or how the first rank ended that failed; the others are ended then."""
    group = {"WORLD_SIZE": str(job.ranks), "LOCAL_WORLD_SIZE": str(job.ranks), "MASTER_ADDR": "127.0.0.1"}
    group |= {"MASTER_PORT": str(free_port()), "GROUP_RANK": "0"}
    ranks = set()
    for rank in range(job.ranks):
        if (pid := os.fork()) == 0:
            _be(job, {**group, "RANK": str(rank), "LOCAL_RANK": str(rank)})
        ranks.add(pid)
    failed = 0
    while ranks:
        pid, status = os.wait()
        ranks.discard(pid)
        if (code := os.waitstatus_to_exitcode(status)) and not failed:
            failed = code
            for other in ranks:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(other, signal.SIGKILL)
    return failed


def _be(job: Job, group: Mapping[str, str]) -> None:
    """The life of a rank. Never returns."""
    output = os.open(job.output, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    os.dup2(output, 1)
    os.dup2(output, 2)
    if job.environ is not None:
        os.environ.clear()
        os.environ.update(job.environ)
    os.environ.update(group)
    _run_script(job.command)


def _run_script(command: list[str]) -> None:
    """As Python runs a script, up to its own end. Never returns."""
    code = 1
    try:
        sys.argv = command
        sys.path[0] = str(Path(command[0]).parent)
        runpy.run_path(command[0], run_name="__main__")
        code = 0
    except SystemExit as leaving:
        code = leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    except BaseException:  # noqa: BLE001 - what a Python process says when it dies of an exception
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def main() -> None:
    if sys.argv[1].endswith(".py"):
        _run_script(sys.argv[1:])
    for module in (*sys.argv[2:], *NEEDED):
        importlib.import_module(module)
    jobs = [Job(**one) for one in json.loads(Path(sys.argv[1]).read_text())]
    Path(sys.argv[1]).with_name("codes.json").write_text(json.dumps({job.name: _code_of(job) for job in jobs}))


if __name__ == "__main__":
    main()
