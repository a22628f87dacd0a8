# SPDX-License-Identifier: Apache-2.0
"""Gates against growth: `python -m tests.growth`, part of `make lint`.

Three things may only become fewer in `lagom`: functions above ``MOST_COMPLEX`` (cyclomatic complexity as radon counts
it), and classes and files of one name. What is there today is named in ``KNOWN_*``: something new fails, and so does a
name that is no longer true, so that the lists shrink with the code. Made anew by `python -m tests.growth --print`.
"""

from __future__ import annotations

import ast
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from radon.complexity import cc_visit

ROOT = Path(__file__).resolve().parents[1]
MOST_COMPLEX = 12
#: A private function of at most so many lines that is used once is better inline.
SHORT = 4

KNOWN_COMPLEX = {
    "lagom/search/session.py: TuningSession._settle",
}
KNOWN_TWICE: set[str] = set()


def python_files(root: Path) -> list[Path]:
    return sorted(root.rglob("*.py"))


def complex_functions(root: Path) -> Iterator[str]:
    """Functions and methods above ``MOST_COMPLEX``: file, colon, name."""
    for path in python_files(root):
        for block in cc_visit(path.read_text()):  # methods once more beside their class
            if not hasattr(block, "methods") and block.complexity > MOST_COMPLEX:
                yield f"{path.relative_to(root.parent).as_posix()}: {block.fullname}"


def names_used_twice(root: Path) -> Iterator[str]:
    """Names of classes, and of files, that several have."""
    seen: dict[str, set[Path | tuple[Path, int]]] = defaultdict(set)
    for path in python_files(root):
        if not path.stem.startswith("__"):
            seen[path.name].add(path)
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                seen[node.name].add((path, node.lineno))
    return (name for name, places in seen.items() if len(places) > 1)


def short_private_functions(root: Path) -> Iterator[str]:
    """Private functions of at most ``SHORT`` lines, without decorators, that their file names once beside the ``def``:
    file, colon, name. The docstring does not count."""
    for path in python_files(root):
        tree = ast.parse(path.read_text())
        uses = [node.id for node in ast.walk(tree) if isinstance(node, ast.Name)]
        uses += [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and _is_private(node.name) and not node.decorator_list:
                body = node.body[1:] if ast.get_docstring(node) else node.body
                lines = body[-1].end_lineno - body[0].lineno + 1 if body else 0
                if lines <= SHORT and uses.count(node.name) == 1:
                    yield f"{path.relative_to(root.parent).as_posix()}: {node.name}"


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def faults(what: str, found: Iterable[str], known: Iterable[str]) -> list[str]:
    """What is new, and what is on the list and no longer there."""
    found, known = set(found), set(known)
    new = [f"{name}: {what}; change its shape" for name in sorted(found - known)]
    gone = [f"{name}: no longer {what}; take it off the list in tests/growth.py" for name in sorted(known - found)]
    return new + gone


def main(arguments: list[str]) -> int:
    package = ROOT / "lagom"
    found_complex, found_twice = sorted(complex_functions(package)), sorted(names_used_twice(package))
    if arguments == ["--print"]:
        for name in [*found_complex, *found_twice, *sorted(short_private_functions(package))]:
            print(f'    "{name}",')
        return 0
    wrong = faults(f"of a complexity above {MOST_COMPLEX}", found_complex, KNOWN_COMPLEX)
    wrong += faults("a name of several classes or files", found_twice, KNOWN_TWICE)
    for line in wrong:
        print(f"tests/growth.py: {line}", file=sys.stderr)
    short = sum(1 for _ in short_private_functions(package))
    print(
        f"{len(found_complex)} functions of a complexity above {MOST_COMPLEX}, {len(found_twice)} names used twice, "
        f"{short} private functions of at most {SHORT} lines that are used once"
    )
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
