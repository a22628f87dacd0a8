# SPDX-License-Identifier: Apache-2.0
"""Communication of other libraries among drained spans."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from lagom.controller.kernel_kinds import KernelKinds
from lagom.wire.layout import KERNEL_SPAN, MAX_KERNEL_NAMES, SPAN_COLLECTIVE, SPAN_COMPUTE, SPAN_P2P

NAMES = {
    1: "nvjet_sm90_tst_256x128_64x4_1x2_h_bz_coopA_NNT",
    2: "_ZN4c10d16symmetric_memory14barrier_kernelEPPjiiim",
    3: "void multimem_all_reduce_kernel<float>",
}


def spans_named(*numbers: int, kind: int = SPAN_COMPUTE) -> NDArray[np.void]:
    spans = np.zeros(len(numbers), KERNEL_SPAN)
    spans["name"], spans["kind"] = numbers, kind
    return spans


def test_what_other_libraries_communicate_is_not_compute() -> None:
    kinds = KernelKinds(lambda: NAMES)
    assert kinds.correct(spans_named(1, 2, 3, 2))["kind"].tolist() == [
        SPAN_COMPUTE,
        SPAN_P2P,
        SPAN_COLLECTIVE,
        SPAN_P2P,
    ]


def test_a_kind_that_the_recording_knows_is_kept() -> None:
    kinds = KernelKinds(lambda: NAMES)
    assert kinds.correct(spans_named(1, kind=SPAN_COLLECTIVE))["kind"].tolist() == [SPAN_COLLECTIVE]


def test_names_are_asked_for_when_a_new_one_comes() -> None:
    asked, names = [], dict(list(NAMES.items())[:2])

    def ask() -> dict[int, str]:
        asked.append(1)
        return names

    kinds = KernelKinds(ask)
    kinds.correct(spans_named())
    assert not asked
    kinds.correct(spans_named(1, 2))
    kinds.correct(spans_named(2, 1))
    assert len(asked) == 1
    names[3] = NAMES[3]
    assert kinds.correct(spans_named(3, 1))["kind"].tolist() == [SPAN_COLLECTIVE, SPAN_COMPUTE]
    assert len(asked) == 2


def test_numbers_that_name_nothing_stay_compute() -> None:
    spans = spans_named(0, MAX_KERNEL_NAMES, MAX_KERNEL_NAMES + 1, 2**32 - 1)
    assert KernelKinds(lambda: NAMES).correct(spans)["kind"].tolist() == [SPAN_COMPUTE] * 4
