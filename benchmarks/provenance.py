# SPDX-License-Identifier: Apache-2.0
"""What git knows of the commits that results name: whether they are here, what came before them, what changed since.

    python -m benchmarks.provenance            # writes benchmarks/results/README.md: every result and its commits

Without git, or in a clone without history, nothing is claimed.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

from benchmarks.template import render

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "results"
INDEX = RESULTS / "README.md"
#: Code that can move a figure of a job or of a decision, by what it is for.
AREAS = {
    "plugin and shared memory": ("csrc", "tuner_plugin"),
    "measurement and controller": ("lagom/controller", "lagom/program", "lagom/timeline", "lagom/wire"),
    "search and cost model": ("lagom/search", "lagom/cost"),
    "simulator": ("lagom/sim",),
    "comparison of arms": ("lagom/bench", "lagom/experiment"),
    "start settings": ("lagom/start", "lagom/tune", "lagom/experiment"),
    "jobs": ("benchmarks/jobs",),
    "tensor parallelism": ("lagom/parallel",),
}
#: Which of them a result depends on, by how its name begins; the first that fits. Others: what is loaded into a job.
ON_GPUS = (
    "plugin and shared memory",
    "measurement and controller",
    "search and cost model",
    "comparison of arms",
    "jobs",
)
DEPENDS = {
    "abi_": ("plugin and shared memory",),
    "agreement_": ("plugin and shared memory",),
    "capture_": ("plugin and shared memory", "measurement and controller", "jobs"),
    "collective_matmul_": ("tensor parallelism",),
    "decision_latency": ("plugin and shared memory",),
    "fuzz_": ("plugin and shared memory",),
    "landscapes": ("simulator", "search and cost model"),
    "kills_": ("plugin and shared memory", "measurement and controller"),
    "memory_": ("plugin and shared memory", "measurement and controller", "search and cost model"),
    "mutants_": ("plugin and shared memory", "measurement and controller", "search and cost model", "start settings"),
    "search_": ("search and cost model",),
    "sim_": ("simulator", "search and cost model"),
    "start_search_": ("start settings",),
    "start_settings_": ("plugin and shared memory", "comparison of arms", "start settings", "jobs"),
    "strands_tuned_": (*ON_GPUS, "tensor parallelism"),
    "strands_": ("tensor parallelism", "jobs"),
    "tensor_parallel_step_": ("tensor parallelism", "jobs"),
    "switch_latency": ("plugin and shared memory",),
}
NAMED = re.compile(r'"commit": *"([^"]*)"|\bcommit `?([0-9a-f]{7,40})\b')
HASH = re.compile(r"\b[0-9a-f]{7,40}\b")
#: A commit as git shortens it, without a word beside it; numbers and words are none.
BARE = re.compile(r"\b(?=[0-9]*[a-f])(?=[a-f]*[0-9])[0-9a-f]{7}\b")
#: Commits that were rewritten before they were published, and the commit that brought what was measured with them.
ABSENT = {"be62249": "0c15962", "15b070f": "0c15962"}


def git(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A git command in this checkout."""
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False)


@lru_cache
def has_history() -> bool:
    """Whether commits can be looked up at all."""
    try:
        return git("rev-parse", "--is-shallow-repository").stdout.strip() == "false"
    except OSError:
        return False


@lru_cache
def exists(commit: str) -> bool:
    """Whether the history of HEAD has it: a commit of a deleted branch lies in this clone alone, and not for ever."""
    return git("merge-base", "--is-ancestor", commit, "HEAD").returncode == 0


@lru_cache
def is_before(commit: str, other: str) -> bool | None:
    """Whether ``commit`` does not contain ``other``; None where that cannot be known."""
    commit = ABSENT.get(commit, commit)
    if not (has_history() and exists(commit) and exists(other)):
        return None
    return git("merge-base", "--is-ancestor", other, commit).returncode != 0


@lru_cache
def changed_since(commit: str, areas: tuple[str, ...] = ON_GPUS) -> tuple[str, ...] | None:
    """The areas of :data:`AREAS` whose code differs between a commit and HEAD; None where that cannot be known."""
    commit = ABSENT.get(commit, commit)
    if not (has_history() and exists(commit)):
        return None
    return tuple(area for area in areas if git("diff", "--quiet", commit, "HEAD", "--", *_code(area)).returncode)


def _code(area: str) -> Iterator[str]:
    yield from AREAS[area]
    yield ":(exclude)*.md"


def described(commit: str) -> str:
    """``commit 7d7a349``; of one that is not in this repository, that and where its results came from."""
    if commit not in ABSENT:
        return f"commit {commit}"
    return f"commit {commit} (rewritten before it was published, not here; its results came with {ABSENT[commit]})"


def since(commit: str, areas: tuple[str, ...] = ON_GPUS) -> str:
    """One sentence on what of the code behind a figure has changed since it was measured."""
    changed = changed_since(commit, areas)
    if changed is None:
        return "It is not known what has changed since."
    return f"Changed since: {', '.join(changed)}." if changed else "Nothing that could move them has changed since."


def named_in(path: Path) -> list[str]:
    """The commits a result or a page names, in its order; of a raw file's other words none is taken for one."""
    text = path.read_text()
    fields = ("".join(pair) for pair in NAMED.findall(text))
    bare = BARE.findall(text) if path.suffix == ".md" else []
    return list(dict.fromkeys([commit for field in fields for commit in HASH.findall(field)] + bare))


def commits_of(raw: Path) -> list[str]:
    """The commits a raw file was measured at: those it names, or else its page does."""
    page = raw.with_suffix(".md")
    return named_in(raw) or (named_in(page) if page.exists() else [])


def added_by(path: Path) -> str:
    """The commit that brought a file as it is; empty where that cannot be known."""
    return git("log", "-1", "--format=%h", "--", str(path)).stdout.strip() if has_history() else ""


def areas_of(name: str) -> tuple[str, ...]:
    """What a result file depends on."""
    return next((areas for beginning, areas in DEPENDS.items() if name.startswith(beginning)), ON_GPUS)


def index() -> str:
    """Every raw result with its commits and what has changed since each."""
    results = []
    for path in sorted(RESULTS.glob("*.json")):
        measured = [(commit, described(commit).removeprefix("commit ")) for commit in commits_of(path)]
        if not measured and (commit := added_by(path)):
            measured = [(commit, f"not recorded; added by commit {commit}, so measured before it")]
        for commit, known in measured or [("", "not recorded")]:
            changed = since(commit, areas_of(path.name)).removeprefix("Changed since: ") if commit else "not known"
            results.append((path.name, known, changed))
    alone = (path for path in sorted(RESULTS.glob("*.md")) if path != INDEX and not path.with_suffix(".json").exists())
    return render("results_index", results=results, pages=[path.name for path in alone])


if __name__ == "__main__":
    INDEX.write_text(index())
    print(INDEX)
