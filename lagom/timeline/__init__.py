# SPDX-License-Identifier: Apache-2.0
"""From kernels to overlap: which kernels ran when, how they overlapped, and what that cost.

Pure functions over numpy arrays; README.md has the definitions, formula first. The path: ``load`` -> ``kernel_table``
-> ``steps`` -> ``groups`` -> ``busy_times`` and ``slowdowns`` -> ``job_profile``; ``join`` ties kernels to calls.
"""

from __future__ import annotations

from lagom.timeline.job_profile import Profile, profile
from lagom.timeline.kernel_table import KernelTable, build
from lagom.timeline.load import TraceError, from_ring, load, load_all

__all__ = [
    "KernelTable",
    "Profile",
    "TraceError",
    "build",
    "from_ring",
    "load",
    "load_all",
    "profile",
]
