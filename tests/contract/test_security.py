# SPDX-License-Identifier: Apache-2.0
"""SECURITY.md names a test for each promise: they exist, and every section of promises has some."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
PAGE = (ROOT / "SECURITY.md").read_text()
NAMED = re.findall(r"`(tests/[\w/.]+)(?:::(\w+))?`", PAGE)


def test_every_test_it_names_exists() -> None:
    assert len(NAMED) > 20
    for file, function in NAMED:
        path = ROOT / file
        assert path.is_file(), f"SECURITY.md names {file}, which is not there"
        assert not function or f"def {function}(" in path.read_text(), f"{file} has no {function}"


def test_every_test_of_another_user_is_named() -> None:
    source = (ROOT / "tests/system/test_other_users.py").read_text()
    named = {function for _, function in NAMED}
    assert set(re.findall(r"^def (test_\w+)\(", source, re.MULTILINE)) - named == set()


def test_other_paths_it_names_exist() -> None:
    for path in re.findall(r"`((?:lagom|csrc)/[\w/.]+)`", PAGE):
        assert (ROOT / path).exists(), path
