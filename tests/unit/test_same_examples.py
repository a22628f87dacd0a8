# SPDX-License-Identifier: Apache-2.0
"""Hypothesis takes the same examples in every run, whatever was imported before: a test fails only after a change."""

from __future__ import annotations

import subprocess
import sys

import pytest

SEEN = """
import sys, tests.conftest
from hypothesis import given, settings, strategies as st
if sys.argv[1] == "more modules":
    import lagom.cli.main, lagom.search.strategies.lagom
if sys.argv[1] == "random":
    settings.load_profile("random")
seen = []
@settings(max_examples=60, database=None)
@given(st.lists(st.floats()), st.text())
def see(numbers, text):
    seen.append((repr(numbers), text))
see()
print(ascii(seen))
"""


def examples(how: str) -> str:
    """What a process of its own takes."""
    done = subprocess.run([sys.executable, "-c", SEEN, how], capture_output=True, text=True, check=True)
    return done.stdout


@pytest.mark.parametrize("how", ["as before", "more modules"])
def test_examples_depend_on_nothing_but_the_test(how: str) -> None:
    assert examples(how) == examples("as before")


def test_other_examples_can_be_asked_for() -> None:
    assert examples("random") != examples("random")
