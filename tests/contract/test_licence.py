# SPDX-License-Identifier: Apache-2.0
"""The licence stands once in each source file, the same everywhere; a citation names the version of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lagom
from tests.contract import licence

ROOT = Path(__file__).resolve().parents[2]


def test_every_source_file_has_the_licence_line() -> None:
    sources = licence.sources()
    if not sources:
        pytest.skip("not a git checkout: which files belong to it is not known")
    missing = [str(path.relative_to(ROOT)) for path in sources if not licence.has_line(path)]
    assert not missing, f"run `python -m tests.contract.licence`: {', '.join(missing)}"


@pytest.mark.parametrize("start", ["", "#!/usr/bin/env python3\n"])
def test_the_line_is_added_once_and_after_the_interpreter(start: str, tmp_path: Path) -> None:
    path = tmp_path / "program.py"
    path.write_text(f'{start}"""What it is."""\n')
    assert not licence.has_line(path)
    licence.add_line(path)
    assert licence.has_line(path)
    assert path.read_text() == f'{start}# SPDX-License-Identifier: Apache-2.0\n"""What it is."""\n'


def test_the_licence_is_that_of_the_licence_file_and_of_the_citation() -> None:
    assert licence.identifier() == "SPDX-License-Identifier: Apache-2.0"
    assert re.search(r"Apache License\s+Version 2\.0", (ROOT / "LICENSE").read_text())
    citation = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^license: (.+)$", citation, re.MULTILINE) == ["Apache-2.0"]
    assert re.findall(r"^version: (.+)$", citation, re.MULTILINE) == [lagom.__version__]
