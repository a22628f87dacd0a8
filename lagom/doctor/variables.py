# SPDX-License-Identifier: Apache-2.0
"""The user's settings that limit tuning: in the environment, and in the files that NCCL reads.

The user's settings always win; the doctor says what each of them leaves to tune.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path

from lagom.doctor import Finding, Level
from lagom.environment import conf_files, read_conf
from lagom.errors import LagomError, UsageError
from lagom.files import not_ours
from lagom.headroom import parse
from lagom.settings import SETTINGS, unknown_variables

AREA = "environment"

#: variable -> how it limits tuning
LIMITS = {
    "NCCL_ALGO": "fixes the algorithm; lagom leaves it alone",
    "NCCL_PROTO": "fixes the protocol; lagom leaves it alone",
    "NCCL_MAX_CTAS": "is the upper limit of channels for lagom too",
    "NCCL_MIN_CTAS": "makes NCCL build at least so many channels; lagom may use fewer, and no head-room",
    "NCCL_MAX_NCHANNELS": "is the upper limit of channels for lagom too",
    "NCCL_MIN_NCHANNELS": "makes NCCL build at least so many channels; lagom may use fewer, and no head-room",
    "NCCL_NTHREADS": "fixes the threads of each channel",
    "NCCL_BUFFSIZE": "limits the chunk size for the whole process",
    "NCCL_CTA_POLICY": "may move collectives to the copy engines, which no tuner is asked about",
    "NCCL_TUNER_CONFIG_FILE": "configures NCCL's example tuner, not lagom",
}
HEADROOM = "LAGOM_HEADROOM"
PLUGINS = ("NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN")
OURS = "libnccl-tuner-lagom.so"


def examine(environ: Mapping[str, str], files: tuple[Path, ...] | None = None) -> list[Finding]:
    """Every setting that limits tuning, with its origin."""
    found = read_settings(environ, conf_files(environ) if files is None else files)
    ours = "NCCL_MIN_NCHANNELS" if environ.get(HEADROOM) else ""
    findings = [
        Finding(
            Level.NOTE, AREA, f"{name}={value} ({source}) {limit(name, value)}", f"unset {name} to let lagom choose."
        )
        for name, (value, source) in found.items()
        if name in LIMITS and name != ours
    ]
    findings += [finding for name in PLUGINS if (finding := check_plugin_variable(name, found.get(name)))]
    findings += check_headroom(environ, found)
    findings += check_own_settings(environ)
    findings += check_values(environ)
    return findings or [Finding(Level.OK, AREA, "no setting limits tuning")]


def limit(name: str, value: str) -> str:
    """How a variable limits tuning. A list behind ``^`` names what is not to be used; the rest is free."""
    if name in ("NCCL_ALGO", "NCCL_PROTO") and value.startswith("^"):
        return f"takes {value[1:]} away; lagom chooses among the others"
    return LIMITS[name]


def read_settings(environ: Mapping[str, str], files: tuple[Path, ...]) -> dict[str, tuple[str, str]]:
    """NCCL_* variables with their values and origins. NCCL reads the files but does not override the environment."""
    found = {name: (value, "environment") for name, value in environ.items() if name.startswith("NCCL_")}
    for file in files:
        for name, value in read_conf(file).items():
            found.setdefault(name, (value, str(file)))
    return found


def check_plugin_variable(name: str, setting: tuple[str, str] | None) -> Finding | None:
    """NCCL has one tuner slot and one profiler slot."""
    if setting is None or Path(setting[0]).name == OURS:
        return None
    value, source = setting
    if name == "NCCL_TUNER_PLUGIN" and value == "none":
        text = f"{name}=none ({source}): NCCL loads no tuner"
        return Finding(Level.PROBLEM, AREA, text, f"unset {name}, or use `lagom run --replace-plugin`.")
    if name == "NCCL_TUNER_PLUGIN":
        text = f"{name}={value} ({source}): NCCL loads one tuner, and this is another"
        return Finding(Level.PROBLEM, AREA, text, f"unset {name}, or use `lagom run --replace-plugin`.")
    text = f"{name}={value} ({source}) holds NCCL's one profiler slot: no group names, no exact joins"
    return Finding(Level.NOTE, AREA, text, f"unset {name} if you can do without that profiler while tuning.")


def check_headroom(environ: Mapping[str, str], found: Mapping[str, tuple[str, str]]) -> list[Finding]:
    """Head-room set by hand: NCCL_MIN_NCHANNELS must be the number of channels that LAGOM_HEADROOM says."""
    try:
        room = parse(environ.get(HEADROOM, ""))
    except LagomError as error:
        return [Finding(Level.PROBLEM, AREA, str(error), f"correct or unset {HEADROOM}.")]
    if room is None:
        return []
    built = found.get("NCCL_MIN_NCHANNELS", ("", ""))[0]
    if built != str(room.built):
        text = f"{HEADROOM}={room} stands for {room.built} channels, and NCCL_MIN_NCHANNELS is {built or 'not set'}"
        exports = " ".join(f"{name}={value}" for name, value in room.environment(environ).items())
        return [Finding(Level.PROBLEM, AREA, text, f"export {exports}, or use `lagom run --headroom {room}`.")]
    text = f"head-room {room}: NCCL builds {room.built} channels, calls that are not tuned keep {room.stock}"
    return [Finding(Level.OK, AREA, text)]


def check_own_settings(environ: Mapping[str, str]) -> list[Finding]:
    """LAGOM_* variables that do not exist (a misspelt one does nothing), and ones with a wrong value."""
    findings = [
        Finding(Level.PROBLEM, AREA, unknown.sentence, f"correct or unset {unknown.name}.")
        for unknown in unknown_variables(environ)
    ]
    for setting in SETTINGS:
        try:
            setting.read(environ)
        except LagomError as error:
            findings.append(Finding(Level.PROBLEM, AREA, str(error), f"correct or unset {setting.name}."))
    return findings


# -- do the values of our own variables work: rules, saved config, strategy, log folder, interpreter


def check_values(environ: Mapping[str, str]) -> list[Finding]:
    """Values that would be refused, or would stop tuning, when a job runs."""
    findings = []
    for name, check in CHECKS.items():
        if environ.get(name):
            try:
                check(environ[name])
            except (LagomError, OSError) as error:
                findings.append(Finding(Level.PROBLEM, AREA, f"{name}: {error}", f"correct or unset {name}."))
    return findings


def _strategy(name: str) -> None:
    from lagom.search import find_strategy

    find_strategy(name)


def _rules(text: str) -> None:
    from lagom.wire.plan import choose_rules

    choose_rules(None, text)


def _config(name: str) -> None:
    from lagom.config_file import refuse_simulated

    refuse_simulated(Path(name))


def _folder(name: str) -> None:
    """The folder need not exist yet; nothing is created by this check."""
    folder = Path(name).absolute()
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not there.is_dir():
        raise UsageError(f"{there} is no folder; nothing could be logged.")
    if there == folder and (wrong := not_ours(folder)):
        raise UsageError(f"{folder} {wrong}; nothing would be logged.")
    if not os.access(there, os.W_OK | os.X_OK) or os.statvfs(there).f_flag & os.ST_RDONLY or _is_proc(there):
        raise UsageError(f"{there} cannot be written to; nothing could be logged.")


def _is_proc(folder: Path) -> bool:
    """Nothing can be created there, whatever the permissions."""
    return folder.is_relative_to("/proc") or folder.is_relative_to("/sys")


def _python(name: str) -> None:
    from lagom.wire.library import python_of_ranks

    _, fault = python_of_ranks(name)
    if fault:
        raise UsageError(f"a rank would not start the controller with {name}: {fault}.")


CHECKS: dict[str, Callable[[str], None]] = {
    "LAGOM_STRATEGY": _strategy,
    "LAGOM_SET": _rules,
    "LAGOM_CONFIG": _config,
    "LAGOM_DIR": _folder,
    "LAGOM_PYTHON": _python,
}
