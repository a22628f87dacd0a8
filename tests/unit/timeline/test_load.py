# SPDX-License-Identifier: Apache-2.0
"""Loaders: what each format gives, and one clear sentence for every bad file."""

from __future__ import annotations

import gzip
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from timeline_helpers import DATA, DUMP, dump, spans, table

from lagom.errors import LagomError
from lagom.records import Function
from lagom.sim import Simulator, machine, workloads
from lagom.sim.simulated_trace import build_kernel_table
from lagom.timeline import TraceError, from_ring, load, load_all
from lagom.timeline.kernel_names import NO_FUNCTION, KernelKind
from lagom.timeline.kineto import write


def test_text_dump_matches_awk_like_reading() -> None:
    found = dump(2048)
    lines = gzip.decompress((DATA / DUMP.format(2048)).read_bytes()).decode().splitlines()
    rows = sorted([int(part) for part in line.split()[:6]] for line in lines if not line.startswith("#"))
    assert len(found) == len(rows) == 2656
    assert found.start.tolist() == [row[0] for row in rows]
    assert sorted(found.grid.tolist()) == sorted(row[3] * row[5] for row in rows)
    assert int(found.is_communication.sum()) == sum("nccl" in line for line in lines) == 8 * 18
    assert found.faults.dropped == 0


def test_kineto_round_trip_keeps_every_column(tmp_path: Path) -> None:
    simulated = build_kernel_table(Simulator(workloads.fsdp("llama3_8b", layers=2), machine.H200_NVLINK), 3, rank=5)
    write(simulated, tmp_path / "trace.json.gz")
    (back,) = load(tmp_path / "trace.json.gz")
    for column in ("start", "end", "stream", "grid", "block", "channels", "kind", "function", "bytes"):
        assert getattr(back, column).tolist() == getattr(simulated, column).tolist(), column
    assert [back.names[name] for name in back.name] == [simulated.names[name] for name in simulated.name]
    assert (back.rank, back.sms) == (5, simulated.sms)


def test_kineto_as_torch_writes_it(tmp_path: Path) -> None:
    arguments = {
        "device": 3, "stream": 28, "grid": [24, 1, 1], "block": [544, 1, 1], "Collective name": "_allgather_base",
        "In msg nelems": 1000, "Out msg nelems": 8000, "dtype": "BFloat16", "Process Group Name": "0",
    }  # fmt: skip
    kernel = {
        "ph": "X", "cat": "kernel", "name": "ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        "pid": 3, "tid": 28, "ts": 12.345, "dur": 1.5, "args": arguments,
    }  # fmt: skip
    compute = {**kernel, "name": "gemm", "args": {"device": 3, "stream": 7, "grid": [2, 66, 1], "block": [384, 1, 1]}}
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 2}
    copy = {**compute, "cat": "gpu_memcpy", "name": "Memcpy HtoD (Pinned -> Device)"}
    broken = {**compute, "dur": None}
    document = {
        "baseTimeNanoseconds": 1_700_000_000_000_000_000,
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
        "deviceProperties": [{"id": 3, "numSms": 132}],
        "traceEvents": [kernel, compute, launch, copy, broken, {"ph": "M"}, "noise"],
    }
    (tmp_path / "t.json").write_text(json.dumps(document))
    (found,) = load(tmp_path / "t.json")
    assert (found.rank, found.sms, len(found), found.faults.malformed) == (3, 132, 3, 1)
    gather = int(np.flatnonzero(found.is_communication)[0])
    assert found.start[gather] == 1_700_000_000_000_012_345
    assert found.duration[gather] == 1500
    assert found.bytes[gather] == 16_000  # the whole gathered buffer, as NCCL counts it
    assert found.function[gather] == Function.ALL_GATHER
    assert sorted(found.kind.tolist()) == [KernelKind.COMPUTE, KernelKind.COLLECTIVE, KernelKind.OTHER]
    assert found.grid.max() == 132


def test_ring_spans_with_garbage() -> None:
    good = {"start_ns": 1000, "end_ns": 3000, "stream": 4, "name": 7, "channels": 24, "threads": 544, "kind": 1}
    collective = {**good, "function": Function.ALL_GATHER, "call": 12, "slot": 2, "bytes": 416 << 20}
    records = spans(
        collective, {**good, "kind": 0, "name": 8}, {**good, "source": 1}, {**good, "kind": 99},
        {**good, "start_ns": 2**64 - 1}, {**good, "end_ns": 500}, {**good, "end_ns": 2**63 + 5}, collective,
    )  # fmt: skip
    found = from_ring(records, {7: "ncclDevKernel_AllGather_RING_LL"}, rank=1)
    assert len(found) == 2
    faults = found.faults
    assert (faults.malformed, faults.unstamped, faults.impossible, faults.duplicated) == (1, 2, 1, 1)
    first = int(np.flatnonzero(found.is_communication)[0])
    assert (found.call[first], found.slot[first], found.bytes[first], found.channels[first]) == (12, 2, 416 << 20, 24)
    assert set(found.names) == {"ncclDevKernel_AllGather_RING_LL", "kernel#00000008"}
    assert found.function[1 - first] == NO_FUNCTION
    assert found.grid.tolist() == [0, 0]  # the record holds the grid's x, not its blocks


def test_simulated_iterations_have_the_simulator_s_own_times() -> None:
    simulator = Simulator(workloads.fsdp("llama3_8b", layers=3), machine.A40_NVLINK)
    iteration = simulator.run(simulator.stock())
    found = build_kernel_table(simulator, 2, noise=0.0)
    assert len(found) == 2 * len(iteration.kernels)
    assert found.duration[found.is_communication].sum() / 2 == pytest.approx(iteration.x, rel=1e-6)
    assert found.duration[found.is_compute].sum() / 2 == pytest.approx(iteration.y, rel=1e-6)


def test_clean_counts_every_fault_and_keeps_what_can_be_kept() -> None:
    found = table(
        (10, 20, 1, "a"), (10, 20, 1, "a"), (15, 30, 1, "b"), (40, 40, 1, "c"), (5, 4, 1, "d"), (-1e6, 3, 1, "e"),
        (2, 3, 2, "f"), (1, 2, 2, "f"), (0, 1e8, 3, "g"),
    )  # fmt: skip
    faults = found.faults
    assert (faults.duplicated, faults.zero_length, faults.impossible, faults.unstamped) == (1, 1, 2, 1)
    assert (faults.overlapping, faults.out_of_order) == (1, 1)
    assert len(found) == 5
    assert str(faults).startswith("1 unstamped, 2 impossible, 1 duplicated")


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("empty.json", b"", "empty"),
        ("half.json", b'{"traceEvents": [{"ph": ', "not complete JSON"),
        ("other.json", b'{"hello": 1}', "no Chrome trace"),
        ("none.json", b'{"traceEvents": []}', "no GPU kernels; give"),
        ("cpu.json", b'{"traceEvents": [{"ph": "X", "cat": "cpu_op", "name": "mm"}]}', "only what ran on the CPU"),
        ("mtia.json", b'[{"ph": "X", "cat": "mtia_ccp_events"}, {"ph": "X", "cat": "cpu_op"}]', "(mtia_ccp_events)"),
        ("calls.json", b'[{"ph": "X", "cat": "cuda_runtime"}]', "record it with ProfilerActivity.CUDA"),
        ("lines.json", b'{"SchemaVersion": 3}\n{"Type": 80}\n', "several JSON documents"),
        ("damaged.json", b'{"traceEvents": [}, {"ph": "X", "cat": "kernel", "name": "gemm"}]}', "damaged there"),
        ("cut.json", b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "ge', "not complete JSON"),
        ("number.json", b'{"traceEvents": [{"ph": "X", "ts": 12.', "not complete JSON"),
        ("t.tar", b"t.json".ljust(257, b"\0") + b"ustar\0", "a tar archive; unpack it"),
        ("t.tar.gz", gzip.compress(b"t.json".ljust(257, b"\0") + b"ustar\0", mtime=0), "a tar archive; unpack it"),
        ("t.json.zst", b"\x28\xb5\x2f\xfd\0", "compressed by zstd"),
        ("t.sqlite", b"SQLite format 3\0", "an SQLite database"),
        ("cut.zip", b"PK\x03\x04\x14\0", "a damaged zip archive"),
        ("crc.json.gz", gzip.compress(b"[]", mtime=0)[:-5] + b"12345", "damaged gzip"),
        ("cut.json.gz", gzip.compress(b'{"traceEvents": []}', mtime=0)[:15], "damaged gzip"),
        ("prose.txt", b"This is not a trace.\n", "is it a kernel dump?"),
        ("binary.txt", bytes(range(1, 200)), "is it a kernel dump?"),
    ],
)
def test_bad_files_get_one_sentence_with_their_name(tmp_path: Path, name: str, content: bytes, words: str) -> None:
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(TraceError) as caught:
        load(path)
    assert name in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_trace_of_another_device_or_of_the_cpu_gets_no_advice_for_cuda(tmp_path: Path) -> None:
    for category in ("mtia_runtime", "hpu_op", "xpu_runtime", "privateuse1_runtime", "cpu_op", "python_function"):
        path = trace(tmp_path / "t.json", {**KERNEL, "cat": category})
        with pytest.raises(TraceError, match="has no GPU kernels") as caught:
            load(path)
        assert "CUDA" not in str(caught.value)


def pack(path: Path, **members: bytes) -> Path:
    """A zip archive of these members; ``__`` in a name stands for a point."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name.replace("__", "."), content)
    return path


def test_zip_holds_a_trace_a_rank(tmp_path: Path) -> None:
    ranks = [json.dumps({"traceEvents": [KERNEL], "distributedInfo": {"rank": rank}}).encode() for rank in (1, 0)]
    path = pack(tmp_path / "t.zip", a__json=ranks[0], b__json__gz=gzip.compress(ranks[1]), README__md=b"two ranks")
    found = [(one.rank, one.source, len(one)) for one in load_all([path])]
    assert found == [(0, "t.zip:b.json.gz", 1), (1, "t.zip:a.json", 1)]
    with pytest.raises(TraceError, match=r"without a \.json"):
        load(pack(tmp_path / "u.zip", README__md=b"nothing"))


@pytest.mark.parametrize(
    "text",
    [
        '[{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5.0, "dur": 1.5, "args": {"occupancy": ' + word + "}}]"
        for word in ("NaN", "Infinity", "-Infinity", "nan", "-nan", "-nan(ind)", "inf", "-inf", "Inf", "1e999")
    ]
    + [
        '[{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5.0, "dur": 1.5}',  # Chrome's format allows it
        '[{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5.0, "dur": 1.5},\n',
        '[{"ph": "X", "cat": "kernel", "name": "gemm", "ts": 5.0, "dur": 1.5}, {"name": "C:\\Users\\a\tb"}]',
    ],
)
def test_json_as_profilers_write_it(text: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_text(text)
    (found,) = load(tmp_path / "t.json")
    assert (found.duration.tolist(), found.names, found.faults.dropped) == ([1500], ("gemm",), 0)


def test_infinite_and_unknown_times_are_faults_of_their_kernel(tmp_path: Path) -> None:
    events = json.dumps([{**KERNEL, "ts": 9.0}, KERNEL]).replace('"dur": 1.5', '"dur": inf', 1)
    (tmp_path / "t.json").write_text(events)
    (found,) = load(tmp_path / "t.json")
    assert (found.start.tolist(), found.faults.malformed) == ([5000], 1)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32-le", "latin-1"])
def test_text_that_is_not_utf_8(encoding: str, tmp_path: Path) -> None:
    (tmp_path / "t.json").write_bytes(json.dumps([{**KERNEL, "name": "gemmé"}], ensure_ascii=False).encode(encoding))
    (found,) = load(tmp_path / "t.json")
    assert found.names == ("gemm\\udce9" if encoding == "latin-1" else "gemmé",)


def test_a_fifo_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(TraceError, match="it is no regular file"):
        load(tmp_path / "fifo")


def test_missing_folder_and_doubled_rank(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="cannot be read"):
        load(tmp_path / "nowhere.json")
    with pytest.raises(TraceError, match="is a folder"):
        load(tmp_path)
    simulated = build_kernel_table(Simulator(workloads.fsdp("llama3_8b", layers=1), machine.A40_NVLINK), 1, rank=3)
    write(simulated, tmp_path / "a.json")
    with pytest.raises(TraceError, match="two traces are of rank 3"):
        load_all([tmp_path / "a.json", tmp_path / "a.json"])


def test_dumps_without_rank_count_as_ranks_in_order() -> None:
    path = DATA / DUMP.format(2048)
    assert [one.rank for one in load_all([path, path])] == [0, 1]


def test_lines_that_do_not_fit_are_counted(tmp_path: Path) -> None:
    (tmp_path / "d.txt").write_text("# x\n100 200 7 1 128 1 a\n100 two 7 1 128 1 a\n5 6\n\n300 400 7 1 128 1 b c\n")
    (found,) = load(tmp_path / "d.txt")
    assert (len(found), found.faults.malformed, found.names) == (2, 2, ("a", "b c"))


KERNEL = {"ph": "X", "cat": "kernel", "name": "gemm", "pid": 0, "ts": 5.0, "dur": 1.5, "args": {"stream": 7}}
GATHER = {"Collective name": "allgather", "dtype": "Byte"}


def trace(path: Path, *events: object, **more: object) -> Path:
    """A Kineto trace of these events."""
    path.write_text(json.dumps({"traceEvents": events, **more}))
    return path


@pytest.mark.parametrize(
    "damage",
    [
        {"ts": 1e16}, {"ts": 1e300}, {"dur": 1e300}, {"ts": 10**400}, {"dur": float("inf")},
        {"cat": ["kernel"]}, {"cat": {}}, {"name": None, "args": {"stream": 10**30}},
        {"args": {"stream": -(10**30)}}, {"args": {"stream": 7, "grid": [2**40, 2**40, 1]}},
        {"args": {"stream": 7, **GATHER, "In msg nelems": 10**30}},
        {"args": {"stream": 7, **GATHER, "Out msg nelems": 2**63}},
    ],
)  # fmt: skip
def test_a_damaged_event_is_counted_and_the_others_are_read(damage: dict[str, object], tmp_path: Path) -> None:
    (found,) = load(trace(tmp_path / "t.json", KERNEL, {**KERNEL, **damage}))
    assert (len(found), found.faults.malformed) == (1, 1)


def test_numbers_of_the_device_that_cannot_be_are_unknown(tmp_path: Path) -> None:
    gpu = {"id": 0, "numSms": 10**30}
    more = {"deviceProperties": [gpu], "distributedInfo": {"rank": 2**64}}
    (found,) = load_all([trace(tmp_path / "t.json", {**KERNEL, "pid": 10**30}, **more)])
    assert (len(found), found.rank, found.sms) == (1, 0, 0)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ('{"traceEvents": [], "a": ' + "[" * 200_000 + "]" * 200_000 + "}", "nested too deeply"),
        ('{"traceEvents": [' + "9" * 5000 + "]}", "thousands of digits"),
        ('{"baseTimeNanoseconds": 1' + "0" * 30 + f', "traceEvents": [{json.dumps(KERNEL)}]}}', "baseTimeNanoseconds"),
    ],
)
def test_a_document_that_no_profiler_writes_is_one_sentence(content: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "odd.json").write_text(content)
    with pytest.raises(TraceError) as caught:
        load(tmp_path / "odd.json")
    assert "odd.json" in str(caught.value)
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_half_a_surrogate_pair_is_spelled_out(tmp_path: Path) -> None:
    (found,) = load(trace(tmp_path / "t.json", {**KERNEL, "name": "gemm\ud800"}, {**KERNEL, "name": "gemmé\U0001f600"}))
    assert set(found.names) == {"gemm\\ud800", "gemmé\U0001f600"}


def test_rank_0_is_a_name_like_any_other(tmp_path: Path) -> None:
    first = trace(tmp_path / "a.json", KERNEL, distributedInfo={"rank": 0})
    second = trace(tmp_path / "b.json", {**KERNEL, "ts": 9.0}, distributedInfo={"rank": 0})
    nameless = trace(tmp_path / "c.json", KERNEL)
    for twice in ([first, first], [first, second], [first, nameless]):
        with pytest.raises(TraceError, match="two traces are of rank 0"):
            load_all(twice)
    third = trace(tmp_path / "d.json", KERNEL, distributedInfo={"rank": 1})
    assert [one.rank for one in load_all([third, first])] == [0, 1]
    assert [one.rank for one in load_all([third, nameless])] == [0, 1]


def test_traces_without_rank_count_as_ranks_in_order(tmp_path: Path) -> None:
    paths = [trace(tmp_path / f"{name}.json", KERNEL) for name in "ab"]
    assert [(one.rank, one.source) for one in load_all(paths)] == [(0, "a.json"), (1, "b.json")]
    assert load(paths[1])[0].rank == 0
    both = trace(tmp_path / "two.json", KERNEL, {**KERNEL, "pid": 1})
    assert [one.rank for one in load_all([both])] == [0, 1]
    with pytest.raises(TraceError, match="two traces are of rank 0"):
        load_all([both, both])


def test_a_trace_that_cannot_be_written_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "trace.json.gz").mkdir()
    for path in (tmp_path / "trace.json.gz", Path("/dev/full")):
        with pytest.raises(LagomError, match=f"^{path} cannot be written .*; .*another file.$"):
            write(table((0, 1, 1, "gemm")), path)
