# SPDX-License-Identifier: Apache-2.0
"""Names as CUPTI and Kineto spell them."""

from __future__ import annotations

import re

import pytest
from timeline_helpers import DATA

from lagom.records import Function
from lagom.timeline import load
from lagom.timeline.kernel_names import NO_FUNCTION, KernelKind, family, function_of, kind_of, label, plain_name

MANGLED = "_Z31ncclDevKernel_AllGather_RING_LL24ncclDevKernelArgsStorag"


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        (MANGLED, "ncclDevKernel_AllGather_RING_LL"),
        ("_ZN2at6native29vectorized_elementwise_kernelILi8ENS0_13Binar", "at::native::vectorized_elementwise_kernel"),
        ("_ZN2at6native55_GLOBAL__N__d25d856e_22_ForeachBinaryOpList_c", "at::native::ForeachBinaryOpList"),
        ("nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT", "nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NTT"),
        ("_Z", "_Z"),
        ("_ZN" + "1" * 5000, "_ZN" + "1" * 5000),
        ("_ZN2at" + "1" * 5000, "at"),
        ("", ""),
    ],
)
def test_plain_name(name: str, plain: str) -> None:
    assert plain_name(name) == plain


def test_every_kernel_of_a_torch_trace_has_a_label() -> None:
    for name in load(DATA / "kineto" / "torch_fsdp_8192_nvlink_h200x8.json.gz")[0].names:
        assert re.match(r"\w{4,}", label(name)), name


@pytest.mark.parametrize(
    ("name", "kind", "function"),
    [
        (MANGLED, KernelKind.COLLECTIVE, Function.ALL_GATHER),
        (
            "_Z44ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL24ncclDevKer",
            KernelKind.COLLECTIVE,
            Function.REDUCE_SCATTER,
        ),
        (
            "ncclDevKernel_AllReduce_Sum_f32_TREE_LL(ncclDevKernelArgs<4096ul>)",
            KernelKind.COLLECTIVE,
            Function.ALL_REDUCE,
        ),
        ("ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*)", KernelKind.COLLECTIVE, Function.ALL_REDUCE),
        ("ncclDevKernel_Broadcast_RING_LL", KernelKind.COLLECTIVE, Function.BROADCAST),
        ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", KernelKind.P2P, NO_FUNCTION),
        ("Memcpy DtoD (Device -> Device)", KernelKind.OTHER, NO_FUNCTION),
        ("Memset (Device)", KernelKind.OTHER, NO_FUNCTION),
        ("void at::native::reduce_kernel<512, 1>(at::native::ReduceOp<float>)", KernelKind.COMPUTE, Function.REDUCE),
    ],
)
def test_kind_and_function(name: str, kind: KernelKind, function: int) -> None:
    assert kind_of(name) is kind
    assert function_of(name) == function


def test_labels_are_short_and_families_plausible() -> None:
    long = "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int, float)"
    assert label(long) == "vectorized_elementwise_kernel"
    assert len(label("x" * 200)) <= 44
    hidden = "void at::native::(anonymous namespace)::CatArrayBatchedCopy<at::(anonymous namespace)::Opaque, 4>(int)"
    assert label(hidden) == "CatArrayBatchedCopy"
    assert label("(anonymous namespace)::spin(long)") == "spin"
    assert family("nvjet_sm90_tst_320x128_64x3") == "matmul"
    assert family("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_") == "attention"
    assert family("somebody_s_kernel") == "other"
