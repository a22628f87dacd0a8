# SPDX-License-Identifier: Apache-2.0
"""Any environment: a setting is one of its values or refused, and a job's name never leads out of the folder."""

from __future__ import annotations

from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lagom.errors import SettingError
from lagom.settings import BY_NAME, SETTINGS, log_folder, read

quick = settings(max_examples=80)


@quick
@given(st.sampled_from([setting.name for setting in SETTINGS]), st.text(max_size=40))
def test_a_setting_is_one_of_its_values_or_refused_with_them(name: str, value: str) -> None:
    choices = BY_NAME[name].choices
    try:
        seen = read(name, {name: value})
    except SettingError as error:
        seen = str(error)
        refused = choices and value not in choices and all(choice in seen for choice in choices) and seen.endswith(".")
    else:
        refused = False
    assert refused or (seen in choices if choices else seen in (value, BY_NAME[name].default))


@quick
@given(st.text())
@example("../../etc/passwd")
@example("..")
@example("/absolute")
@example("a\0b")
def test_a_jobs_name_is_one_name_in_this_folder(job: str) -> None:
    folder = log_folder(job, {})
    assert folder.parent == Path.cwd()
    assert folder.name.startswith("lagom-")
    assert "\0" not in str(folder)
