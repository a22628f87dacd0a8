# SPDX-License-Identifier: Apache-2.0
"""A virtual NCCL calls a plugin as NCCL does: seen by a plugin that writes down every call."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from lagom.records import Algorithm, CommConfig, Function, Protocol
from lagom.sim.virtual.nccl import PluginFailed, VirtualCommunicator, VirtualNccl
from lagom.sim.virtual.selection import CollectiveCall, Fabric, nccl_version

GATHER = CollectiveCall(Function.ALL_GATHER, 64 << 20)
SCATTER = CollectiveCall(Function.REDUCE_SCATTER, 32 << 20)
FABRIC = Fabric(channels=8)
Make = Callable[..., VirtualCommunicator]


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("recorder") / "librecorder.so"
    source = Path(__file__).parent / "recorder.c"
    flags = ["-std=c11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC"]
    subprocess.run(["gcc", *flags, str(source), "-o", str(library)], check=True)
    return library


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[str]]:
    """The lines written since it was last asked."""
    path, read = tmp_path / "calls", 0
    path.touch()
    monkeypatch.setenv("RECORDER_LOG", str(path))

    def fresh() -> list[str]:
        nonlocal read
        lines = path.read_text().splitlines()
        new, read = lines[read:], len(lines)
        return new

    return fresh


def make(recorder: Path, version: str, **options: bool) -> VirtualCommunicator:
    nccl = VirtualNccl(recorder, nccl_version(version), **options)
    return nccl.communicator(0xC0, 8, rank=3, name="pg", fabric=FABRIC)


def test_init_of_v4_gives_no_id(recorder: Path, log: Callable[[], list[str]]) -> None:
    one = make(recorder, "2.27")
    assert log() == ["tuner init v4 ranks=8 nodes=1"]
    assert one.nccl.log == ["hello from the recorder"]


def test_init_of_v5_and_v6_gives_id_domain_and_constants(recorder: Path, log: Callable[[], list[str]]) -> None:
    for version in ("2.28", "2.30", "2.31"):
        make(recorder, version)
        assert log() == ["tuner init v5 id=0xc0 ranks=8 nodes=1 domain=1,8,8 constant=0"]


def test_profiler_half_comes_first(recorder: Path, log: Callable[[], list[str]]) -> None:
    one = make(recorder, "2.30", profiler=True)
    assert [line.split()[0] for line in log()] == ["profiler", "tuner"]
    one.destroy()
    assert log() == ["tuner finalize context=1", "profiler finalize context=1"]


def test_group_asks_everything_before_the_first_chunk(recorder: Path, log: Callable[[], list[str]]) -> None:
    one = make(recorder, "2.30")
    log()
    one.run([GATHER, SCATTER])
    words = [line.split()[0] for line in log()]
    assert words == ["ask"] * 2 + ["chunk"] * 6


def test_the_question_is_a_flat_table_and_no_channels(recorder: Path, log: Callable[[], list[str]]) -> None:
    one = make(recorder, "2.30")
    log()
    one.run([GATHER])
    ask = log()[0]
    assert ask.startswith("ask f=2 bytes=67108864 pipe=1 table=7x3 tree_ll=-1 ring_simple=")
    assert ask.endswith("reg=0 nc=0 context=1")
    assert float(ask.split("ring_simple=")[1].split()[0]) > 0


def test_chunks_are_asked_per_channel_part(
    recorder: Path, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make(recorder, "2.30")
    for channels, parts in ((1, 1), (2, 2), (8, 3)):
        monkeypatch.setenv("RECORDER_NC", str(channels))
        log()
        one.run([GATHER])
        chunks = [line for line in log() if line.startswith("chunk")]
        assert len(chunks) == parts
        assert all(line.endswith("a=1 p=2 nc=1 chunk=2097152") for line in chunks)
        shares = [int(line.split("bytes=")[1].split()[0]) for line in chunks]
        assert sum(shares[:2]) + (channels - 2) * shares[-1] == pytest.approx(64 << 20) or channels == 1


def test_older_releases_ask_for_no_chunk(recorder: Path, log: Callable[[], list[str]]) -> None:
    one = make(recorder, "2.28")
    log()
    (launched,) = one.run([GATHER])
    assert [line.split()[0] for line in log()] == ["ask"]
    assert launched.untouched
    assert launched.config == CommConfig(Algorithm.RING, Protocol.SIMPLE, 8, 512, 2 << 20)


@pytest.mark.parametrize(("version", "channels"), [("2.30", 8), ("2.31", 8)])
def test_channels_never_exceed_what_was_built(
    version: str, channels: int, recorder: Path, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDER_NC", "20")
    (launched,) = make(recorder, version).run([GATHER])
    assert launched.config.channels == channels


def test_chunk_is_clamped_and_rounded_to_the_grain(
    recorder: Path, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    one = make(recorder, "2.30")
    for asked, ran in ((300_000, 299_520), (64 << 20, 2 << 20)):
        monkeypatch.setenv("RECORDER_CHUNK", str(asked))
        (launched,) = one.run([GATHER])
        assert launched.config.chunk_bytes == ran
        assert not launched.untouched


def test_chunk_below_the_grain_would_crash_nccl(
    recorder: Path, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDER_CHUNK", "500")
    with pytest.raises(PluginFailed, match="divide by zero"):
        make(recorder, "2.30").run([GATHER])


def test_profiler_events_of_a_launch(
    recorder: Path, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECORDER_MASK", str(1 << 1 | 1 << 6 | 1 << 8 | 1 << 9 | 1 << 11))
    one = make(recorder, "2.30", profiler=True)
    log()
    one.run([GATHER])
    lines = log()
    events = [line for line in lines if not line.startswith(("ask", "chunk"))]
    assert [line.split()[0] for line in lines][:3] == ["event", "event", "ask"], "the user's call comes first"
    assert events == [
        "event 256",  # group
        "event 512",  # the user's call
        "event 2048",  # kernel launch
        "stop 2048",
        "coll AllGather count=4194304 nc=8 warps=17 RING SIMPLE seq=0",
        "stop 2",
        "stop 512",
        "stop 256",
    ]
    assert one.profiler is not None
    one.profiler.kernels_ran({0: (1000, 5000), 1: (6000, 7000)})
    kernels = log()
    assert kernels[:3] == ["kernel channel=0 start=1000 parent=1", "state 22 5000", "stop 64"]
    assert len(kernels) == 3 * 8, "one a channel, and none for a call that was not made"


def test_the_mask_counts_when_the_user_calls(
    recorder: Path, log: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mask changed by the tuner's getCollInfo holds from the next call on."""
    monkeypatch.setenv("RECORDER_MASK", str(1 << 1))
    monkeypatch.setenv("RECORDER_MASK_OFF", "1")
    one = make(recorder, "2.30", profiler=True)
    log()
    one.run([GATHER])
    assert any(line.startswith("coll") for line in log())
    one.run([GATHER])
    assert not any(line.startswith("coll") for line in log())


def test_nothing_is_sent_where_the_mask_is_empty(recorder: Path, log: Callable[[], list[str]]) -> None:
    one = make(recorder, "2.30", profiler=True)
    log()
    one.run([GATHER])
    assert all(line.startswith(("ask", "chunk")) for line in log())
