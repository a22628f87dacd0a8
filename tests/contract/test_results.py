# SPDX-License-Identifier: Apache-2.0
"""Published results name commits that exist, and every figure on a generated page is that of its raw samples."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from benchmarks import provenance
from benchmarks.matrix.page_values import MEAN_OVER_RANKS, SLOWEST_RANK, page, verdict_of
from benchmarks.matrix.rows import rows
from benchmarks.paper import folding
from benchmarks.provenance import RESULTS
from lagom.bench.results import BenchRecord, results_of

#: What git alone tells, and so what differs from clone to clone and from commit to commit.
FROM_GIT = re.compile(r"^ *(- commit .*|Changed since: .*|What has changed since .*|Nothing that could move .*)$")
NO_HISTORY = "no git history here: `git fetch --unshallow`, then `pytest tests/contract/test_results.py`"
NAMING = sorted(path for path in RESULTS.iterdir() if path.suffix in (".json", ".md"))
MATRICES = sorted(RESULTS.glob("matrix_*.json"))


def lasting(text: str) -> list[str]:
    """A page without the lines that git tells."""
    return [line for line in text.splitlines() if not FROM_GIT.match(line)]


def test_every_commit_a_result_names_is_in_this_repository_or_said_not_to_be() -> None:
    """One test for all results: what is wrong is listed."""
    if not provenance.has_history():
        pytest.skip(NO_HISTORY)
    faults, named = [], 0
    for path in NAMING:
        text = path.read_text()
        for commit in provenance.named_in(path):
            named += 1
            if not provenance.exists(provenance.ABSENT.get(commit, commit)):
                faults.append(f"{path.name} names commit {commit}, which this repository does not have")
            if commit in provenance.ABSENT and path.suffix == ".md" and "rewritten before it was published" not in text:
                faults.append(f"{path.name} does not say that {commit} is not here")
    assert named > 0
    assert faults == []


def test_a_commit_that_lies_here_and_is_in_no_history_of_head_does_not_exist(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provenance, "ROOT", tmp_path)
    provenance.git("init", "--quiet")
    tree = provenance.git("hash-object", "-t", "tree", "-w", "/dev/null").stdout.strip()
    made = ("-c", "user.name=a", "-c", "user.email=a@b.example", "commit-tree", tree, "-m")
    kept, lost = (provenance.git(*made, subject).stdout.strip() for subject in ("kept", "of a deleted branch"))
    provenance.git("update-ref", "HEAD", kept)
    assert provenance.exists(kept)
    assert not provenance.exists(lost)


def test_the_index_names_every_result() -> None:
    told = provenance.INDEX.read_text()
    missing = [path.name for path in RESULTS.glob("*.json") if f"[{path.name}]" not in told]
    assert not missing, f"run `python -m benchmarks.provenance`: {missing}"


def test_the_page_of_the_folded_pipeline_is_made_from_the_code() -> None:
    assert folding.PAGE.read_text() == folding.page(), "run `python -m benchmarks.paper.folding`"


@pytest.mark.parametrize("path", MATRICES, ids=lambda path: path.name)
def test_every_published_ratio_is_that_of_its_raw_samples(path: Path) -> None:
    data = json.loads(path.read_text())
    compared = 0
    for entry in data["rows"].values():
        if "record" not in entry:
            continue
        anew = {one.arm: one.ratio for one in results_of(BenchRecord.model_validate(entry["record"]))}
        for one in entry["results"]:
            if one["speedup"] is None or anew.get(one["arm"]) is None:
                continue
            found = anew[one["arm"]]
            assert (found.value, found.pairs) == (pytest.approx(one["speedup"], abs=5e-4), one["pairs"]), one["arm"]
            compared += 1
    assert compared > 0


@pytest.mark.parametrize("path", MATRICES, ids=lambda path: path.name)
def test_rows_with_the_older_definition_of_z_are_those_of_commits_before_it_changed(path: Path) -> None:
    if not provenance.has_history():
        pytest.skip(NO_HISTORY)
    for commit in {session["commit"] for session in json.loads(path.read_text())["sessions"]}:
        assert (commit in SLOWEST_RANK) == provenance.is_before(commit, MEAN_OVER_RANKS), commit


@pytest.mark.parametrize("path", MATRICES, ids=lambda path: path.name)
def test_the_matrix_pages_are_made_from_their_raw_files(path: Path) -> None:
    published = path.with_suffix(".md").read_text()
    pictures = re.findall(r"!\[(figures/[^\]]+)\]", published)
    assert lasting(published) == lasting(page(json.loads(path.read_text()), pictures)), (
        f"run `python -m benchmarks.matrix_page {path.relative_to(RESULTS.parents[1])}`"
    )


def test_what_a_search_cost_a_job_is_told_by_means() -> None:
    data = json.loads((RESULTS / "matrix_h200x2_202611.json").read_text())
    row = next(row for row in rows() if row.name == "mesh-compile")
    steps = {name: arm["ms"][5:] for name, arm in data["rows"][row.name]["arms"].items()}
    ratio = (sum(steps["off"]) / len(steps["off"])) / (sum(steps["lagom"]) / len(steps["lagom"]))
    assert verdict_of(row, data["rows"][row.name])["speed"] == f"{ratio:.3f} (one round: no interval)"
    assert ratio < 0.97, "the median of the same steps is 0.993 and leaves the search out"
