# SPDX-License-Identifier: Apache-2.0
"""Which of the measured ways is chosen, what is kept of it, and what is said without torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("torch")
from lagom import settings
from lagom.parallel import choice_cache, said_once
from lagom.parallel.choosing import IMPLEMENTATIONS
from lagom.parallel.matmul_call import SCATTER, MatmulCall
from lagom.parallel.measuring import best_of
from lagom.parallel.torch_gate import release

#: A torch that is older, as far as it is looked at.
OLD = "import importlib.machinery as m, types; old = types.ModuleType('torch'); old.__version__ = '2.7.1'; "
OLD += "old.__spec__ = m.ModuleSpec('torch', None)"
CALL = MatmulCall(SCATTER, 64, (8,), (16,), "bfloat16", 1, 4, "cpu", "nn")
TIMES = {"plain": 200.0, "looped": 100.0}


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ({"plain": [100.0] * 4}, "plain"),
        ({"plain": [100.0] * 4, "looped": [99.5] * 4}, "plain"),  # faster, by less than the margin
        ({"plain": [100.0] * 4, "looped": [98.0] * 4}, "looped"),
        ({"plain": [100.0] * 4, "looped": [50.0, 50.0, 101.0, 101.0]}, "plain"),  # not often enough
        ({"plain": [100.0] * 4, "looped": [50.0, 50.0, 50.0, 101.0]}, "looped"),
        ({"plain": [100.0] * 4, "looped": [90.0] * 4, "copies": [80.0] * 4}, "copies"),
        ({"plain": [100.0, 200.0] * 2, "copies": [90.0, 180.0] * 2}, "copies"),  # round by round
    ],
)
def test_plain_stays_unless_another_way_is_clearly_faster(times: dict[str, list[float]], best: str) -> None:
    assert best_of(times) == best


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    said_once._said.clear()
    return caplog


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a choice that was kept."""
    monkeypatch.setenv("LAGOM_CACHE", str(tmp_path / "cache"))
    choice_cache.save_choice(CALL, "looped", TIMES, "plain", {"plain": 1.0})
    (path,) = (tmp_path / "cache" / "parallel").iterdir()
    return path


def test_a_choice_is_found_again(kept: Path) -> None:
    found = choice_cache.load_choice(CALL)
    assert found is not None
    assert (found.chosen, found.times_ns) == ("looped", TIMES)
    assert kept.stat().st_mode & 0o077 == 0


def test_a_choice_of_another_torch_is_not(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.__version__", "2.99.0")
    assert choice_cache.load_choice(CALL) is None


def replace_by_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: path.write_text(path.read_text().replace("looped", "copies")), "does not hold what was written"),
        (lambda path: path.write_text("{"), "no choice of this version"),
        (lambda path: path.write_text(path.read_text().replace('"looped":100.0', '"looped":"x"')), "no choice of this"),
        (lambda path: path.write_bytes(b"\xff\xfe"), "can't decode"),
        (lambda path: path.write_bytes(b" " * (1 << 21)), "larger than a MiB"),
        (lambda path: path.chmod(0o666), "may be written by others"),
        (lambda path: path.parent.chmod(0o777), "may be written by every user"),
        (lambda path: path.parent.parent.chmod(0o770), "may be written by others"),
        (replace_by_link, "symbolic link"),
        (lambda path: (path.unlink(), path.mkdir()), "regular file"),
    ],
)
def test_a_file_that_cannot_be_trusted_is_not_used(
    kept: Path, said: pytest.LogCaptureFixture, spoil: Callable[[Path], None], reason: str
) -> None:
    spoil(kept)
    assert choice_cache.load_choice(CALL) is None
    assert choice_cache.load_choice(CALL) is None
    (line,) = said.messages
    assert "is not used" in line
    assert reason in line


def test_a_cache_that_cannot_be_written_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LAGOM_CACHE", str(tmp_path / "file"))
    for _ in range(2):
        assert choice_cache.load_choice(CALL) is None
        choice_cache.save_choice(CALL, "looped", TIMES, "plain", {"plain": 1.0})
    unread, unwritten = said.messages
    assert "is not used" in unread
    assert "are not kept" in unwritten


def test_without_a_cache_nothing_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAGOM_CACHE", "off")
    choice_cache.save_choice(CALL, "looped", TIMES, "plain", {"plain": 1.0})
    assert choice_cache.load_choice(CALL) is None


def test_the_variable_names_every_implementation() -> None:
    assert settings.BY_NAME["LAGOM_PARALLEL"].choices == ("auto", *IMPLEMENTATIONS)


def test_releases_are_compared_as_numbers() -> None:
    assert release("2.13.0+cpu") == (2, 13) > release("2.8.0a0+git123") == (2, 8) > release("nightly")


@pytest.mark.parametrize(
    ("before", "sentence"),
    [
        ("sys.modules['torch'] = None", "needs torch 2.8 or later, which is not installed; pip install 'torch>=2.8'."),
        (f"{OLD}; sys.modules['torch'] = old", "needs torch 2.8 or later; this is 2.7.1, update it."),
    ],
)
def test_one_sentence_says_which_torch_is_needed(before: str, sentence: str) -> None:
    code = f"""import sys; {before}
import lagom, lagom.settings; lagom.load_config
try:
    import lagom.parallel
except lagom.LagomError as error:
    print(error)
    assert isinstance(error, ImportError)"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"lagom.parallel {sentence}\n"
