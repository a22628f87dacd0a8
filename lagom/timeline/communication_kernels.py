# SPDX-License-Identifier: Apache-2.0
"""Which kernels and copies are communication: one table, by name, with the public source that each name is from.

A pattern is matched at the start of a kernel's readable name, after its namespaces: ``(anonymous namespace)::`` and a
leading ``void`` are gone, template arguments are there. Kernels that prepare or use what was communicated on their own
GPU alone (DeepEP's ``get_dispatch_layout`` and epilogues) are compute. So are kernels that communicate and multiply at
once: their time is not communication time. :data:`RESEMBLES` finds their names, to be told to the reader.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lagom.records import Function

#: Appended to the name of a copy that a symmetric-memory operator made: the operator (`name_peer_copies`).
IN_OPERATOR = " in symm_mem::"


@dataclass(frozen=True, slots=True)
class CommunicationKernels:
    """Kernels of one library. ``function``: what they do, where their names do not say it or say it wrongly; ``p2p``:
    no collective (dispatch, combine, signals, copies); ``asks_tuner``: NCCL asks its tuner before it launches them.
    ``source``: repository at a commit, or an issue or a file of it, that has the names."""

    library: str
    pattern: re.Pattern[str]
    source: str
    function: Function | None = None
    p2p: bool = False
    asks_tuner: bool = False


def _named(pattern: str) -> re.Pattern[str]:
    return re.compile(rf"(?:\w+::)*(?:{pattern})")


#: Not in a name: fused with a product.
_NO_PRODUCT = r"(?!\w*(?:gemm|matmul|attn))"
_NCCL = "NVIDIA/nccl@5067397c src/device"
_TORCH = "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem"
_DEEP_EP = "deepseek-ai/DeepEP@dd758ca csrc/kernels/legacy, deep_ep/include/deep_ep/impls; branch hybrid-ep"
_NVSHMEM = "NVIDIA/nvshmem@2d7d25f src/include/internal/non_abi/nvshmemi_h_to_d_coll_defs.cuh, src/host"
_VLLM = "vllm-project/vllm csrc/custom_all_reduce.cuh; sgl-project/sglang sgl-kernel/csrc/allreduce"
_TENSORRT = (
    "flashinfer-ai/flashinfer@fb28d724 include/flashinfer/comm, csrc/nv_internal/tensorrt_llm/kernels; "
    "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/communicationKernels"
)
_USERBUFFERS = (
    "NVIDIA/TransformerEngine@d0067d0d transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu"
)
_TRITON = "ByteDance-Seed/Triton-distributed@1512a811 python"
_KINETO = "pytorch/kineto@114171df libkineto/src/CuptiActivity.h"

#: First match wins.
COMMUNICATION: tuple[CommunicationKernels, ...] = (
    CommunicationKernels("NCCL symmetric memory", _named(r"ncclSym\w*"), f"{_NCCL}/symmetric/generate.py"),
    CommunicationKernels("NCCL", _named(r"nccl\w*Kernel"), f"{_NCCL}/common.h, generate.py", asks_tuner=True),
    CommunicationKernels(
        "RCCL", _named(r"rcclGenericKernel|mscclKernel_"),
        "ROCm/rccl@0cbce2a7 src/include/msccl/msccl_kernel.h; traces of RCCL 2.27 (rcclGenericKernel<1, false>)",
    ),
    CommunicationKernels(
        "torch symmetric memory", _named(r"two_shot_all_reduce_kernel<[^>]*(?:\btrue\b|\(bool\)1)"),
        f"{_TORCH}/CUDASymmetricMemoryOps.cu (reduce_scatter_out)", Function.REDUCE_SCATTER,
    ),
    CommunicationKernels(
        "torch symmetric memory",
        _named(r"multimem_(?:one_shot_)?all_(?:reduce|gather)_kernel|(?:one|two)_shot_all_reduce_kernel(?:_inplace)?\b"),
        f"{_TORCH}/CUDASymmetricMemoryOps.cu",
    ),
    CommunicationKernels(
        "torch symmetric memory",
        re.compile(
            r"c10d::symmetric_memory::(?:\w+::)*(?:barrier|put_signal|wait_signal)_kernel"
            r"|(?:barrier|put_signal|wait_signal)_kernel\(unsigned int\*\*"
        ),
        f"{_TORCH}/CUDASymmetricMemory.cu", p2p=True,
    ),
    CommunicationKernels(
        "torch symmetric memory", _named(r"(?:allToAllV|allToAllGet|allToAllPut|exchangeSplitAndOffset)(?:_2d)?\b"),
        f"{_TORCH}/nvshmem_extension.cu", p2p=True,
    ),
    CommunicationKernels(
        "DeepEP",
        _named(
            r"(?:elastic|intranode|internode|internode_ll)::(?:notify_dispatch|cached_notify(?:_\w+)?|barrier(?:_impl)?"
            r"|(?:hybrid_)?(?:dispatch|combine)(?:_impl)?|engram_fetch(?:_wait)?_impl|pp_(?:send|recv)_impl)\b"
            r"|hybrid_ep::(?:dispatch|combine|device_sync)_kernel"
        ),
        f"{_DEEP_EP}; the same names: uccl-project/uccl@da914a20 ep/src", p2p=True,
    ),
    CommunicationKernels(
        "MORI", _named(r"Ep(?:Dispatch|Combine)\w*Kernel"), "ROCm/mori src/ops/dispatch_combine", p2p=True
    ),
    CommunicationKernels("NVSHMEM", _named(r"fcollect_on_stream_kernel"), _NVSHMEM, Function.ALL_GATHER),
    CommunicationKernels(
        "NVSHMEM", _named(r"rdxn_on_stream_kernel|nvshmemi_reduce_kernel"), _NVSHMEM, Function.ALL_REDUCE
    ),
    CommunicationKernels("NVSHMEM", _named(r"(?:broadcast|reducescatter)_on_stream_kernel"), _NVSHMEM),
    CommunicationKernels(
        "NVSHMEM", _named(rf"{_NO_PRODUCT}(?:(?:alltoall|barrier|sync)_on_stream_kernel|nvshmem)"),
        _NVSHMEM, p2p=True,
    ),
    CommunicationKernels(
        "MSCCL++", _named(r"mscclpp::"), "microsoft/mscclpp@1f5f065d src/ext/collectives, src/core/include"
    ),
    CommunicationKernels(
        "custom all-reduce of vLLM, SGLang, aiter", _named(r"cross_device_reduce_|quickreduce::\w*allreduce"),
        f"{_VLLM}; ROCm/aiter csrc/include/quick_all_reduce.cuh", Function.ALL_REDUCE,
    ),
    CommunicationKernels(
        "custom all-reduce of vLLM, SGLang, aiter",
        re.compile(r"aiter::(?:\w+::)*(?:all_?reduce|all_?gather|reduce_scatter)"), "ROCm/aiter csrc/include",
    ),
    CommunicationKernels(
        "FBGEMM", _named(r"fbgemm_gpu::(?:\w+::)*(?:one|two)_shot_all_reduce"),
        "pytorch/FBGEMM fbgemm_gpu/experimental/gen_ai/src/comm/car.cu", Function.ALL_REDUCE,
    ),
    CommunicationKernels(
        "TensorRT-LLM and FlashInfer",
        _named(
            rf"{_NO_PRODUCT}(?:\w*allreduce_fusion_kernel|\w*[oO]ne_?[sS]hot_?(?:prenorm_)?[aA]ll_?[rR]educe\w*"
            r"|\w*[tT]wo_?[sS]hot_?[aA]ll_?[rR]educe\w*|hybridCubeMeshAllReduceKernel)"
        ),
        f"{_TENSORRT}; {_TORCH}/intra_node_comm.cu", Function.ALL_REDUCE,
    ),
    CommunicationKernels(
        "TensorRT-LLM and FlashInfer",
        _named(r"moeA2A(?:Dispatch|Combine)Kernel|moeAllToAllKernel|helixAllToAllKernel|ulysses::\w*all_to_all"),
        _TENSORRT, p2p=True,
    ),
    CommunicationKernels("TensorRT-LLM and FlashInfer", _named(r"(?:mixed_comm|pcie_ipc)::"), _TENSORRT),
    CommunicationKernels(
        "Transformer Engine userbuffers", _named(r"userbuffers_fp16_sum_inplace_gpu_[a-z]{2}_rs"), _USERBUFFERS,
        Function.REDUCE_SCATTER,
    ),
    CommunicationKernels(
        "Transformer Engine userbuffers", _named(r"userbuffers_fp16_sum_inplace_gpu_[a-z]{2}_ag"), _USERBUFFERS,
        Function.ALL_GATHER,
    ),
    CommunicationKernels(
        "Transformer Engine userbuffers", _named(r"userbuffers_fp16_sum_inplace_gpu_"), _USERBUFFERS,
        Function.ALL_REDUCE,
    ),
    CommunicationKernels(
        "Transformer Engine userbuffers", _named(r"kuserbuffers_"), _USERBUFFERS, p2p=True
    ),
    CommunicationKernels(
        "Triton-distributed",
        _named(
            rf"{_NO_PRODUCT}(?:all_?gather_(?:\w+_)?kernel|reduce_scatter_ring_\w*kernel"
            r"|allreduce_(?:one_shot|two_shot|double_tree)_\w*kernel)"
        ),
        _TRITON,
    ),
    CommunicationKernels(
        "Triton-distributed",
        _named(
            rf"{_NO_PRODUCT}(?:all_to_all_(?:\w+_)?kernel|barrier_all_(?:\w+_)?kernel"
            r"|p2p_(?:copy|put)_\w*kernel)"
        ),
        _TRITON, p2p=True,
    ),
    CommunicationKernels(
        "copies between GPUs by copy engines", re.compile(rf"Memcpy PtoP\b|Memcpy .*{IN_OPERATOR}"), _KINETO, p2p=True
    ),
)  # fmt: skip

#: What looks like communication. Names of torch.compile's own kernels are those of all operators they were fused from
#: and around, collectives too, so they say nothing.
RESEMBLES = re.compile(
    r"(?!triton_[a-z]+_fused|at::native::|at_cuda_detail::|cub::)(?:.*(?:all_?reduce|all_?gather|reduce_?scatter"
    r"|all_?to_?all|send_?recv|nccl|rccl|nvshmem|multimem|symm(?:etric)?_?mem|cross_device|userbuffers"
    r"|(?:\b|_)(?:a2a|p2p|ipc|nvls)(?:\b|_))|.*A2A[A-Z]|.*NVLS)",
    re.IGNORECASE,
)
