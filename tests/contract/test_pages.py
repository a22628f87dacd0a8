# SPDX-License-Identifier: Apache-2.0
"""README.md is short, and every relative link of README.md and docs/ leads to a file, and to a heading of it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").rglob("*.md")))
LINES, COLUMNS = 200, 120

FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
BLOCK = re.compile(r"<!-- (\w+):begin -->.*?<!-- \1:end -->", re.DOTALL)


def links_of(text: str) -> list[str]:
    """The targets of inline links and of link definitions, without those of other sites."""
    text = FENCE.sub("", text)
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)
    return [link for link in found if not re.match(r"[a-z]+:", link)]


def anchors_of(text: str) -> set[str]:
    """The anchors that GitHub gives the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for link in links_of(page.read_text()):
        path, _, anchor = link.partition("#")
        target = page.parent / path if path else page
        if not target.exists() or (anchor and anchor not in anchors_of(target.read_text())):
            broken.append(link)
    assert not broken, f"{page.name}: {', '.join(broken)}"


def test_links_by_name_have_a_target() -> None:
    """``[words][name]`` without a definition is printed as it stands."""
    text = FENCE.sub("", README.read_text())
    used, defined = re.findall(r"\]\[([^\]]+)\]", text), re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE)
    assert set(used) == set(defined)


def test_every_page_of_docs_is_linked_from_the_readme() -> None:
    linked = {link.partition("#")[0] for link in links_of(README.read_text())}
    assert {str(page.relative_to(ROOT)) for page in PAGES if page != README} <= linked


def test_the_page_of_the_python_api_has_every_public_name() -> None:
    import lagom

    shown = set(re.findall(r"^::: lagom\.(\w+)$", (ROOT / "docs" / "api.md").read_text(), re.MULTILINE))
    assert shown == {name for name in lagom.__all__ if not name.startswith("__")}


def test_the_readme_is_short() -> None:
    assert len(README.read_text().splitlines()) <= LINES


def test_no_table_stands_twice() -> None:
    """Rows of a table, of at least three cells with words, stand on one page only."""
    rows = [
        line for page in PAGES for line in set(re.findall(r"^\| .+ \| .+ \| .+ \|$", page.read_text(), re.MULTILINE))
    ]
    assert len(rows) == len(set(rows))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_prose_is_wrapped(page: Path) -> None:
    """Tables may be wider, and what is made from the code."""
    lines = BLOCK.sub("", page.read_text()).splitlines()
    wide = [line for line in lines if len(line) > COLUMNS and not line.startswith("|")]
    assert wide == []
