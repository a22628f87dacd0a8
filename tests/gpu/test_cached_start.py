# SPDX-License-Identifier: Apache-2.0
"""The next start of a tuned job replays its config from the cache, with another port, too."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lagom.config_file import Fingerprint, SavedConfig, Section, save_config
from lagom.launch.cached_config import LIVE, keep_config
from lagom.wire.plan import parse_rule
from tests.gpu.support import Place, run, torchrun

CHANNELS = 2


def command(gpus: int, port: int) -> list[str]:
    """The job as a user starts it, with a port of its own."""
    started = torchrun("mixed.py", gpus, "--iterations", "60")
    place = started.index("--standalone")
    return [*started[:place], "--master-port", str(port), *started[place + 1 :]]


def test_a_start_with_another_port_replays_what_was_found(
    spot: Place, gpus: int, monkeypatch: pytest.MonkeyPatch, evidence: Callable[..., None]
) -> None:
    config, environ = spot.folder / "found.lagom", spot.environment(LAGOM_CACHE=str(spot.folder / "cache"))
    rules = (parse_rule(f"allgather:>=1M:nc={CHANNELS}"),)
    save_config(SavedConfig(Fingerprint(ranks=gpus, nodes=1), (Section(gpus, 1, 0, rules=rules),)), config)
    monkeypatch.chdir(spot.folder)
    kept = keep_config(command(gpus, 29611), config, environ, LIVE).text
    assert "the next start of this job replays it" in kept
    ran = run([*spot.lagom_run(), *command(gpus, 29617)], environ, spot.folder)
    assert ran.code == 0, ran.tail()
    assert any("plan: replay config cached by lagom run" in line for line in ran.lines), ran.tail()
    plans = spot.events("plan_committed")
    assert plans, f"the config was never in force; {ran.tail()}"
    evidence(said=[line for line in ran.lines if line.startswith("lagom")][:6])
