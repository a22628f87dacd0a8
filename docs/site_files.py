# SPDX-License-Identifier: Apache-2.0
"""A hook of mkdocs: the site has the folders of the repository, so one relative link works on GitHub and on the site.

The pages are README.md (the first page), all of docs/, and every file that one of these links to, directly or through
another page: a measured number leads to its raw samples without a network.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
FENCE = re.compile(r"^```.*?^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s#]+)[^)]*\)|^\[[^\]]+\]: ([^\s#]+)", re.MULTILINE)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replaces the pages below docs/ by those of the repository; what the theme brings stays."""
    of_theme = [file for file in files if file.src_dir != config.docs_dir]
    first = [ROOT / "README.md", ROOT / "docs" / "style.css", *sorted((ROOT / "docs").rglob("*.md"))]
    ours = [
        File(str(path.relative_to(ROOT)), str(ROOT), config.site_dir, config.use_directory_urls)
        for path in reachable(first)
    ]
    return Files([*of_theme, *ours])


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Docstrings name other things with a role, ``:func:`overlap```: only the name is shown."""
    return re.sub(r":(?:func|class|data|meth|exc|mod):(?=<code>)", "", html)


def reachable(first: Iterable[Path]) -> list[Path]:
    """These files and all that they link to, in turn; only files of the repository that exist."""
    found: dict[Path, None] = {}
    waiting = list(first)
    while waiting:
        path = waiting.pop()
        if path in found:
            continue
        found[path] = None
        if path.suffix == ".md":
            waiting += linked_from(path)
    return sorted(found)


def linked_from(page: Path) -> list[Path]:
    """The files of the repository that a page links to, or shows as pictures."""
    links = (inline or defined for inline, defined in LINK.findall(FENCE.sub("", page.read_text())))
    targets = ((page.parent / link).resolve() for link in links if ":" not in link)
    return [target for target in targets if target.is_file() and target.is_relative_to(ROOT)]
