# SPDX-License-Identifier: Apache-2.0
"""How many channels head-room adds and which number stock NCCL builds: known from a saved config, a log, or the user.

Stock's number must be known before the job starts, because nothing in a job with head-room shows it any more.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from lagom import journal
from lagom.environment import conf_settings, count_nodes_told, find_gpu, select_known
from lagom.errors import JournalError
from lagom.headroom import MOST_CHANNELS, USUAL_THREADS, Headroom, NoHeadroom, parse
from lagom.journal import RunState
from lagom.launch.launchers import spans_nodes
from lagom.start import CHANNELS

#: The user's own word on how many channels there are; with one of these there is nothing left to raise.
USERS_OWN = CHANNELS
#: These move the sizes from which on NCCL uses a channel, which stock's NC at a call is computed from.
SIZES = ("NCCL_NTHREADS", "NCCL_LL128_NTHREADS", "NCCL_THREAD_THRESHOLDS")


def refuse_headroom(environ: Mapping[str, str], command: list[str]) -> None:
    """Raises :class:`NoHeadroom` if the user's settings or several nodes do not allow it."""
    files = conf_settings(environ)
    for name in (*USERS_OWN, *SIZES):
        value = environ.get(name, "") or files.get(name, "")
        if value:
            why = (
                "your own word on the number of channels"
                if name in USERS_OWN
                else "moves the sizes NCCL uses channels from"
            )
            raise NoHeadroom(f"{name}={value} is {why}, and wins; unset it to use head-room.")
    if count_nodes_told(environ) > 1 or spans_nodes(command, environ):
        raise NoHeadroom(
            "the job runs on several nodes, where stock's channels are another matter; head-room is for one node."
        )


def headroom_of_config(asked: str, room: Headroom, config: Path | None) -> Headroom:
    """From a saved config, which knows the channels of the machine it was made on only."""
    from lagom.config_file import load_config

    assert config is not None
    if asked.split(":")[0] != str(room.built) or (":" in asked and asked != str(room)):
        raise NoHeadroom(f"the saved config {config} was made with head-room {room}; ask for --headroom {room.built}.")
    made_on = load_config(config).fingerprint.gpu
    if made_on != find_gpu():
        here = find_gpu() or "no GPU that is known"
        raise NoHeadroom(f"the saved config {config} was made on {made_on or 'an unknown GPU'} and here is {here}.")
    return room


def headroom_of_log(asked: str, source: Path | None, environ: Mapping[str, str]) -> Headroom:
    if ":" in asked:
        return _checked(_wanted(asked, None, ""))
    if source is not None:
        file = journal.find_log(source)
        return _wanted(asked, _fitting(file, environ), str(file))
    for file in journal.find_own_logs(Path()):
        if (run := _readable(file)) is not None and not _had_headroom(run) and _channels_seen(run):
            return _wanted(asked, _fitting(file, environ), str(file))
    return _wanted(asked, None, "")


def _had_headroom(run: RunState) -> bool:
    """Whether stock's channels cannot be seen in a log, because its job had other ones."""
    return run.start is not None and bool(run.start.headroom)


def _channels_seen(run: RunState) -> list[tuple[int, journal.Program]]:
    """Of each communicator whose number of channels the log shows: that, and its iteration."""
    programs = [comm.program for comm in run.comms.values() if comm.program is not None]
    return [(program.channels_built, program) for program in programs if program.channels_built]


def _readable(file: Path) -> RunState | None:
    try:
        return RunState(journal.read(file), keep_samples=False)
    except JournalError:
        return None


def _fitting(file: Path, environ: Mapping[str, str]) -> RunState:
    """The state of a log; raises :class:`NoHeadroom` if its job ran on another GPU or with other NCCL settings."""
    run = RunState(journal.read(file), keep_samples=False)
    for rank in run.ranks:
        if rank.gpu != find_gpu():
            raise NoHeadroom(
                f"the job of {file} ran on {rank.gpu or 'an unknown GPU'} and here is {find_gpu() or 'none'}."
            )
    told = run.first_rank.environment if run.first_rank is not None else {}
    other = sorted(set(told.items()) ^ set(select_known(environ).items()))
    if other:
        clause = ", ".join(f"{name}={value}" for name, value in other)
        raise NoHeadroom(f"the job of {file} ran with other settings ({clause} on one side only); run it once as now.")
    return run


def _wanted(asked: str, run: RunState | None, source: str) -> Headroom:
    """What ``--headroom`` asks for: ``32`` with stock's channels from the log of a job without head-room, ``run``
    (``source`` names it), or ``32:24`` with stock's number given. Raises :class:`NoHeadroom` if it is not known."""
    if ":" in asked:
        found = parse(asked)
        assert found is not None
        return found
    if not asked.isdecimal() or not asked.isascii():
        raise NoHeadroom(f"--headroom {asked} is not understood; give a number of channels, like 32 or 32:24.")
    if run is None:
        raise NoHeadroom(
            "how many channels NCCL builds here by itself is not known, and head-room must not change calls that are "
            "not tuned; run the job once without --headroom (20 iterations are enough), or give the number that NCCL "
            f'prints with NCCL_DEBUG=INFO ("24 coll channels"): --headroom {asked}:24.'
        )
    stock, threads = _stock_channels(run, source)
    return _checked(Headroom(int(asked), stock, threads))


def _checked(headroom: Headroom) -> Headroom:
    """The same; raises :class:`NoHeadroom` if it adds no channels, or more than NCCL can build."""
    if headroom.built > MOST_CHANNELS:
        raise NoHeadroom(f"NCCL builds at most {MOST_CHANNELS} channels, and {headroom.built} were asked for.")
    if headroom.built <= headroom.stock:
        raise NoHeadroom(
            f"NCCL builds {headroom.stock} channels here by itself; ask for more than that, or for no head-room."
        )
    return headroom


def _stock_channels(run: RunState, source: str) -> tuple[int, int]:
    """(channels NCCL built, threads of a RING/SIMPLE channel) in a job without head-room; raises :class:`NoHeadroom`
    if its log does not show them, or if communicators differ: one number is used for the whole job."""
    if _had_headroom(run):
        raise NoHeadroom(f"{source} is of a job with head-room, which does not show stock's channels; name another.")
    programs = _channels_seen(run)
    seen = {channels for channels, _ in programs}
    picks = [site.stock for _, program in programs for site in program.sites if site.stock is not None]
    simple = [pick.threads for pick in picks if (pick.algorithm, pick.protocol) == ("ring", "simple")]
    threads = set(filter(None, simple))
    if not seen:
        raise NoHeadroom(
            f"{source} does not say how many channels NCCL built: no large ring or tree collective was seen by the "
            "profiler plugin; run once more without --headroom and with NCCL_PROFILER_PLUGIN, or say it: "
            "--headroom 32:24."
        )
    if len(seen) > 1:
        raise NoHeadroom(
            f"NCCL built {' and '.join(map(str, sorted(seen)))} channels for different communicators of {source}, and "
            "head-room can put back one number only."
        )
    return seen.pop(), threads.pop() if len(threads) == 1 else USUAL_THREADS
