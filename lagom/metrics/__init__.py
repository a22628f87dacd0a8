"""A snapshot in Prometheus' text format, for node-exporter's textfile collector, and a Grafana dashboard for it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from lagom.files import write_named
from lagom.metrics.families import FAMILIES, table
from lagom.watch.snapshot import NodeSnapshot

__all__ = ["FAMILIES", "dashboard", "exposition", "table", "write_textfile"]

DASHBOARD = "grafana.json"


@dataclass(frozen=True, eq=False)
class _Snapshot(Collector):
    node: NodeSnapshot

    def collect(self) -> Iterator[Metric]:
        return (family.collect(self.node) for family in FAMILIES)


def _registry(node: NodeSnapshot) -> CollectorRegistry:
    registry = CollectorRegistry()
    registry.register(_Snapshot(node))
    return registry


def exposition(node: NodeSnapshot) -> str:
    """The snapshot in Prometheus' text format."""
    return generate_latest(_registry(node)).decode()


def write_textfile(node: NodeSnapshot, path: Path) -> None:
    """The same into a file, in one step: a collector never reads half of it. Raises :class:`UsageError`."""
    write_named(path, exposition(node))


def dashboard() -> str:
    """The Grafana dashboard, as JSON to import."""
    return resources.files(__package__).joinpath(DASHBOARD).read_text()
