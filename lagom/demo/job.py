# SPDX-License-Identifier: Apache-2.0
"""The demo's ranks alone, as an ordinary job: ``python -m lagom.demo.job``.

It knows no more of lagom than its environment says, as a training job does: with NCCL_TUNER_PLUGIN set the virtual
ranks load the plugin, without it they do not. So `lagom run` and `lagom bench` can be tried, and tested, without a GPU:

    LAGOM_CLOCK=simulated lagom run -- python -m lagom.demo.job --ranks 4 --layers 4

It runs until SIGTERM or ``--iterations``, and then prints each iteration's length on the simulated clock. What the
ranks say on stderr, the plugin's remarks among it, comes out on this one's.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from lagom.demo.stage import ENDLESS, Scene
from lagom.records import Function
from lagom.settings import read
from lagom.sim.sockets import step_ms_of
from lagom.sim.virtual.selection import Fabric
from lagom.sim.virtual.spec import JobSpec
from lagom.sim.virtual.virtual_job import VirtualJob, spawned
from lagom.start import VARIABLES

_SOCKET_CALLS, _SOCKET_BYTES, _SOCKET_NOISE = 8, 32 << 20, 0.03
#: What a job's environment may say to its ranks.
HEARD = ("LAGOM_", *(variable.name for variable in VARIABLES))


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the job to its end."""
    wanted = _parser().parse_args(arguments)
    asked: list[int] = []  # no Event: a second signal within its set(), which holds a lock, would wait for ever
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda number, _: asked.append(number))
    environ = {name: value for name, value in os.environ.items() if name.startswith(HEARD)}
    aloud = partial(spawned, aloud=True)
    with tempfile.TemporaryDirectory(prefix="lagom-job-") as scratch:
        with VirtualJob(_spec(wanted), wanted.folder or Path(scratch), environ, aloud) as job:
            while job.running() and not asked:
                time.sleep(0.02)
            job.stop()
            lengths = job.finish()[0].lengths
        for step, length in enumerate(lengths):
            print(f"iteration {step}: {length / 1e6:.3f} ms")


def _spec(wanted: argparse.Namespace) -> JobSpec:
    scene = Scene(wanted.model, wanted.machine, wanted.ranks, wanted.tokens, wanted.layers, wanted.noise, wanted.nccl)
    spec = scene.spec(wanted.iterations or ENDLESS)
    plugin = bool(os.environ.get("NCCL_TUNER_PLUGIN"))
    profiler = plugin and bool(os.environ.get("NCCL_PROFILER_PLUGIN"))
    spec = replace(spec, real_ms=wanted.real_ms, plugin=plugin, profiler=profiler)
    return _over_sockets(spec) if wanted.sockets else spec


def _over_sockets(spec: JobSpec) -> JobSpec:
    """The same ranks in a job whose step is that of :mod:`lagom.sim.sockets`: one AllGather after the other. Processes
    differ by some percent, as real ones do; the number of a trial stands for the noise that it had."""
    noise = random.Random(read("LAGOM_TRIAL")).gauss(0.0, _SOCKET_NOISE)
    nanoseconds = step_ms_of(os.environ) * 1e6 * (1.0 + noise)
    calls = ((Function.ALL_GATHER.value, _SOCKET_BYTES),) * _SOCKET_CALLS
    sent = _SOCKET_CALLS * _SOCKET_BYTES * (spec.ranks - 1) / spec.ranks
    one = replace(spec.communicators[0], calls=calls)
    channels = max(2, int(os.environ.get("NCCL_MIN_NCHANNELS") or 0))
    fabric = Fabric(channels=channels, bandwidth_gbs=sent / nanoseconds, hop_us=0.0)
    return replace(spec, communicators=(one,), workload={}, machine="", fabric=fabric, logging_every=0)


def _parser() -> argparse.ArgumentParser:
    scene = Scene()
    parser = argparse.ArgumentParser(prog="python -m lagom.demo.job", description=__doc__.split("\n\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--iterations", type=int, default=0, help="0 = until SIGTERM")
    parser.add_argument("--sockets", action="store_true", help="another job: ranks that a model of sockets joins")
    parser.add_argument("--real-ms", type=float, default=0.0, help="the least real time of an iteration, milliseconds")
    parser.add_argument("--model", default=scene.model)
    parser.add_argument("--machine", default=scene.machine)
    parser.add_argument("--tokens", type=int, default=scene.tokens)
    parser.add_argument("--noise", type=float, default=scene.noise)
    parser.add_argument("--nccl", default=scene.version, help="the release to be imitated: 2.27 ... 2.31")
    parser.add_argument("--folder", type=Path, help="keep the ranks' records here")
    return parser


if __name__ == "__main__":
    main()
