"""``lagom watch``: what tuning does to the jobs of this node, seen from outside. README.md says how."""

from __future__ import annotations

from lagom.watch.snapshot import GroupSnapshot, JobSnapshot, NodeSnapshot, Phase, SiteSnapshot
from lagom.watch.watcher import Watcher

__all__ = ["GroupSnapshot", "JobSnapshot", "NodeSnapshot", "Phase", "SiteSnapshot", "Watcher"]
