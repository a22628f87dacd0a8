# SPDX-License-Identifier: Apache-2.0
"""One table of settings: frozen here, and the same as what the C half reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lagom import settings
from lagom.errors import SettingError

ROOT = Path(__file__).resolve().parents[3]

#: Adding a setting is a decision: it needs a line in the changelog, and here.
FROZEN = {
    "LAGOM_MODE": "auto",
    "LAGOM_CONFIG": "",
    "LAGOM_DIR": "./lagom-<job>",
    "LAGOM_JOB_ID": "",
    "LAGOM_STRATEGY": "auto",
    "LAGOM_SET": "",
    "LAGOM_NT": "0",
    "LAGOM_CONTROLLER": "auto",
    "LAGOM_PYTHON": "",
    "LAGOM_SHM_DIR": "/dev/shm",
    "LAGOM_TIMELINE": "0",
    "LAGOM_HEADROOM": "",
    "LAGOM_LOG_LEVEL": "info",
    "LAGOM_CACHE": "~/.cache/lagom",
    "LAGOM_NODES": "off",
    "LAGOM_EXCHANGE": "",
    "LAGOM_ATLAS": "on",
    "LAGOM_PARALLEL": "auto",
    "LAGOM_TRIAL": "",
    "LAGOM_TRUSTED_OWNER": "",
    "LAGOM_LAUNCHER": "0",
    "LAGOM_CLOCK": "real",
}


def variables_in(files: list[Path], pattern: str) -> set[str]:
    return {name for file in files for name in re.findall(pattern, file.read_text())}


def test_the_list_of_settings_is_frozen() -> None:
    assert {setting.name: setting.default for setting in settings.SETTINGS} == FROZEN


def test_each_setting_says_what_it_means() -> None:
    for setting in settings.SETTINGS:
        assert setting.text.endswith("."), setting.name
        assert set(setting.readers) <= {"plugin", "controller", "launcher", "job"}
        assert not setting.choices or setting.default in setting.choices


def test_the_plugin_reads_exactly_the_variables_of_the_table() -> None:
    sources = [*ROOT.glob("tuner_plugin/**/*.[ch]"), *ROOT.glob("csrc/**/*.[ch]")]
    read_in_c = variables_in(sources, r'"(LAGOM_[A-Z_]+)(?:=?)"')
    declared = {setting.name for setting in settings.SETTINGS if "plugin" in setting.readers}
    assert read_in_c - set(FROZEN) == set(), "C reads variables that the table does not have"
    assert declared - read_in_c == set(), "the table says the plugin reads these, and it does not"


def test_nothing_else_in_python_reads_a_variable_of_ours() -> None:
    files = [file for file in ROOT.glob("lagom/**/*.py") if file.name not in ("settings.py", "job_plan.py")]
    reads = variables_in(files, r"(?:getenv\(|environ\.get\(|environ\[)\s*[\"'](LAGOM_[A-Z_]+)[\"'](?!\] = )")
    assert reads == set(), "read these through lagom.settings.read()"


def test_a_wrong_value_is_refused_with_the_right_ones() -> None:
    with pytest.raises(SettingError, match="LAGOM_MODE=sometimes is not understood; set it to one of: auto, tune"):
        settings.read("LAGOM_MODE", {"LAGOM_MODE": "sometimes"})
    assert settings.read("LAGOM_MODE", {"LAGOM_MODE": ""}) == "auto"


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("LAGOM_STRATGY", "LAGOM_STRATEGY"),
        ("LAGOM_MOED", "LAGOM_MODE"),
        ("LAGOM_SHMDIR", "LAGOM_SHM_DIR"),
        ("LAGOM_mode", ""),  # names are case-sensitive, and letters in another case are not alike
        ("LAGOM_X", ""),
        ("LAGOM_CLOK", ""),  # like an internal one, which nobody is told to set
    ],
)
def test_an_unknown_variable_is_told_with_the_nearest_known_one(name: str, nearest: str) -> None:
    (unknown,) = settings.unknown_variables({name: "1", "LAGOM_MODE": "off", "PATH": "/bin", "LAGOMX": "1"})
    assert (unknown.name, unknown.nearest) == (name, nearest)
    hint = f"did you mean {nearest}?" if nearest else "`lagom env --settings` lists them."
    assert unknown.sentence == f"{name} is not a variable of lagom; {hint}"


def test_variables_of_our_own_tests_are_not_unknown() -> None:
    """Those that a developer's shell or `make` may hold while the tests start jobs."""
    patterns = ("tests/**/*.py", "tests/**/*.c", "tests/**/*.cpp", "benchmarks/**/*.py")
    files = [file for pattern in patterns for file in ROOT.glob(pattern)]
    reads = variables_in(files, r"(?:getenv\(|environ\.get\(|environ\[)\s*[\"'](LAGOM_[A-Z_]+)[\"'](?!\] = )")
    reads |= variables_in([ROOT / "Makefile"], r"\b(LAGOM_[A-Z_]+)=")
    assert {"LAGOM_TEST_FULL", "LAGOM_SANITIZE", "LAGOM_COMMIT", "LAGOM_ABI_KEEP"} <= reads
    assert settings.unknown_variables(dict.fromkeys(reads, "1")) == []


def test_rules_are_split_at_semicolons_and_lines() -> None:
    text = "allgather:>=1M:nc=4; any:<=64K:nc=1\n# a comment\nreducescatter:any:nc=2 # why\n"
    assert settings.split_rules(text) == ["allgather:>=1M:nc=4", "any:<=64K:nc=1", "reducescatter:any:nc=2"]


def test_the_log_folder_is_a_safe_name() -> None:
    assert settings.log_folder("a/b c:1", {}).name == "lagom-a-b-c-1"
    assert settings.log_folder("x", {"LAGOM_DIR": "/somewhere"}) == Path("/somewhere")


def test_the_table_lists_what_people_set() -> None:
    table = settings.table()
    assert "| `LAGOM_MODE` | `auto` `tune` `replay` `replay-or-tune` `off` | `auto` |" in table
    assert "LAGOM_CLOCK" not in table
