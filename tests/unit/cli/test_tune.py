# SPDX-License-Identifier: Apache-2.0
"""What `lagom tune` makes of its options, without starting a process."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from lagom.bench import process
from lagom.bench.request import Request
from lagom.cli import tune
from lagom.cli.main import app


def test_every_option_reaches_the_search(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Request] = []
    monkeypatch.setattr(process, "leave_in_order", lambda: None)  # signal handlers of the whole process
    monkeypatch.setattr(tune, "_tune", lambda request, *rest, **more: seen.append(request))
    options = ["--budget", "2m", "--run-limit", "77", "--samples", "5", "--metric", "step (.+)", "--higher-is-better"]
    done = CliRunner().invoke(app, ["tune", *options, "--seed", "3", "--out", str(tmp_path / "out"), "--", "true", "x"])
    assert done.exception is None, done.output
    (request,) = seen
    assert (request.run_limit, request.budget, request.samples, request.seed) == (77.0, 120.0, 5, 3)
    assert (request.command, request.metric, request.higher_is_better) == (("true", "x"), "step (.+)", True)
    assert request.folder == tmp_path / "out"
