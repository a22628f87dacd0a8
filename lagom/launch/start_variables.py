# SPDX-License-Identifier: Apache-2.0
"""Which variables a job is started with besides the plugin's: for head-room, and those that a saved config asks for.
What is refused is refused before anything starts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lagom import headroom
from lagom.config_file import Fingerprint, SavedConfig, load_config, refuse_simulated
from lagom.doctor.config_fit import machine_refusal
from lagom.doctor.libraries import find_nccl
from lagom.environment import describe_differences, with_conf_files
from lagom.errors import UsageError
from lagom.headroom import Headroom, NoHeadroom
from lagom.launch.choose_headroom import headroom_of_config, headroom_of_log, refuse_headroom
from lagom.start import decided_by

FIRST_WITH_TABLE = 22200  # NCCL 2.22: from here on a tuner may set NC and leave the rest


@dataclass(frozen=True, slots=True)
class Start:
    """Variables to export, and what to say about them. ``is_of_config``: a saved config asks for some of them."""

    variables: Mapping[str, str] = field(default_factory=dict)
    remarks: tuple[str, ...] = ()
    is_of_config: bool = False


def choose_start(
    asked: str, source: Path | None, config: Path | None, environ: Mapping[str, str], command: list[str]
) -> Start:
    """Choose the variables for head-room and for a saved config; raises :class:`LagomError` if they cannot be set.

    ``asked``: value of --headroom; ``source``: value of --headroom-from; ``command``: the job's command.
    """
    if config is not None:
        refuse_simulated(config, environ)
    environ = with_conf_files(environ)
    saved = SavedConfig(Fingerprint(), ()) if config is None else load_config(config)
    room = headroom.parse(saved.environment.get(headroom.VARIABLE, ""))
    if not asked:
        if room is not None and environ.get(headroom.VARIABLE, "") != str(room):
            raise UsageError(
                f"the saved config {config} was made with head-room {room} and replays only with it; "
                f"add --headroom {room.built}, which costs {_memory(room)}."
            )
        return _as_wanted(saved.environment, saved.fingerprint, environ)
    refuse_headroom(environ, command)
    if 0 < find_nccl(environ) < FIRST_WITH_TABLE:
        raise NoHeadroom(
            "NCCL 2.21 takes channels from a tuner only with an algorithm; use 2.22 or later for head-room."
        )
    found = headroom_of_config(asked, room, config) if room is not None else headroom_of_log(asked, source, environ)
    rest = {name: value for name, value in saved.environment.items() if name not in found.environment()}
    plain = _as_wanted(rest, saved.fingerprint, environ)
    more = found.built - found.stock
    remark = (
        f"head-room: NCCL builds {found.built} channels, {more} more than by itself; calls that are not tuned keep "
        f"{found.stock}. It costs {_memory(found)} (computed from NCCL's default buffers, not measured)"
    )
    return Start({**plain.variables, **found.environment(environ)}, (*plain.remarks, remark), plain.is_of_config)


def _memory(room: Headroom) -> str:
    low = room.memory / (1 << 20)
    return f"about {low:.0f} MiB of GPU memory per rank and communicator, up to {4 * low:.0f} MiB if trees are used"


def _as_wanted(wanted: Mapping[str, str], made_for: Fingerprint, environ: Mapping[str, str]) -> Start:
    """Set what is not set: all of it or nothing, because some settings help only together. A variable that the user set
    otherwise stays, and the plugin then refuses the saved config, as it does one that was made for another machine."""
    settable = {name: value for name, value in wanted.items() if not environ.get(name)}
    other = describe_differences({name: value for name, value in wanted.items() if name not in settable}, environ)
    other += _undoing(settable, {name: environ[name] for name in environ if name not in wanted})
    if other:
        asks = (f"the saved config asks for {clause}; yours wins, so it will not be replayed" for clause in other)
        return Start({}, tuple(asks))
    if not settable:
        return Start()
    what = " ".join(f"{name}={value}" for name, value in settable.items())
    if refusal := machine_refusal(made_for, environ, find_nccl(environ)):
        return Start({}, (f"start settings of the saved config are not set ({what}): {refusal.clause}",))
    return Start(settable, (f"set for the saved config: {what}",), is_of_config=True)


def _undoing(settable: Mapping[str, str], users: Mapping[str, str]) -> list[str]:
    """A clause for each variable by which NCCL would ignore another one that the user has set."""
    taken = [name for name, value in users.items() if value]
    undone = {name: decided_by(name, taken) for name in settable}
    return [
        f"{name}={settable[name]} (here {', '.join(f'{one}={users[one]}' for one in ones)})"
        for name, ones in undone.items()
        if ones
    ]
