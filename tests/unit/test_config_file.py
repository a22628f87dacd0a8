# SPDX-License-Identifier: Apache-2.0
"""A saved config is read back as it was written, by the code that replays it; what it cannot hold is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

import lagom
from lagom import environment
from lagom.config_file import (
    BadConfig,
    Fingerprint,
    SavedConfig,
    Section,
    check_config,
    load_config,
    read_evidence,
    save_config,
)
from lagom.program.detect import CallProgram
from lagom.program.sites import cut_into_sites
from lagom.records import Algorithm, Assignment, CommConfig, Function, Protocol
from lagom.start import c_names
from lagom.wire.plan import NO_LIMIT, Rule, format_rule, parse_rule

ROOT = Path(__file__).resolve().parents[2]
SECTION = Section(8, 1, 0, rules=(Rule(None, 1 << 20, NO_LIMIT, CommConfig(channels=28)),))


def test_environment_and_evidence_are_read_back_by_the_plugins_reader(tmp_path: Path) -> None:
    file = tmp_path / "p"
    asked = {"LAGOM_HEADROOM": "32:24", "NCCL_ALGO": "^NVLS, TREE"}
    evidence: tuple[dict[str, object], ...] = ({"speedup": 1.1}, {"text": 'a "b"'})
    save_config(SavedConfig(Fingerprint(ranks=8), (SECTION,), asked, evidence), file)
    assert file.read_text().startswith("lagom-config 1\n")
    check_config(file)
    assert read_evidence(file) == [{"speedup": 1.1}, {"text": 'a "b"'}]


def test_damaged_evidence_is_left_out(tmp_path: Path) -> None:
    file = tmp_path / "p"
    file.write_text('lagom-config 1\n#: {"a":1}\n#: {"a":\n#: [1]\n# note\n')
    assert read_evidence(file) == [{"a": 1}]


@pytest.mark.parametrize(
    "asked", [{"LD_PRELOAD": "x"}, {"NCCL_ALGO": ""}, {"NCCL_ALGO": "a\nb"}, {"NCCL_ALGO": "x" * 64}]
)
def test_what_no_saved_config_may_ask_for_is_refused_before_anything_is_written(
    asked: dict[str, str], tmp_path: Path
) -> None:
    with pytest.raises(environment.BadEnvironment):
        save_config(SavedConfig(Fingerprint(), (SECTION,), environment=asked), tmp_path / "p")
    assert not list(tmp_path.iterdir())


def test_c_and_python_know_the_same_variables() -> None:
    told = "write it anew: python -m lagom.start.c_names > csrc/config/known_variables.h"
    assert (ROOT / "csrc/config/known_variables.h").read_text() == c_names.header(), told


def test_known_variables_keep_the_tables_order_and_what_fits() -> None:
    given = {"NCCL_BUFFSIZE": "1", "LAGOM_HEADROOM": "32:24", "HOME": "/", "NCCL_ALGO": "a\tb"}
    found = environment.select_known(given)
    assert list(found.items()) == [("LAGOM_HEADROOM", "32:24"), ("NCCL_BUFFSIZE", "1")]


FINGERPRINT = Fingerprint(nccl_version=23007, ranks=16, nodes=2, gpu="NVIDIA H200", p2p=False, simulated=True)
CALLS = ((Function.ALL_GATHER, 1 << 20), (Function.ALL_GATHER, 1 << 20), (Function.REDUCE_SCATTER, 3 << 20))
CONFIGS = (
    CommConfig(Algorithm.RING, Protocol.SIMPLE, 3, None, 300_000),
    CommConfig(channels=2, threads=128),
)
RULES = (
    Rule(None, 0, NO_LIMIT, CommConfig(channels=4)),
    Rule(Function.ALL_REDUCE, 5, 5, CommConfig(algorithm=Algorithm.NVLS_TREE)),
    Rule(Function.BROADCAST, 0, 1 << 16, CommConfig(protocol=Protocol.LL128)),
)


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    tuned = cut_into_sites(CallProgram(CALLS, 0, 3, 9, 1e6))
    sections = [
        Section(16, 2, 0, "fsdp", tuned, Assignment(CONFIGS)),
        Section(8, 1, 1, "", rules=RULES),
    ]
    file = tmp_path / "config.lagom"
    save_config(SavedConfig(FINGERPRINT, tuple(sections)), file, remark="a remark")
    found = load_config(file)
    first, second = found.sections
    assert found.fingerprint == FINGERPRINT
    assert (first.ranks, first.nodes, first.ordinal, first.name, first.rules) == (16, 2, 0, "fsdp", ())
    assert first.assignment == Assignment(CONFIGS)
    assert first.program is not None
    assert first.program.positions == tuned.positions
    assert first.program.program.positions == CALLS
    assert [(s.function, s.bytes, s.calls_per_iteration) for s in first.program.sites] == [
        (s.function, s.bytes, s.calls_per_iteration) for s in tuned.sites
    ]
    assert (second.program, second.assignment, second.rules) == (None, None, RULES)


def test_a_damaged_saved_config_is_refused_with_its_line_and_nothing_leaks(tmp_path: Path) -> None:
    file = tmp_path / "config.lagom"
    file.write_text("lagom-config 1\ncommunicator ranks=8 nodes=1 ordinal=0\nrule allgather 0 - nc=999\nend\n")
    for read in (load_config, check_config):
        with pytest.raises(BadConfig, match="line 3"):
            read(file)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("junk\n", 'line 1: this is no saved config: it does not begin with "lagom-config 1".'),
        ("lagom-profile 1\n", 'line 1: this is no saved config: it does not begin with "lagom-config 1".'),
        ("lagom-config x\n", 'it does not begin with "lagom-config 1".'),
        ("lagom-config 0\n", "line 1: this is a saved config of format 0, and this Lagom reads 1; write it anew."),
        ("lagom-config 2\n", "line 1: this is a saved config of format 2, and this Lagom reads 1; write it anew."),
        ("", "this is no saved config: it is empty"),
    ],
)
def test_what_is_no_saved_config_is_refused_with_what_it_would_begin_with(
    text: str, reason: str, tmp_path: Path
) -> None:
    file = tmp_path / "config.lagom"
    file.write_text(text)
    with pytest.raises(BadConfig) as refused:
        load_config(file)
    assert reason in str(refused.value)


@pytest.mark.parametrize("name", ["nowhere", "folder", "x" * 250])
def test_a_saved_config_that_is_no_file_is_named_once(name: str, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    file = tmp_path / name
    for read in (load_config, check_config):
        with pytest.raises(BadConfig) as refused:
            read(file)
        assert str(refused.value).startswith(f"the saved config {file} cannot be used: it ")
        assert str(refused.value).endswith(".")
        assert str(refused.value).count("the saved config") == 1


@pytest.mark.parametrize(
    "rule", [*RULES, Rule(None, 7, NO_LIMIT, CommConfig()), Rule(None, 1 << 20, 3 << 20, CONFIGS[0])]
)
def test_a_rule_as_text_is_the_rule(rule: Rule) -> None:
    assert parse_rule(format_rule(rule)) == rule


def test_a_saved_config_is_loaded_and_saved_whole(tmp_path: Path) -> None:
    tuned = cut_into_sites(CallProgram(CALLS, 0, 3, 9, 1e6))
    sections = (Section(16, 2, 0, "fsdp", tuned, Assignment(CONFIGS)), Section(8, 1, 1, "", rules=RULES))
    made = lagom.SavedConfig(FINGERPRINT, sections, {"NCCL_ALGO": "RING"}, ({"speedup": 1.1},))
    lagom.save_config(made, tmp_path / "one", remark="a remark")
    loaded = lagom.load_config(str(tmp_path / "one"))
    assert (loaded.fingerprint, loaded.environment, loaded.evidence) == (FINGERPRINT, made.environment, made.evidence)
    lagom.save_config(loaded, str(tmp_path / "two"), remark="a remark")
    assert (tmp_path / "two").read_text() == (tmp_path / "one").read_text()
    with pytest.raises(BadConfig):
        lagom.load_config(tmp_path / "nothing")
