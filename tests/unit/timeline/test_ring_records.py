# SPDX-License-Identifier: Apache-2.0
"""Raw records of a job, written by the controller's recorder and read back."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from timeline_helpers import calls, spans

from lagom.controller.recorder import Recorder
from lagom.records import Function
from lagom.timeline import TraceError, profile
from lagom.timeline.ring_records import _minus_one, has_records, load_records

BIG = 64 << 20


def recorded(folder: Path, source: int = 3) -> None:
    """Two processes, slots 5 and 8: a GEMM and a gather in each of five iterations."""
    keeper = Recorder(folder)
    for process, slot in ((0, 5), (2, 8)):
        rows, records = [], []
        for step in range(5):
            at = 1_000_000_000 + 100_000 * step
            gemm = {"start_ns": at, "end_ns": at + 60_000, "kind": 0, "name": 1, "stream": 7, "source": source}
            gather = {"start_ns": at + 20_000, "end_ns": at + 50_000, "kind": 1, "name": 2, "stream": 28, "slot": slot}
            gather |= {"call": step, "function": int(Function.ALL_GATHER), "bytes": BIG, "source": source}
            event = {**gather, "source": 2, "start_ns": at + 1, "end_ns": at + 9}  # NCCL's own report of the same
            rows += [gemm, gather, event]
            records.append((step, 100.0 * step, BIG, int(Function.ALL_GATHER)))
        keeper.add_calls(slot, calls(*records))
        keeper.add_kernels(process, spans(*rows))
    keeper.write({1: "gemm", 2: "ncclDevKernel_AllGather_RING_LL"})


def test_what_was_recorded_is_what_is_profiled(tmp_path: Path) -> None:
    assert not has_records(tmp_path)
    recorded(tmp_path)
    assert has_records(tmp_path)
    tables, by_rank = load_records(tmp_path)
    assert [table.rank for table in tables] == [0, 2]
    assert [len(table) for table in tables] == [10, 10]  # one source, not both
    assert "gemm" in tables[0].names
    found = profile(tables, calls=by_rank)
    assert found.coverage.exact == 10
    assert found.coverage.tunable_share == 1.0
    assert found.x == pytest.approx(30_000)


def test_nccl_s_own_events_where_there_is_nothing_better(tmp_path: Path) -> None:
    recorded(tmp_path, source=1)  # announcements only
    tables, _ = load_records(tmp_path)
    assert [len(table) for table in tables] == [5, 5]
    assert profile(tables).coverage.tier == "nccl kernels"


@pytest.mark.parametrize("name", ["calls.npy", "kernels.npy"])
def test_damage_is_one_sentence(name: str, tmp_path: Path) -> None:
    recorded(tmp_path)
    whole = (tmp_path / name).read_bytes()
    for content in (b"", whole[:40], whole[:-3], b"garbage" * 50):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(TraceError, match=name):
            load_records(tmp_path)
    np.save(tmp_path / name, np.zeros(3))
    with pytest.raises(TraceError, match="another version"):
        load_records(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(TraceError, match="cannot be read"):
        load_records(tmp_path)


def test_names_are_a_help_only(tmp_path: Path) -> None:
    recorded(tmp_path)
    (tmp_path / "names.json").write_text("[1]")
    assert all(name.startswith("kernel#") for name in load_records(tmp_path)[0][0].names)


def test_the_marker_and_what_no_int64_holds_are_unknown() -> None:
    values = np.array([0, 7, 2**63 - 1, 2**63, 2**63 + 1, 2**64 - 1], np.uint64)
    assert _minus_one(values, 7).tolist() == [0, -1, 2**63 - 1, -1, -1, -1]
