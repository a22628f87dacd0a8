# SPDX-License-Identifier: Apache-2.0
"""Kernels of communication that are not NCCL's: a row each, with the file of its library that names it.

Names are compared as :func:`lagom.timeline.kernel_names.callable_name` writes them, without return type, anonymous
namespaces, template and call arguments. HIP builds of NCCL and of torch (RCCL) have the names of the CUDA ones.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from lagom.records import Function


@dataclass(frozen=True, slots=True)
class CommunicationKernels:
    """``pattern``: of whole names; ``function``: the collective, None where it is none that NCCL asks its tuner about
    (all-to-all, send and receive, signals between GPUs)."""

    library: str
    pattern: re.Pattern[str]
    function: Function | None
    source: str


def _row(library: str, pattern: str, function: Function | None, source: str) -> CommunicationKernels:
    return CommunicationKernels(library, re.compile(pattern), function, source)


_ALL_REDUCE, _ALL_GATHER, _REDUCE_SCATTER = Function.ALL_REDUCE, Function.ALL_GATHER, Function.REDUCE_SCATTER
_TORCH = "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemoryOps.cu"

#: The first match wins.
COMMUNICATION_KERNELS = (
    _row("torch symmetric memory", r"(multimem|one_shot|two_shot)\w*_all_reduce_kernel\w*", _ALL_REDUCE, _TORCH),
    _row("torch symmetric memory", r"multimem_all_gather_kernel\w*", _ALL_GATHER, _TORCH),
    _row("torch symmetric memory", r"multimem_\w*reduce\w*_kernel\w*", _ALL_REDUCE, _TORCH),
    _row("torch symmetric memory", r"reduce_scatter_kernel\w*", _REDUCE_SCATTER, _TORCH),
    _row("torch symmetric memory", r"(barrier|put_signal|wait_signal)_kernel", None,
         "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/CUDASymmetricMemory.cu"),
    _row("torch intra-node communication", r"(oneShot|twoShot|hybridCubeMesh)AllReduceKernel\w*", _ALL_REDUCE,
         "pytorch/pytorch torch/csrc/distributed/c10d/intra_node_comm.cu"),
    _row("torch NVSHMEM", r"(allToAllV|exchangeSplitAndOffset\w*|allToAllGet|allToAllPut)\w*", None,
         "pytorch/pytorch torch/csrc/distributed/c10d/symm_mem/nvshmem_extension.cu"),
    _row("NVSHMEM", r"(\w+::)*nvshmemi?x?_\w+", None, "NVIDIA/nvshmem src/device"),
    _row("DeepEP", r"(\w+::)?(deep_ep|uccl|mori)::(\w+::)*(cached_)?(notify_)?(dispatch|combine|barrier)\w*", None,
         "deepseek-ai/DeepEP csrc/kernels/intranode.cu, internode.cu, internode_ll.cu"),
    _row("MSCCL", r"mscclKernel\w*", None, "ROCm/rccl src/device/msccl_kernel_impl.h"),
    _row("MSCCL++", r"mscclpp::(\w+::)*(executionKernel|all\w+|\w*[cC]hannel\w*)", None,
         "microsoft/mscclpp src/include/execution_kernel.hpp"),
    _row("custom all-reduce of vLLM, SGLang and AITER", r"(\w+::)*cross_device_reduce_\w+", _ALL_REDUCE,
         "vllm-project/vllm csrc/custom_all_reduce.cuh"),
    _row("quick all-reduce", r"quickreduce::allreduce_\w+", _ALL_REDUCE, "vllm-project/vllm csrc/quickreduce"),
    _row("TensorRT-LLM and FlashInfer", r"(\w+::)*(one[sS]hot|two[sS]hot|lamport\w*)_?[aA]ll_?[rR]educe\w*",
         _ALL_REDUCE, "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/customAllReduceKernels.cu"),
    _row("TensorRT-LLM and FlashInfer",
         r"(\w+::)*(allreduce_fusion_kernel|moereduction_allreduce|all_?reduce_\w*(one|two)shot)\w*", _ALL_REDUCE,
         "flashinfer-ai/flashinfer include/flashinfer/comm/trtllm_allreduce_fusion.cuh"),
    _row("TensorRT-LLM", r"(\w+::)*moe(AllToAll|A2A)\w*Kernel", None,
         "NVIDIA/TensorRT-LLM cpp/tensorrt_llm/kernels/moeCommKernels.cu"),
    _row("Transformer Engine", r"k?userbuffers_\w*_?(ag|allgather)(_\w+)?", _ALL_GATHER,
         "NVIDIA/TransformerEngine transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu"),
    _row("Transformer Engine", r"k?userbuffers_\w*_?(rs|reducescatter)(_\w+)?", _REDUCE_SCATTER,
         "NVIDIA/TransformerEngine transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu"),
    _row("Transformer Engine", r"k?userbuffers_\w*sum_inplace\w*", _ALL_REDUCE,
         "NVIDIA/TransformerEngine transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu"),
    _row("Transformer Engine", r"k?userbuffers_\w+", None,
         "NVIDIA/TransformerEngine transformer_engine/common/comm_gemm_overlap/userbuffers/userbuffers.cu"),
    _row("FBGEMM", r"(fbgemm_gpu::)?(one|two)_shot_all_reduce\w*", _ALL_REDUCE,
         "pytorch/FBGEMM fbgemm_gpu/experimental/gen_ai/src/comm/car.cu"),
)  # fmt: skip

#: Of kernels in no row, words that name communication. Triton's fused kernels are named for the operators around them.
_LOOKS_LIKE = re.compile(
    r"all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|alltoall|multimem|nvshmem|cross_device|symm_?mem|send_?recv",
    re.IGNORECASE,
)
_FUSED = re.compile(r"triton_(poi|red|per|for|tem|mm)_")


def find_communication(name: str) -> CommunicationKernels | None:
    """The row of a callable name; None where there is none."""
    return next((row for row in COMMUNICATION_KERNELS if row.pattern.fullmatch(name)), None)


def looks_like_communication(name: str) -> bool:
    """Whether a callable name that is in no row says that its kernel communicates."""
    return _LOOKS_LIKE.search(name) is not None and not _FUSED.match(name)
