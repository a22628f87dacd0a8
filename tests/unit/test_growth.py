# SPDX-License-Identifier: Apache-2.0
"""What the gates against growth find."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.growth import complex_functions, faults, names_used_twice, short_private_functions

BRANCHES = "\n".join(f"        if x == {n}: return {n}" for n in range(12))
CODE = f"""
class Plan:
    def look(self, x):
{BRANCHES}

def simple(): return _once() + _twice() + _twice()

def _once():
    '''Its words do not count:

    this is the third line,
    the fourth,
    and the fifth.
    '''
    return 1

def _twice(): return 2
"""


@pytest.fixture
def package(tmp_path: Path) -> Path:
    root = tmp_path / "package"
    for folder, name in (("one", "plan.py"), ("other", "plan.py"), ("one", "__init__.py"), ("other", "__init__.py")):
        (root / folder).mkdir(parents=True, exist_ok=True)
        (root / folder / name).write_text("")
    (root / "one" / "plan.py").write_text(CODE)
    (root / "other" / "alone.py").write_text("class Plan: pass\nclass Alone: pass\n")
    return root


def test_a_method_with_many_branches_is_complex(package: Path) -> None:
    assert list(complex_functions(package)) == ["package/one/plan.py: Plan.look"]


def test_classes_and_files_of_one_name_are_found_and_packages_are_none(package: Path) -> None:
    assert sorted(names_used_twice(package)) == ["Plan", "plan.py"]


def test_a_short_function_that_is_used_once_is_found(package: Path) -> None:
    assert list(short_private_functions(package)) == ["package/one/plan.py: _once"]


def test_what_is_new_fails_and_what_is_gone_leaves_the_list() -> None:
    assert faults("wrong", ["a"], ["a"]) == []
    assert faults("wrong", ["a", "b"], ["a"]) == ["b: wrong; change its shape"]
    assert faults("wrong", [], ["a"]) == ["a: no longer wrong; take it off the list in tests/growth.py"]
