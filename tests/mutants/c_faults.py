# SPDX-License-Identifier: Apache-2.0
"""The faults that can be planted in a C source, token by token: never in comments, strings or static assertions."""

from __future__ import annotations

import re
from collections.abc import Iterator

from tests.mutants.site import Fault

TOKEN = re.compile(
    r"""(?P<skip>/\*.*?\*/|//[^\n]*|"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|_Static_assert\s*\([^;]*;|\s+)
    |(?P<directive>^[ \t]*\#(?:\\\n|[^\n])*)
    |(?P<word>[A-Za-z_]\w*)
    |(?P<number>\d[\w.]*)
    |(?P<operator>->|\+\+|--|<<=?|>>=?|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)""",
    re.VERBOSE | re.DOTALL | re.MULTILINE,
)
ARITHMETIC = {"+": "-", "-": "+"}
#: Token: (rule, what is written instead).
REPLACED = {
    "<": ("comparison", "<="),
    "<=": ("comparison", "<"),
    ">": ("comparison", ">="),
    ">=": ("comparison", ">"),
    "==": ("comparison", "!="),
    "!=": ("comparison", "=="),
    "&&": ("logic", "||"),
    "||": ("logic", "&&"),
    "lagom_store_release": ("weaker ordering", "lagom_store_relaxed"),
    "lagom_load_acquire": ("weaker ordering", "lagom_load_relaxed"),
    "memory_order_release": ("weaker ordering", "memory_order_relaxed"),
    "memory_order_acquire": ("weaker ordering", "memory_order_relaxed"),
    "true": ("constant", "false"),
    "false": ("constant", "true"),
}
STATEMENT = re.compile(
    rb"^[ \t]+(?!return\b|goto\b|break\b|continue\b|case\b|default\b)([^\n;{}]*;)[ \t]*(?:/\*|\n)", re.M
)
CALL = re.compile(rb"(?:\(void\))?[a-z_]\w*\(.*\);")
PLACE = rb"\*?[a-z_][\w\->.\[\]]*"
ASSIGNMENT = re.compile(
    PLACE + rb"(?:->|\.|\[)[\w\->.\[\] +-]* [-+|&]?= .*;|" + PLACE + rb" [-+|&]= .*;|" + PLACE + rb"(?:\+\+|--);"
)
RETURN = re.compile(rb"\breturn ([^;{}]+);")


def one_more(number: str) -> str | None:
    """``7u`` -> ``8u``; nothing for floats and hexadecimal numbers."""
    found = re.fullmatch(r"(\d+)([uUlL]*)", number)
    return f"{int(found[1]) + 1}{found[2]}" if found else None


def condition(text: str, opening: int) -> int:
    """Where the parenthesis that opens at ``opening`` is closed."""
    depth = 0
    for index in range(opening, len(text)):
        depth += {"(": 1, ")": -1}.get(text[index], 0)
        if depth == 0:
            return index
    return opening


def c_faults(path: str, source: bytes) -> Iterator[Fault]:
    """Every fault of the rules below, in a fixed order."""
    text = source.decode("ascii", "replace")  # a byte a character, so that offsets are equal
    before = ""
    skipped: list[tuple[int, int]] = []
    for found in TOKEN.finditer(text):
        token, start, end = found.group(), found.start(), found.end()
        kind = found.lastgroup
        if kind == "skip":
            skipped.append((start, end))
            continue
        if kind == "directive":
            skipped.append((start, end))
            for number in re.finditer(r"(?<![\w.])\d+[uUlL]*(?![\w.])", token if "#define" in token else ""):
                more = one_more(number.group())
                if more:
                    yield Fault(path, "constant", start + number.start(), start + number.end(), more)
            continue
        if token in REPLACED:
            rule, new = REPLACED[token]
            yield Fault(path, rule, start, end, new)
        elif token in ARITHMETIC and re.fullmatch(r"[\w.]+|[)\]]", before) and before not in {"return", "case"}:
            yield Fault(path, "arithmetic", start, end, ARITHMETIC[token])
        elif kind == "number" and (more := one_more(token)):
            yield Fault(path, "constant", start, end, more)
        elif token in {"if", "while"} and text[end : end + 2] == " (":
            last = condition(text, end + 1)
            yield Fault(path, "negation", end + 2, last, f"!({text[end + 2 : last]})")
        before = token
    yield from statements(path, source, skipped)


def statements(path: str, source: bytes, skipped: list[tuple[int, int]]) -> Iterator[Fault]:
    """Statements of one line left out; other values returned."""

    def inside_skipped(index: int) -> bool:
        return any(
            start <= index < end and end - start > 1 and not source[start:end].isspace() for start, end in skipped
        )

    for found in STATEMENT.finditer(source):
        statement = found.group(1)
        wanted = CALL.fullmatch(statement) or ASSIGNMENT.fullmatch(statement)
        if wanted and not inside_skipped(found.start(1)):
            yield Fault(path, "statement left out", found.start(1), found.end(1), ";")
    for found in RETURN.finditer(source):
        value = found.group(1).decode()
        if inside_skipped(found.start(1)) or value in {"0", "NULL", "false"}:
            continue
        yield Fault(path, "constant returned", found.start(1), found.end(1), "false" if value == "true" else "0")
        if value != "true" and re.search(r"[<>=!&|]", value):
            yield Fault(path, "constant returned", found.start(1), found.end(1), "1")
