# SPDX-License-Identifier: Apache-2.0
"""Every file that a comment, a docstring, a README or the table of the mutants names is there; and no text refers to a
document outside this repository."""

from __future__ import annotations

import ast
import io
import re
import subprocess
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.mutants.areas import AREAS, Area

ROOT = Path(__file__).resolve().parents[2]
TRACKED = subprocess.run(
    ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
).stdout.splitlines()
NAMES = {Path(file).name for file in TRACKED}
#: A path or a file name of this repository's kinds; not a pattern (`test_*.py`), a template or a part of a longer name.
NAMED = re.compile(r"(?<![\w./*{<-])((?:[\w.-]+/)*[\w-]+\.(?:py|c|h|md|sh|cpp))(?![\w*{<(-])(?!\.j2)")
#: Files of others that our texts speak of.
OF_OTHERS = {"train.py", "importlib.py", "parallel_state.py", "nccl_tuner.h", "nccl_profiler.h", "utils.py"}
OF_OTHERS |= {"train.sh", "job.sh", "pretrain_gpt.py", "run_train.sh"}  # scripts of a user, of Megatron and torchtitan
OF_OTHERS |= {"communication_analysis.py", "results.md"}  # HolisticTraceAnalysis; a page that is written on request
#: Numbered points of a design that lies elsewhere, as comments once quoted them.
OUTSIDE = re.compile(r"\bS[0-2]-[0-9n]+\b|design section|design\.md")
#: What says how things were, or holds what was found elsewhere.
RECORDS = ("benchmarks/results/", "tests/data/", "tests/fuzz/corpus/", "CHANGELOG.md")
WRITTEN = [file for file in TRACKED if file.endswith((".py", ".c", ".h", ".md")) and not file.startswith(RECORDS)]


def texts_of(file: str) -> str:
    """What a person reads in a file: of code its comments and docstrings."""
    whole = (ROOT / file).read_text(errors="replace")
    if file.endswith(".md") or not (NAMED.search(whole) or OUTSIDE.search(whole)):
        return whole
    if file.endswith(".py"):
        return "\n".join(_of_python(whole))
    return "\n".join(re.findall(r"/\*.*?\*/", whole, re.DOTALL))


def _of_python(source: str) -> Iterator[str]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and (text := ast.get_docstring(node)):
            yield text


def is_there(name: str, at: str) -> bool:
    """Whether a text in file ``at`` may name this: by its path from the root, from the file's folder, by the end of a
    path, or by its name alone."""
    if Path(name).name in OF_OTHERS or Path(name).suffix == "":
        return True
    if "/" not in name:
        return name in NAMES
    beside = (ROOT / at).parent / name
    return (ROOT / name).exists() or beside.exists() or any(file.endswith(f"/{name}") for file in TRACKED)


@pytest.mark.skipif(not TRACKED, reason="not a git checkout: which files belong to it is not known")
def test_every_file_that_is_named_is_there() -> None:
    """One test for all files: what is wrong is listed."""
    faults = []
    for file in WRITTEN:
        text = texts_of(file)
        faults += [f"{file}: {name}" for name in sorted(set(NAMED.findall(text))) if not is_there(name, file)]
        if file != "tests/contract/test_named_files.py":
            faults += [f"{file}: {point}" for point in OUTSIDE.findall(text)]
    assert len(WRITTEN) > 900
    assert faults == []


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_every_path_of_the_mutants_table_is_there(area: Area) -> None:
    assert [path for path in (*area.unit, *area.system) if not (ROOT / path).exists()] == []
    assert [pattern for pattern in area.files if not list(ROOT.glob(pattern))] == []
