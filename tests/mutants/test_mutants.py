# SPDX-License-Identifier: Apache-2.0
"""What is planted is what the rules say, and nothing else is changed. No fault is judged here: `make mutants` does."""

from __future__ import annotations

import argparse
import ast
import json
import sys
from collections.abc import Collection
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from tests.mutants import __main__ as program
from tests.mutants import areas
from tests.mutants.__main__ import EQUIVALENTS, Campaign, draws, every_fault
from tests.mutants.again import GONE, WAITING, Places, by_name, same_test
from tests.mutants.areas import AREAS, ROOT, Area, Stage, area_of, areas_named, existing, stages
from tests.mutants.c_faults import c_faults
from tests.mutants.python_faults import python_faults
from tests.mutants.site import Fault
from tests.mutants.tree import Outcome
from tests.tiers import amount

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


def planted_together(source: bytes, faults: list[Fault]) -> tuple[bytes, list[Fault]]:
    """With all faults, in their order, that begin behind the one before; and those that are left."""
    planted, left, behind = b"", [], 0
    for fault in faults:
        if fault.start < behind:
            left.append(fault)
        else:
            planted += source[behind : fault.start] + fault.new.encode()
            behind = fault.end
    return planted + source[behind:], left


def test_every_python_fault_can_be_read_and_every_area_has_tests(sources: dict[str, bytes]) -> None:
    """Many in one text: first those that hold no other one, then those around them."""
    for path, source in sources.items():
        assert area_of(path).name
        assert stages(path, "constant")
        if path.endswith(".py"):
            faults = sorted(python_faults(path, source), key=lambda fault: (fault.end, -fault.start))
            for _ in range(amount(2, 100)):
                planted, faults = planted_together(source, faults)
                ast.parse(planted)
                faults.sort(key=lambda fault: (fault.start, -fault.end))


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
    faults = every_fault({})
    again = {area: {rule: [*found] for rule, found in rules.items()} for area, rules in faults.items()}
    first = [fault for fault, _ in zip(draws(5, faults), range(300), strict=False)]
    assert first == [fault for fault, _ in zip(draws(5, again), range(300), strict=False)]
    assert len({fault.key(sources[fault.path]) for fault in first}) == 300
    assert {"weaker ordering", "min and max", "statement left out", "constant returned"} <= {
        fault.operator for fault in first
    }


def test_what_is_called_equivalent_is_still_in_the_code(sources: dict[str, bytes]) -> None:
    """An entry whose line has changed must be thought about anew."""
    for entry in json.loads(EQUIVALENTS.read_text()):
        assert (ROOT / entry["file"]).exists()
        assert entry["why"]
        source, faults = sources[entry["file"]], python_faults if entry["file"].endswith(".py") else c_faults
        line = entry["diff"].partition("\n")[0][1:]
        keys = {one.key(source) for one in faults(entry["file"], source) if one.first_line(source) == line}
        assert entry["key"] in keys, f"{entry['file']}: {entry['diff']}"


# -- areas


def test_areas_are_named_and_an_unknown_one_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert areas_named("") == AREAS
    assert [area.name for area in areas_named("lagom/bench, csrc/plan")] == ["csrc/plan", "lagom/bench"]
    monkeypatch.setattr(sys, "argv", ["mutants", "--areas", "lagom/bench,lagom/benhc"])
    with pytest.raises(SystemExit) as ended:
        program.main()
    assert ended.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("no area is called lagom/benhc; the areas are: csrc/agreement, ")
    assert line.endswith(", lagom/config_cache.")


def test_only_faults_of_the_named_areas_are_drawn() -> None:
    found: dict[str, bytes] = {}
    assert set(every_fault(found, areas_named("lagom/config_cache"))) == {"lagom/config_cache"}
    assert set(found) == {"lagom/config_cache.py"}


# -- judged again

FILE = "lagom/bench/table.py"
SOURCE = b"""def first(a: int) -> bool:
    return a < 1


def second(a: int) -> bool:
    if a < 2:
        a -= 1
    if a < 2:
        a -= 1
    return a < 1
"""


def row_of(fault: Fault, source: bytes, outcome: str = "killed", **more: object) -> dict[str, Any]:
    """What an earlier run has written of a fault."""
    row = {"key": fault.key(source), "file": fault.path, "line": fault.line(source), "rule": fault.operator}
    return {**row, "diff": fault.diff(source), "outcome": outcome, "commit": "old", "drawn": True, **more}


def comparisons(path: str, source: bytes) -> list[Fault]:
    return [fault for fault in python_faults(path, source) if fault.operator == "comparison"]


def places(sources: dict[str, bytes], *taken: str) -> Places:
    return Places([fault for path in sources for fault in comparisons(path, sources[path])], sources, taken)


def test_a_fault_is_found_again_by_its_line_in_its_file_or_in_the_one_that_has_it_now() -> None:
    old = SOURCE.replace(b"a < 1\n\n", b"a < 5\n\n")
    rows = [row_of(fault, old) for fault in comparisons(FILE, old)]
    for moved in (FILE, "lagom/bench/list.py"):
        now = b"# One line more.\n" + old
        found = [places({moved: now, "lagom/cli/log.py": b"x = 1 < 7\n"}).find(row) for row in rows]
        assert found == comparisons(moved, now), "two equal lines are told apart by their order"
    without_first, other = old.replace(b"a < 5", b"True"), "lagom/cli/log.py"
    assert places({FILE: without_first}).find(rows[0]) is None
    assert places({FILE: without_first, other: old}).find(rows[0]) == comparisons(other, old)[0]
    assert places({FILE: without_first, "a.py": old, "b.py": old}).find(rows[0]) is None, "it may be either"


def test_no_two_faults_of_an_earlier_run_become_one() -> None:
    rows = [row_of(fault, SOURCE) for fault in comparisons(FILE, SOURCE)[1:3]]
    only_one = SOURCE.replace(b"    if a < 2:\n        a -= 1\n", b"", 1)
    now = places({FILE: only_one}, *(row["key"] for row in rows))
    assert [now.find(row) is not None for row in rows] == [True, False]


@pytest.mark.parametrize(
    ("by", "now"),
    [
        ("tests/unit/a/test_x.py::test_one[3]", "tests/unit/a/test_x.py::test_one[3]"),
        ("tests/unit/b/test_x.py::test_two", "tests/unit/b/test_y.py::test_two"),  # the file has another name
        ("tests/unit/a/test_x.py::test_one[5]", "tests/unit/a/test_x.py::test_one"),  # other parameters
        ("tests/native/test_native.py::test_program[none-gone]", ""),  # all programs would be run
        ("tests/unit/a/test_z.py::test_both", ""),  # which of two it may be is not known
        ("tests/unit/wire/test_hostile.py", ""),
        ("time limit", ""),
        ("", ""),
    ],
)
def test_the_test_that_killed_a_fault_is_found_where_it_is_now(by: str, now: str) -> None:
    known = by_name(
        [
            "tests/unit/a/test_x.py::test_one[3]",
            "tests/unit/b/test_y.py::test_two",
            "tests/unit/b/test_y.py::test_both",
            "tests/unit/b/test_x.py::test_both",
            "tests/native/test_native.py::test_program[none-plan_check]",
        ]
    )
    assert same_test(by, known) == now


@dataclass
class FakeTree:
    """Runs nothing: the tests of ``kills`` fail where something is planted."""

    kills: Collection[str]
    after: int = 1000
    asked: list[str] = field(default_factory=list)
    planted: bool = False

    def write(self, path: str, content: bytes, planted: bool) -> None:
        self.planted = planted

    def test(self, stage: Stage, tests: tuple[str, ...] = (), without: Collection[str] = ()) -> Outcome:
        if not self.planted:
            return Outcome(())
        self.asked += (tests or stage.arguments)[:1]
        if len(self.asked) > self.after:
            raise KeyboardInterrupt
        return Outcome(tuple(self.kills) if stage.arguments[0] in self.kills else ())


@pytest.fixture
def earlier(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file of a run over SOURCE whose four comparisons were killed; the last one's line has changed since."""
    now = SOURCE.replace(b"        a -= 1\n    return a < 1", b"        a -= 1\n    return a < 4")

    def faults_of(sources: dict[str, bytes], *rest: object) -> dict[str, dict[str, list[Fault]]]:
        sources[FILE] = now
        return {"lagom/bench": {"comparison": comparisons(FILE, now)}}

    monkeypatch.setattr(program, "every_fault", faults_of)
    monkeypatch.setattr(program, "about", lambda *rest: {"commit": "new", "date": "today", "seed": 1, "sources": "s"})
    monkeypatch.setattr(program, "known_tests", lambda: by_name(["tests/unit/bench/test_table.py::test_it"]))
    by = ["tests/unit/bench/test_table.py::test_it", "tests/unit/bench/test_gone.py::test_gone", "time limit", "x::y"]
    rows = [row_of(fault, SOURCE, by=test) for fault, test in zip(comparisons(FILE, SOURCE), by, strict=True)]
    survivor = row_of(Fault(FILE, "constant", 0, 3, "xyz"), SOURCE, "survived")
    file = tmp_path / "run.json"
    head = {"commit": "old", "date": "then", "seed": 1, "sources": "t"}
    file.write_text(json.dumps({**head, "faults": [*rows, survivor]}))
    return file


def judge_again(file: Path, tree: FakeTree, which: str = "killed") -> dict[str, Any]:
    campaign = Campaign(argparse.Namespace(count=9, seed=1, areas="", json=file, again=which))
    try:
        campaign.work(tree)  # type: ignore[arg-type]
    finally:
        campaign.save()
    found: dict[str, Any] = json.loads(file.read_text())
    return found


def test_what_was_killed_is_judged_again_first_by_the_test_that_killed_it(earlier: Path) -> None:
    tree = FakeTree({"tests/unit/bench/test_table.py::test_it"})
    found = judge_again(earlier, tree)
    assert [row["outcome"] for row in found["faults"]] == ["killed", "survived", "survived", GONE, "survived"]
    assert tree.asked[:2] == ["tests/unit/bench/test_table.py::test_it", "tests/unit/bench/test_table.py"]
    first, second = found["faults"][:2]
    assert (first["commit"], first["killed_at"], first["by"]) == ("new", "old", first["killed_by"])
    assert (second["commit"], second["killed_by"]) == ("new", "tests/unit/bench/test_gone.py::test_gone")
    assert "survived_at" not in found["faults"][4], "what survived is not judged again here"
    assert found["killed_again"] == {"commit": "new", "date": "today"}
    assert (found["commit"], found["killed"], found["survived"]) == ("old", 1, 3)


def test_what_was_judged_again_is_not_judged_again_once_more(earlier: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        judge_again(earlier, FakeTree({"tests/unit/bench/test_table.py::test_it"}, after=1))
    rows = json.loads(earlier.read_text())["faults"]
    assert [row["outcome"] for row in rows] == ["killed", WAITING, WAITING, GONE, "survived"]
    second = FakeTree({})
    rows = judge_again(earlier, second)["faults"]
    assert [row["outcome"] for row in rows] == ["killed", "survived", "survived", GONE, "survived"]
    third = FakeTree({})
    assert judge_again(earlier, third)["faults"] == rows
    assert (bool(second.asked), third.asked) == (True, [])


def test_what_survived_is_judged_again_whenever_that_is_asked_for(earlier: Path) -> None:
    rows = json.loads(earlier.read_text())
    rows["faults"][1]["outcome"] = "survived"
    earlier.write_text(json.dumps(rows))
    for _ in range(2):
        found = judge_again(earlier, FakeTree({}), "survived")
        assert [row["outcome"] for row in found["faults"]] == ["killed", "survived", "killed", "killed", GONE]
        assert found["again"] == {"commit": "new", "date": "today"}
    found = judge_again(earlier, FakeTree({"tests/unit/bench/test_table.py"}), "survived")
    assert found["faults"][1]["outcome"] == "killed"
    assert found["faults"][1]["survived_at"] == "new"
