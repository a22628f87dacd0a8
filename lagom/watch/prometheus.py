# SPDX-License-Identifier: Apache-2.0
"""A snapshot in Prometheus' text format, for node-exporter's textfile collector, and a Grafana dashboard for it.

Every metric: its name with its unit, its kind, its meaning, and where in a snapshot it comes from.

Labels are stable: ``lagom_job`` (Prometheus keeps ``job`` for itself), ``group`` (the process group's name) with
``communicator`` (its id, since names may repeat), ``site`` (its number before its words, since those may repeat). A
value that is not known is left out, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from lagom.files import write_named
from lagom.watch.snapshot import GroupPhase, GroupSnapshot, JobSnapshot, NodeSnapshot, SiteSnapshot

Labels = tuple[str, ...]
JOB: Labels = ("lagom_job",)
GROUP: Labels = (*JOB, "group", "communicator")
SITE: Labels = (*GROUP, "site")


@dataclass(frozen=True, slots=True)
class Family:
    """One metric. ``samples`` yields (label values, value); a counter's name gets ``_total`` in the file."""

    name: str
    kind: str
    text: str
    labels: Labels
    samples: Callable[[NodeSnapshot], Iterable[tuple[Labels, float | None]]]

    @property
    def series(self) -> str:
        """The name as queries use it."""
        return f"{self.name}_total" if self.kind == "counter" else self.name

    def collect(self, node: NodeSnapshot) -> Metric:
        """The metric of one look. Two jobs of one name are one series: the format allows no second."""
        make = CounterMetricFamily if self.kind == "counter" else GaugeMetricFamily
        family = make(self.name, self.text, labels=self.labels)
        for labels, value in dict(self.samples(node)).items():
            if value is not None:
                family.add_metric(labels, float(value))
        return family


def _of_jobs(
    value: Callable[[JobSnapshot], float | None],
) -> Callable[[NodeSnapshot], Iterator[tuple[Labels, float | None]]]:
    return lambda node: (((job.job,), value(job)) for job in node.running)


def _of_groups(
    value: Callable[[GroupSnapshot], float | None],
) -> Callable[[NodeSnapshot], Iterator[tuple[Labels, float | None]]]:
    return lambda node: ((_group(job, group), value(group)) for job in node.running for group in job.groups)


def _of_sites(
    value: Callable[[SiteSnapshot], float | None],
) -> Callable[[NodeSnapshot], Iterator[tuple[Labels, float | None]]]:
    return lambda node: (
        ((*_group(job, group), _site(site)), value(site))
        for job in node.running
        for group in job.groups
        for site in group.sites
    )


def _group(job: JobSnapshot, group: GroupSnapshot) -> Labels:
    return (job.job, group.name, group.comm_id)


def _site(site: SiteSnapshot) -> str:
    """``0 allgather 416M``: in replay two sites may differ in nothing but their places in the program."""
    return f"{site.index} {site.name}"


def _job_info(node: NodeSnapshot) -> Iterator[tuple[Labels, float | None]]:
    for job in node.running:
        yield (job.job, job.mode, job.strategy, " ".join(job.nccl), job.gpu), 1


def _phases(node: NodeSnapshot) -> Iterator[tuple[Labels, float | None]]:
    for job in node.running:
        for group in job.groups:
            for phase in GroupPhase:
                yield (*_group(job, group), phase.value), float(group.phase is phase)


def _configs(node: NodeSnapshot) -> Iterator[tuple[Labels, float | None]]:
    for job in node.running:
        for group in job.groups:
            for site in group.sites:
                yield (*_group(job, group), _site(site), site.in_force, site.nccl), 1


def _untunable(node: NodeSnapshot) -> Iterator[tuple[Labels, float | None]]:
    for job in node.running:
        for group in job.groups:
            for kind, count in group.untunable.items():
                yield (*_group(job, group), kind), count


FAMILIES = (
    Family("lagom_look_timestamp_seconds", "gauge", "When this was looked at.", (), lambda n: [((), n.t)]),
    Family(
        "lagom_jobs", "gauge", "Jobs with Lagom in them running on this node.", (), lambda n: [((), len(n.running))]
    ),
    Family(
        "lagom_job_info",
        "gauge",
        "1 for each job; its facts are the labels.",
        (*JOB, "mode", "strategy", "nccl", "gpu"),
        _job_info,
    ),
    Family("lagom_job_start_timestamp_seconds", "gauge", "When the job began.", JOB, _of_jobs(lambda job: job.started)),
    Family("lagom_ranks", "gauge", "Ranks of the job alive on this node.", JOB, _of_jobs(lambda job: job.ranks)),
    Family(
        "lagom_controller_up",
        "gauge",
        "1 while a controller tunes the job.",
        JOB,
        _of_jobs(lambda j: bool(j.controller_pid)),
    ),
    Family("lagom_phase", "gauge", "1 for the phase a process group is in, else 0.", (*GROUP, "phase"), _phases),
    Family(
        "lagom_calls",
        "counter",
        "Collectives that NCCL asked the tuner about, by the slowest rank.",
        GROUP,
        _of_groups(lambda group: group.calls),
    ),
    Family(
        "lagom_calls_changed",
        "counter",
        "Calls for which NCCL was given another config, all ranks of the node.",
        GROUP,
        _of_groups(lambda group: group.changed),
    ),
    Family(
        "lagom_iterations_per_second",
        "gauge",
        "Iterations a second between the last two looks, by the wall clock.",
        GROUP,
        _of_groups(lambda group: group.iterations_per_second),
    ),
    Family(
        "lagom_stock_iteration_seconds",
        "gauge",
        "Time of an iteration under stock NCCL, as the search's baseline measured it.",
        GROUP,
        _of_groups(lambda group: None if group.stock_z_ns is None else group.stock_z_ns / 1e9),
    ),
    Family(
        "lagom_speedup_ratio",
        "gauge",
        "Stock iteration time over tuned, of the final A/B.",
        GROUP,
        _of_groups(lambda group: group.speedup.ratio if group.speedup else None),
    ),
    Family(
        "lagom_speedup_low_ratio",
        "gauge",
        "Lower end of its 95 % interval.",
        GROUP,
        _of_groups(lambda group: group.speedup.low if group.speedup else None),
    ),
    Family(
        "lagom_speedup_high_ratio",
        "gauge",
        "Upper end of its 95 % interval.",
        GROUP,
        _of_groups(lambda group: group.speedup.high if group.speedup else None),
    ),
    Family(
        "lagom_resolvable_effect_ratio",
        "gauge",
        "Smallest change of the iteration time that the data so far could distinguish from noise.",
        GROUP,
        _of_groups(lambda group: group.resolvable),
    ),
    Family(
        "lagom_trials",
        "counter",
        "Windows measured by the search, the baseline not counted.",
        GROUP,
        _of_groups(lambda group: group.configs_tried),
    ),
    Family(
        "lagom_lost_iterations",
        "counter",
        "Time lost against stock while searching, in iterations of stock.",
        GROUP,
        _of_groups(lambda group: group.lost_iterations),
    ),
    Family(
        "lagom_lost_seconds",
        "counter",
        "The same in seconds.",
        GROUP,
        _of_groups(lambda group: group.lost_seconds),
    ),
    Family(
        "lagom_plans_committed",
        "counter",
        "Plans that every rank agreed to.",
        GROUP,
        _of_groups(lambda group: group.plans_committed),
    ),
    Family(
        "lagom_plans_aborted",
        "counter",
        "Plans that came to nothing; the one before went on.",
        GROUP,
        _of_groups(lambda group: group.plans_aborted),
    ),
    Family(
        "lagom_drifts",
        "counter",
        "Times the job was found changed after its search, and was tuned again.",
        GROUP,
        _of_groups(lambda group: group.drifts),
    ),
    Family(
        "lagom_program_suspensions",
        "counter",
        "Times a rank met a call that the program did not expect, all ranks of the node.",
        GROUP,
        _of_groups(lambda group: group.suspensions),
    ),
    Family(
        "lagom_call_records_dropped",
        "counter",
        "Call records that found no room; the controller was away or too slow.",
        GROUP,
        _of_groups(lambda group: group.unrecorded),
    ),
    Family(
        "lagom_untunable_operations",
        "counter",
        "Operations that never reach a tuner, as NCCL's profiler counts them; most of any rank.",
        (*GROUP, "kind"),
        _untunable,
    ),
    Family(
        "lagom_site_config_info",
        "gauge",
        "1 for each site; its config in force and NCCL's own pick are the labels.",
        (*SITE, "config", "nccl_pick"),
        _configs,
    ),
    Family(
        "lagom_site_channels",
        "gauge",
        "Channels in force at a site; absent where NCCL chooses.",
        SITE,
        _of_sites(lambda site: site.channels),
    ),
    Family(
        "lagom_site_chunk_bytes",
        "gauge",
        "Chunk size in force at a site; absent where NCCL chooses.",
        SITE,
        _of_sites(lambda site: site.chunk_bytes),
    ),
    Family(
        "lagom_site_calls_per_iteration",
        "gauge",
        "Calls of a site in one iteration.",
        SITE,
        _of_sites(lambda site: site.calls_per_iteration),
    ),
)


# -- out

DASHBOARD = "grafana.json"


@dataclass(frozen=True, eq=False)
class _Snapshot(Collector):
    node: NodeSnapshot

    def collect(self) -> Iterator[Metric]:
        return (family.collect(self.node) for family in FAMILIES)


def render_metrics(node: NodeSnapshot) -> str:
    """The snapshot in Prometheus' text format."""
    registry = CollectorRegistry()
    registry.register(_Snapshot(node))
    return generate_latest(registry).decode()


def write_textfile(node: NodeSnapshot, path: Path) -> None:
    """The same into a file, in one step: a collector never reads half of it. Raises :class:`UsageError`."""
    write_named(path, render_metrics(node))


def dashboard() -> str:
    """The Grafana dashboard, as JSON to import."""
    return resources.files(__package__).joinpath(DASHBOARD).read_text()
