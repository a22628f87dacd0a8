# SPDX-License-Identifier: Apache-2.0
"""The faults that can be planted in a Python source: by its syntax tree, written into the text of the node alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.mutants.site import Fault

COMPARISON: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "/"),
    ast.Div: ("/", "*"),
}
RETURNED = {"bool": ["True", "False"], "int": ["0"], "float": ["0.0"]}
TEXT_ONLY = {"__repr__", "__str__"}


class Finder:
    """Walks one file."""

    def __init__(self, path: str, source: bytes) -> None:
        self.path = path
        self.source = source
        self.starts = [0]
        for line in source.split(b"\n"):
            self.starts.append(self.starts[-1] + len(line) + 1)

    def span(self, node: ast.AST) -> tuple[int, int]:
        """Byte offsets of a node."""
        return (
            self.starts[node.lineno - 1] + node.col_offset,  # type: ignore[attr-defined]
            self.starts[node.end_lineno - 1] + node.end_col_offset,  # type: ignore[attr-defined]
        )

    def replace(self, operator: str, node: ast.AST, new: str) -> Fault:
        return Fault(self.path, operator, *self.span(node), new)

    def between(self, operator: str, left: ast.AST, right: ast.AST, old: str, new: str) -> Iterator[Fault]:
        """The operator that stands between two nodes."""
        start, end = self.span(left)[1], self.span(right)[0]
        pattern = re.escape(old).replace(r"\ ", r"\s+")
        found = re.search(rf"\b{pattern}\b" if old[0].isalpha() else pattern, self.source[start:end].decode())
        if found:
            yield Fault(self.path, operator, start + found.start(), start + found.end(), new)

    def walk(self, node: ast.AST) -> Iterator[Fault]:
        """The faults of a node and of what it holds; annotations, decorators, texts and ``__repr__`` are left alone."""
        if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.FunctionDef) and node.name in TEXT_ONLY):
            return
        yield from self.at(node)
        for name, value in ast.iter_fields(node):
            if name in {"annotation", "returns", "decorator_list", "bases"}:
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    yield from self.walk(child)

    def at(self, node: ast.AST) -> Iterator[Fault]:
        """The faults of one node."""
        yield from self.at_operator(node)
        if isinstance(node, ast.Constant) and type(node.value) in {int, float, bool}:
            value = node.value
            changed = not value if isinstance(value, bool) else value + 1 if isinstance(value, int) else value * 2
            if changed != value:
                yield self.replace("constant", node, repr(changed))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in {"min", "max"}:
            yield self.replace("min and max", node.func, "max" if node.func.id == "min" else "min")
        if isinstance(node, ast.If | ast.While | ast.IfExp) and not _is_typing(node.test):
            yield self.replace("negation", node.test, f"(not ({self.text(node.test)}))")
        if isinstance(node, ast.comprehension):
            for test in node.ifs:
                yield self.replace("negation", test, f"(not ({self.text(test)}))")
        if _may_go(node):
            yield self.replace("statement left out", node, "pass")
        if isinstance(node, ast.FunctionDef):
            yield from self.returned(node)

    def at_operator(self, node: ast.AST) -> Iterator[Fault]:
        """Another comparison, logic or arithmetic; ``not`` left out."""
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            for left, kind, right in zip(sides, node.ops, node.comparators, strict=False):
                yield from self.between("comparison", left, right, *COMPARISON[type(kind)])
        elif isinstance(node, ast.BoolOp):
            swap = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
            for left, right in zip(node.values, node.values[1:], strict=False):
                yield from self.between("logic", left, right, *swap)
        elif isinstance(node, ast.BinOp) and type(node.op) in ARITHMETIC:
            if not any(isinstance(side, ast.JoinedStr) or _is_text(side) for side in (node.left, node.right)):
                yield from self.between("arithmetic", node.left, node.right, *ARITHMETIC[type(node.op)])
        elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            yield self.replace("negation", node, f"bool(({self.text(node.operand)}))")

    def returned(self, function: ast.FunctionDef) -> Iterator[Fault]:
        """Other values returned, of the type that is promised."""
        promised = ast.unparse(function.returns) if function.returns else ""
        values = RETURNED.get(promised, ["None"] if promised.endswith("| None") and promised != "None" else [])
        for node in ast.walk(function):
            if isinstance(node, ast.Return) and node.value is not None:
                now = self.text(node.value)
                yield from (self.replace("constant returned", node.value, value) for value in values if value != now)

    def text(self, node: ast.AST) -> str:
        start, end = self.span(node)
        return self.source[start:end].decode()


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str)


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.Name) and node.id == "TYPE_CHECKING"


def _may_go(node: ast.AST) -> bool:
    """A statement without which the function still runs: calls, changes in place, ``break`` and ``continue``. A plain
    assignment does not count: without it, every test fails on the missing name."""
    if isinstance(node, ast.Expr):
        return isinstance(node.value, ast.Call)
    if isinstance(node, ast.Assign):
        return all(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets)
    return isinstance(node, ast.AugAssign | ast.Break | ast.Continue)


def python_faults(path: str, source: bytes) -> Iterator[Fault]:
    """Every fault of the rules above, each once, in a fixed order."""
    finder = Finder(path, source)
    seen = set()
    for fault in finder.walk(ast.parse(source)):
        if fault not in seen:
            seen.add(fault)
            yield fault
