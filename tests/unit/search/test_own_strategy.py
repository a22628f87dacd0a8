# SPDX-License-Identifier: Apache-2.0
"""A strategy of a user's own, by `package.module:Class`: found where it may be, refused with the reason where not."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lagom import NonConforming, Strategy, UnknownStrategy
from lagom.search import Answer, Moves, Proposal, TuningSession, find_strategy
from lagom.search.conformance import CHECKS, check_conformance
from lagom.search.landscape import LandscapeDriver, comm_bound

EXAMPLES = Path(__file__).resolve().parents[3] / "examples"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Writes a module that can be imported."""
    monkeypatch.syspath_prepend(str(tmp_path / "on_the_path"))
    (tmp_path / "on_the_path").mkdir()
    return lambda text: (tmp_path / "on_the_path" / f"own_{len(text)}.py").write_text(text) and None


@pytest.mark.parametrize("check", CHECKS)
def test_the_example_conforms(check: Callable[[Any], None], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    strategy, options = find_strategy("own_strategy:FewerChannels")
    assert not options
    check(strategy)


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("no.such:Thing", UnknownStrategy, "cannot be imported"),
        ("json:Nothing", UnknownStrategy, "cannot be imported"),
        (":Nothing", UnknownStrategy, "cannot be imported"),
        ("json:JSONDecoder", NonConforming, "no subclass of lagom.Strategy"),
        ("json:dumps", NonConforming, "no subclass of lagom.Strategy"),
        ("lagom:Strategy", NonConforming, "does not implement moves"),
    ],
)
def test_what_is_no_strategy_is_refused_with_the_reason(name: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        find_strategy(name)


def test_a_signature_that_the_controller_could_not_call_is_refused_before_anything_runs(
    module: Callable[[str], None],
) -> None:
    text = (
        "from lagom import Strategy\nclass Own(Strategy):\n    name = 'own'\n"
        "    def __init__(self, problem, seed, more): pass\n    def moves(self, measurements): yield\n"
    )
    module(text)
    with pytest.raises(NonConforming, match="cannot be made from a problem and a seed: missing a required argument"):
        find_strategy(f"own_{len(text)}:Own")


def test_a_moves_that_takes_no_measurements_is_refused_before_anything_runs(module: Callable[[str], None]) -> None:
    text = "from lagom import Strategy\nclass Own(Strategy):\n    name = 'without'\n    def moves(self): yield\n"
    module(text)
    with pytest.raises(
        NonConforming, match=r"moves\(\) of own_\d+:Own cannot be called with the measurements: too many"
    ):
        find_strategy(f"own_{len(text)}:Own")


def test_the_folder_that_the_job_runs_in_is_not_searched(tmp_path: Path) -> None:
    (tmp_path / "planted.py").write_text("raise SystemExit('the planted module ran')\n")
    command = [sys.executable, "-c", "from lagom.search import find_strategy; find_strategy('planted:Own')"]
    environ = {**os.environ, "PYTHONPATH": str(EXAMPLES.parent)}
    done = subprocess.run(command, cwd=tmp_path, env=environ, capture_output=True, text=True, check=False)
    assert "the planted module ran" not in done.stderr
    assert "cannot be imported" in done.stderr
    named = {**environ, "PYTHONPATH": f"{EXAMPLES.parent}{os.pathsep}{tmp_path}"}
    done = subprocess.run(command, cwd=tmp_path, env=named, capture_output=True, text=True, check=False)
    assert "the planted module ran" in done.stderr, "a folder that PYTHONPATH names is the user's choice"


class Broken(Strategy):
    name = "broken"


class Raises(Broken):
    def moves(self, measurements: Any) -> Moves:
        yield Proposal(self.space.floor(self.space.stock), "everything at its fewest resources")
        raise KeyError("what I forgot")


class YieldsConfigs(Broken):
    def moves(self, measurements: Any) -> Moves:
        yield self.space.stock  # type: ignore[misc]
        return Answer(self.space.stock, "nothing")


class ReturnsAtOnce(Broken):
    def moves(self, measurements: Any) -> Moves:
        return Answer(self.space.stock, "nothing")  # type: ignore[return-value]


class TakesNothing(Broken):
    def moves(self) -> Moves:  # type: ignore[override]
        yield Proposal(self.space.stock, "stock")
        return Answer(self.space.stock, "nothing")


@pytest.mark.parametrize(
    ("strategy", "sentence"),
    [
        (TakesNothing, "moves\\(\\) of strategy broken cannot be called: .* takes 1 positional argument"),
        (Raises, "moves\\(\\) raised KeyError: 'what I forgot'"),
        (YieldsConfigs, "it yields Proposal and returns Answer"),
        (ReturnsAtOnce, "is no generator"),
        (lambda problem: None, "cannot be made from a problem and a seed"),
        (lambda problem, seed: None, "no subclass of lagom.Strategy"),
    ],
)
def test_what_a_strategy_does_wrong_is_said_and_is_no_other_exception(strategy: Any, sentence: str) -> None:
    with pytest.raises(NonConforming, match=sentence):
        check_conformance(strategy)


def test_a_session_says_the_same_while_a_job_runs() -> None:
    landscape = comm_bound()
    problem = landscape.problem()
    with pytest.raises(NonConforming, match="raised KeyError"):
        LandscapeDriver(landscape, seed=0).drive(TuningSession(Raises(problem, 0), problem))
