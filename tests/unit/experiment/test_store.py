# SPDX-License-Identifier: Apache-2.0
"""The folder of a record: one process at a time writes it, and nobody else may; what a record may name."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from lagom.bench.results import BenchRecord
from lagom.experiment.request import Request
from lagom.experiment.results_folder import claim
from lagom.experiment.store import (
    FILE,
    BadRecord,
    ExperimentRecord,
    OtherSchedule,
    RunRecord,
    Store,
    read_record,
)
from lagom.tune import TuneRecord


def store_of(request: Request) -> Store[TuneRecord]:
    return Store(request, TuneRecord)


HOLDER = """
import sys
from pathlib import Path
from lagom.experiment.results_folder import claim
claim(Path(sys.argv[1]))
print("claimed", flush=True)
sys.stdin.read()
"""


def test_a_folder_that_another_process_measures_in_is_refused_until_that_one_has_ended(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    line = [sys.executable, "-c", HOLDER, str(folder)]
    with subprocess.Popen(line, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "claimed\n"
        with pytest.raises(BadRecord, match=r"another lagom measures in .*out; wait for it, or name another"):
            claim(folder)
    claim(folder)


def test_a_folder_that_its_group_may_write_is_used_only_where_the_user_named_it(tmp_path: Path) -> None:
    made, by_group, by_all = tmp_path / "made", tmp_path / "group", tmp_path / "all"
    assert claim(made) == ""
    assert made.stat().st_mode & 0o022 == 0, "whatever the umask"
    for folder, mode in ((by_group, 0o775), (by_all, 0o777)):
        folder.mkdir()
        folder.chmod(mode)
    with pytest.raises(BadRecord, match=r"may be written by its group \(--out with its name accepts that\)"):
        claim(by_group)
    said = claim(by_group, is_named=True)
    assert said == f"{by_group} may be written by its group: whoever is in it decides what the next run sets."
    with pytest.raises(BadRecord, match="may be written by every user"):
        claim(by_all, is_named=True)


GROUP = {"name": "8 channels", "settings": {"NCCL_MIN_NCHANNELS": "8"}}


@pytest.mark.parametrize(
    "aim",
    [
        {"groups": [GROUP | {"settings": {"LD_PRELOAD": "/tmp/evil.so"}}]},
        {"groups": [GROUP], "factors": {"PYTHONPATH": ["/tmp"]}},
        {"groups": [GROUP | {"settings": {"NCCL_SOCKET_NTHREADS": "\0x"}}]},
        {"groups": [GROUP | {"settings": {"NCCL_SOCKET_NTHREADS": "4\nNCCL_NET_PLUGIN=/tmp/evil.so"}}]},
        {"groups": [GROUP | {"settings": {"NCCL_SOCKET_NTHREADS": "1" * 100}}]},
        {"groups": [GROUP], "factors": {"NCCL_SOCKET_NTHREADS": ["1", ""]}},
    ],
)
def test_a_record_brings_no_variable_that_is_no_start_setting(aim: dict[str, Any], tmp_path: Path) -> None:
    request = Request(("train",), tmp_path, metric="step (.+)")
    store = store_of(request)
    store.check_room()
    record = json.loads(store.record.model_dump_json())
    (tmp_path / FILE).write_text(json.dumps(record | {"aim": {"transport": "sockets", "groups": [GROUP]}}))
    assert store_of(request).record.aim is not None
    (tmp_path / FILE).write_text(json.dumps(record | {"aim": {"transport": "sockets", **aim}}))
    with pytest.raises(BadRecord, match=r"is no start setting of NCCL that lagom knows|has a value that no saved"):
        store_of(request)


def test_a_record_is_continued_from_no_link_and_read_from_any_file(tmp_path: Path) -> None:
    request = Request(("train",), tmp_path, metric="step (.+)")
    (tmp_path / "elsewhere").write_text(store_of(request).record.model_dump_json())
    (tmp_path / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(BadRecord, match="cannot be read"):
        store_of(request)
    assert read_record(tmp_path / FILE, ExperimentRecord).command == ["train"]


def test_a_record_that_every_user_may_write_is_not_continued(tmp_path: Path) -> None:
    request = Request(("train",), tmp_path, metric="step (.+)")
    (tmp_path / FILE).write_text(store_of(request).record.model_dump_json())
    (tmp_path / FILE).chmod(0o666)
    with pytest.raises(BadRecord, match="may be written by every user"):
        store_of(request)
    (tmp_path / FILE).chmod(0o644)
    assert store_of(request).record.command == ["train"]


@pytest.mark.parametrize(
    ("ended", "value", "expected"), [("us", 1.0, True), ("us", None, False), ("limit", 1.0, False)]
)
def test_a_process_that_showed_all_that_was_wanted_without_nccl_is_known(
    ended: str, value: float | None, expected: bool
) -> None:
    run = RunRecord(kind="process", arm="own:stock", ended=ended, value=value, called_nccl=False, exit=-15)
    assert run.is_without_nccl is expected


def test_a_record_of_the_other_command_is_refused_and_may_be_read_as_what_both_have(tmp_path: Path) -> None:
    request = Request(("train",), tmp_path, metric="step (.+)")
    store_of(request).save()
    with pytest.raises(
        OtherSchedule, match=r"holds results of `lagom tune`, and those of `lagom bench` are needed; name"
    ):
        Store(request, BenchRecord, arms=[])
    assert read_record(tmp_path / FILE, ExperimentRecord).schedule == "tune"
    with pytest.raises(BadRecord, match="its metric differs"):
        store_of(Request(("train",), tmp_path))
