# SPDX-License-Identifier: Apache-2.0
"""Calls of the host that launch kernels and copies, among the events of a Chrome trace."""

from __future__ import annotations

from typing import Any

#: Their categories: of Kineto, and of earlier releases of it.
LAUNCH_CATEGORIES = ("cuda_runtime", "cuda_driver", "Runtime")
_LARGEST = 2**62


def correlation_of(event: dict[str, Any]) -> int:
    """The number that a kernel or copy shares with the call that launched it; -1 where it has none."""
    args = event.get("args")
    found = args.get("correlation") if isinstance(args, dict) else None
    return found if type(found) is int and 0 <= found <= _LARGEST else -1
