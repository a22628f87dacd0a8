# SPDX-License-Identifier: Apache-2.0
"""What is planted is what the rules say, and nothing else is changed. No fault is judged here: `make mutants` does."""

from __future__ import annotations

import ast
import json
from dataclasses import replace

import pytest

from tests.mutants import areas
from tests.mutants.__main__ import EQUIVALENTS, draws, every_fault
from tests.mutants.areas import AREAS, ROOT, Area, area_of, existing, stages
from tests.mutants.c_faults import c_faults
from tests.mutants.python_faults import python_faults
from tests.mutants.site import Fault

C = b"""/* a < b */
#define MOST 7u
_Static_assert(sizeof(int) < 8, "x == y");
static int less(int a, int b)
{
    const char *text = "a && b"; // a || b
    if (a < b && text[0] == 'a') {
        count(a - 1);
    }
    return a->b;
}
"""
PYTHON = b'''"""A text with a < b."""
def less(a: int = 3, *, b: "int | None" = None) -> bool:
    """1 + 1."""
    if a < 2 and not b:
        a.count(max(a, 1))
    return a is b
'''


def changes(faults: list[Fault], source: bytes) -> set[tuple[str, str]]:
    """(rule, the changed line as it becomes)."""
    return {(fault.operator, fault.diff(source).split("\n+", 1)[1].strip()) for fault in faults}


def test_c_faults_are_of_code_alone() -> None:
    assert changes(list(c_faults("x.c", C)), C) == {
        ("constant", "#define MOST 8u"),
        ("comparison", "if (a <= b && text[0] == 'a') {"),
        ("comparison", "if (a < b && text[0] != 'a') {"),
        ("logic", "if (a < b || text[0] == 'a') {"),
        ("constant", "if (a < b && text[1] == 'a') {"),
        ("negation", "if (!(a < b && text[0] == 'a')) {"),
        ("arithmetic", "count(a + 1);"),
        ("constant", "count(a - 2);"),
        ("statement left out", ";"),
        ("constant returned", "return 0;"),
        ("constant returned", "return 1;"),
    }


def test_python_faults_are_of_code_alone() -> None:
    assert changes(list(python_faults("x.py", PYTHON)), PYTHON) == {
        ("constant", 'def less(a: int = 4, *, b: "int | None" = None) -> bool:'),
        ("comparison", "if a <= 2 and not b:"),
        ("constant", "if a < 3 and not b:"),
        ("logic", "if a < 2 or not b:"),
        ("negation", "if a < 2 and bool((b)):"),
        ("negation", "if (not (a < 2 and not b)):"),
        ("min and max", "a.count(min(a, 1))"),
        ("constant", "a.count(max(a, 2))"),
        ("statement left out", "pass"),
        ("comparison", "return a is not b"),
        ("constant returned", "return True"),
        ("constant returned", "return False"),
    }


@pytest.fixture(scope="module")
def sources() -> dict[str, bytes]:
    found: dict[str, bytes] = {}
    every_fault(found)
    return found


def test_every_python_fault_can_be_read_and_every_area_has_tests(sources: dict[str, bytes]) -> None:
    for path, source in sources.items():
        assert area_of(path).name
        assert stages(path, "constant")
        if path.endswith(".py"):
            for fault in list(python_faults(path, source))[::10]:
                ast.parse(fault.planted(source))


def test_every_c_source_is_in_one_area() -> None:
    files = [file for area in AREAS for pattern in area.files for file in ROOT.glob(pattern)]
    assert len(files) == len(set(files)), "a fault would be drawn twice as often"
    there = {file for folder in ("csrc", "tuner_plugin") for file in (ROOT / folder).rglob("*.c")}
    assert {str(file.relative_to(ROOT)) for file in there - set(files)} == {"csrc/protocol/dump_layout.c"}
    for area in AREAS:
        assert all(list(ROOT.glob(pattern)) for pattern in area.files), f"{area.name} names a file that does not exist"


@pytest.mark.parametrize("area", AREAS, ids=lambda area: area.name)
def test_every_test_that_an_area_names_exists(area: Area) -> None:
    assert existing((*area.unit, *area.system))
    programs = [path.stem for path in (ROOT / "tests" / "native").glob("*.c")]
    for word in filter(None, area.native.split(" or ")):
        assert any(word in program for program in programs), f"{area.name} names {word}"


def test_a_test_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"do not exist: tests/unit/test_of_yesterday\.py$"):
        existing(("tests/unit", "tests/unit/test_of_yesterday.py"))
    for how in ({"unit": ("tests/unit/gone",)}, {"system": ("tests/system/test_gone.py",)}):
        planted = replace(AREAS[0], **how)
        monkeypatch.setattr(areas, "AREAS", (planted,))
        with pytest.raises(ValueError, match="gone"):
            stages("csrc/agreement/replay.c", "constant")


def test_a_seed_gives_the_same_faults_again_and_every_rule_is_drawn(sources: dict[str, bytes]) -> None:
    first = [fault for fault, _ in zip(draws(5, every_fault({})), range(300), strict=False)]
    assert first == [fault for fault, _ in zip(draws(5, every_fault({})), range(300), strict=False)]
    assert len({fault.key(sources[fault.path]) for fault in first}) == 300
    assert {"weaker ordering", "min and max", "statement left out", "constant returned"} <= {
        fault.operator for fault in first
    }


def test_what_is_called_equivalent_is_still_in_the_code(sources: dict[str, bytes]) -> None:
    """An entry whose line has changed must be thought about anew."""
    keys = set()
    for path, source in sources.items():
        faults = python_faults if path.endswith(".py") else c_faults
        keys |= {fault.key(source) for fault in faults(path, source)}
    for entry in json.loads(EQUIVALENTS.read_text()):
        assert (ROOT / entry["file"]).exists()
        assert entry["why"]
        assert entry["key"] in keys, f"{entry['file']}: {entry['diff']}"
