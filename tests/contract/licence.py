# SPDX-License-Identifier: Apache-2.0
"""The licence line of every source file: ``python -m tests.contract.licence`` adds it where it is missing.

One line with the SPDX identifier of pyproject.toml, first in the file or after the ``#!`` line.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
COMMENTS = {".py": "# {}", ".sh": "# {}", ".c": "/* {} */", ".h": "/* {} */", ".cpp": "/* {} */"}
DATA = ("tests/data/", "tests/fuzz/corpus/", "benchmarks/results/")


def identifier() -> str:
    """The SPDX identifier of the project's licence."""
    (found,) = re.findall(r'^license = "(.+)"$', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    return f"SPDX-License-Identifier: {found}"


def sources() -> list[Path]:
    """Every source file of this checkout that holds anything; none without git."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout.splitlines()
    names = [name for name in listed if Path(name).suffix in COMMENTS and not name.startswith(DATA)]
    return [ROOT / name for name in names if (ROOT / name).exists() and (ROOT / name).stat().st_size > 0]


def line_of(suffix: str) -> str:
    return COMMENTS[suffix].format(identifier())


def has_line(path: Path) -> bool:
    """Whether the first line, or the one after ``#!``, is the licence line."""
    first = path.read_text().split("\n", 2)[:2]
    return line_of(path.suffix) in (first[1:2] if first[0].startswith("#!") else first[:1])


def add_line(path: Path) -> None:
    text = path.read_text()
    start, rest = text.split("\n", 1) if text.startswith("#!") else ("", text)
    path.write_text("\n".join([*([start] if start else []), line_of(path.suffix), rest]))


def main() -> None:
    for path in sources():
        if not has_line(path):
            add_line(path)


if __name__ == "__main__":
    main()
