# SPDX-License-Identifier: Apache-2.0
"""The row of two "nodes": what their controllers said is found, wherever each has its log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from benchmarks.matrix import passthrough
from benchmarks.matrix.place import Place
from benchmarks.matrix.rows import rows
from lagom.journal import Journal, Passthrough

REASON = "the communicator spans 2 nodes, which is not tuned yet"


@pytest.mark.parametrize("folders", [("hostA", "hostB"), ("",)])
def test_what_each_node_said_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folders: tuple[str]) -> None:
    def fake(command: Any, folder: Path, runs: Any, environ: Any, earlier: Any, budget: float) -> dict[str, Any]:
        told = Path(runs["variables"].environ["LAGOM_DIR"])
        for host in folders:
            with Journal(told / host) as log:
                log.write(Passthrough(communicator=0, reason=REASON))
        return {name: {"exit": 0, "log": {"standing_aside": []}} for name in runs}

    monkeypatch.setattr(passthrough, "run_arms", fake)
    row = next(row for row in rows() if row.name == "sockets-two-nodes")
    found = passthrough.run(row, Place(gpus=4, folder=tmp_path, nccl_230=""), {}, 100.0)
    assert found["verdict"] == {"exits": [0, 0], "standing_aside": [REASON]}
    assert found["arms"]["variables"]["log"]["events"] == {"standing_aside": len(folders)}
