"""Parts of the pages in docs/ that are made from the code: ``make readme`` writes them, and test_readme_commands.py
compares them.

Each stands between ``<!-- name:begin -->`` and ``<!-- name:end -->``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import matrix_page, safety_page
from lagom import settings
from lagom.cli import reference
from lagom.doctor.nccl_versions import support_table

DOCS = Path(__file__).resolve().parents[2] / "docs"
#: Block -> the page that it stands on, and what makes it.
BLOCKS: dict[str, tuple[Path, Callable[[], str]]] = {
    "settings": (DOCS / "settings.md", settings.table),
    "nccl": (DOCS / "nccl.md", support_table),
    "cli": (DOCS / "cli.md", reference.reference),
    "safety": (DOCS / "safety.md", safety_page.table),
    "matrix": (DOCS / "measured.md", matrix_page.measured_table),
}


def filled() -> Iterator[tuple[Path, str]]:
    """Each page with blocks, and its text with them written anew. Raises ValueError where a block has no place."""
    for page in dict.fromkeys(page for page, _ in BLOCKS.values()):
        text = page.read_text()
        for name, (place, make) in BLOCKS.items():
            if place == page:
                text = _with_block(text, name, make(), page)
        yield page, text


def _with_block(text: str, name: str, block: str, page: Path) -> str:
    pattern = rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)"
    text, count = re.subn(pattern, lambda match: f"{match[1]}{block}\n{match[2]}", text, flags=re.DOTALL)
    if count != 1:
        raise ValueError(f"{page} has {count} places for the block {name}; it needs one")
    return text


if __name__ == "__main__":
    for page, text in filled():
        page.write_text(text)
