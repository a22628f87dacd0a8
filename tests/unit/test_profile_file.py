"""The profile's environment and evidence: written, read back, and refused where they cannot be."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lagom import environment
from lagom.profile_file import Fingerprint, Section, read_evidence, write_profile
from lagom.records import CommConfig
from lagom.wire.plan import NO_LIMIT, Rule
from lagom.wire.profile import check_profile

ROOT = Path(__file__).resolve().parents[2]
SECTION = Section(8, 1, 0, rules=(Rule(None, 1 << 20, NO_LIMIT, CommConfig(channels=28)),))


def test_a_profile_that_asks_for_nothing_stays_format_1(tmp_path: Path) -> None:
    write_profile(tmp_path / "p", Fingerprint(ranks=8), [SECTION])
    assert (tmp_path / "p").read_text().startswith("lagom-profile 1\n")


def test_environment_and_evidence_are_read_back_by_the_plugins_reader(tmp_path: Path) -> None:
    file = tmp_path / "p"
    asked = {"LAGOM_HEADROOM": "32:24", "NCCL_ALGO": "^NVLS, TREE"}
    write_profile(
        file, Fingerprint(ranks=8), [SECTION], environment=asked, evidence=[{"speedup": 1.1}, {"text": 'a "b"'}]
    )
    assert file.read_text().startswith("lagom-profile 2\n")
    check_profile(file)
    assert read_evidence(file) == [{"speedup": 1.1}, {"text": 'a "b"'}]


def test_damaged_evidence_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text('lagom-profile 1\n#: {"a":1}\n#: {"a":\n#: [1]\n# note\n')
    assert read_evidence(file) == [{"a": 1}]


@pytest.mark.parametrize(
    "asked", [{"LD_PRELOAD": "x"}, {"NCCL_ALGO": ""}, {"NCCL_ALGO": "a\nb"}, {"NCCL_ALGO": "x" * 64}]
)
def test_what_no_profile_may_ask_for_is_refused_before_anything_is_written(
    asked: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(environment.BadEnvironment):
        write_profile(tmp_path / "p", Fingerprint(), [SECTION], environment=asked)
    assert not list(tmp_path.iterdir())


def test_c_and_python_know_the_same_variables() -> None:
    source = (ROOT / "csrc/profile/environment.c").read_text()
    table = source[source.index("known[]") : source.index("};")]
    assert re.findall(r'"(\w+)"', table) == list(environment.KNOWN)


def test_told_by_keeps_the_tables_order_and_what_fits() -> None:
    found = environment.told_by({"NCCL_BUFFSIZE": "1", "LAGOM_HEADROOM": "32:24", "HOME": "/", "NCCL_ALGO": "a\tb"})
    assert list(found.items()) == [("LAGOM_HEADROOM", "32:24"), ("NCCL_BUFFSIZE", "1")]
