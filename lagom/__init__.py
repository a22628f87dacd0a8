# SPDX-License-Identifier: Apache-2.0
"""Lagom: just the right amount of communication. An auto-tuner for stock NCCL in distributed PyTorch training.

The names in ``__all__`` are the public API. Their modules are imported on first use, so that ``import lagom`` is fast.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from lagom.version import __version__

if TYPE_CHECKING:
    from lagom.config_file import BadConfig, SavedConfig, load_config, save_config
    from lagom.errors import JournalError, LagomError, SettingError, UsageError
    from lagom.report.read_run import Run, read_run
    from lagom.report.read_search import Benchmark, StartSearch
    from lagom.search.base import Answer, Comparison, NonConforming, Proposal, Strategy
    from lagom.search.session import IllegalProposal
    from lagom.search.strategies import UnknownStrategy
    from lagom.timeline.overlap import Overlap, overlap

__all__ = [
    "Answer",
    "BadConfig",
    "Benchmark",
    "Comparison",
    "IllegalProposal",
    "JournalError",
    "LagomError",
    "NonConforming",
    "Overlap",
    "Proposal",
    "Run",
    "SavedConfig",
    "SettingError",
    "StartSearch",
    "Strategy",
    "UnknownStrategy",
    "UsageError",
    "__version__",
    "load_config",
    "overlap",
    "read_run",
    "save_config",
]

#: Public name -> the module that defines it.
_MODULES = {
    "Answer": "lagom.search.base",
    "BadConfig": "lagom.config_file",
    "Benchmark": "lagom.report.read_search",
    "Comparison": "lagom.search.base",
    "IllegalProposal": "lagom.search.session",
    "JournalError": "lagom.errors",
    "LagomError": "lagom.errors",
    "NonConforming": "lagom.search.base",
    "Overlap": "lagom.timeline.overlap",
    "Proposal": "lagom.search.base",
    "Run": "lagom.report.read_run",
    "SavedConfig": "lagom.config_file",
    "SettingError": "lagom.errors",
    "StartSearch": "lagom.report.read_search",
    "Strategy": "lagom.search.base",
    "UnknownStrategy": "lagom.search.strategies",
    "UsageError": "lagom.errors",
    "load_config": "lagom.config_file",
    "overlap": "lagom.timeline.overlap",
    "read_run": "lagom.report.read_run",
    "save_config": "lagom.config_file",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name]), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
