# SPDX-License-Identifier: Apache-2.0
"""Copies on a stream by one call of CUDA's driver. torch's own copy on another stream costs the host three calls more,
and launches are what limits copies of small shapes. The stream switch here is for the few calls that have no stream."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

import torch
from torch import Tensor


def copy_on(stream: Any, to: Tensor, source: Tensor) -> None:
    """Copy a contiguous tensor into another one of its size, on a stream. On the CPU at once."""
    if not to.is_cuda:
        to.copy_(source)
    elif code := _driver()(to.data_ptr(), source.data_ptr(), to.nbytes, stream.cuda_stream):
        raise RuntimeError(f"CUDA's driver refused a copy between GPUs (cuMemcpyDtoDAsync: error {code})")


class On:
    """Make a stream the current one, then ``back``, which was it on its device: half of torch.cuda.stream's time."""

    __slots__ = ("_back", "_device", "_stream")

    def __init__(self, stream: Any, back: Any) -> None:
        self._stream, self._back = stream, back

    def __enter__(self) -> None:
        self._device = torch.cuda.current_device()
        torch.cuda.set_stream(self._stream)

    def __exit__(self, *_: object) -> None:
        torch.cuda.set_stream(self._back)
        if self._device != self._back.device_index:
            torch.cuda.set_device(self._device)


@functools.cache
def _driver() -> Any:
    function = ctypes.CDLL("libcuda.so.1").cuMemcpyDtoDAsync_v2
    function.argtypes = (ctypes.c_uint64, ctypes.c_uint64, ctypes.c_size_t, ctypes.c_void_p)
    function.restype = ctypes.c_int
    return function
