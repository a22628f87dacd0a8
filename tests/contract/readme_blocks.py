"""Parts of the README that are made from the code: ``make readme`` writes them, test_readme_commands.py compares them.

Each stands between ``<!-- name:begin -->`` and ``<!-- name:end -->``.
"""

from __future__ import annotations

import re
from pathlib import Path

from benchmarks import matrix_page, safety_page
from lagom import settings
from lagom.doctor.nccl_versions import support_table

README = Path(__file__).resolve().parents[2] / "README.md"
BLOCKS = {
    "settings": settings.table,
    "nccl": support_table,
    "safety": safety_page.table,
    "matrix": matrix_page.readme_table,
}


def filled(text: str) -> str:
    """The README's text with every block that it has written anew."""
    for name, make in BLOCKS.items():
        pattern = rf"(<!-- {name}:begin -->\n).*?(<!-- {name}:end -->)"
        text = re.sub(pattern, lambda match, make=make: f"{match[1]}{make()}\n{match[2]}", text, flags=re.DOTALL)
    return text


if __name__ == "__main__":
    README.write_text(filled(README.read_text()))
