# SPDX-License-Identifier: Apache-2.0
"""Candidates from saved configs: whose they are, and what becomes of what does not fit."""

from __future__ import annotations

from pathlib import Path

import pytest

from lagom.atlas import AtlasEntry, Found, Key
from lagom.config_file import Fingerprint, SavedConfig, Section, load_config, save_config
from lagom.controller.candidates import candidates_of, suggest_from
from lagom.journal import ConfigRecord
from lagom.program.detect import CallProgram
from lagom.program.sites import TunedProgram, cut_into_sites
from lagom.records import STOCK, Assignment, CommConfig, Function, Problem
from lagom.wire.plan import parse_rule
from lagom.wire.views import CommunicatorView, ProcessView

VIEW = CommunicatorView(0, 42, 8, 1, 0, "")
GATHER, SCATTER = (Function.ALL_GATHER, 64 << 20), (Function.REDUCE_SCATTER, 32 << 20)
SMALL = (Function.ALL_GATHER, 64 << 10)  # not worth tuning
CALLS = (GATHER, GATHER, SCATTER, GATHER, GATHER, SCATTER, SMALL)


def program(calls: tuple[tuple[Function, int], ...] = CALLS, hidden: list[float] | None = None) -> TunedProgram:
    return cut_into_sites(CallProgram(calls, 0, len(calls), iterations_seen=9, iteration_ns=1e8), hidden)


def section(*channels: int, ranks: int = 8, ordinal: int = 0, of: TunedProgram | None = None) -> Section:
    tuned = of or program()
    configs = Assignment(tuple(CommConfig(channels=count) for count in channels))
    return Section(ranks, 1, ordinal, "", tuned, tuned.widen(configs))


def saved(path: Path, *sections: Section) -> Path:
    save_config(SavedConfig(Fingerprint(), sections), path)
    return path


def found(*paths: Path, tuned: TunedProgram | None = None) -> tuple[list[tuple[int | None, ...]], list[str]]:
    """Channels of each candidate, and what was said."""
    said: list[str] = []
    candidates = candidates_of(paths, VIEW, tuned or program(), said.append)
    return [tuple(config.channels for config in candidate.configs) for candidate in candidates], said


def test_sections_of_the_same_program_in_the_order_of_the_files(tmp_path: Path) -> None:
    first = saved(tmp_path / "a", section(4, 2), section(3, 3))
    second = saved(tmp_path / "b", section(8, 8), section(4, 2))
    assert found(first, second) == ([(4, 2), (3, 3), (8, 8)], [])


def test_the_same_ordinal_comes_first(tmp_path: Path) -> None:
    assert found(saved(tmp_path / "a", section(4, 2, ordinal=1), section(3, 3)))[0] == [(3, 3), (4, 2)]


@pytest.mark.parametrize(
    "other",
    [
        section(4, 2, ranks=4),
        section(4, 2, of=program((GATHER, SCATTER, GATHER, SCATTER))),
        section(4, 2, of=program((*CALLS[:-2], (Function.REDUCE_SCATTER, 16 << 20), SMALL))),
        Section(8, 2, 0, rules=(parse_rule("allgather:any:nc=2"),)),
    ],
)
def test_other_ranks_and_other_calls_are_left_out_and_said(other: Section, tmp_path: Path) -> None:
    candidates, (sentence,) = found(saved(tmp_path / "other", other))
    assert candidates == []
    assert "other ranks or calls" in sentence


def test_rules_count_by_function_and_size(tmp_path: Path) -> None:
    rules = tuple(map(parse_rule, ("allgather:>=1M:nc=2", "reducescatter:>=64M:nc=3")))
    assert found(saved(tmp_path / "rules", Section(8, 1, 3, rules=rules)))[0] == [(2, None)]


def test_sites_that_are_cut_otherwise_now_get_the_configs_of_their_calls(tmp_path: Path) -> None:
    """Saved without a timeline; now the second half of the gathers is known to be exposed."""
    split = program(hidden=[1.0, 1.0, 1.0, 0.0, 0.0, 1.0, 1.0])
    assert len(split.sites) == len(program().sites) + 1
    assert found(saved(tmp_path / "whole", section(4, 2)), tuned=split)[0] == [(4, 4, 2)]
    assert found(saved(tmp_path / "split", section(4, 6, 2, of=split)))[0] in ([(4, 2)], [(6, 2)])


def test_what_cannot_be_read_is_said_and_no_error(tmp_path: Path) -> None:
    (tmp_path / "damaged").write_text("lagom-config 1\ncommunicator ranks=\n")
    good = saved(tmp_path / "good", section(4, 2))
    candidates, said = found(tmp_path / "none", tmp_path / "damaged", tmp_path, good)
    assert candidates == [(4, 2)]
    assert [sentence.startswith(f"no candidates from {tmp_path}") for sentence in said] == [True] * 3


def test_sites_that_are_not_tuned_stay_stock_in_the_file(tmp_path: Path) -> None:
    (read,) = load_config(saved(tmp_path / "a", section(4, 2))).sections
    assert read.assignment is not None
    assert read.assignment.configs[2] == STOCK


PROCESS = ProcessView(0, 1, 23007, 5, 5, 0, "NVIDIA H200", "", "", 0, 0, 0, 0, 0, peer_access=False)


@pytest.mark.parametrize(
    ("key", "count"),
    [({}, 1), ({"regime": "bound"}, 1), ({"regime": "hidden"}, 0), ({"transport": "p2p"}, 0), ({"ranks": 4}, 0)],
)
def test_the_atlas_is_asked_for_this_communicator_and_these_ranks(key: dict[str, object], count: int) -> None:
    here = {"gpu": "NVIDIA H200", "nccl": "2.30", "transport": "shm", "ranks": 8, "nodes": 1}
    found = Found(function="allgather", size_class=26, config=ConfigRecord(channels=2))
    entry = AtlasEntry(key=Key(**here | key), found=(found,), speedup=1.2, low=1.1, high=1.3, origin="a run")  # type: ignore[arg-type]
    tuned = program()
    problem = Problem(tuned.sites[:2], (CommConfig(channels=8),) * 2, 8)
    suggestions = suggest_from((entry,), VIEW, PROCESS, problem, 2, 2e6, 1e6)
    assert [[config.channels for config in one.assignment.configs] for one in suggestions] == [[2, None]] * count
    assert suggest_from((entry,), VIEW, PROCESS, problem, 0, 2e6, 1e6) == []
