# SPDX-License-Identifier: Apache-2.0
"""The includes of the C: csrc never uses tuner_plugin, the folders of csrc are in one order, and no two modules include
each other, directly or through others. A module is a source with the header of its name.
"""

from __future__ import annotations

import re
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent

#: Lowest first. A folder includes itself and those before it.
ORDER = ("csrc/protocol", "csrc/plan", "csrc/shm", "csrc/config", "csrc/agreement", "csrc/timeline", "tuner_plugin")
#: What each library has no use for, although the order would allow it.
APART = {("csrc/config", "csrc/shm"), ("csrc/agreement", "csrc/shm"), ("csrc/agreement", "csrc/config")}
APART |= {("csrc/timeline", folder) for folder in ("csrc/plan", "csrc/config", "csrc/agreement")}
APART |= {("tuner_plugin", "csrc/timeline")}  # a library of its own, found by dlopen

#: Headers that several sources implement, so that none of these is one module with it.
INTERFACES = {"csrc/shm/region.h"}
#: Two files of one state machine: a rank that replays is polled wherever the agreement looks at the word.
ONE_MODULE = {"csrc/agreement/replay": "csrc/agreement/agreement"}
#: Programs, which are in no library.
PROGRAMS = {"csrc/protocol/dump_layout.c"}

Sources = dict[str, str]


def sources() -> Sources:
    """The text of every C file, by its path."""
    paths = [path for folder in ("csrc", "tuner_plugin") for path in sorted((ROOT / folder).rglob("*.[ch]"))]
    named = {path.relative_to(ROOT).as_posix(): path.read_text() for path in paths}
    return {name: text for name, text in named.items() if name not in PROGRAMS}


def includes(files: Sources) -> list[tuple[str, str]]:
    """Who includes whom. A path that is not below the root is below csrc."""
    found = []
    for name, text in files.items():
        for path in re.findall(r'^\s*#\s*include\s+"([^"]+)"', text, re.MULTILINE):
            target = path if path in files or not (ROOT / "csrc" / path).exists() else f"csrc/{path}"
            found.append((name, target))
    return found


def upward(files: Sources) -> list[str]:
    """Includes of a folder that is not below the file's own."""
    wrong = []
    for name, target in includes(files):
        above, below = name.rpartition("/")[0], target.rpartition("/")[0]
        if below not in ORDER or ORDER.index(below) > ORDER.index(above) or (above, below) in APART:
            wrong.append(f"{name} includes {target}")
    return wrong


def module(name: str) -> str:
    """What a file belongs to."""
    stem = name.rpartition(".")[0]
    return name if name in INTERFACES else ONE_MODULE.get(stem, stem)


def cycle(files: Sources) -> list[str]:
    """Modules that include each other in a ring; empty = there is none."""
    graph: dict[str, set[str]] = {}
    for name, target in includes(files):
        if module(name) != module(target):
            graph.setdefault(module(name), set()).add(module(target))
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def test_no_file_includes_what_is_above_it() -> None:
    assert upward(sources()) == []


def test_no_modules_include_each_other() -> None:
    assert cycle(sources()) == []


def test_every_exception_is_still_needed() -> None:
    files = sources()
    assert files.keys() >= INTERFACES
    assert files.keys() >= {f"{stem}.c" for pair in ONE_MODULE.items() for stem in pair}


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("csrc/shm/ring.c", "tuner_plugin/log.h"),
        ("csrc/plan/plan.h", "agreement/switch.h"),
        ("csrc/agreement/publisher.c", "shm/region.h"),
        ("tuner_plugin/capture_client.c", "timeline/liblagom_timeline.h"),
    ],
)
def test_a_planted_upward_include_is_found(name: str, planted: str) -> None:
    files = sources()
    files[name] += f'#include "{planted}"\n'
    (wrong,) = upward(files)
    assert wrong.startswith(f"{name} includes ")


@pytest.mark.parametrize(
    ("name", "planted"),
    [
        ("tuner_plugin/profiler.c", "tuner_plugin/plugin.h"),  # plugin.c -> job.c -> profiler.h
        ("tuner_plugin/static_rules.h", "tuner_plugin/job.h"),
        ("csrc/timeline/alignment.h", "timeline/join.h"),
    ],
)
def test_a_planted_circle_is_found(name: str, planted: str) -> None:
    files = sources()
    files[name] += f'#include "{planted}"\n'
    assert module(name) in cycle(files)
