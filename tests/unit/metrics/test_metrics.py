"""The textfile is what Prometheus reads, and the dashboard asks for nothing that is not in it."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from lagom import metrics
from lagom.errors import UsageError
from lagom.watch.build import build_job, counts_of
from lagom.watch.snapshot import NodeSnapshot, Phase
from lagom.watch.story import JobStory
from tests.unit.watch.pictures import SEARCH, group, plan, region, slot

UNITS = ("_seconds", "_bytes", "_ratio", "_info", "_total", "_per_second", "_per_iteration")
COUNTED = ("lagom_jobs", "lagom_ranks", "lagom_controller_up", "lagom_phase", "lagom_site_channels")


@pytest.fixture
def node() -> NodeSnapshot:
    """One tuned job."""
    seen = region(group(slot(0, calls=7, epoch=7), slot(1, calls=9, epoch=7), epoch=7, held=plan(7)))
    story = JobStory()
    story.read(SEARCH)
    return NodeSnapshot(50.0, "host", (build_job(seen, story, "", {}, counts_of(seen, 1.0)),))


def parsed(text: str) -> dict[str, dict[tuple[tuple[str, str], ...], float]]:
    """Series by name, as Prometheus' own parser reads them."""
    return {
        name: {tuple(sorted(s.labels.items())): s.value for s in family.samples if s.name == name}
        for family in text_string_to_metric_families(text)
        for name in {sample.name for sample in family.samples}
    }


def test_prometheus_reads_every_number(node: NodeSnapshot) -> None:
    series = parsed(metrics.exposition(node))
    job = (("communicator", "0x1a60d"), ("group", "fsdp"), ("lagom_job", "myjob"))
    assert series["lagom_calls_total"] == {job: 7.0}
    assert series["lagom_lost_seconds_total"] == {job: 0.25}
    assert series["lagom_speedup_low_ratio"] == {job: 1.08}
    site = (*job, ("site", "allgather 416M hidden"))
    assert series["lagom_site_channels"] == {tuple(sorted(site)): 3.0}
    phases = {dict(labels)["phase"]: value for labels, value in series["lagom_phase"].items()}
    assert {phase for phase, value in phases.items() if value} == {"tuned"}
    assert set(phases) == {phase.value for phase in Phase}


def test_every_family_has_help_type_and_a_name_with_its_unit(node: NodeSnapshot) -> None:
    text = metrics.exposition(node)
    for family in metrics.FAMILIES:
        assert f"# TYPE {family.series} {family.kind}" in text
        assert re.search(rf"# HELP {family.series} \S.*\.$", text, re.MULTILINE)
        assert family.series.startswith("lagom_")
        assert family.series.endswith(UNITS) or family.series in COUNTED
    assert len({family.name for family in metrics.FAMILIES}) == len(metrics.FAMILIES)


def test_two_jobs_of_one_name_make_no_second_series(node: NodeSnapshot) -> None:
    twice = NodeSnapshot(node.t, node.host, node.jobs * 2)
    lines = [line.rsplit(" ", 1)[0] for line in metrics.exposition(twice).splitlines() if not line.startswith("#")]
    assert len(lines) == len(set(lines))


def test_a_node_without_jobs_says_so() -> None:
    series = parsed(metrics.exposition(NodeSnapshot(50.0, "host", ())))
    assert series["lagom_jobs"] == {(): 0.0}
    assert "lagom_calls_total" not in series


def test_the_file_appears_whole(tmp_path: Path, node: NodeSnapshot) -> None:
    file = tmp_path / "lagom.prom"
    metrics.write_textfile(node, file)
    inode = file.stat().st_ino
    metrics.write_textfile(node, file)
    assert file.stat().st_ino != inode, "it was written in place: a collector could read half of it"
    assert parsed(file.read_text()) == parsed(metrics.exposition(node))
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


def test_the_table_lists_every_metric() -> None:
    assert all(f"`{family.series}`" in metrics.table() for family in metrics.FAMILIES)
