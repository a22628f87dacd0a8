# SPDX-License-Identifier: Apache-2.0
"""``make mutants``: plants faults, one at a time, and asks whether the tests see them.

    python -m tests.mutants --count 100 --seed 1 --json build/mutants.json

Each fault is drawn by the seed: an area, a rule, a place, all equally likely. It is planted in a private copy of the
repository. A fault is killed when a test fails with it that passes without it. What does not compile is drawn again.
A run that was interrupted goes on where it was, with the same ``--json``.

    python -m tests.mutants --again killed --json build/mutants.json

judges what was killed in that file once more, in the sources and with the tests of now, each fault first by the test
that killed it; ``--again`` alone, what survived. Both can be interrupted too.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import platform
import random
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.mutants.again import KEPT, WAITING, Places, first_stage, known_tests, place, same_test, wanted
from tests.mutants.areas import AREAS, ROOT, Area, Stage, areas_named, stages
from tests.mutants.c_faults import c_faults
from tests.mutants.python_faults import python_faults
from tests.mutants.site import Fault
from tests.mutants.tree import Tree

#: The others (does not compile, not judged) are drawn again.
COUNTED = {"killed", "survived", "equivalent"}
EQUIVALENTS = Path(__file__).parent / "equivalents.json"


def every_fault(sources: dict[str, bytes], areas: tuple[Area, ...] = AREAS) -> dict[str, dict[str, list[Fault]]]:
    """By area and rule; the files are kept in ``sources``."""
    found: dict[str, dict[str, list[Fault]]] = {}
    for area in areas:
        rules = found.setdefault(area.name, {})
        for pattern in area.files:
            for file in sorted(ROOT.glob(pattern)):
                path = str(file.relative_to(ROOT))
                sources[path] = file.read_bytes()
                faults = python_faults if file.suffix == ".py" else c_faults
                for fault in faults(path, sources[path]):
                    rules.setdefault(fault.operator, []).append(fault)
    return found


def draws(seed: int, faults: dict[str, dict[str, list[Fault]]]) -> Iterator[Fault]:
    """In an order that the seed gives, none twice."""
    chance = random.Random(seed)
    while any(faults.values()):
        area = chance.choice(sorted(name for name, rules in faults.items() if rules))
        rule = chance.choice(sorted(faults[area]))
        places = faults[area][rule]
        yield places.pop(chance.randrange(len(places)))
        faults[area] = {name: left for name, left in faults[area].items() if left}


class Campaign:
    """The faults of one seed, and what became of each."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.count, self.file = options.count, options.json
        self.equivalents: dict[str, str] = {entry["key"]: entry["why"] for entry in json.loads(EQUIVALENTS.read_text())}
        self.sources: dict[str, bytes] = {}
        self.left = draws(options.seed, every_fault(self.sources, areas_named(options.areas)))
        self.head = about(options, self.sources)
        self.commit = self.head["commit"]
        self.rows: dict[str, dict[str, Any]] = {}
        self.lock = threading.Lock()
        self.running = 0
        self.stopped = False
        self.clean_passes: set[str] = set()
        self.unusable: set[str] = set()  # tests that fail without a fault too, here and now
        self.tests: dict[str, set[str]] = {}  # to find the one that killed a fault before
        if self.file and self.file.exists():
            earlier = json.loads(self.file.read_text())
            if options.again:
                self.take(earlier, options.again)
            elif any(earlier.get(name) != self.head[name] for name in ("seed", "sources")):
                raise SystemExit(f"{self.file} is of another seed or of other sources: name another file")
            else:
                self.rows = {row["key"]: row | {"drawn": False} for row in earlier["faults"]}

    def take(self, earlier: dict[str, Any], which: str) -> None:
        """Only what survived, or was killed, is left to judge; in the sources of now some may not be there any more."""
        rows = earlier["faults"]
        places = Places(self.left, self.sources, [row["key"] for row in rows])
        found = []
        for row in wanted(rows, which):
            fault = places.find(row)
            place(row, fault, b"" if fault is None else self.sources[fault.path], which)
            found += [] if fault is None else [fault]
        if which == "killed" and found:
            self.tests = known_tests()
        self.rows = {row["key"]: row for row in rows}
        self.left = iter(found)
        self.count = len(rows)
        now = {"commit": self.head["commit"], "date": self.head["date"]}
        names = {*self.head, "again", "killed_again"} & set(earlier)
        self.head = {name: earlier[name] for name in earlier if name in names}
        self.head["killed_again" if which == "killed" else "again"] = now
        self.commit = now["commit"]

    def valid(self) -> int:
        """How many of the faults that were drawn count."""
        return sum(row["outcome"] in COUNTED for row in self.rows.values() if row.get("drawn"))

    def next(self) -> Fault | None:
        """The next fault that is not judged yet; nothing when enough are judged or under way."""
        with self.lock:
            while True:
                if self.stopped or self.valid() + self.running >= self.count:
                    return None
                fault = next(self.left, None)
                if fault is None:
                    return None
                key = fault.key(self.sources[fault.path])
                if self.rows.get(key, {}).get("outcome", WAITING) != WAITING:
                    self.rows[key]["drawn"] = True
                    continue
                self.running += 1
                return fault

    def work(self, tree: Tree) -> None:
        """One worker: judges faults until there are enough."""
        while (fault := self.next()) is not None:
            began = time.monotonic()
            source = self.sources[fault.path]
            key = fault.key(source)
            row = {
                "key": key,
                "file": fault.path,
                "line": fault.line(source),
                "rule": fault.operator,
                "diff": fault.diff(source),
            }
            if key in self.equivalents:
                row |= {"outcome": "equivalent", "why": self.equivalents[key]}
            else:
                row |= {"commit": self.commit} | self.judge(tree, fault, source)
                row |= {"full": True} if "LAGOM_TEST_FULL" in os.environ else {}
            row["seconds"] = round(time.monotonic() - began, 1)
            with self.lock:
                self.running -= 1
                if self.stopped:
                    return
                earlier = {name: value for name, value in self.rows.get(key, {}).items() if name in KEPT}
                self.rows[key] = earlier | row | {"drawn": True}
                self.save()
            print(
                f"{self.valid():3} {row['outcome']:16} {row['file']}:{row['line']} ({row['rule']}) {row.get('by', '')}",
                flush=True,
            )
            if row["outcome"] == "survived":
                print(row["diff"], flush=True)

    def judge(self, tree: Tree, fault: Fault, source: bytes) -> dict[str, Any]:
        """Plants one fault and takes it away again."""
        try:
            tree.write(fault.path, fault.planted(source), planted=True)
            if not fault.path.endswith(".py") and not tree.compiles(fault.path):
                return {"outcome": "does not compile"}
            for stage in self.stages(fault, source):
                while True:
                    found = tree.test(stage, without=self.unusable)
                    if not found.compiled:
                        return {"outcome": "does not compile"}
                    named = tuple(test for test in found.failed if "::" in test)
                    if found.passed or (stage.processes and named and tree.test(stage, named).passed):
                        break  # seen once and not again is the machine, perhaps
                    tree.write(fault.path, source, planted=False)
                    if self.passes_without(tree, stage, named):
                        return {"outcome": "killed", "by": found.failed[0]}
                    if not named or self.unusable.issuperset(named):
                        return {"outcome": "not judged", "by": found.failed[0]}
                    self.unusable.update(named)
                    tree.write(fault.path, fault.planted(source), planted=True)
            return {"outcome": "survived"}
        finally:
            tree.write(fault.path, source, planted=False)

    def stages(self, fault: Fault, source: bytes) -> list[Stage]:
        """What is run for a fault until one fails; first the test that killed it before."""
        row = self.rows.get(fault.key(source), {})
        before = same_test(row.get("killed_by", ""), self.tests)
        first = [first_stage(before, fault.path)] if before else []
        return [*first, *stages(fault.path, fault.operator)]

    def passes_without(self, tree: Tree, stage: Any, tests: tuple[str, ...]) -> bool:
        """Whether the tests that failed pass where nothing is planted (asked once for each)."""
        name = " ".join(tests or stage.arguments) + stage.sanitize
        if name not in self.clean_passes:
            if not tree.test(stage, tests).passed:
                return False
            self.clean_passes.add(name)
        return True

    def save(self) -> None:
        """The state, whole at any time."""
        rows = list(self.rows.values())
        by = {
            outcome: sum(row["outcome"] == outcome for row in rows)
            for outcome in sorted({row["outcome"] for row in rows})
        }
        killed, survived, equivalent = by.get("killed", 0), by.get("survived", 0), by.get("equivalent", 0)
        rates = {
            "rate": round(killed / max(1, killed + survived), 4),
            "rate_with_equivalents": round(killed / max(1, killed + survived + equivalent), 4),
        }
        content = self.head | by | rates
        content["survivors"] = [row for row in rows if row["outcome"] == "survived"]
        content["faults"] = rows
        if self.file:
            fresh = self.file.with_suffix(".part")
            fresh.write_text(json.dumps(content, indent=1) + "\n")
            fresh.replace(self.file)
        self.summary = {**by, **rates}


def about(options: argparse.Namespace, sources: dict[str, bytes]) -> dict[str, Any]:
    """Where and of what the run is."""
    load = " ".join(f"{value:.1f}" for value in os.getloadavg())

    def said(*command: str) -> str:
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()

    changed = bool(said("git", "status", "--porcelain", "--untracked-files=no"))
    return {
        "command": f"make mutants MUTANTS={options.count} MUTANTS_SEED={options.seed}"
        + (f" MUTANTS_AREAS={options.areas}" if options.areas else ""),
        "commit": said("git", "rev-parse", "--short", "HEAD") + ("+" if changed else ""),
        "date": time.strftime("%Y-%m-%d"),
        "python": platform.python_version(),
        "gcc": said("gcc", "-dumpfullversion"),
        "machine": f"{os.cpu_count()} cores, Linux {platform.machine()}, load average {load}",
        "seed": options.seed,
        "asked": options.count,
        "sources": hashlib.sha256(b"".join(sources[path] for path in sorted(sources))).hexdigest()[:12],
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--json", type=Path, default=None, help="what became of each; a run that was cut off goes on")
    parser.add_argument("--areas", default="", metavar="NAME,NAME", help="draw from these alone, such as lagom/bench")
    parser.add_argument(
        "--again",
        nargs="?",
        const="survived",
        choices=("survived", "killed"),
        help="judge what survived, or was killed, in --json with the tests and sources of now",
    )
    options = parser.parse_args()
    try:
        areas_named(options.areas)
    except ValueError as error:
        parser.exit(2, f"{error}\n")
    if options.again and (options.areas or not options.json or not options.json.exists()):
        parser.exit(2, "--again needs the --json of an earlier run, and takes its faults of all areas.\n")
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
    campaign = Campaign(options)
    # Not lagom-*: there are tests that look for files of that name.
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        trees = [Tree(Path(folder) / str(index)) for index in range(options.jobs)]
        with ThreadPoolExecutor(options.jobs) as pool:
            workers = [pool.submit(campaign.work, tree) for tree in trees]
            try:
                for worker in workers:
                    worker.result()
            except KeyboardInterrupt:
                campaign.stopped = True
                for tree in trees:
                    tree.end()
    campaign.save()
    print(", ".join(f"{name} {value}" for name, value in campaign.summary.items()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
