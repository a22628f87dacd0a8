# SPDX-License-Identifier: Apache-2.0
"""What counts as communication: kernels of each library, copies between GPUs, and what only looks like it."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from timeline_helpers import DATA, calls, spans, table

from lagom.records import Function
from lagom.timeline import KernelTable, from_ring, load, profile
from lagom.timeline.communication_kernels import COMMUNICATION
from lagom.timeline.intervals import merge
from lagom.timeline.join import FOREIGN, join
from lagom.timeline.kernel_names import (
    NO_FUNCTION,
    KernelKind,
    communication_of,
    function_word,
    is_unknown_communication,
    kind_of,
)
from lagom.timeline.kineto import write
from lagom.timeline.peer_copies import name_peer_copies

PTOP, DTOD = "Memcpy PtoP (Device -> Device)", "Memcpy DtoD (Device -> Device)"

#: Name as in a trace, library, what it communicates.
KNOWN = [
    ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "NCCL", "allgather"),
    ("ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)", "NCCL", "collective"),
    ("ncclKernel_SendRecv(ncclDevComm*)", "NCCL", "p2p"),
    ("ncclSymkDevKernel_ReduceScatter_LDMC_sum_bf16(x)", "NCCL symmetric memory", "reducescatter"),
    ("void rcclGenericKernel<1, false>(ncclDevKernelArgsStorage<4096ul>)", "RCCL", "collective"),
    ("mscclKernel_Sum_half_Simple_false(ncclDevComm*, mscclAlgo*)", "RCCL", "collective"),
    (
        "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        "torch symmetric memory", "allreduce",
    ),
    (
        "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<float, 16, 2>(float**)",
        "torch symmetric memory", "allreduce",
    ),
    (
        "void (anonymous namespace)::two_shot_all_reduce_kernel<float, 16, 8, true, false>(float**)",
        "torch symmetric memory", "reducescatter",
    ),
    ("void <unnamed>::multimem_all_gather_kernel<16>(char*)", "torch symmetric memory", "allgather"),
    ("(anonymous namespace)::barrier_kernel(unsigned int**, int, int)", "torch symmetric memory", "p2p"),
    ("allToAllV(void*, void*, long*, unsigned long, int)", "torch symmetric memory", "p2p"),
    ("void deep_ep::intranode::dispatch<8, 768, 8192>(int4*)", "DeepEP", "p2p"),
    ("_ZN7deep_ep12internode_ll7combineILb0ELi7168ELi9EEEvPvS1_", "DeepEP", "p2p"),
    ("void deep_ep::elastic::hybrid_dispatch_impl<1, 8>(void*)", "DeepEP", "p2p"),
    ("void hybrid_ep::combine_kernel<x>(hybrid_ep::param)", "DeepEP", "p2p"),
    ("void mori::moe::EpDispatchIntraNodeKernel<float>(x)", "MORI", "p2p"),
    ("void fcollect_on_stream_kernel<long, (threadgroup_t)2>(int)", "NVSHMEM", "allgather"),
    ("void rdxn_on_stream_kernel<float, (rdxn_ops)0>(int)", "NVSHMEM", "allreduce"),
    ("void broadcast_on_stream_kernel<long>(int)", "NVSHMEM", "broadcast"),
    ("nvshmemi_proxy_quiet_entrypoint(int)", "NVSHMEM", "p2p"),
    ("void mscclpp::collective::allreduceFullmesh<(ReduceOp)0, __half>(x)", "MSCCL++", "allreduce"),
    ("void mscclpp::executionKernel<x, false>(int)", "MSCCL++", "collective"),
    ("void vllm::cross_device_reduce_2stage<float, 8>(x)", "custom all-reduce of vLLM, SGLang, aiter", "allreduce"),
    (
        "void quickreduce::allreduce_prototype_twoshot<quickreduce::AllReduceTwoshot<__half>, __half>(x)",
        "custom all-reduce of vLLM, SGLang, aiter", "allreduce",
    ),
    ("void aiter::allgather_vec<float>(x)", "custom all-reduce of vLLM, SGLang, aiter", "allgather"),
    (
        "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<x>(y)",
        "TensorRT-LLM and FlashInfer", "allreduce",
    ),
    ("void fbgemm_gpu::one_shot_all_reduce<8, true>(x)", "FBGEMM", "allreduce"),
    ("void tensorrt_llm::kernels::oneShotAllReduceKernel<x>(y)", "TensorRT-LLM and FlashInfer", "allreduce"),
    ("tensorrt_llm::kernels::moe::moeA2ADispatchKernel(int)", "TensorRT-LLM and FlashInfer", "p2p"),
    ("void flashinfer::mixed_comm::reducescatter_kernel<x>(y)", "TensorRT-LLM and FlashInfer", "reducescatter"),
    ("void userbuffers_fp16_sum_inplace_gpu_rr_rs<2>(int)", "Transformer Engine userbuffers", "reducescatter"),
    ("void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>(int)", "Transformer Engine userbuffers", "allgather"),
    ("void userbuffers_fp16_sum_inplace_gpu_mc<8>(int)", "Transformer Engine userbuffers", "allreduce"),
    ("kuserbuffers_pushsend(int*, int*, int4*, int4*, int)", "Transformer Engine userbuffers", "p2p"),
    ("allreduce_two_shot_push_intra_node_kernel", "Triton-distributed", "allreduce"),
    ("barrier_all_intra_node_kernel", "Triton-distributed", "p2p"),
    (PTOP, "copies between GPUs by copy engines", "p2p"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "library", "word"), KNOWN)
def test_kernels_of_each_library(name: str, library: str, word: str) -> None:
    found = communication_of(name)
    assert found is not None
    assert found.library == library
    at = table((0, 1, 1, name))
    assert at.is_communication.all()
    assert function_word(int(at.function[0])) == word
    assert not is_unknown_communication(name)


def test_every_row_of_the_table_is_the_first_to_match_some_name_and_has_a_source() -> None:
    assert {communication_of(name) for name, *_ in KNOWN} == set(COMMUNICATION)
    assert all("/" in row.source for row in COMMUNICATION)


@pytest.mark.parametrize(
    "name",
    [
        "void at::native::reduce_kernel<512, 1>(at::native::ReduceOp<float>)",
        "triton_poi_fused_add_all_reduce_4",
        "triton_red_fused_all_gather_into_tensor_wait_tensor_0",
        "void cutlass::device_kernel<cutlass::gemm::kernel::GemmUniversal<x, AllReduce>>(y)",
        "void deep_ep::layout::get_dispatch_layout<256>(x)",
        "void deep_ep::elastic::dispatch_copy_epilogue_impl<1>(x)",
        "void barrier_kernel(int*)",
        "gemm",
    ],
)  # fmt: skip
def test_what_works_on_its_own_gpu_alone_is_compute(name: str) -> None:
    assert (kind_of(name), communication_of(name)) == (KernelKind.COMPUTE, None)
    assert not is_unknown_communication(name)


@pytest.mark.parametrize("name", ["my_all_reduce_v2<float>(x)", "kernel_fused_gemm_allreduce", "a2a_push", "p2p_ring"])
def test_what_only_looks_like_communication_is_compute_and_named(name: str) -> None:
    assert kind_of(name) == KernelKind.COMPUTE
    assert is_unknown_communication(name)


def test_a_generic_kernel_is_what_its_metadata_says() -> None:
    generic = "ncclDevKernel_Generic(x)"
    kinds = {operation: kind_of(generic, operation) for operation in ("all_to_allv", "send", "gather", "scatter")}
    assert set(kinds.values()) == {KernelKind.P2P}
    others = ("", "allreduce_coalesced", "_reduce_scatter_base", "_allgather_base")
    assert {kind_of(generic, operation) for operation in others} == {KernelKind.COLLECTIVE}
    assert kind_of("ncclDevKernel_AllGather_RING_LL(x)", "scatter") == KernelKind.COLLECTIVE


def job(path: Path, *more: tuple[str, str, float, float, dict[str, Any]], steps: int = 6) -> KernelTable:
    """The table of a trace file: each step (1 ms) a product of 500 us and ``more``: category, name, start and duration
    in us, args."""
    events: list[dict[str, Any]] = []
    for step in range(steps):
        rows = [("kernel", "gemm", 0.0, 500.0, {"stream": 7, "grid": [132, 1, 1], "block": [256, 1, 1]}), *more]
        for category, name, start, length, args in rows:
            numbered = {key: value + 100 * step if key == "correlation" else value for key, value in args.items()}
            events.append(
                {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": args.get("stream", 1),
                 "ts": 1000.0 * step + start, "dur": length, "args": numbered}
            )  # fmt: skip
    path.write_text(json.dumps({"baseTimeNanoseconds": 10**18, "traceEvents": events}))
    return load(path)[0]


def communication_ns(found: KernelTable) -> int:
    return int(found.duration[found.is_communication].sum())


def test_copies_between_gpus_are_communication(tmp_path: Path) -> None:
    between = {"fromDevice": 0, "inDevice": 0, "toDevice": 1, "stream": 20, "bytes": 1 << 20}
    found = job(
        tmp_path / "t.json",
        ("gpu_memcpy", PTOP, 100, 80, between),
        ("gpu_memcpy", DTOD, 300, 40, between),
        ("gpu_memcpy", DTOD, 400, 30, {**between, "toDevice": 0}),
        ("gpu_memcpy", DTOD, 450, 20, {"device": 0, "stream": 20, "bytes": 4096}),
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 500, 10, {"device": 0, "stream": 20}),
    )
    assert communication_ns(found) == 6 * 120_000
    peers = found.only(found.is_communication)
    assert set(peers.bytes.tolist()) == {1 << 20}
    assert not peers.channels.any()  # no SM is taken
    shown = profile([found])
    assert (shown.own_x, shown.overlap_ratio) == (120_000, 1.0)
    assert any("copies between GPUs by copy engines (100 %)" in note for note in shown.notes)
    write(found, tmp_path / "again.json")
    (again,) = load(tmp_path / "again.json")
    assert again.kind.tolist() == found.kind.tolist()
    assert again.bytes.tolist() == found.bytes.tolist()


def test_copies_made_by_symmetric_memory_operators_are_communication(tmp_path: Path) -> None:
    """Where CUPTI does not tell that a copy is between GPUs, the operator does, unless it tells it of another copy of
    that operator."""
    stream = {"device": 0, "stream": 20}
    operators = [
        ("cpu_op", "symm_mem::_low_contention_all_gather", 10.0, 60.0, {}),
        ("cpu_op", "aten::copy_", 12.0, 40.0, {}),
        ("cuda_runtime", "cudaMemcpyAsync", 15.0, 5.0, {"correlation": 1}),
        ("cpu_op", "symm_mem::fused_all_gather_matmul", 80.0, 60.0, {}),
        ("cuda_runtime", "cudaMemcpyAsync", 85.0, 5.0, {"correlation": 2}),
        ("cuda_runtime", "cudaMemcpyAsync", 95.0, 5.0, {"correlation": 3}),
        ("cuda_runtime", "cudaMemcpyAsync", 160.0, 5.0, {"correlation": 4}),
    ]
    copies = [
        ("gpu_memcpy", DTOD, 100, 50, {**stream, "correlation": 1}),
        ("gpu_memcpy", DTOD, 200, 30, {**stream, "correlation": 2}),  # its own shard: the next is the peer's
        ("gpu_memcpy", PTOP, 250, 70, {**stream, "correlation": 3}),
        ("gpu_memcpy", DTOD, 400, 20, {**stream, "correlation": 4}),  # of no such operator
    ]
    found = job(tmp_path / "t.json", *operators, *copies)
    assert communication_ns(found) == 6 * 120_000
    assert {found.names[name] for name in found.name[found.is_communication]} == {
        f"{DTOD} in symm_mem::_low_contention_all_gather", PTOP
    }  # fmt: skip
    write(found, tmp_path / "again.json")
    assert communication_ns(load(tmp_path / "again.json")[0]) == 6 * 120_000


def test_a_copy_and_a_launch_without_a_number_are_not_joined() -> None:
    operator = {"ph": "X", "cat": "cpu_op", "name": "symm_mem::fused", "pid": 1, "tid": 1, "ts": 0, "dur": 10}
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaMemcpyAsync", "pid": 1, "tid": 1, "ts": 1, "dur": 1}
    copy = {"ph": "X", "cat": "gpu_memcpy", "name": DTOD, "pid": 0, "tid": 7, "ts": 5, "dur": 1, "args": {"stream": 7}}
    for number in (None, "x", -1):
        args = {} if number is None else {"correlation": number}
        events = [operator, {**launch, "args": args}, {**copy, "args": {**copy["args"], **args}}]
        assert [event["name"] for event in name_peer_copies(events)][-1] == DTOD
    events = [operator, {**launch, "args": {"correlation": 3}}, {**copy, "args": {"stream": 7, "correlation": 3}}]
    assert name_peer_copies(events)[-1]["name"] == f"{DTOD} in symm_mem::fused"


def test_copies_of_a_real_job_are_communication_and_those_on_one_gpu_are_not() -> None:
    """torch.profiler on two H200s: six gathers a step by copy engines, each with a copy of the own shard."""
    path = DATA / "copy_engines_h200x2.json.gz"
    events = json.loads(gzip.decompress(path.read_bytes()))["traceEvents"]
    words = ("Memcpy PtoP", "ncclDevKernel", "symmetric_memory")
    works = (event for event in events if event.get("cat") in ("kernel", "gpu_memcpy"))
    spans = sorted((one["ts"], one["ts"] + one["dur"]) for one in works if any(word in one["name"] for word in words))
    busy = latest = 0.0
    for start, end in spans:
        busy, latest = busy + max(0.0, end - max(start, latest)), max(end, latest)
    (table,) = load(path)
    names = [table.names[number] for number in table.name[table.is_communication]]
    assert [name for name in names if "Memcpy" in name] == [PTOP] * 36
    communicating = table.only(table.is_communication)
    assert merge(communicating.start, communicating.end).length == pytest.approx(busy * 1000, rel=1e-6)


def test_sizes_of_copies_from_the_host_do_not_make_steps_differ(tmp_path: Path) -> None:
    """A batch's size differs from step to step; no reference kernel may be lost to that."""
    copies = [
        ("gpu_memcpy", "Memcpy HtoD (Pinned -> Device)", 510 + 0.001 * step, 5, {"stream": 7, "bytes": 1000 + step})
        for step in range(6)
    ]
    gather = ("kernel", "ncclDevKernel_AllGather_RING_LL(x)", 600, 100, {"stream": 20, "grid": [8, 1, 1]})
    job(tmp_path / "t.json", *copies, gather)
    document = json.loads((tmp_path / "t.json").read_text())
    kept = [
        event for event in document["traceEvents"]
        if "bytes" not in event["args"] or event["args"]["bytes"] - 1000 == int(event["ts"] // 1000)
    ]  # fmt: skip
    (tmp_path / "t.json").write_text(json.dumps({**document, "traceEvents": kept}))
    steps = profile(load(tmp_path / "t.json")).rank.steps
    assert steps.exact
    assert steps.periodic


@pytest.mark.parametrize("bad", [None, "x", [], {"a": 1}, float("inf")])
def test_copies_and_operators_with_damage_are_read(tmp_path: Path, bad: Any) -> None:
    found = job(
        tmp_path / "t.json",
        ("cpu_op", "symm_mem::x", 0.0, bad, {}),
        ("cuda_runtime", "cudaMemcpyAsync", 1.0, 1.0, {"correlation": 3}),
        ("gpu_memcpy", PTOP, 100, 80, {"fromDevice": bad, "toDevice": bad, "stream": 20}),
    )
    assert communication_ns(found) == 6 * 80_000


def test_kernels_without_metadata_make_patterns_of_collectives(tmp_path: Path) -> None:
    collective = {"stream": 20, "grid": [8, 1, 1], "block": [256, 1, 1]}
    found = job(tmp_path / "t.json", ("kernel", "ncclDevKernel_Generic(x)", 100, 200, collective))
    (site,) = profile([found]).sites
    assert (site.name, site.tunable) == ("collective hidden", False)
    assert communication_ns(found) == 6 * 200_000
    write(found, tmp_path / "again.json")
    assert [one.name for one in profile(load(tmp_path / "again.json")).sites] == ["collective hidden"]
    metadata = {"Collective name": "all_to_allv", "In msg nelems": 512, "Out msg nelems": 512, "dtype": "Float"}
    sent = job(tmp_path / "t.json", ("kernel", "ncclDevKernel_Generic(x)", 100, 200, {**collective, **metadata}))
    write(sent, tmp_path / "again.json")
    for one in (sent, *load(tmp_path / "again.json")):
        assert [site.name for site in profile([one]).sites] == ["p2p 2K hidden"]


def test_notes_say_what_is_not_nccl_s_and_what_looks_like_communication(tmp_path: Path) -> None:
    grid = {"stream": 20, "grid": [8, 1, 1], "block": [256, 1, 1]}
    found = profile(
        [
            job(
                tmp_path / "t.json",
                ("kernel", "ncclDevKernel_AllGather_RING_LL(x)", 100, 300, grid),
                ("kernel", "void vllm::cross_device_reduce_1stage<float, 8>(x)", 600, 100, grid),
                ("kernel", "my_all_reduce<float>(x)", 800, 125, grid),
            )
        ]
    )
    not_nccl, looks = found.notes[-2:]
    assert "custom all-reduce of vLLM, SGLang, aiter (25 %)" in not_nccl
    assert "my_all_reduce (20.0 % of compute time)" in looks
    assert {site.name: site.tunable for site in found.sites} == {
        "allgather hidden": True, "allreduce exposed": False
    }  # fmt: skip


def test_kernels_of_other_libraries_are_joined_with_no_call() -> None:
    own = [(10 * k, 10 * k + 5, 2, "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(x)") for k in range(4)]
    other = [(10 * k + 6, 10 * k + 8, 2, "void vllm::cross_device_reduce_1stage<float, 8>(x)") for k in range(4)]
    made = calls(*((k, 10 * k, 1 << 20, Function.ALL_REDUCE) for k in range(4)))
    found = join(table(*own, *other), {0: made})
    assert found.unjoined == {FOREIGN: 4}
    assert (found.by_order, found.tunable_share) == (4, 1.0)


def test_recorded_kernels_of_other_libraries_are_communication() -> None:
    names = {1: "gemm", 2: "void (anonymous namespace)::multimem_all_reduce_kernel<float, 16>(float*)"}
    rows = [{"start_ns": 1000 * k, "end_ns": 1000 * k + 500, "name": 1 + k % 2} for k in range(1, 9)]
    found = from_ring(spans(*rows), names)
    mine = np.array([found.names[name].startswith("void") for name in found.name])
    assert found.is_communication.tolist() == mine.tolist()
    assert set(found.function[mine].tolist()) == {Function.ALL_REDUCE}
    assert set(found.function[~mine].tolist()) == {NO_FUNCTION}
