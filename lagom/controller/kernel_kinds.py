# SPDX-License-Identifier: Apache-2.0
"""Kinds of drained kernel spans. The recording library knows NCCL's kernels alone: those of other libraries' that
communicate come as compute, and would count for Y in place of X."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.kernel_names import kind_of
from lagom.wire.layout import MAX_KERNEL_NAMES, SPAN_COMPUTE


class KernelKinds:
    """``names``: the name of each number in a span's ``name``, asked for when a span has one that was not seen yet."""

    def __init__(self, names: Callable[[], Mapping[int, str]]) -> None:
        self._names = names
        self._kinds = np.full(MAX_KERNEL_NAMES + 1, SPAN_COMPUTE, np.uint8)
        self._is_seen = np.zeros(MAX_KERNEL_NAMES + 1, bool)

    def correct(self, spans: NDArray[Any]) -> NDArray[Any]:
        """The same spans, ``kind`` by :data:`~lagom.timeline.communication_kernels.COMMUNICATION` where it was
        compute. The array (dtype ``KERNEL_SPAN``) is changed."""
        compute = np.flatnonzero((spans["kind"] == SPAN_COMPUTE) & (spans["name"] <= MAX_KERNEL_NAMES))
        if len(compute):
            numbers = spans["name"][compute]
            if not self._is_seen[numbers].all():
                self._look(numbers)
            spans["kind"][compute] = self._kinds[numbers]
        return spans

    def _look(self, numbers: NDArray[Any]) -> None:
        names = self._names()
        for number in np.unique(numbers[~self._is_seen[numbers]]).tolist():
            self._kinds[number] = kind_of(names.get(number, ""))
            self._is_seen[number] = number in names or number == 0  # a name may come a moment after its number
