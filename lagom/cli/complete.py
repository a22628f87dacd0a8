# SPDX-License-Identifier: Apache-2.0
"""What the Tab key offers: strategies, presets, modes, sites, log folders. Asked by the shell at every Tab, so each
imports only what it needs, when it is asked."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from lagom.format import format_site

Completer = Callable[[str], list[str]]


def one_of(words: Iterable[str]) -> Completer:
    """The words of a fixed list."""
    known = tuple(words)
    return lambda incomplete: [word for word in known if word.startswith(incomplete)]


def strategies(incomplete: str) -> list[str]:
    """Search strategies."""
    from lagom.search.strategies import STRATEGIES

    return one_of(STRATEGIES)(incomplete)


def machines(incomplete: str) -> list[str]:
    """Presets of the simulator."""
    from lagom.sim import machine

    return one_of(preset.replace("_", "-") for preset in machine.PRESETS)(incomplete.replace("_", "-"))


def workloads(incomplete: str) -> list[str]:
    """What can be simulated on them."""
    from lagom.sim.layers import SHAPES

    kinds = ("fsdp", "tp", "ep")
    names = (f"{kind}-{model.replace('_', '-')}" for kind in kinds for model in SHAPES)
    return one_of(names)(incomplete.replace("_", "-"))


def modes(incomplete: str) -> list[str]:
    """Values of LAGOM_MODE."""
    from lagom.settings import BY_NAME

    return one_of(BY_NAME["LAGOM_MODE"].choices)(incomplete)


def log_folders(incomplete: str) -> list[str]:
    """Folders with a log, newest first, below the folder that is being typed."""
    from lagom.journal import find_own_logs

    typed = Path(incomplete or ".")
    parent = typed if incomplete.endswith("/") else typed.parent
    return one_of(str(log.parent) for log in find_own_logs(parent, "*"))(incomplete)


def sites(incomplete: str) -> list[str]:
    """Sites of the newest log here, by the words that ``--site`` takes."""
    from lagom.errors import LagomError
    from lagom.journal import RunState, find_log, read

    try:
        run = RunState(read(find_log()), keep_samples=False)
    except LagomError:
        return []
    names = [format_site(site) for comm in run.comms.values() for site in comm.sites]
    return one_of(dict.fromkeys(names))(incomplete)


def jobs(incomplete: str) -> list[str]:
    """Log folders, and the names of the jobs running here."""
    from lagom.watch import Watcher

    running = [job.job for job in Watcher().look().running]
    return [*one_of(running)(incomplete), *log_folders(incomplete)]


#: How a rule begins; the shell splits words at colons, so each part is offered by itself.
RULE_WORDS = ("allgather:", "reducescatter:", "allreduce:", "broadcast:", "reduce:", "any:")
SIZE_WORDS = ("any:", ">=1M:", "<=64K:")
KNOB_WORDS = ("algo=", "proto=", "nc=", "chunk=", "nt=")


def rules(incomplete: str) -> list[str]:
    """The next part of a rule ``function:sizes:knobs``."""
    part = incomplete.rpartition(":")[2]
    words = (RULE_WORDS, SIZE_WORDS, KNOB_WORDS)[min(incomplete.count(":"), 2)]
    if words is KNOB_WORDS:
        part = part.rpartition(",")[2]
    head = incomplete.removesuffix(part) if part else incomplete
    return [head + word for word in one_of(words)(part)]
