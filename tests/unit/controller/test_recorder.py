# SPDX-License-Identifier: Apache-2.0
"""Raw records kept for people: the first and the newest, the rest counted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lagom.controller import recorder
from lagom.controller.recorder import Recorder
from lagom.wire.layout import CALL_RECORD


def numbered(first: int, count: int) -> np.ndarray:
    rows = np.zeros(count, CALL_RECORD)
    rows["call"] = np.arange(first, first + count)
    return rows


def test_first_and_newest_rows_are_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "MAX_ROWS", 20)
    keeper = Recorder(tmp_path)
    for first in range(0, 60, 4):
        keeper.add_calls(7, numbered(first, 4))
    keeper.write({})
    kept = np.load(tmp_path / "calls.npy")
    calls = kept["record"]["call"].tolist()
    assert calls == [*range(10), *range(52, 60)]  # whole drains go
    assert (kept["slot"] == 7).all()
    assert keeper.dropped == 60 - len(calls)
    assert len(np.load(tmp_path / "kernels.npy")) == 0


def test_nothing_is_dropped_where_all_fits(tmp_path: Path) -> None:
    keeper = Recorder(tmp_path)
    keeper.add_calls(1, numbered(0, 5))
    keeper.add_calls(1, numbered(5, 0))
    keeper.write({3: "gemm"})
    assert np.load(tmp_path / "calls.npy")["record"]["call"].tolist() == list(range(5))
    assert keeper.dropped == 0
    assert "gemm" in (tmp_path / "names.json").read_text()
