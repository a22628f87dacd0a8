# SPDX-License-Identifier: Apache-2.0
"""A job's own metric, from the lines that it prints: one value a step, in one unit.

The expression is the user's and the lines are the job's, so neither is trusted: a line is cut, a search in it has a
time limit, and a number is read whole or refused by name.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter, deque
from dataclasses import dataclass

import regex

from lagom.errors import UsageError

#: Characters of a line that are searched.
LONGEST_LINE = 4096
#: Seconds that one search may take, and how many may take longer before the expression is used no more.
SEARCH_SECONDS, SLOW_SEARCHES = 0.1, 3
#: Lines of one step: more ranks than print on one terminal.
MOST_PRINTERS = 64
#: Lines of one step are no further apart than this; those with its number: no further than so many steps take.
BURST_SECONDS, BURST_STEPS = 0.05, 1.5
STEPS_OPEN, GAPS_KEPT = 4, 9
NUMBERED = "step"

# What follows is run on a job's lines: none of it looks at a part of the line more than a fixed number of times.
COLOURS = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_RUN = re.compile(r"[+-]?[\d.,]*\d(?:[eE][+-]?\d+)?")
_PLAIN = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:,\d{3})+(?:\.\d*)?")
#: Other ways to go on with a number: clock times, thousands as in 9'876 and 9_876.
_GOES_ON = re.compile(r"[:_'\u2019\u00a0\u202f]\d")
_MULTIPLES = {"k": 1e3, "K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
_MULTIPLE = re.compile(r" ?([kKMGT])(?![A-Za-z/])")
_SECONDS = {
    **dict.fromkeys(("ns", "nsec", "nanoseconds"), 1e-9),
    **dict.fromkeys(("us", "\u00b5s", "\u03bcs", "usec", "microseconds"), 1e-6),
    **dict.fromkeys(("ms", "msec", "msecs", "millis", "milliseconds"), 1e-3),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), 1.0),
    **dict.fromkeys(("m", "min", "mins", "minute", "minutes"), 60.0),
    **dict.fromkeys(("h", "hour", "hours"), 3600.0),
}
_SUFFIX = re.compile(r"([ \t]{0,3}[\[(]?)([A-Za-z\u00b5\u03bc%][A-Za-z\u00b5\u03bc%/_]*)")
#: A word behind a blank is a unit only where it looks like one: 1.0 loss 3.
_LIKE_A_UNIT = re.compile(r"(?i).*/.*|.*flops?|.*bps|.*hz|[a-z]")
#: A time in two parts, as in 1m02s and 1min 2s.
_SECOND_PART = re.compile(r" ?\d")
#: The number of a step, as trainers print it; and as progress bars do, which is no date.
_STEP = re.compile(r"(?i)(?<![a-z])(?:global_|micro_)?(?:step|iter|iteration)s?[\s:=#\[]*(\d[\d,]*)(?![\d.])")
_PROGRESS = re.compile(r"(?<![\d/.])(\d+)\s?/\s?\d+(?![\d/.])(?!\s\d+:)")
_PRINTER = re.compile(r"(?i)(?:rank|default|worker|proc|gpu)[ _:=\[-]*(\d+)")
_THROUGHPUT = re.compile(
    r"(?i)\b(?:t|[ifw])ps\b|[a-z]/s(?:ec|econd)?(?![a-z])|per.?sec|t?flops?|throughput|goodput|\bmfu\b|speed"
)
_WORD = re.compile(r"[A-Za-z_/]+")
#: Characters before the number that may name it.
_NAME = 40


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
    """Lines of one step, at ``place`` of the samples; ``began``, ``last``: wall clock."""

    key: tuple[object, ...]
    place: int
    began: float
    last: float
    lines: int = 0
    total: float = 0.0


class Metric:
    """``samples``: (wall clock, value) a step, the mean of its lines, all in ``unit``: that of the expression, else of
    the first line; None before. ``matched``: whether a line did, be it with a number above 0 or not. ``refused``: the
    first text that matched and is no number above 0. ``fault``: why the output is not searched any more, one clause."""

    def __init__(self, expression: str = "", *, unit: str | None = None, higher_is_better: bool = False) -> None:
        self._expression = expression
        self.samples: list[tuple[float, float]] = []
        self.matched = False
        self.refused = self.fault = ""
        self.looks_like_throughput = False
        self._patterns = _with_twin(expression) if expression else []
        self.unit = unit if unit is not None else (self._patterns[0][1] or None if self._patterns else None)
        self._higher_is_better = higher_is_better
        self._slow = 0
        self._read_comma = False
        self._steps: deque[_Step] = deque(maxlen=STEPS_OPEN)
        self._gaps: deque[float] = deque([0.0], maxlen=GAPS_KEPT)
        self._lines_of: Counter[str] = Counter()

    def read(self, line: str, at: float) -> None:
        """One more line; ``at``: wall clock, seconds."""
        if self.fault or not self._patterns:
            return
        searched = COLOURS.sub("", line[:LONGEST_LINE])
        for pattern, unit in self._patterns:
            if (span := self._search(pattern, searched)) is not None:
                self.matched = True
                if len(line) <= LONGEST_LINE or span[1] < len(searched) - _NAME:  # else it may have been cut
                    self._take(searched, span, unit, at)
                return

    @property
    def without_samples(self) -> str:
        """Why there are none, one clause."""
        if self.fault or self.refused:
            return self.fault or f"--metric matched, but '{self.refused}' is no number above 0"
        what = "gave a number by" if self.matched else "matched"
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
        number = number_at(line, span)
        if number.value is None or number.value <= 0.0:
            self.refused = self.refused or number.text
            if number.value is None:
                self._doubt_commas(number.text)
            return
        unit = number.unit or unit
        words = _WORD.findall(line[max(0, span[0] - _NAME) : span[0]])[-1:]
        self.looks_like_throughput |= looks_like_throughput(f"{' '.join(words)} {unit}")
        self._read_comma |= "," in number.text
        value = self._in_our_unit(number.value, unit)
        if 0.0 < value < math.inf:  # arms are compared by ratios
            self._add(line, span, value, at)
        self._doubt_commas("")

    def _in_our_unit(self, value: float, unit: str) -> float:
        """0 where there is none that it could be read in."""
        if self.unit is None:
            self.unit = _inverse(unit) if self._higher_is_better and unit.startswith("s/") else unit
        if (read := _in_unit(value, unit, self.unit)) is not None:
            return read
        was, now = (f"'{one}'" if one else "none" for one in (self.unit, unit))
        self._give_up(f"the unit of --metric's number changes from {was} to {now}")
        return 0.0

    def _give_up(self, why: str) -> None:
        self.samples.clear()
        self.fault = why

    def _doubt_commas(self, text: str) -> None:
        """9,876 is read as thousands; a decimal comma in another line shows that it may have been 9.876."""
        if "," in text or ("," in self.refused and self._read_comma):
            self._give_up(f"--metric matched, but '{self.refused}' is no number: a comma may only separate thousands")

    def _add(self, line: str, span: tuple[int, int], value: float, at: float) -> None:
        key = self._key(line, span)
        step = next((step for step in reversed(self._steps) if step.key == key), None)
        burst = max(BURST_SECONDS, BURST_STEPS * statistics.median(self._gaps) if key[0] == NUMBERED else 0.0)
        if step is None or step.lines >= MOST_PRINTERS or at - step.last > burst:
            if step is None and self._steps:  # else the number has not changed, and is none
                self._gaps.append(at - self._steps[-1].began)
            step = _Step(key, len(self.samples), at, at)
            self._steps.append(step)
            self.samples.append((at, value))
        step.lines += 1
        step.total += value
        step.last = at
        self.samples[step.place] = (self.samples[step.place][0], step.total / step.lines)

    def _key(self, line: str, span: tuple[int, int]) -> tuple[object, ...]:
        """What lines of one step have in common: its number, else how many lines their rank has printed."""
        for what, numbers in ((NUMBERED, _STEP), ("progress", _PROGRESS)):
            found = [one[1] for one in numbers.finditer(line) if one.end(1) <= span[0] or one.start(1) >= span[1]]
            if found:
                return what, *found
        printer = found_printer[1] if (found_printer := _PRINTER.search(line)) else ""
        self._lines_of[printer] += 1
        return "line", self._lines_of[printer]


@dataclass(frozen=True, slots=True)
class Number:
    """``value``: None where ``text`` is no number. ``unit``: what stands behind it, empty if nothing does."""

    text: str
    value: float | None
    unit: str = ""


def number_at(line: str, span: tuple[int, int]) -> Number:
    """The number that a group at ``span`` begins with, whole also where the group ends within it (``9,876``,
    ``3.4e-1``, ``1.2k``); no number where the group begins within one, or the number goes on in another way."""
    text, end = _text_at(line, span)
    value = _value_of(text)
    begun = _from_its_beginning(line, span[0])
    if value is None or begun.strip("-") or _GOES_ON.match(line, end):
        return Number(f"{begun}{text}{line[end : end + 2] if value is not None else ''}".strip(), None)
    multiple = _MULTIPLE.match(line, end)
    factor, after = (_MULTIPLES[multiple[1]], multiple.end()) if multiple else (1.0, end)
    unit, after = _unit_at(line, after)
    if unit in _SECONDS and _SECOND_PART.match(line, after):
        return Number(line[span[0] : after + 2], None)
    return Number(
        begun + line[span[0] : multiple.end() if multiple else end], (-value if begun else value) * factor, unit
    )


def _text_at(line: str, span: tuple[int, int]) -> tuple[str, int]:
    """What may be a number, without a multiple that the group holds; and where it ends."""
    start, end = span
    run = _RUN.match(line, start) if start >= 0 else None
    text = line[start:end] if run is None or run.end() < end else run.group()
    text = text[:-1] if text[-1:] in _MULTIPLES else text
    return text, start + len(text)


def _from_its_beginning(line: str, start: int) -> str:
    """What of a number stands before ``start``: digits, or a sign."""
    begin = start
    while begin > 0 and line[begin - 1] in "0123456789.,":
        begin -= 1
    is_sign = line[max(0, begin - 1) : begin] == "-" and not line[max(0, begin - 2) : max(0, begin - 1)].isalnum()
    return ("-" if is_sign else "") + line[begin : max(0, start)]


def _value_of(text: str) -> float | None:
    if _THOUSANDS.fullmatch(text):
        return float(text.replace(",", ""))
    value = float(text) if _PLAIN.fullmatch(text) else math.nan
    return value if math.isfinite(value) else None


def _unit_at(line: str, at: int) -> tuple[str, int]:
    """(unit, where it ends): what is attached to a number, or the word behind it that looks like a unit."""
    found = _SUFFIX.match(line, at)
    if found is None or (found[1] and found[2] not in _SECONDS and not _LIKE_A_UNIT.fullmatch(found[2])):
        return "", at
    return found[2], found.end()


def _with_twin(expression: str) -> list[tuple[regex.Pattern[str], str]]:
    """tqdm prints ``it/s``, and ``s/it`` below one a second: an expression that names one of them gets the other,
    or only the quick steps, or only the slow ones, would count."""
    compiled = [(compile_metric(expression), "")]
    for unit, other in (("it/s", "s/it"), ("s/it", "it/s")):
        if unit in expression and other not in expression:
            compiled = [(compile_metric(expression), unit), (compile_metric(expression.replace(unit, other)), other)]
    return compiled


def _inverse(unit: str) -> str:
    return "/".join(unit.split("/")[::-1])


def _in_unit(value: float, unit: str, wanted: str) -> float | None:
    """A time in another unit of time, a multiple, or a rate as the time of one and the other way round; None for other
    units, and where only one of the two is known."""
    if unit == wanted:
        return value
    (of, *per), (wanted_of, *wanted_per) = unit.split("/"), wanted.split("/")
    if per == wanted_per and of in _SECONDS and wanted_of in _SECONDS:
        return value * (_SECONDS[of] / _SECONDS[wanted_of])
    if per == wanted_per and of and wanted_of and (factor := _multiple_between(of, wanted_of)):
        return value * factor
    if len(per) == 1 and unit == _inverse(wanted):
        return 1.0 / value if value else 0.0
    return None


def _multiple_between(unit: str, wanted: str) -> float:
    """1e3 from ktok to tok, or from TFLOPS to GFLOPS; 0 where they are not the same thing."""
    bare, factor = (unit[1:], _MULTIPLES[unit[0]]) if unit[0] in _MULTIPLES else (unit, 1.0)
    wanted_bare, divisor = (wanted[1:], _MULTIPLES[wanted[0]]) if wanted[0] in _MULTIPLES else (wanted, 1.0)
    if unit in (wanted_bare, wanted):
        return 1.0 / divisor
    return factor if bare == wanted else factor / divisor if bare == wanted_bare else 0.0
