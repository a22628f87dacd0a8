# SPDX-License-Identifier: Apache-2.0
"""The jobs of ``whole_runs.py``, and the arms that each is run with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from lagom.wire.library import plugin_path

SEARCH, PLAIN, AGAIN, LOADED = "auto", "plain", "plain again", "plugin alone"
#: Other searches: for communication alone, and one number of channels for all calls.
OTHER_SEARCHES = ("autoccl", "static")
BY_HAND = ("256 KiB", "512 KiB", "3 channels")


class Arm(NamedTuple):
    """Options of `lagom run`, None without it; variables on top."""

    options: tuple[str, ...] | None
    environ: dict[str, str] = {}  # noqa: RUF012


ARMS = {
    SEARCH: Arm(("--mode", "tune")),
    **{name: Arm(("--mode", "tune", "--strategy", name)) for name in OTHER_SEARCHES},
    BY_HAND[0]: Arm(("--set", "any:>=1M:chunk=256K")),
    BY_HAND[1]: Arm(("--set", "any:>=1M:chunk=512K")),
    BY_HAND[2]: Arm(("--set", "any:>=1M:nc=3,chunk=512K")),
    LOADED: Arm(
        None,
        {
            "NCCL_TUNER_PLUGIN": str(plugin_path()),
            "NCCL_PROFILER_PLUGIN": str(plugin_path()),
            "LAGOM_CONTROLLER": "none",
        },
    ),
    PLAIN: Arm(None),
    AGAIN: Arm(None),
}
SEARCHES = (SEARCH, *OTHER_SEARCHES)
COMPARED = (*SEARCHES, *BY_HAND, PLAIN, AGAIN)
COST = (SEARCH, LOADED, PLAIN, AGAIN)


@dataclass(frozen=True, slots=True)
class Job:
    """A script of benchmarks/jobs. ``seconds``: of the steps of a process that searches. ``steps``: of every process,
    where the same for all; then a search has no time limit."""

    script: str
    options: tuple[str, ...] = ()
    regime: str = "host"  # of benchmarks.matrix.place
    nccl: str = "2.30"
    arms: tuple[str, ...] = COMPARED
    search_seconds: float | None = 40.0
    seconds: float = 44.0
    steps: int | None = None


def _fsdp(layers: int, tokens: int, *more: str) -> tuple[str, ...]:
    return ("--shape", "llama3_8b", "--layers", str(layers), "--tokens", str(tokens), *more)


def _wide(tokens: int) -> tuple[str, ...]:
    return ("--layers", "8", "--tokens", str(tokens))


def _cost(script: str, options: tuple[str, ...]) -> Job:
    return Job(script, options, "nvlink", "bundled", COST, None, steps=120)


#: A process that searches has twice what a search takes by the simulator (150 to 200 iterations), so that its last half
#: is clear of it as a rule.
JOBS = {
    "fsdp-16384": Job("fsdp.py", _fsdp(3, 16384), seconds=76.0),
    "fsdp-16384-120s": Job(
        "fsdp.py", _fsdp(3, 16384), arms=(SEARCH, *BY_HAND, PLAIN, AGAIN), search_seconds=120.0, seconds=150.0
    ),
    "fsdp-8192": Job("fsdp.py", _fsdp(3, 8192)),
    "ddp-transformer": Job("transformer_ddp.py"),
    "ddp-8192": Job("ddp.py", _wide(8192)),
    "nvlink-fsdp-4096": Job("fsdp.py", _fsdp(4, 4096), "nvlink"),
    "nvlink-tp-8192": Job("tp_domino.py", _wide(8192), "nvlink"),
    "nvlink-ep-16384": Job("ep_two_batch.py", ("--layers", "4", "--tokens", "16384"), "nvlink"),
    "cost-fsdp-4096": _cost("fsdp.py", _fsdp(2, 4096)),
    "cost-ddp-8192": _cost("ddp.py", _wide(8192)),
    "cost-fsdp-tp": _cost("fsdp.py", _fsdp(4, 4096, "--mesh", "fsdp_tp")),
    # with 4,096 tokens the host sets the pace there, and steps differ between processes by more than any cost
    "cost-fsdp-tp-16384": _cost("fsdp.py", _fsdp(4, 16384, "--mesh", "fsdp_tp")),
    "cost-hsdp": _cost("fsdp.py", _fsdp(4, 4096, "--mesh", "hsdp")),
}
DEFAULT_JOBS = "fsdp-16384,ddp-8192"
