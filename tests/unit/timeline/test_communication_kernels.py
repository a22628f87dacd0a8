# SPDX-License-Identifier: Apache-2.0
"""Which kernels and copies of a trace are communication, and what is said of those that may be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lagom.records import Function
from lagom.timeline import kineto, load, profile
from lagom.timeline.communication_kernels import COMMUNICATION_KERNELS, find_communication
from lagom.timeline.kernel_names import (
    NO_FUNCTION,
    KernelKind,
    callable_name,
    function_of,
    function_word,
    is_unknown_communication,
    kind_of,
)

#: As profilers of public projects show them.
KNOWN = {
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)":
        ("torch symmetric memory", "allreduce"),
    "void (anonymous namespace)::two_shot_all_reduce_kernel_inplace<c10::BFloat16, 16, 2>(c10::BFloat16**)":
        ("torch symmetric memory", "allreduce"),
    "void (anonymous namespace)::one_shot_all_reduce_kernel<float, 16, 8, true>(float**, float*)":
        ("torch symmetric memory", "allreduce"),
    "void (anonymous namespace)::multimem_all_gather_kernel<16>(char*, char*, unsigned long)":
        ("torch symmetric memory", "allgather"),
    "void c10d::symmetric_memory::barrier_kernel(unsigned int**, int, int, int, unsigned long)": None,
    "barrier_kernel(unsigned int**, int, int, int, unsigned long)": ("torch symmetric memory", "p2p"),
    "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*)": ("DeepEP", "p2p"),
    "void deep_ep::internode_ll::combine<true, 7168, 9>(void*, void*)": ("DeepEP", "p2p"),
    "void deep_ep::intranode::cached_notify_combine<8>(void**, int*)": ("DeepEP", "p2p"),
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)":
        ("custom all-reduce of vLLM, SGLang and AITER", "allreduce"),
    "void sglang::cross_device_reduce_2stage<__half, 8>(sglang::RankData*, sglang::RankSignals)":
        ("custom all-reduce of vLLM, SGLang and AITER", "allreduce"),
    "void flashinfer::trtllm_allreduce_fusion::allreduce_fusion_kernel_oneshot_lamport<1, __nv_bfloat16, 2>(X)":
        ("TensorRT-LLM and FlashInfer", "allreduce"),
    "void tensorrt_llm::kernels::oneShotAllReduceKernel<__half, 8>(AllReduceParams)":
        ("TensorRT-LLM and FlashInfer", "allreduce"),
    "kuserbuffers_pushsend(int*, int*, int4*, int4*, int)": ("Transformer Engine", "p2p"),
    "void userbuffers_fp16_sum_inplace_gpu_rw_ag<2>(int, int)": ("Transformer Engine", "allgather"),
    "void mscclpp::executionKernel<__half, mscclpp::LL16Packet>(int, __half*)": ("MSCCL++", "p2p"),
    "mscclKernel_Sum_half_LL_true(ncclDevComm*)": ("MSCCL", "p2p"),
    "nvshmemi_barrier_on_stream_kernel(int, int, int)": ("NVSHMEM", "p2p"),
}  # fmt: skip
COMPUTE = (
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*)",
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >(at::native::ReduceOp<float>)",
    "triton_poi_fused_add_all_reduce_4",
    "nvjet_hsh_128x256_64x4_2x1_v_bz_coopA_TNT",
    "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn",
)


@pytest.mark.parametrize("name", KNOWN)
def test_a_kernel_of_another_library_is_communication(name: str) -> None:
    expected, found = KNOWN[name], find_communication(callable_name(name))
    assert (None if found is None else (found.library, function_word(function_of(name)))) == expected
    if expected is not None:
        assert kind_of(name) == (KernelKind.P2P if expected[1] == "p2p" else KernelKind.COLLECTIVE)


@pytest.mark.parametrize("name", COMPUTE)
def test_a_kernel_that_only_sounds_alike_is_compute(name: str) -> None:
    assert kind_of(name) == KernelKind.COMPUTE
    assert not is_unknown_communication(name)


def test_every_row_has_a_source_of_its_own_library() -> None:
    assert all(row.source.count("/") >= 2 for row in COMMUNICATION_KERNELS)


@pytest.mark.parametrize(
    ("name", "kind", "function"),
    [
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", KernelKind.COLLECTIVE, "allgather"),
        ("ncclDevKernel_Generic_4(ncclDevKernelArgsStorage<4096ul>)", KernelKind.COLLECTIVE, "collective"),  # RCCL's
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", KernelKind.P2P, "p2p"),
    ],
)
def test_nccl_s_kernels_have_their_own_names(name: str, kind: KernelKind, function: str, tmp_path: Path) -> None:
    (table,) = read(tmp_path, gpu(name))
    assert (table.kind[0], function_word(int(table.function[0]))) == (kind, function)


def gpu(name: str, at: float = 1.0, category: str = "kernel", **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": 7, "ts": at, "dur": 5, "args": args}


def cpu(name: str, at: float, dur: float, category: str = "cpu_op", **args: object) -> dict[str, Any]:
    return {"ph": "X", "cat": category, "name": name, "pid": 99, "tid": 1, "ts": at, "dur": dur, "args": args}


def read(place: Path, *events: dict[str, Any]) -> list[kineto.KernelTable]:
    (place / "trace.json").write_text(json.dumps({"traceEvents": events}))
    return load(place / "trace.json")


@pytest.mark.parametrize(("operation", "kind"), [("all_to_allv", "P2P"), ("send", "P2P"), ("allreduce", "COLLECTIVE")])
def test_a_generic_kernel_is_what_its_operation_is(operation: str, kind: str, tmp_path: Path) -> None:
    (table,) = read(tmp_path, gpu("ncclDevKernel_Generic(X)", **{"Collective name": operation}))
    assert KernelKind(int(table.kind[0])).name == kind


def test_copies_between_gpus_are_communication_and_others_are_not(tmp_path: Path) -> None:
    """By their name, by their devices, or by the symmetric-memory operator that launches them."""
    events = [
        gpu("Memcpy PtoP (Device -> Device)", 1, "gpu_memcpy", bytes=4096),
        gpu("Memcpy DtoD (Device -> Device)", 11, "gpu_memcpy", fromDevice=0, inDevice=0, toDevice=3, bytes=4096),
        gpu("Memcpy DtoD (Device -> Device)", 21, "gpu_memcpy", fromDevice=0, inDevice=0, toDevice=0, bytes=4096),
        gpu("Memcpy DtoD (Device -> Device)", 31, "gpu_memcpy", correlation=5, bytes=4096),
        gpu("Memcpy DtoD (Device -> Device)", 41, "gpu_memcpy", correlation=6, bytes=4096),
        gpu("Memcpy HtoD (Pageable -> Device)", 51, "gpu_memcpy", correlation=5, bytes=4096),
        cpu("symm_mem::fused_all_gather_matmul", 0.0, 20.0),
        cpu("aten::copy_", 2.0, 3.0),
        cpu("cudaMemcpyAsync", 3.0, 1.0, "cuda_runtime", correlation=5),
        cpu("cudaMemcpyAsync", 25.0, 1.0, "cuda_runtime", correlation=6),
    ]
    (table,) = read(tmp_path, *events)
    kinds = [KernelKind(int(kind)).name for kind in table.kind]
    assert kinds == ["P2P", "P2P", "OTHER", "P2P", "OTHER", "OTHER"]
    assert (table.bytes == 4096).all()
    assert (table.function == NO_FUNCTION).all()
    kineto.write(table, tmp_path / "again.json")
    (again,) = load(tmp_path / "again.json")
    assert (again.kind == table.kind).all()


def test_damaged_events_of_the_host_are_passed_over(tmp_path: Path) -> None:
    damaged = [cpu("symm_mem::x", 0.0, 1.0) | {"dur": "long"}, cpu("cudaLaunchKernel", 0.0, 1.0, "cuda_runtime")]
    damaged.append(damaged[1] | {"args": None})
    assert len(read(tmp_path, gpu("gemm", correlation=None), *damaged)) == 1


def test_what_looks_like_communication_and_is_unknown_is_named(tmp_path: Path) -> None:
    name = "void mine::fast_allreduce_kernel<float>(float*)"
    events = [gpu(each, at) for at in range(1, 400, 20) for each in (name,)]
    events += [gpu("gemm", at) for at in range(11, 410, 20)]
    (note,) = [note for note in profile(read(tmp_path, *events)).notes if "look like communication" in note]
    assert note.startswith("100 µs a rank are in kernels that look like communication and that Lagom does not know")
    assert note.endswith("fast_allreduce_kernel.")


def test_functions_are_words_of_nccl() -> None:
    assert [function_word(int(function)) for function in Function] == [function.word for function in Function]
