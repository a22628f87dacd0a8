# SPDX-License-Identifier: Apache-2.0
"""A folder's README with a table of its files, or of its tests, names every one of them."""

from __future__ import annotations

import re
import subprocess
from fnmatch import fnmatch
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NOT_LISTED = {"__init__", "__main__", "conftest"}


def with_a_table() -> list[Path]:
    tracked = subprocess.run(["git", "ls-files", "*README.md"], cwd=ROOT, capture_output=True, text=True, check=False)
    files = [ROOT / name for name in tracked.stdout.split()]
    return [file for file in files if re.search(r"^\| (?:file|test) \|", file.read_text(), re.MULTILINE)]


def named_in(readme: Path) -> set[str]:
    """What stands in backticks and may be a file's name, without its ending; stars stand for anything."""
    words = re.findall(r"`([\w*]+)(?:\.(?:py|c|h|\[ch\]))?`", readme.read_text())
    return set(words)


@pytest.mark.parametrize("readme", with_a_table(), ids=lambda path: str(path.parent.relative_to(ROOT)))
def test_every_file_is_in_its_folders_table(readme: Path) -> None:
    stems = {path.stem for path in readme.parent.iterdir() if path.suffix in (".py", ".c")} - NOT_LISTED
    if "\n| file |" not in readme.read_text():
        stems = {stem for stem in stems if stem.startswith("test_")}
    names = named_in(readme)
    missing = sorted(stem for stem in stems if not any(fnmatch(stem, name) for name in names))
    assert not missing, f"{readme.relative_to(ROOT)} does not name {', '.join(missing)}"


def test_there_are_tables_to_look_at() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("no git checkout: which files are ours is not known")
    assert len(with_a_table()) >= 10


def test_the_tests_that_the_table_of_missed_faults_names_exist() -> None:
    section = (ROOT / "tests" / "README.md").read_text().partition("### Faults that tests once missed")[2]
    cells = [line.split("|")[2] for line in section.partition("\n## ")[0].splitlines() if line.startswith("| ")][1:]
    assert len(cells) >= 16
    for cell in cells:
        (file,) = re.findall(r"`([\w/]+\.(?:py|c))", cell)[:1]
        source = (ROOT / "tests" / file).read_text()
        for name in re.findall(r"(?:::|: `|, `)(\w+)", cell):
            assert re.search(rf"^(?:def|static void) {name}\(", source, re.MULTILINE), f"tests/{file} has no {name}"
