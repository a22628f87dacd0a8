# SPDX-License-Identifier: Apache-2.0
"""Settings that stand in the way are named with their origin and a remedy."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lagom.doctor import Level, plugin, variables
from lagom.doctor.nccl_versions import (
    beyond_what_is_known,
    build_id_of,
    capabilities,
    is_known,
    known_builds,
    parse_version,
    support_table,
    threads_known,
    version_from_code,
)


def texts(environ: dict[str, str], *files: Path) -> list[str]:
    return [f"{finding.level.value}: {finding.text}" for finding in variables.examine(environ, files)]


def test_a_clean_environment_is_ok() -> None:
    assert texts({"PATH": "/bin"}) == ["ok: no setting limits tuning"]


@pytest.mark.parametrize("name", sorted(variables.LIMITS))
def test_each_limit_is_named(name: str) -> None:
    (finding,) = variables.examine({name: "1"}, ())
    assert finding.level is Level.NOTE
    assert f"{name}=1 (environment)" in finding.text
    assert name in finding.remedy


def test_nccl_conf_files_count_but_the_environment_wins(tmp_path: Path) -> None:
    conf = tmp_path / "nccl.conf"
    conf.write_text("# a comment\nNCCL_ALGO = Ring\nNCCL_PROTO=Simple\nNCCL_DEBUG=INFO\n")
    found = texts({"NCCL_PROTO": "LL"}, conf, tmp_path / "missing")
    assert any(f"NCCL_ALGO=Ring ({conf})" in text for text in found)
    assert any("NCCL_PROTO=LL (environment)" in text for text in found)


def test_another_tuner_is_a_problem_and_another_profiler_a_note() -> None:
    tuner, profiler = texts({"NCCL_TUNER_PLUGIN": "libother.so", "NCCL_PROFILER_PLUGIN": "inspector.so"})
    assert tuner.startswith("problem: NCCL_TUNER_PLUGIN=libother.so")
    assert profiler.startswith("note: NCCL_PROFILER_PLUGIN=inspector.so")
    assert texts({"NCCL_TUNER_PLUGIN": f"/x/{variables.OURS}"}) == texts({})


def test_what_excludes_is_not_said_to_fix() -> None:
    (found,) = texts({"NCCL_PROTO": "^LL128"})
    assert found == "note: NCCL_PROTO=^LL128 (environment) takes LL128 away; lagom chooses among the others"
    (found,) = texts({"NCCL_TUNER_PLUGIN": "none"})
    assert found == "problem: NCCL_TUNER_PLUGIN=none (environment): NCCL loads no tuner"


def test_misspelt_and_wrong_settings_of_ours_are_problems() -> None:
    misspelt, wrong = texts({"LAGOM_MOED": "off", "LAGOM_NT": "yes", "LAGOM_JOB_ID": "fine"})
    assert misspelt == "problem: LAGOM_MOED is not a variable of lagom; did you mean LAGOM_MODE?"
    assert "LAGOM_NT=yes is not understood" in wrong


def test_cupti_is_found_in_a_toolkit_and_its_holder_named(tmp_path: Path) -> None:
    library = tmp_path / "extras" / "CUPTI" / "lib64" / "libcupti.so.12"
    library.parent.mkdir(parents=True)
    library.touch()
    environ = {"CUDA_HOME": str(tmp_path), "CUDA_INJECTION64_PATH": "/opt/nsys/injection.so"}
    found, holder = plugin.examine_cupti(environ, [])
    assert found.level is Level.OK
    assert "another tool (nsys?)" in holder.text


def test_versions() -> None:
    assert parse_version("2.30.7+cuda13.0") == (2, 30, 7)
    assert parse_version("2.27") == (2, 27, 0)
    assert parse_version("soon") is None
    assert version_from_code(22809) == (2, 28, 9)
    assert capabilities((2, 30, 2)).tuner == 5
    assert "chunk" in capabilities((2, 30, 3)).knobs


def test_threads_are_for_known_builds_that_tell_an_id() -> None:
    assert threads_known((2, 28, 9))
    assert not threads_known((2, 28, 8)), "no wheel of that version"
    assert not threads_known((2, 26, 5)), "known, but its communicators cannot be recognised"


def test_a_newer_nccl_is_said_to_be_one() -> None:
    newest = max(build.version for build in known_builds())
    assert beyond_what_is_known(newest) == ""
    assert "v6" in beyond_what_is_known((newest[0], newest[1], newest[2] + 3))


def test_the_build_id_of_a_library_is_read_as_the_linker_wrote_it(tmp_path: Path) -> None:
    library = tmp_path / "libnccl.so.2"
    wanted = known_builds()[0].build_id
    command = ["gcc", "-shared", "-fPIC", "-x", "c", "-", f"-Wl,--build-id=0x{wanted}", "-o", str(library)]
    subprocess.run(command, input="int one;", text=True, check=True)
    assert build_id_of(library) == wanted
    assert is_known(known_builds()[0].version, build_id_of(library))
    library.write_bytes(library.read_bytes()[:70])
    assert build_id_of(library) == ""
    assert build_id_of(tmp_path / "nothing") == ""


def test_the_support_table_has_a_row_for_each_entry() -> None:
    table = support_table()
    assert "| 2.31 and later |" in table
    assert "| 2.27 to below 2.28 |" in table
    assert "| below 2.21 |" in table


def test_head_room_by_hand_must_be_of_one_mind() -> None:
    room = {"LAGOM_HEADROOM": "32:24"}
    (problem,) = variables.examine(room, ())
    assert problem.level is Level.PROBLEM
    assert "NCCL_MIN_NCHANNELS is not set" in problem.text
    assert "NCCL_MIN_NCHANNELS=32" in problem.remedy
    (fine,) = variables.examine({**room, "NCCL_MIN_NCHANNELS": "32"}, ())
    assert fine.level is Level.OK
    (wrong, *_) = variables.examine({"LAGOM_HEADROOM": "24:32"}, ())
    assert wrong.level is Level.PROBLEM


@pytest.mark.parametrize(
    ("name", "value", "clause"),
    [
        ("LAGOM_CONFIG", "/nonexistent", "the saved config /nonexistent cannot be used"),
        ("LAGOM_CONFIG", "/etc/hostname", "the saved config /etc/hostname cannot be used"),
        ("LAGOM_SET", "garbage", "garbage"),
        ("LAGOM_SET", " ; ;", "holds no rule"),
        ("LAGOM_STRATEGY", "foo", "there is no strategy 'foo'; choose one of: "),
        ("LAGOM_DIR", "/proc/x", "/proc cannot be written to"),
        ("LAGOM_DIR", "/etc/hostname/log", "/etc/hostname is no folder"),
        ("LAGOM_PYTHON", "python3", "an absolute path is needed, not python3"),
        ("LAGOM_PYTHON", "/nowhere/python", "it cannot be run: /nowhere/python"),
    ],
)
def test_values_that_lead_nowhere_are_problems(name: str, value: str, clause: str) -> None:
    (finding,) = variables.examine({name: value}, ())
    assert finding.level is Level.PROBLEM
    assert finding.text.startswith(f"{name}: ")
    assert clause in finding.text
    assert name in finding.remedy


def test_values_that_work_are_none(tmp_path: Path) -> None:
    good = {"LAGOM_SET": "allgather:>=1M:nc=4", "LAGOM_STRATEGY": "static", "LAGOM_DIR": str(tmp_path / "new" / "log")}
    assert texts(good) == texts({})
    assert not (tmp_path / "new").exists()


def test_what_others_could_replace_is_a_problem_beforehand(tmp_path: Path) -> None:
    """An interpreter in a folder that is open to all, and a log folder that is."""
    tmp_path.chmod(0o777)
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    interpreter, folder = texts({"LAGOM_DIR": str(tmp_path), "LAGOM_PYTHON": str(program)})[::-1]
    assert interpreter.startswith(f"problem: LAGOM_PYTHON: a rank would not start the controller with {program}: ")
    assert folder == f"problem: LAGOM_DIR: {tmp_path} may be written by every user; nothing would be logged."
