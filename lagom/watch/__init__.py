# SPDX-License-Identifier: Apache-2.0
"""``lagom watch``: what tuning does to the jobs of this node, seen from outside. README.md says how."""

from __future__ import annotations

from lagom.watch.snapshot import GroupPhase, GroupSnapshot, JobSnapshot, NodeSnapshot, SiteSnapshot
from lagom.watch.watcher import Watcher

__all__ = ["GroupPhase", "GroupSnapshot", "JobSnapshot", "NodeSnapshot", "SiteSnapshot", "Watcher"]
