# SPDX-License-Identifier: Apache-2.0
"""Which of the measured ways is chosen, what is kept of it, and what is said without torch."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import pytest

pytest.importorskip("torch")
import torch

from lagom import settings
from lagom.parallel import choice_cache, choosing, host_lead, measuring, said_once
from lagom.parallel.choosing import IMPLEMENTATIONS, Choice, Chosen, PendingChoice
from lagom.parallel.matmul_call import SCATTER, MatmulCall, layouts_of
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


ROUNDS = {"plain": [100.0] * 4, "fused": [50.0] * 4, "copies": [70.0] * 4, "looped": [80.0] * 4}
GROUP = mock.Mock(rank=1, size=4, largest=lambda numbers, _: numbers)


def pending(device: str, ahead: dict[str, list[float]], monkeypatch: pytest.MonkeyPatch) -> Choice:
    """What is chosen where calls take ROUNDS, and on the device alone ``ahead``."""
    monkeypatch.setattr(choosing, "measure", lambda *_: ROUNDS)
    monkeypatch.setattr(choosing, "measure_ahead", lambda runs, *_: {name: ahead[name] for name in runs})
    monkeypatch.setattr(PendingChoice, "is_ready", lambda _, name: name in ROUNDS)
    return PendingChoice(CALL, GROUP, torch.device(device), mock.Mock(), {}).measured()


def test_what_is_captured_is_chosen_by_the_time_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pending("cuda", {"plain": [90.0] * 4, "copies": [60.0] * 4, "looped": [40.0] * 4}, monkeypatch)
    assert (found.chosen, found.captured) == ("fused", "looped")
    assert found.device_times_ns == {"plain": 90.0, "copies": 60.0, "looped": 40.0}
    assert "fused, measured, 2.000 times as fast as plain" in str(found)
    assert "(CUDA graphs: looped)" in str(found)


def test_the_workspace_of_fused_moves_so_no_graph_is_captured_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = pending("cpu", {}, monkeypatch)
    assert (found.chosen, found.captured) == ("fused", "copies")


def test_a_call_takes_what_fits_whether_a_graph_is_captured(monkeypatch: pytest.MonkeyPatch) -> None:
    fused, copies = IMPLEMENTATIONS["fused"], IMPLEMENTATIONS["copies"]
    both = Chosen(fused, copies, fused)
    for captures, name in ((False, "fused"), (True, "copies")):
        monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda captures=captures: captures)
        assert both.now(GROUP, torch.device("cuda")).name == name
    assert both.now(GROUP, torch.device("cpu")).name == "fused"


class Device:
    """That of a rank, which is so many of the recorded events behind the host."""

    def __init__(self, behind: int) -> None:
        self.behind, self.recorded = behind, 0

    def event(self) -> mock.Mock:
        found = mock.Mock()
        found.record = lambda _: self._record(found)
        found.query = lambda: found.place <= self.recorded - self.behind
        return found

    def _record(self, event: mock.Mock) -> None:
        self.recorded += 1
        event.place = self.recorded


@pytest.mark.parametrize(
    ("behind", "elsewhere", "limits"),
    [(0, 0.0, True), (1, 0.0, True), (host_lead.LAG + 1, 0.0, False), (host_lead.LAG + 1, 0.9, True)],
)
def test_calls_are_plain_where_the_device_of_a_rank_waits_for_its_host(
    behind: int, elsewhere: float, limits: bool, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("torch.cuda.is_current_stream_capturing", lambda: False)
    monkeypatch.setattr("torch.cuda.current_stream", mock.Mock())
    largest = mock.Mock(side_effect=lambda shares, _: [max(shares[0], elsewhere)])
    group = mock.Mock(lead=host_lead.HostLead(Device(behind).event), largest=largest)
    call = Chosen(IMPLEMENTATIONS["copies"], IMPLEMENTATIONS["copies"], choosing.PLAIN)
    count = host_lead.SKIPPED + host_lead.LAG + host_lead.LOOKED
    found = [call.now(group, torch.device("cuda")).name for _ in range(count + 10)]
    assert set(found[: count - 1]) == {"copies"}
    assert set(found[count:]) == {"plain" if limits else "copies"}
    assert largest.call_count == 1, "ranks meet once"
    assert ("host's launches limit this job" in said.text) == limits


def test_a_device_that_is_waited_for_once_a_step_is_not_limited_by_its_host() -> None:
    """A loss that is read: the first calls of a step find the device at rest."""
    device, agreed = Device(0), mock.Mock(side_effect=lambda share: share)
    lead = host_lead.HostLead(device.event)
    for place in range(host_lead.SKIPPED + host_lead.LAG + host_lead.LOOKED):
        device.behind = place % 16
        lead.look(None, agreed)
    assert lead.limits is False


def test_what_was_asked_for_by_name_stays_and_the_others_say_that_they_are_limited() -> None:
    group = mock.Mock(lead=host_lead.HostLead())
    group.lead.limits = True
    about = (SCATTER, (64, (8,), (16,)), "bfloat16", 0, 2, "cuda")
    named, measured = (Choice(*about, "copies", source) for source in ("named", "measured"))
    with mock.patch.object(choosing, "_records", [(named, group), (measured, group)]):
        assert [one.limited for one in choosing.choices()] == [False, True]
        assert "plain outside CUDA graphs now" in str(choosing.choices()[1])


@pytest.mark.parametrize(("took", "calls"), [(10e3, 16), (500e3, 8), (2e6, 4), (40e6, 1)])
def test_many_short_calls_are_timed_so_that_the_first_one_counts_little(
    took: float, calls: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []
    monkeypatch.setattr(measuring, "_works", lambda *_: True)
    monkeypatch.setattr(measuring, "_time_of", lambda run, calls, *_: asked.append(calls) or took)
    found = measuring.measure({"plain": mock.Mock(), "looped": mock.Mock()}, GROUP, torch.device("cpu"), 1)
    assert set(asked[2:]) == {calls}
    assert measuring.FEWEST_ROUNDS <= len(found["plain"]) <= measuring.ROUNDS


def test_a_transposed_matrix_is_another_call() -> None:
    x = torch.ones(4, 8)
    assert layouts_of([x, x.t(), x[:, :3], x.t()[:3]]) == "ntnt"
    assert layouts_of([torch.ones(1, 8), torch.ones(8, 1)]) == "nn"


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
        (lambda path: path.write_text(path.read_text().replace("100.0", "-0.0")), "no choice of this version"),
        (lambda path: path.write_text(path.read_text().replace("100.0", "NaN")), "no choice of this version"),
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


def test_without_a_time_of_plain_no_gain_is_told() -> None:
    found = Choice("x", (1, (1,), (1,)), "float32", 0, 4, "cpu", "looped", "cache", {"looped": 1.0})
    assert found.gain is None


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
