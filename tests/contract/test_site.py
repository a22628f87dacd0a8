# SPDX-License-Identifier: Apache-2.0
"""The site that ``make docs`` builds: no warning, every page of docs/ in its navigation, nothing from elsewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NAMED = set(re.findall(r"(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE))
PAGES = {str(page.relative_to(ROOT)) for page in (ROOT / "docs").rglob("*.md")}
#: What a browser fetches while it shows a page; a link that a reader may follow is not among them.
LOADED = re.compile(r"<(?:script|img|iframe|source)\b[^>]*\bsrc=\"?((?:https?:)?//[^\s\">]+)")
STYLES = re.compile(r"<link\b(?=[^>]*\brel=\"?(?:stylesheet|preconnect|icon))[^>]*\bhref=\"?((?:https?:)?//[^\s\">]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if importlib.util.find_spec("mkdocs") is None:
        pytest.skip("mkdocs is not installed: `make docs` installs it and runs this")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder


def test_every_page_of_docs_is_in_the_navigation() -> None:
    assert PAGES <= NAMED
    assert {page for page in NAMED if not (ROOT / page).exists()} == set()


def test_every_page_of_the_navigation_is_built(site: Path) -> None:
    built = {name: site / name.replace("README.md", "").removesuffix(".md") / "index.html" for name in NAMED}
    assert [name for name, path in built.items() if not path.exists()] == []


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(NAMED)
    foreign = {url for page in pages for pattern in (LOADED, STYLES) for url in pattern.findall(page.read_text())}
    assert foreign == set()
