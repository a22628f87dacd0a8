# SPDX-License-Identifier: Apache-2.0
"""One value a key for all; and whatever lies there is refused or is a record of known fields."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lagom.nodes import exchange as records
from lagom.nodes import folder_exchange
from lagom.nodes.exchange import Begin, Exchanged, ExchangeError, FoundStart, Go, Mark, NoAnswer, UnreadableRecord
from lagom.nodes.folder_exchange import FolderExchange
from lagom.start import VARIABLES
from tests.unit.nodes.launchers import HangingExchange, MemoryExchange, at_once
from tests.waiting import PATIENCE

KINDS = sorted((kind for kind in Exchanged.__subclasses__()), key=lambda kind: kind.__name__)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=12), inner, max_size=3),
    max_leaves=8,
)


def test_of_many_writers_one_wins_and_all_read_it(tmp_path: Path) -> None:
    folder = tmp_path / "shared"
    FolderExchange(folder)

    def write(token: str) -> list[str]:
        mine = FolderExchange(folder)
        return [mine.put_once(f"1/key/{at}", Mark(token=token)).token for at in range(30)]

    found = [one.result() for one in at_once([lambda token=token: write(token) for token in ("aa", "bb", "cc")])]  # type: ignore[misc]
    assert found[0] == found[1] == found[2]
    assert not [name for name in os.listdir(folder / "1" / "key") if name.startswith(".")]


def test_what_a_single_writer_replaces_is_read_by_others(tmp_path: Path) -> None:
    one, two = FolderExchange(tmp_path / "shared"), FolderExchange(tmp_path / "shared")
    assert two.get("1/key", Mark) is None
    for token in ("aa", "bb"):
        one.put("1/key", Mark(token=token))
        assert two.get("1/key", Mark) == Mark(token=token)


def test_a_name_that_the_file_system_had_forgotten_is_found_by_listing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an NFS client that remembers that a name was not there, until the folder is listed."""
    one, forgotten, listed = FolderExchange(tmp_path / "shared"), {"key"}, os.listdir
    one.put("1/key", Mark(token="aa"))

    def open_own(path: Path) -> int:
        if path.name in forgotten:
            raise FileNotFoundError(errno.ENOENT, "no such file", str(path))
        return os.open(path, os.O_RDONLY)

    def listdir(path: Path) -> list[str]:
        forgotten.difference_update(names := listed(path))
        return names

    monkeypatch.setattr(folder_exchange, "open_own", open_own)
    monkeypatch.setattr(os, "listdir", listdir)
    assert one.get("1/key", Mark) == Mark(token="aa")


def test_a_folder_that_every_user_may_write_is_refused(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared").chmod(0o777)
    with pytest.raises(ExchangeError, match=r"every user.*--out"):
        FolderExchange(tmp_path / "shared")
    (tmp_path / "mine").mkdir(0o755)
    (tmp_path / "mine" / "1").mkdir()
    (tmp_path / "mine" / "1").chmod(0o777)
    with pytest.raises(ExchangeError, match="every user"):
        FolderExchange(tmp_path / "mine").put("1/key", Mark(token="aa"))


@pytest.mark.parametrize("planted", ["link", "fifo", "folder"])
def test_what_is_no_file_is_neither_followed_nor_waited_for(tmp_path: Path, planted: str) -> None:
    one = FolderExchange(tmp_path / "shared")
    (tmp_path / "elsewhere").write_text('{"token":"aa"}')
    path = tmp_path / "shared" / "key"
    {"link": lambda: path.symlink_to(tmp_path / "elsewhere"), "fifo": lambda: os.mkfifo(path), "folder": path.mkdir}[
        planted
    ]()
    with pytest.raises(ExchangeError, match="cannot be used"):
        one.get("key", Mark)
    with pytest.raises(ExchangeError, match="cannot be used"):
        one.put_once("key", Mark(token="bb"))
    assert (tmp_path / "elsewhere").read_text() == '{"token":"aa"}'


def test_a_read_only_folder_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = FolderExchange(tmp_path / "shared")

    def read_only(path: Path, data: bytes, **options: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(folder_exchange, "write_whole", read_only)
    with pytest.raises(ExchangeError, match=r"Read-only file system.*--rdzv-endpoint"):
        one.put_once("key", Mark(token="aa"))


@pytest.mark.parametrize("call", ["listdir", "open_own", "write_whole", "not_ours"])
def test_a_file_system_that_hangs_costs_a_deadline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """Whichever operation it is, and for whoever asks next while it still hangs."""
    one, release = FolderExchange(tmp_path / "shared", PATIENCE), threading.Event()
    one._deadline = 0.05  # of what hangs alone: a busy machine takes longer than that for anything
    where = os if call == "listdir" else folder_exchange

    def hang(*given: Any, **more: Any) -> None:
        release.wait(PATIENCE)
        raise OSError(errno.ENOENT, os.strerror(errno.ENOENT))

    monkeypatch.setattr(where, call, hang)
    wanted = r"shared cannot be used \(no answer within 0.05 s\); name a folder"
    for number in range(2):
        with pytest.raises(NoAnswer, match=wanted):
            one.put_once(f"{number}/key", Mark(token="aa"))
    monkeypatch.undo()
    one._deadline = PATIENCE
    assert one.put_once("2/key", Mark(token="bb")) == Mark(token="bb")
    release.set()
    one.close()


def test_folders_are_not_listed_each_time_that_a_key_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what was written meanwhile is found at once."""
    one, listings = FolderExchange(tmp_path / "shared"), []
    real = os.listdir
    monkeypatch.setattr(folder_exchange.os, "listdir", lambda path: [listings.append(path), real(path)][1])
    monkeypatch.setattr(folder_exchange.time, "monotonic", lambda: 7.0)
    assert [one.get("key", Mark) for _ in range(20)] == [None] * 20
    assert len(listings) == 1
    monkeypatch.setattr(folder_exchange.time, "monotonic", lambda: 7.0 + folder_exchange.LIST_SECONDS)
    assert one.get("key", Mark) is None
    assert len(listings) == 2
    FolderExchange(tmp_path / "shared").put("key", Mark(token="aa"))
    assert one.get("key", Mark) == Mark(token="aa")


def test_an_exchange_that_is_slow_for_one_thread_keeps_another_no_longer_than_its_deadline() -> None:
    hanging = HangingExchange(0.05)
    found = at_once([lambda: hanging.get("1/key", Mark)] * 4)
    assert all(isinstance(one.exception(), NoAnswer) for one in found)
    hanging.release.set()


HANGS = """
import time
from pathlib import Path
from lagom.nodes import folder_exchange
from lagom.nodes.exchange import Mark, NoAnswer
folder_exchange.open_own = lambda path: time.sleep(3600)
one = folder_exchange.FolderExchange(Path("shared").absolute())
one._deadline = 0.5
try:
    one.get("key", Mark)
except NoAnswer:
    one.close()
    print("not waited for")
"""


def test_the_end_of_a_process_waits_for_no_file_system(tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert done.stdout == "not waited for\n"


@pytest.mark.parametrize("key", ["../x", "/etc/passwd", "1//2", "1/.x", "A", "", "1/" + "x" * 41])
def test_no_key_leads_elsewhere(key: str) -> None:
    with pytest.raises(ValueError, match="is no key"):
        MemoryExchange().get(key, Mark)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
@given(content=st.binary(max_size=200) | JSON.map(lambda value: json.dumps(value).encode()), data=st.data())
def test_any_bytes_are_a_record_or_one_sentence(kind: type[Exchanged], content: bytes, data: st.DataObject) -> None:
    fields = {name: data.draw(JSON) for name in kind.model_fields if data.draw(st.booleans())}
    for found in (content, json.dumps(fields).encode(errors="replace")):
        exchange = MemoryExchange({"1/key": found})
        said, record = "", None
        try:
            record = exchange.get("1/key", kind)
        except UnreadableRecord as error:
            said = str(error)
        if record is None:
            assert said.isprintable()
            assert "no record of this lagom" in said
        else:
            assert isinstance(record, kind)
            assert set(json.loads(found)) <= set(kind.model_fields)


def test_what_is_larger_than_may_be_is_refused(tmp_path: Path) -> None:
    one = FolderExchange(tmp_path / "shared")
    (tmp_path / "shared" / "key").write_bytes(b'{"token":"aa"}' + b" " * records.MOST_BYTES)
    with pytest.raises(UnreadableRecord, match="too large"):
        one.get("key", Mark)


@pytest.mark.parametrize(
    "settings",
    [{"LD_PRELOAD": "/tmp/x.so"}, {"NCCL_TUNER_PLUGIN": "x"}, {"PATH": "/tmp"}, {"NCCL_ALGO": "a\nb"},
     {"NCCL_ALGO": ""}, {"NCCL_ALGO": "x" * 64}, {"NCCL_ALGO": 'a"b'}],
)  # fmt: skip
@pytest.mark.parametrize("kind", [Go, FoundStart])
def test_no_variable_but_a_start_setting_is_taken(kind: type[Exchanged], settings: dict[str, str]) -> None:
    proof = {"speedup": 1.2, "low": 1.1, "high": 1.3, "processes": [6, 6], "measure": "ms", "text": "x"}
    more = {"number": 1} if kind is Go else proof
    sound = {VARIABLES[1].name: "4"}
    exchange = MemoryExchange({f"1/{name}": json.dumps({**more, "settings": one}).encode()
                               for name, one in (("planted", settings), ("sound", sound))})  # fmt: skip
    assert exchange.get("1/sound", kind).settings == sound  # type: ignore[union-attr]
    with pytest.raises(UnreadableRecord):
        exchange.get("1/planted", kind)


def test_a_record_of_another_kind_is_refused() -> None:
    exchange = MemoryExchange()
    exchange.put("1/key", Begin(agreed=True, why="agreed"))
    with pytest.raises(UnreadableRecord, match="no record of this lagom"):
        exchange.put_once("1/key", Mark(token="aa"))
