"""From kernels to overlap: which kernels ran when, how they overlapped, and what that cost.

Pure functions over numpy arrays; README.md has the definitions, formula first. The path:
``load`` -> ``table`` -> ``steps`` -> ``groups`` -> ``account`` and ``tax`` -> ``profile``; ``join`` ties kernels to
calls.
"""

from __future__ import annotations

from lagom.timeline.load import TraceError, from_ring, load, load_all
from lagom.timeline.profile import Profile, profile
from lagom.timeline.table import KernelTable, build

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
