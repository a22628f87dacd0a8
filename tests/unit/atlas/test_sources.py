# SPDX-License-Identifier: Apache-2.0
"""What the atlas reads: the list of the package, and saved configs in a cache of this user's own."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from benchmarks.atlas import RESULTS, entries_in, shipped_text
from lagom.atlas import Atlas, AtlasEntry, load_atlas
from lagom.atlas.match import suggest
from lagom.atlas.sources import ENTRIES, SHIPPED, read_shipped
from lagom.config_cache import CHECK, ENTRY, ConfigCache, Job, Machine, _digest
from lagom.config_file import Fingerprint, SavedConfig, Section, save_config
from lagom.doctor import atlas as doctor
from lagom.program import CallProgram, cut_into_sites
from lagom.records import Algorithm, Assignment, CommConfig, Function, Problem, Protocol, Site

CALLS = ((Function.ALL_GATHER, 96 << 20),) * 3 + ((Function.REDUCE_SCATTER, 64 << 20), (Function.ALL_GATHER, 80 << 20))
OUTCOME = {"verdict": "improved", "speedup": 1.25, "speedup_low": 1.2, "speedup_high": 1.3}
PROOF: dict[str, Any] = {"ranks": 8, "ordinal": 0, "outcome": OUTCOME, "x_ns": 2e6, "y_ns": 3e6}
PRINT = Fingerprint(nccl_version=23007, ranks=8, nodes=1, gpu="NVIDIA H200", p2p=True)


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"LAGOM_CACHE": str(tmp_path / "cache")}


def keep(environ: dict[str, str], proof: dict[str, Any], fingerprint: Fingerprint = PRINT, job: str = "train") -> Path:
    """As `lagom run` does at the end of a job; the file in the cache."""
    cache = Path(environ["LAGOM_CACHE"])
    tuned = cut_into_sites(CallProgram(CALLS, 0, len(CALLS), iterations_seen=9, iteration_ns=1e8))
    configs = Assignment(tuple(CommConfig(channels=count) for count in (4, 2, 3)))
    section = Section(8, 1, 0, "fsdp", tuned, tuned.widen(configs))
    file = cache.parent / "config.lagom"
    save_config(SavedConfig(fingerprint, (section,), evidence=(proof,)), file)
    whose = Job(command=("python", f"/home/me/secret/{job}.py"), folder="/home/me/secret", variables={})
    return ConfigCache(cache).keep(whose, Machine(), file, "lagom run")


def own(environ: dict[str, str]) -> tuple[AtlasEntry, ...]:
    return load_atlas(environ).own


def test_a_search_that_improved_a_job_is_an_entry(environ: dict[str, str]) -> None:
    keep(environ, PROOF)
    (entry,) = own(environ)
    assert entry.key.model_dump() == {
        "gpu": "NVIDIA H200", "nccl": "2.30", "transport": "p2p", "ranks": 8, "nodes": 1, "regime": "hidden",
    }  # fmt: skip
    assert (entry.speedup, entry.low, entry.high) == (1.25, 1.2, 1.3)
    assert entry.origin.startswith("lagom run on 2")
    found = {(one.function, one.size_class): one.config.channels for one in entry.found}
    assert found == {("allgather", 26): 4, ("reducescatter", 26): 3}, "the heaviest of two gathers of one size class"


def test_nothing_of_the_user_is_in_an_entry(environ: dict[str, str]) -> None:
    keep(environ, PROOF)
    text = ENTRIES.dump_json(own(environ)).decode()
    assert "secret" not in text
    assert "/" not in text


def test_contexts_are_those_of_the_evidence(environ: dict[str, str]) -> None:
    keep(environ, PROOF | {"context": ["hidden", "exposed", "hidden"]})
    (entry,) = own(environ)
    assert [(one.function, one.context) for one in entry.found] == [
        ("allgather", "hidden"), ("allgather", "exposed"), ("reducescatter", "hidden"),
    ]  # fmt: skip


def test_a_config_of_an_earlier_lagom_has_no_regime(environ: dict[str, str]) -> None:
    keep(environ, {name: value for name, value in PROOF.items() if name not in ("x_ns", "y_ns")})
    assert [entry.key.regime for entry in own(environ)] == [""]


@pytest.mark.parametrize(
    ("proof", "fingerprint"),
    [
        (PROOF | {"outcome": OUTCOME | {"verdict": "stopped"}}, PRINT),
        (PROOF | {"outcome": OUTCOME | {"speedup_low": 0.99}}, PRINT),
        (PROOF | {"outcome": OUTCOME | {"speedup": None}}, PRINT),
        (PROOF | {"outcome": None}, PRINT),
        (PROOF | {"outcome": 3}, PRINT),
        (PROOF | {"ordinal": 1}, PRINT),
        (PROOF, Fingerprint(nccl_version=23007, ranks=8, nodes=1, gpu="NVIDIA H200")),
    ],
)
def test_what_is_not_proven_or_of_an_unknown_transport_is_no_entry(
    proof: dict[str, Any], fingerprint: Fingerprint, environ: dict[str, str]
) -> None:
    keep(environ, proof, fingerprint)
    assert own(environ) == ()


def test_damaged_files_are_passed_over_and_the_newest_are_read(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for age in (30, 20, 10):
        path = keep(environ, PROOF | {"outcome": OUTCOME | {"speedup": 1.0 + age / 100}}, job=f"job{age}")
        os.utime(path, (1e9 - age, 1e9 - age))
    assert len(own(environ)) == 3
    monkeypatch.setattr("lagom.atlas.sources.MOST_READ", 2)
    assert sorted(entry.speedup for entry in own(environ)) == [1.1, 1.2]
    path.write_bytes(path.read_bytes()[:200])
    monkeypatch.undo()
    assert len(own(environ)) == 2


def test_a_cache_that_others_may_write_is_not_read(environ: dict[str, str]) -> None:
    keep(environ, PROOF)
    Path(environ["LAGOM_CACHE"]).chmod(0o777)
    atlas = load_atlas(environ)
    assert atlas.own == ()
    assert "may be written by" in atlas.problem
    assert atlas.shipped == read_shipped(), "what comes with Lagom is as good as before"
    (finding,) = doctor.examine(environ, "", 0)
    assert finding.level.value == "note"
    assert "may be written by" in finding.text


def test_another_users_cache_is_not_read(environ: dict[str, str]) -> None:
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder away")
    keep(environ, PROOF)
    os.chown(environ["LAGOM_CACHE"], 4711, 4711)
    assert own(environ) == ()
    assert "another user (4711)" in load_atlas(environ).problem


def test_off_is_off(environ: dict[str, str]) -> None:
    keep(environ, PROOF)
    assert load_atlas(environ | {"LAGOM_ATLAS": "off"}) == Atlas(is_off=True)
    assert load_atlas({"LAGOM_CACHE": "off"}) == Atlas(read_shipped())


def test_the_doctor_says_how_many_there_are_and_how_many_for_this_machine(environ: dict[str, str]) -> None:
    keep(environ, PROOF)
    count = len(read_shipped())
    (finding,) = doctor.examine(environ, "NVIDIA H200", 23003)
    assert finding.level.value == "ok"
    assert finding.text.startswith(f"{count} entries of Lagom's own, 1 of this user's jobs; ")
    assert "; for NVIDIA H200 with NCCL 2.30: " in finding.text
    assert "8 ranks over p2p" in finding.text
    (finding,) = doctor.examine(environ, "NVIDIA L4", 23003)
    assert finding.text.endswith("for NVIDIA L4 with NCCL 2.30: 0")
    (finding,) = doctor.examine(environ | {"LAGOM_ATLAS": "off"}, "", 0)
    assert finding.text.startswith("off")


# -- what comes with Lagom


@pytest.mark.parametrize(("low", "entries"), [(1.01, 1), (0.99, 0), (None, 0)])
def test_what_the_next_process_does_not_confirm_is_not_shipped(tmp_path: Path, low: float | None, entries: int) -> None:
    """The search's own A/B is above 1 each time; the comparison of all arms came after it."""
    file = RESULTS / "matrix_h200x8_202611.json"
    data = json.loads(file.read_text())
    row = data["rows"]["host-guided-16384"]
    next(found for found in row["results"] if found["arm"] == "guided")["low"] = low
    (tmp_path / file.name).write_text(json.dumps({"rows": {"host-guided-16384": row}}))
    assert len(list(entries_in(tmp_path / file.name))) == entries


def test_the_shipped_list_is_what_the_results_of_the_repository_give() -> None:
    """`python -m benchmarks.atlas` writes it."""
    assert SHIPPED.read_text() == shipped_text()


def test_every_shipped_entry_is_proven_and_legal_where_it_was_found() -> None:
    assert read_shipped()
    for entry in read_shipped():
        assert 1.0 < entry.low <= entry.speedup <= entry.high
        functions = {function.word: function for function in Function}
        sites = tuple(
            Site(index, functions[one.function], 1 << one.size_class, context=one.context)
            for index, one in enumerate(entry.found)
        )
        stock = CommConfig(Algorithm.RING, Protocol.SIMPLE, 4)  # of two GPUs and more without peer access
        problem = Problem(sites, (stock,) * len(sites), 4)
        (suggestion,) = suggest([entry], entry.key, problem)
        wanted = [one.config.config() for one in entry.found]
        assert list(suggestion.assignment.configs) == wanted


def test_fields_of_a_later_lagom_are_passed_over() -> None:
    rows = json.loads(SHIPPED.read_text())
    for row in rows:
        row["note"] = row["key"]["fabric"] = "new"
    assert ENTRIES.validate_python(rows) == read_shipped()


@pytest.mark.parametrize("written", [1e300, math.inf, math.nan, -1e18])
def test_a_time_that_no_calendar_has_makes_a_file_damaged(environ: dict[str, str], written: float) -> None:
    """It has its digest, and ended the controller when the atlas named its date."""
    path = keep(environ, PROOF)
    lines = [line for line in path.read_text().splitlines() if not line.startswith(CHECK)]
    at = next(number for number, line in enumerate(lines) if line.startswith(ENTRY))
    entry = json.loads(lines[at].removeprefix(ENTRY))
    lines[at] = ENTRY + json.dumps({**entry, "written": written})
    path.write_text("\n".join([lines[0], CHECK + _digest(*lines), *lines[1:]]) + "\n")
    atlas = load_atlas(environ)
    assert (atlas.own, atlas.problem) == ((), "")
    (sentence,) = ConfigCache(Path(environ["LAGOM_CACHE"])).everything(9).damaged
    assert "it does not say whose it is" in sentence


@pytest.mark.parametrize("speedup", [1e300, math.inf, math.nan])
def test_a_speed_up_that_is_no_number_is_no_entry(environ: dict[str, str], speedup: float) -> None:
    keep(environ, {**PROOF, "outcome": {**OUTCOME, "speedup": speedup}})
    assert own(environ) == ()
