"""What a job is started with beyond the plugin: head-room, and what a profile asks for. Decided, and refused, before
anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lagom import headroom, journal
from lagom.doctor.config_fit import gpu_here, nccl_here
from lagom.environment import differences, told_by
from lagom.errors import JournalError, UsageError
from lagom.headroom import Headroom, NoHeadroom
from lagom.journal import RunState

FIRST_WITH_TABLE = 22200  # NCCL 2.22: from here on a tuner may set NC and leave the rest


@dataclass(frozen=True, slots=True)
class Start:
    """Variables to export, and what to say about them."""

    variables: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()


def start_with(
    asked: str, source: Path | None, profile: Path | None, environ: Mapping[str, str], command: list[str]
) -> Start:
    """``asked``: the value of --headroom, ``source``: the log it names. Raises :class:`LagomError` where the job would
    not be what was asked for."""
    wanted = {} if profile is None else _environment_of(profile)
    room = headroom.parse(wanted.get(headroom.VARIABLE, ""))
    if not asked:
        if room is not None and environ.get(headroom.VARIABLE, "") != str(room):
            raise UsageError(
                f"the profile {profile} was made with head-room {room} and replays only with it; "
                f"add --headroom {room.built}, which costs {_memory(room)}."
            )
        return _as_wanted(wanted, environ)
    headroom.refuse_where_it_cannot_be(environ, command)
    if 0 < nccl_here(environ) < FIRST_WITH_TABLE:
        raise NoHeadroom(
            "NCCL 2.21 takes channels from a tuner only with an algorithm; use 2.22 or later for head-room."
        )
    found = _of_profile(asked, room, profile) if room is not None else _of_log(asked, source, environ)
    rest = {name: value for name, value in wanted.items() if name not in found.environment()}
    plain = _as_wanted(rest, environ)
    more = found.built - found.stock
    remark = (
        f"head-room: NCCL builds {found.built} channels, {more} more than by itself; calls that are not tuned keep "
        f"{found.stock}. It costs {_memory(found)} (computed from NCCL's default buffers, not measured)"
    )
    return Start({**plain.variables, **found.environment(environ)}, (*plain.remarks, remark))


def _environment_of(profile: Path) -> dict[str, str]:
    from lagom.profile_file import read_environment

    return read_environment(profile)


def _memory(room: Headroom) -> str:
    low = room.memory / (1 << 20)
    return f"about {low:.0f} MiB of GPU memory a rank and communicator, up to {4 * low:.0f} where trees are used too"


def _as_wanted(wanted: Mapping[str, str], environ: Mapping[str, str]) -> Start:
    """What is not set is set; what is set otherwise stays, and the plugin refuses the profile for it."""
    settable = {name: value for name, value in wanted.items() if not environ.get(name)}
    remarks = [f"the profile asks for {name}={value}, and has it set" for name, value in settable.items()]
    other = differences({name: value for name, value in wanted.items() if name not in settable}, environ)
    remarks += [f"the profile asks for {clause}; yours wins, so it will not be replayed" for clause in other]
    return Start(settable, tuple(remarks))


# -- where stock's channels are known from


def _of_profile(asked: str, room: Headroom, profile: Path | None) -> Headroom:
    """A profile knows them of the machine it was made on, and no other."""
    from lagom.profile_file import read_profile

    assert profile is not None
    if asked.split(":")[0] != str(room.built) or (":" in asked and asked != str(room)):
        raise NoHeadroom(f"the profile {profile} was made with head-room {room}; ask for --headroom {room.built}.")
    made_on = read_profile(profile)[0].gpu
    if made_on != gpu_here():
        here = gpu_here() or "no GPU that is known"
        raise NoHeadroom(f"the profile {profile} was made on {made_on or 'an unknown GPU'} and here is {here}.")
    return room


def _of_log(asked: str, source: Path | None, environ: Mapping[str, str]) -> Headroom:
    if ":" in asked:
        return headroom.checked(headroom.wanted(asked, None, ""))
    if source is not None:
        file = journal.find_log(source)
        return headroom.wanted(asked, _fitting(file, environ), str(file))
    for file in journal.own_logs(Path()):
        if (run := _readable(file)) is not None and _tells_channels(run):
            return headroom.wanted(asked, _fitting(file, environ), str(file))
    return headroom.wanted(asked, None, "")


def _tells_channels(run: RunState) -> bool:
    """Whether a log says how many channels stock NCCL builds: that of a job with head-room does not."""
    if run.start is not None and run.start.headroom:
        return False
    return any(comm.program is not None and comm.program.channels_built for comm in run.comms.values())


def _readable(file: Path) -> RunState | None:
    try:
        return RunState(journal.read(file), keep_samples=False)
    except JournalError:
        return None


def _fitting(file: Path, environ: Mapping[str, str]) -> RunState:
    """The state of a log; raises :class:`NoHeadroom` if its job ran on another GPU or with other NCCL settings."""
    run = RunState(journal.read(file), keep_samples=False)
    for rank in run.ranks:
        if rank.gpu != gpu_here():
            raise NoHeadroom(
                f"the job of {file} ran on {rank.gpu or 'an unknown GPU'} and here is {gpu_here() or 'none'}."
            )
    told = run.first_rank.environment if run.first_rank is not None else {}
    other = sorted(set(told.items()) ^ set(told_by(environ).items()))
    if other:
        clause = ", ".join(f"{name}={value}" for name, value in other)
        raise NoHeadroom(f"the job of {file} ran with other settings ({clause} on one side only); run it once as now.")
    return run
