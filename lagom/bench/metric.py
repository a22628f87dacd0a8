# SPDX-License-Identifier: Apache-2.0
"""A job's own metric, from the lines that it prints: one value a step, in one unit.

The expression is the user's and the lines are the job's, so neither is trusted: a line is cut, a search in it has a
time limit, and a number is read whole or refused by name.
"""

from __future__ import annotations

import math
import re
from collections import Counter, deque
from dataclasses import dataclass

import regex

from lagom.errors import UsageError

#: Characters of a line that are searched.
LONGEST_LINE = 4096
#: Seconds that one search may take, and how many may take longer before the expression is used no more.
SEARCH_SECONDS, SLOW_SEARCHES = 0.1, 3
#: Lines of one step: more ranks than print on one terminal. More are no step: what looked like its number was none.
MOST_PRINTERS = 64
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RUN = re.compile(r"[+-]?[\d.,]*\d(?:[eE][+-]?\d+)?")
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
_MULTIPLES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_MULTIPLE = re.compile(r"[kKMGT](?![A-Za-z])")
_SECONDS = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "μs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0, "seconds": 1.0,
    "min": 60.0,
}  # fmt: skip
_UNIT = re.compile(rf"\s?([A-Za-z]+/s(?:ec)?|s/[A-Za-z]+|{'|'.join(sorted(_SECONDS, key=len, reverse=True))})(?![\w/])")
#: The number of a step, as trainers and tqdm print it; not a date.
_STEP = re.compile(
    r"(?i)(?<![a-z])(?:global_|micro_)?(?:step|iter|iteration)s?\s*[:=#\[]*\s*(\d+)(?![\d.])"
    r"|(?<![\d/])(\d+)\s*/\s*\d+(?![\d/])"
)
_PRINTER = re.compile(r"(?i)(?:rank|default|worker|proc|gpu)[ _:=\[-]*(\d+)")
_THROUGHPUT = re.compile(r"(?i)\btps\b|[a-z]/s(?:ec)?(?![a-z])|per_?sec|t?flops?|throughput|\bmfu\b")
_WORD_BEFORE = re.compile(r"([A-Za-z_/]+)[^A-Za-z]*$")


ASKS_DIRECTION = "is the metric a speed, such as tokens per second? then add --higher-is-better: now less is faster"


def compile_metric(expression: str) -> regex.Pattern[str]:
    """Raises :class:`UsageError` where it is no expression, or has not the one group that holds the number."""
    try:
        pattern = regex.compile(expression)
    except regex.error as error:
        raise UsageError(f"--metric is no regular expression ({error}).") from error
    if pattern.groups != 1:
        raise UsageError(
            f"--metric needs one group around the number and has {pattern.groups}, like 'step time: ([0-9.]+)'."
        )
    return pattern


def looks_like_throughput(text: str) -> bool:
    """Whether an expression, or the words beside a number, name something of which more is better."""
    return bool(_THROUGHPUT.search(text))


@dataclass
class _Step:
    """Lines of one step, at ``place`` of the samples."""

    key: tuple[object, ...]
    place: int
    lines: int = 0
    total: float = 0.0


class Metric:
    """``samples``: (wall clock, value) a step, the mean of its lines, all in ``unit``, which is that of the first line
    if it is empty at first. ``matched``: whether a line did, be it with a number above 0 or not. ``refused``: the first
    text that matched and is no number. ``fault``: why the output is not searched any more, one clause."""

    def __init__(self, expression: str = "", *, unit: str = "") -> None:
        self._expression = expression
        self.samples: list[tuple[float, float]] = []
        self.matched = False
        self.refused = self.fault = ""
        self.unit = unit
        self.looks_like_throughput = False
        self._patterns = _with_twin(expression) if expression else []
        self._slow = 0
        self._read_comma = False
        self._steps: deque[_Step] = deque(maxlen=2)
        self._lines_of: Counter[str] = Counter()
        self._has_numbers = True

    def read(self, line: str, at: float) -> None:
        """One more line; ``at``: wall clock, seconds."""
        if self.fault or not self._patterns:
            return
        line = COLOURS.sub("", line[:LONGEST_LINE])
        for pattern, unit in self._patterns:
            if (span := self._search(pattern, line)) is not None:
                self.matched = True
                self._take(line, span, unit, at)
                return

    @property
    def without_samples(self) -> str:
        """Why there are none, one clause."""
        if self.fault or self.refused:
            return self.fault or f"--metric matched, but '{self.refused}' is no number"
        what = "gave a number above 0 by" if self.matched else "matched"
        return f"no line of its output {what} --metric '{self._expression}'"

    def _search(self, pattern: regex.Pattern[str], line: str) -> tuple[int, int] | None:
        try:
            found = pattern.search(line, timeout=SEARCH_SECONDS, concurrent=True)
        except TimeoutError:
            self._slow += 1
            if self._slow == SLOW_SEARCHES:
                self.fault = (
                    f"--metric needs more than {SEARCH_SECONDS:g} s for a line of its output; write it without nested "
                    "repetition such as (a+)+"
                )
            return None
        return None if found is None else found.span(1)

    def _take(self, line: str, span: tuple[int, int], unit: str, at: float) -> None:
        text, value = number_at(line, span)
        if value is None:
            self.refused = self.refused or text
            self._doubt_commas(text)
            return
        rest = line[span[0] + len(text) :]
        if found := _UNIT.match(rest):
            unit = found[1]
        before = _WORD_BEFORE.search(line[: span[0]])
        self.looks_like_throughput |= looks_like_throughput(f"{'' if before is None else before[1]} {unit}")
        self.unit = self.unit or unit
        self._read_comma |= "," in text
        value = _in_unit(value, unit, self.unit)
        if value is None:
            self._give_up(f"the unit of --metric's number changes from {self.unit} to {unit}")
        elif 0.0 < value < math.inf:  # arms are compared by ratios
            self._add(line, value, at)
        self._doubt_commas("")

    def _give_up(self, why: str) -> None:
        self.samples.clear()
        self.fault = why

    def _doubt_commas(self, text: str) -> None:
        """9,876 is read as thousands; a decimal comma in another line shows that it may have been 9.876."""
        if "," in text or ("," in self.refused and self._read_comma):
            self._give_up(f"--metric matched, but '{self.refused}' is no number: a comma may only separate thousands")

    def _add(self, line: str, value: float, at: float) -> None:
        key = self._key(line)
        step = next((step for step in self._steps if step.key == key), None)
        if step is not None and step.lines >= MOST_PRINTERS:
            self._has_numbers, step = False, None
        if step is None:
            step = _Step(key, len(self.samples))
            self._steps.append(step)
            self.samples.append((at, value))
        step.lines += 1
        step.total += value
        self.samples[step.place] = (self.samples[step.place][0], step.total / step.lines)

    def _key(self, line: str) -> tuple[object, ...]:
        """What lines of one step have in common: its number, else how many lines their rank has printed."""
        numbers = tuple(number for found in _STEP.findall(line) for number in found if number)
        if numbers and self._has_numbers:
            return numbers
        printer = found[1] if (found := _PRINTER.search(line)) else ""
        self._lines_of[printer] += 1
        return "line", self._lines_of[printer]


def number_at(line: str, span: tuple[int, int]) -> tuple[str, float | None]:
    """(text, value) of the number that a group at ``span`` begins with, whole also where the group ends within it:
    ``9,876``, ``3.4e-1``, ``1.2k``. The value is None where that is no number."""
    start, end = span
    run = _RUN.match(line, start) if start >= 0 else None
    text = line[start:end] if run is None or run.end() < end else run.group()
    multiple = _MULTIPLE.match(line, start + len(text))
    factor = 1.0
    if multiple is not None or text[-1:] in _MULTIPLES:
        text, factor = (text, _MULTIPLES[multiple.group()]) if multiple else (text[:-1], _MULTIPLES[text[-1]])
    if _THOUSANDS.fullmatch(text):
        value = float(text.replace(",", "")) * factor
    elif _PLAIN.fullmatch(text):
        value = float(text) * factor
    else:
        return text, None
    return text + (multiple.group() if multiple else ""), value if math.isfinite(value) else None


def _with_twin(expression: str) -> list[tuple[regex.Pattern[str], str]]:
    """tqdm prints ``it/s``, and ``s/it`` below one a second: an expression that names one of them gets the other,
    or only the quick steps, or only the slow ones, would count."""
    compiled = [(compile_metric(expression), "")]
    for unit, other in (("it/s", "s/it"), ("s/it", "it/s")):
        if unit in expression and other not in expression:
            compiled = [(compile_metric(expression), unit), (compile_metric(expression.replace(unit, other)), other)]
    return compiled


def _in_unit(value: float, unit: str, wanted: str) -> float | None:
    """A time in another unit of time, or a rate as the time of one and the other way round; None for other units. The
    value as it is where a line has no unit."""
    if unit == wanted or not unit or not wanted:
        return value
    if unit in _SECONDS and wanted in _SECONDS:
        return value * (_SECONDS[unit] / _SECONDS[wanted])
    is_inverse = unit.split("/") == wanted.split("/")[::-1]
    return (1.0 / value if value else 0.0) if is_inverse else None
