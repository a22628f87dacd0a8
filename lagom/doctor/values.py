"""Do the values of our own variables lead anywhere: rules that can be read, a profile that can be loaded, a strategy
that exists, a log folder that can be written, an interpreter that a rank would start?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from lagom.doctor.finding import Finding, Level
from lagom.errors import LagomError, SettingError, UsageError
from lagom.files import not_ours

AREA = "environment"


def check_values(environ: Mapping[str, str]) -> list[Finding]:
    """What would be refused, or put the tuner aside, once a job runs."""
    return list(_problems(environ))


def _problems(environ: Mapping[str, str]) -> Iterator[Finding]:
    for name, check in CHECKS.items():
        if environ.get(name):
            try:
                check(environ[name])
            except (LagomError, OSError) as error:
                yield Finding(Level.PROBLEM, AREA, f"{name}: {error}", f"correct or unset {name}.")


def _strategy(name: str) -> None:
    from lagom.search import STRATEGIES

    if name not in STRATEGIES:
        raise SettingError(f"there is no strategy '{name}'; choose one of: {', '.join(STRATEGIES)}.")


def _rules(text: str) -> None:
    from lagom.wire.plan import wanted_rules

    wanted_rules(None, text)


def _profile(name: str) -> None:
    from lagom.profile_file import check_profile

    check_profile(Path(name))


def _folder(name: str) -> None:
    """It may still be made; nothing is made to find out."""
    folder = Path(name).absolute()
    there = next(path for path in (folder, *folder.parents) if os.path.lexists(path))
    if not there.is_dir():
        raise UsageError(f"{there} is no folder; nothing could be logged.")
    if there == folder and (wrong := not_ours(folder)):
        raise UsageError(f"{folder} {wrong}; nothing would be logged.")
    if not os.access(there, os.W_OK | os.X_OK) or os.statvfs(there).f_flag & os.ST_RDONLY or _is_proc(there):
        raise UsageError(f"{there} cannot be written to; nothing could be logged.")


def _is_proc(folder: Path) -> bool:
    """Nothing can be made there, whatever its permissions say."""
    return folder.is_relative_to("/proc") or folder.is_relative_to("/sys")


def _python(name: str) -> None:
    if fault := interpreter_fault(Path(name)):
        raise UsageError(f"a rank would not start the controller with {name}: {fault}.")


def interpreter_fault(program: Path) -> str:
    """Why a rank would refuse to start a controller with this program; one clause, empty if it would not. The rules are
    those of ``csrc/shm/ownership.h``."""
    from lagom.wire.layout import ffi
    from lagom.wire.library import library

    if not program.is_absolute():
        return "an absolute path is wanted"
    if not os.access(program, os.X_OK):
        return "it cannot be run"
    reason = ffi.new("char[256]")
    if library().lagom_path_is_guarded(os.fsencode(program), ffi.NULL, reason, 256):
        return ""
    return ffi.string(reason).decode(errors="replace")


CHECKS: dict[str, Callable[[str], None]] = {
    "LAGOM_STRATEGY": _strategy,
    "LAGOM_SET": _rules,
    "LAGOM_PROFILE": _profile,
    "LAGOM_DIR": _folder,
    "LAGOM_PYTHON": _python,
}
