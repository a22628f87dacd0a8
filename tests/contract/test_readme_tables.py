"""Tables of the README that the code knows better."""

from __future__ import annotations

from pathlib import Path

from lagom import settings
from lagom.doctor import nccl_versions

README = (Path(__file__).resolve().parents[2] / "README.md").read_text()


def between(name: str) -> str:
    """What stands between the README's markers of a generated part."""
    begin, end = f"<!-- {name}:begin -->", f"<!-- {name}:end -->"
    assert README.count(begin) == README.count(end) == 1, f"the README's markers of {name} are damaged"
    return README.split(begin)[1].split(end)[0].strip()


def test_environment_variables_are_those_of_the_settings_table() -> None:
    assert between("settings") == settings.table(), "put the output of lagom.settings.table() there"


def test_what_can_be_set_on_which_nccl_is_what_doctor_says() -> None:
    table = nccl_versions.support_table()
    assert between("versions") == table, "put the output of lagom.doctor.nccl_versions.support_table() there"
