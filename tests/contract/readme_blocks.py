# SPDX-License-Identifier: Apache-2.0
"""Parts of README.md and docs/ that are made from the code and from results: ``make readme`` writes them, and
test_readme_commands.py compares them.

Each stands between ``<!-- name:begin -->`` and ``<!-- name:end -->``; a picture is a file of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import readme_rows, safety_page, start_results
from lagom import settings
from lagom.cli import reference
from lagom.doctor.nccl_versions import support_table

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
#: Block -> the page that it stands on, and what makes it.
BLOCKS: dict[str, tuple[Path, Callable[[], str]]] = {
    "settings": (DOCS / "settings.md", settings.table),
    "nccl": (DOCS / "nccl.md", support_table),
    "cli": (DOCS / "cli.md", reference.reference),
    "safety": (DOCS / "safety.md", safety_page.table),
    "measured": (ROOT / "README.md", readme_rows.table),
    "regimes": (DOCS / "measured.md", readme_rows.regimes),
}


def filled() -> Iterator[tuple[Path, str]]:
    """Each page with blocks and each picture, written anew. Raises ValueError where a block has no place."""
    for page in dict.fromkeys(page for page, _ in BLOCKS.values()):
        text = page.read_text()
        for name, (place, make) in BLOCKS.items():
            if place == page:
                text = _with_block(text, name, make(), page)
        yield page, text
    yield DOCS / "pictures" / "tune_sockets.svg", start_results.picture()


def _with_block(text: str, name: str, block: str, page: Path) -> str:
    pattern = rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)"
    text, count = re.subn(pattern, lambda match: f"{match[1]}{block}\n{match[2]}", text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{page} has {count} places for the block {name}; it needs one")
    return text


if __name__ == "__main__":
    for page, text in filled():
        page.write_text(text)
