# SPDX-License-Identifier: Apache-2.0
"""NCCL 2.21 to 2.26: rules by size, alike on every rank from the first call on; who did not ask for them is stock.

A preloaded library gives the version of the ranks' NCCL, as the real one would. Without it the plugin falls back.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from lagom.doctor.nccl_versions import TABLE, capabilities, version_from_code
from lagom.format import format_version
from lagom.records import Function
from lagom.sim.virtual.call_log import load_configs
from lagom.sim.virtual.selection import VERSIONS
from lagom.sim.virtual.spec import CommunicatorSpec, JobSpec
from lagom.sim.virtual.virtual_job import RankSummary, VirtualJob, every_word
from tests.system.support import Job

COMM_ID = 0x51CE
RANKS = 2
MIB = 1 << 20
GATHER, SCATTER, REDUCE = Function.ALL_GATHER, Function.REDUCE_SCATTER, Function.ALL_REDUCE
CALLS = ((GATHER, 64 * MIB), (GATHER, MIB - 1), (REDUCE, 8 * MIB), (SCATTER, 64 * MIB))
RULES = "allgather:>=1M:nc=2; allreduce:any:algo=tree,proto=ll,nc=3"
OLD = ("2.21", "2.22", "2.24")
STOCK = 24


@pytest.fixture(scope="session")
def libnccl(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Answers ncclGetVersion with what VIRTUAL_NCCL says."""
    path = tmp_path_factory.mktemp("nccl") / "libnccl.so.2"
    source = '#include <stdlib.h>\nint ncclGetVersion(int *v) { *v = atoi(getenv("VIRTUAL_NCCL")); return 0; }\n'
    subprocess.run(["gcc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(path)], input=source, text=True, check=True)
    return path


def play(job: Job, folder: Path, libnccl: Path, version: str, **environ: str) -> list[RankSummary]:
    """Two ranks, five iterations, no controller."""
    spec = JobSpec(RANKS, (CommunicatorSpec(COMM_ID, "pg", CALLS),), 5, version=version, timeline="none")
    nccl = {"LD_PRELOAD": str(libnccl), "VIRTUAL_NCCL": str(VERSIONS[version].code)}
    with VirtualJob(spec, folder, job.with_(**nccl, **environ)) as ranks:
        summaries = ranks.finish()
        assert ranks.differences() == []
    return summaries


def channels(folder: Path) -> list[list[int | None]]:
    """NC of every call, rank by rank."""
    return [[config.channels for config in load_configs(folder, COMM_ID, rank)] for rank in range(RANKS)]


@pytest.mark.parametrize("version", OLD)
def test_rules_hold_from_the_first_call_on(version: str, job: Job, tmp_path: Path, libnccl: Path) -> None:
    summaries = play(job, tmp_path / "ranks", libnccl, version, LAGOM_MODE="replay", LAGOM_SET=RULES)
    for rank in range(RANKS):
        ran = load_configs(tmp_path / "ranks", COMM_ID, rank)
        assert len(ran) == 5 * len(CALLS)
        for call, config in enumerate(ran):
            function, size = CALLS[call % len(CALLS)]
            if function == GATHER:
                assert config.channels == (2 if size >= MIB else STOCK)
            elif function == REDUCE:
                assert config.channels == 3
                assert (config.algorithm, config.protocol) == (0, 0), "TREE, LL"
            else:
                assert config.channels == STOCK
    able, release = capabilities(version_from_code(VERSIONS[version].code)), version_from_code(VERSIONS[version].code)
    said = every_word([summary.log for summary in summaries])
    assert f"tuner API v{able.tuner}, profiler API v0, NCCL {format_version(release)}" in said
    assert able.replay == "size rules"


@pytest.mark.parametrize(
    ("version", "mode"),
    [("2.21", ""), ("2.21", "auto"), ("2.21", "tune"), ("2.21", "off"), ("2.22", "tune"), ("2.24", "auto")],
)
def test_who_did_not_ask_is_stock(version: str, mode: str, job: Job, tmp_path: Path, libnccl: Path) -> None:
    environ = {"LAGOM_SET": RULES, **({"LAGOM_MODE": mode} if mode else {})}
    summaries = play(job, tmp_path, libnccl, version, **environ)
    assert all(summary.was_stock and summary.calls == 5 * len(CALLS) for summary in summaries)
    said = every_word([summary.log for summary in summaries])
    assert ("LAGOM_MODE=replay" in said) == (mode != "off")


@pytest.mark.parametrize("version", ["2.27", "2.31"])
def test_rules_are_not_for_an_nccl_that_tells_ids(version: str, job: Job, tmp_path: Path, libnccl: Path) -> None:
    summaries = play(job, tmp_path, libnccl, version, LAGOM_MODE="replay", LAGOM_SET=RULES)
    assert all(summary.was_stock for summary in summaries)


def test_rules_of_a_saved_config_are_replayed_and_its_fingerprint_is_asked(
    job: Job, tmp_path: Path, libnccl: Path
) -> None:
    config = tmp_path / "config.lagom"
    text = (
        "lagom-config 1\nfingerprint nccl {}\ncommunicator ranks=2 nodes=1 ordinal=0\nrule allgather 1M - nc=2\nend\n"
    )
    config.write_text(text.format(22403))
    environ = {"LAGOM_MODE": "replay", "LAGOM_CONFIG": str(config)}
    play(job, tmp_path / "fits", libnccl, "2.24", **environ)
    assert {column[0] for column in channels(tmp_path / "fits")} == {2}
    summaries = play(job, tmp_path / "other", libnccl, "2.22", **environ)
    assert all(summary.was_stock for summary in summaries)
    assert "saved config refused: made for NCCL 2.24.3, this job runs NCCL 2.22.3" in every_word(
        [summary.log for summary in summaries]
    )


def test_every_row_has_a_virtual_release() -> None:
    played = {capabilities(version_from_code(version.code)).since for version in VERSIONS.values()}
    assert played == {entry.since for entry in TABLE if entry.tuner}
