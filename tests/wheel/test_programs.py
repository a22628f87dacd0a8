# SPDX-License-Identifier: Apache-2.0
"""The C tests run on each wheel's libraries; those for aarch64 under qemu-user.

qemu-user runs one process, not a machine: what it refuses is named in ``REFUSED``, case by case. Those cases run on
x86_64.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.native.programs import PROGRAMS, ROOT, SKIPPED, build, flags, run_to_the_end

LOADER = """
#include <dlfcn.h>
#include <stdio.h>
int main(int count, char **names)
{
    for (int i = 1; i < count; i++) {
        if (dlopen(names[i], RTLD_NOW | RTLD_LOCAL) == NULL) {
            return fprintf(stderr, "%s\\n", dlerror());
        }
    }
    return 0;
}
"""
NO_CONTROLLER = "qemu-user refuses clone() without SIGCHLD, so no controller starts"
NO_EMULATOR = "the program starts a copy of itself, which comes without the emulator"
#: Programs that do not end, or end at the first check, where qemu-user refuses what they are about.
NOT_EMULATED = {
    "plugin_limits": "qemu-user does not deliver SIGXFSZ as Linux does",
    "plugin_spawn": NO_CONTROLLER,
    "shm_controller_python": NO_EMULATOR,
    "shm_ownership": NO_EMULATOR,
}
#: Cases that fail under qemu-user: without a controller a job has other messages, PR_SET_CHILD_SUBREAPER is unknown,
#: and a child that is forked where a signal interrupts another fork does not end.
REFUSED = {
    "plugin_fork": {"the_end_is_said_once"},
    "plugin_messages": {"nccls_log_gets_what_stderr_does_not", "what_was_dropped_is_counted"},
    "plugin_reaper": {
        "a_launcher_that_is_a_subreaper",
        "a_launcher_that_is_process_1",
        "a_rank_that_is_a_subreaper",
        "a_rank_whose_parent_is_a_rank",
    },
    "plugin_replay": {"replay_or_tune_with_a_config_that_does_not_fit", "auto_replays_a_config_that_fits"},
    "plugin_signals": {"forks_at_any_moment"},
}
#: What a program is told, where all that it checks takes an hour under qemu-user.
ARGUMENTS = {"agreement_interleavings": ["as shipped, one rank a call ahead"]}


def test_every_library_is_loaded(libraries: list[Path], zig: list[str], emulator: list[str], tmp_path: Path) -> None:
    source, program = tmp_path / "loader.c", tmp_path / "loader"
    source.write_text(LOADER)
    subprocess.run([*zig, str(source), "-ldl", "-o", str(program)], check=True)
    command = [*emulator, str(program), *map(str, libraries)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_program(program: str, unpacked: Path, zig: list[str], emulator: list[str], tmp_path: Path) -> None:
    if emulator and program in NOT_EMULATED:
        pytest.skip(NOT_EMULATED[program])
    built = build(program, [*zig, *flags("none")], ROOT / "build" / "tests" / zig[-1])
    environ = {**os.environ, "LAGOM_SHM_DIR": str(tmp_path), "LAGOM_SANITIZE": "", "CC": " ".join(zig)}
    code, out, err = run_to_the_end([*emulator, str(built), *ARGUMENTS.get(program, [])], environ, unpacked)
    if code == SKIPPED:
        pytest.skip(out.strip() or "the program says that it cannot run here")
    refused = REFUSED.get(program, set()) if emulator else set()
    failed = set(re.findall(r"^FAIL (\w+)", out, re.MULTILINE))
    assert failed <= refused, f"{out[-6000:]}\n{err[-6000:]}"
    assert code == (1 if failed else 0), err[-6000:]
