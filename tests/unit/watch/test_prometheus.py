# SPDX-License-Identifier: Apache-2.0
"""The textfile is what Prometheus reads, and the dashboard asks for nothing that is not in it."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lagom.errors import UsageError
from lagom.watch import prometheus as metrics
from lagom.watch.build import build_job, read_counters
from lagom.watch.log_view import LogView
from lagom.watch.prometheus import Family
from lagom.watch.snapshot import Agreement, GroupPhase, GroupSnapshot, JobSnapshot, NodeSnapshot, SiteSnapshot, Speedup
from tests.unit.watch.pictures import SEARCH, group, plan, region, slot

UNITS = ("_seconds", "_bytes", "_ratio", "_info", "_total", "_per_second", "_per_iteration")
COUNTED = ("lagom_jobs", "lagom_ranks", "lagom_controller_up", "lagom_phase", "lagom_site_channels")


@pytest.fixture
def node() -> NodeSnapshot:
    """One tuned job."""
    seen = region(
        group(slot(0, calls=7, epoch=7, iterations=2), slot(1, calls=9, epoch=7, iterations=2), epoch=7, held=plan(7))
    )
    log = LogView(SEARCH)
    return NodeSnapshot(50.0, "host", (build_job(seen, log, "", {}, read_counters(seen, 1.0)),))


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Series by name, as Prometheus' own parser reads them."""
    return {
        name: {tuple(sorted(s.labels.items())): s.value for s in family.samples if s.name == name}
        for family in text_string_to_metric_families(text)
        for name in {sample.name for sample in family.samples}
    }


def test_prometheus_reads_every_number(node: NodeSnapshot) -> None:
    series = parsed(metrics.render_metrics(node))
    job = (("communicator", "0x1a60d"), ("group", "fsdp"), ("lagom_job", "myjob"))
    assert series["lagom_calls_total"] == {job: 7.0}
    assert series["lagom_lost_seconds_total"] == {job: 0.25}
    assert series["lagom_speedup_low_ratio"] == {job: 1.08}
    site = (*job, ("site", "0 allgather 416M hidden"))
    assert series["lagom_site_channels"] == {tuple(sorted(site)): 3.0}
    phases = {dict(labels)["phase"]: value for labels, value in series["lagom_phase"].items()}
    assert {phase for phase, value in phases.items() if value} == {"tuned"}
    assert set(phases) == {phase.value for phase in GroupPhase}


def test_sites_of_one_name_are_two_series(node: NodeSnapshot) -> None:
    (job,) = node.jobs
    (shown,) = job.groups
    first = shown.sites[0]
    sites = (first, replace(first, index=4, channels=6, in_force="nc=6"))
    twins = replace(node, jobs=(replace(job, groups=(replace(shown, sites=sites),)),))
    series = parsed(metrics.render_metrics(twins))
    by_site = {dict(labels)["site"]: value for labels, value in series["lagom_site_channels"].items()}
    assert by_site == {"0 allgather 416M hidden": 3.0, "4 allgather 416M hidden": 6.0}
    configs = {(dict(labels)["site"], dict(labels)["config"]) for labels in series["lagom_site_config_info"]}
    assert configs == {("0 allgather 416M hidden", "nc=3"), ("4 allgather 416M hidden", "nc=6")}


SITE = SiteSnapshot(2, "reduce 1K", "reduce", 1024, "", 73, None, "ring", "nc=3", "", channels=79, chunk_bytes=83)
GROUP = GroupSnapshot(
    index=0,
    comm_id="0xa",
    name="dp",
    ranks=8,
    here=4,
    nodes=2,
    phase=GroupPhase.TUNED,
    detail="",
    agreement=Agreement.AGREED,
    epoch=9,
    calls=3,
    calls_per_second=None,
    iterations_per_second=5.5,
    changed=7,
    unrecorded=11,
    suspensions=13,
    graph_captured=False,
    untunable={"p2p": 17, "copy_engine": 19},
    stock_z_ns=23e9,
    speedup=Speedup(1.29, 1.25, 1.31),
    resolvable=0.037,
    configs_tried=41,
    lost_iterations=43.5,
    lost_seconds=47.25,
    plans_committed=53,
    plans_aborted=59,
    drifts=61,
    sites=(SITE,),
    rules=(),
)
JOB = JobSnapshot(
    "j", "/r", "", "", "tune", "lagom", 42, 4, ("2.30.7",), "H200", 67.5, False, (), groups=(GROUP,), decisions=()
)
#: What each family must say of that job: by the label that tells its series apart, or of its one series.
SAID: dict[str, float | dict[str, float]] = {
    "lagom_look_timestamp_seconds": 71.5,
    "lagom_jobs": 1,
    "lagom_job_info": 1,
    "lagom_job_start_timestamp_seconds": 67.5,
    "lagom_ranks": 4,
    "lagom_controller_up": 1,
    "lagom_phase": {phase.value: float(phase is GroupPhase.TUNED) for phase in GroupPhase},
    "lagom_calls_total": 3,
    "lagom_calls_changed_total": 7,
    "lagom_iterations_per_second": 5.5,
    "lagom_stock_iteration_seconds": 23,
    "lagom_speedup_ratio": 1.29,
    "lagom_speedup_low_ratio": 1.25,
    "lagom_speedup_high_ratio": 1.31,
    "lagom_resolvable_effect_ratio": 0.037,
    "lagom_trials_total": 41,
    "lagom_lost_iterations_total": 43.5,
    "lagom_lost_seconds_total": 47.25,
    "lagom_plans_committed_total": 53,
    "lagom_plans_aborted_total": 59,
    "lagom_drifts_total": 61,
    "lagom_program_suspensions_total": 13,
    "lagom_call_records_dropped_total": 11,
    "lagom_untunable_operations_total": {"p2p": 17, "copy_engine": 19},
    "lagom_site_config_info": 1,
    "lagom_site_channels": 79,
    "lagom_site_chunk_bytes": 83,
    "lagom_site_calls_per_iteration": 73,
}
SPLIT_BY = {"lagom_phase": "phase", "lagom_untunable_operations_total": "kind"}


@pytest.mark.parametrize("family", metrics.FAMILIES, ids=lambda family: family.name)
def test_every_family_says_the_value_that_its_name_means(family: Family) -> None:
    series = parsed(metrics.render_metrics(NodeSnapshot(71.5, "host", (JOB,))))[family.series]
    if family.series in SPLIT_BY:
        assert {dict(labels)[SPLIT_BY[family.series]]: value for labels, value in series.items()} == SAID[family.series]
    else:
        assert list(series.values()) == [SAID[family.series]]
    assert all({name for name, _ in labels} == set(family.labels) for labels in series)


def test_every_family_has_help_type_and_a_name_with_its_unit(node: NodeSnapshot) -> None:
    text = metrics.render_metrics(node)
    for family in metrics.FAMILIES:
        assert f"# TYPE {family.series} {family.kind}" in text
        assert re.search(rf"# HELP {family.series} \S.*\.$", text, re.MULTILINE)
        assert family.series.startswith("lagom_")
        assert family.series.endswith(UNITS) or family.series in COUNTED
    assert len({family.name for family in metrics.FAMILIES}) == len(metrics.FAMILIES)


def test_two_jobs_of_one_name_make_no_second_series(node: NodeSnapshot) -> None:
    twice = NodeSnapshot(node.t, node.host, node.jobs * 2)
    lines = [line.rsplit(" ", 1)[0] for line in metrics.render_metrics(twice).splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))


def test_a_node_without_jobs_says_so() -> None:
    series = parsed(metrics.render_metrics(NodeSnapshot(50.0, "host", ())))
    assert series["lagom_jobs"] == {(): 0.0}
    assert "lagom_calls_total" not in series


def test_the_file_appears_whole(tmp_path: Path, node: NodeSnapshot) -> None:
    file = tmp_path / "lagom.prom"
    metrics.write_textfile(node, file)
    inode = file.stat().st_ino
    metrics.write_textfile(node, file)
    assert file.stat().st_ino != inode, "it was written in place: a collector could read half of it"
    assert parsed(file.read_text()) == parsed(metrics.render_metrics(node))
    assert list(tmp_path.iterdir()) == [file]
    with pytest.raises(UsageError, match="name another file"):
        metrics.write_textfile(node, tmp_path / "nowhere" / "lagom.prom")


def queries() -> list[str]:
    board = json.loads(metrics.dashboard())
    asked = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    return asked + [variable["definition"] for variable in board["templating"]["list"] if "definition" in variable]


def test_the_dashboard_asks_only_for_what_there_is(node: NodeSnapshot) -> None:
    known = {family.series: set(family.labels) for family in metrics.FAMILIES}
    assert len(queries()) > 15
    for query in queries():
        names = set(
            re.findall(r"lagom_[a-z_]+", re.sub(r"\{[^}]*\}|\([a-z_]+\) \(|by \([^)]*\)|, lagom_job\)", "", query))
        )
        assert names, query
        for name in names - {"lagom_job"}:
            assert name in known, f"{query} asks for {name}, which is not written"
        filters = set(re.findall(r"[{,](\w+)=~?", query))
        assert all(filters <= known[name] for name in names - {"lagom_job"}), query


def test_the_legends_name_labels_that_the_series_have() -> None:
    known = {family.series: set(family.labels) for family in metrics.FAMILIES}
    for panel in json.loads(metrics.dashboard())["panels"]:
        for target in panel["targets"]:
            name = next(name for name in re.findall(r"lagom_[a-z_]+", target["expr"]) if name in known)
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= known[name], panel["title"]


def test_panels_have_numbers_titles_and_room_of_their_own() -> None:
    panels = json.loads(metrics.dashboard())["panels"]
    assert len({panel["id"] for panel in panels}) == len({panel["title"] for panel in panels}) == len(panels)
    taken: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken
        assert at["x"] + at["w"] <= 24
        taken |= cells


def test_the_file_itself_says_what_each_metric_means(node: NodeSnapshot) -> None:
    text = metrics.render_metrics(node)
    assert all(f"# HELP {family.series} {family.text}" in text for family in metrics.FAMILIES)
