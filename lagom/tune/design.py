# SPDX-License-Identifier: Apache-2.0
"""Screening many start settings at once: a two-level design, and what its processes show about each setting.

In a Plackett-Burman design of N processes every process gives information on every setting, because half of the
processes have it and the effects of the others cancel. So a setting that is slower alone and faster with another one is
found, which changing one setting at a time would miss. Plackett and Burman, "The design of optimum multifactorial
experiments", 1946.

A variable with several values takes two columns of the design: neither, the first, the second, both stand for leaving
it alone and for its values.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

#: First rows of cyclic designs by their number of processes; the last row of each design is all "-".
_FIRST_ROWS = {
    8: "+++-+--", 12: "++-+++---+-", 16: "++++-+-++--+---", 20: "++--++++-+-+----++-", 24: "+++++-+-++--++--+-+----",
}  # fmt: skip
MOST_COLUMNS, MOST_VALUES = 23, 3
#: A design of fewer processes is repeated with all signs turned round until there are so many.
LEAST_ROWS = 24
#: A setting, or two together, counts as having an effect from so many standard errors on. Low, because what is chosen
#: is confirmed on fresh processes, and a pair that helps only together shows half of its effect on each.
LEAST_T = 1.9
MOST_TERMS = 8
#: One more setting is chosen only if it is predicted to gain so many standard errors of an effect.
LEAST_GAIN = 1.5
#: A process so many median absolute deviations from what the others predict is left out of the fit.
OUTLIER = 4.5
_LEAST_FREEDOM = 3


@dataclass(frozen=True, slots=True, order=True)
class Factor:
    """A variable that is set to a value or left alone."""

    name: str
    value: str


Row = Mapping[str, str]  # the variables that a process of the design sets


@dataclass(frozen=True, slots=True)
class Effect:
    """What setting ``factors`` together changes: ``log`` is ln(time with) - ln(time without), below 0 is faster, beyond
    what each of them does alone; ``error`` is one standard error."""

    factors: tuple[Factor, ...]
    log: float
    error: float


@dataclass(frozen=True, slots=True)
class Screened:
    """``effects`` that stand out of the noise; ``chosen`` variables, whose ``log`` the fit predicts; ``row``: place of
    the fastest process, where the fit chose nothing, or that took less time than the fit predicts for what it chose;
    ``detectable``: an effect, as a fraction, that would have shown four times in five."""

    effects: tuple[Effect, ...] = ()
    chosen: Mapping[str, str] | None = None
    log: float = 0.0
    row: int | None = None
    detectable: float = math.inf


def design_rows(values: Mapping[str, Sequence[str]], passes: int = 1) -> list[Row]:
    """The processes of a design over variables and their values; ``passes`` 2 folds it over, which halves the variance
    of every effect and separates effects from pairs. Variables beyond 23 columns are left out."""
    columns = list(_columns(values))
    if not columns:
        return []
    used = columns[-1][1][-1] + 1
    count = next(number for number in _FIRST_ROWS if number > used)
    signs = _signs(count)
    repeats = passes * math.ceil(LEAST_ROWS / count)
    turned = (~signs if number % 2 else signs for number in range(repeats))
    return [_row(columns, line) for block in turned for line in block]


def _columns(values: Mapping[str, Sequence[str]]) -> Iterable[tuple[str, tuple[int, ...], Sequence[str]]]:
    """(variable, its columns, its values)."""
    used = 0
    for name, known in values.items():
        width = min(len(known), 2)
        if used + width > MOST_COLUMNS:
            return
        yield name, tuple(range(used, used + width)), known[:MOST_VALUES]
        used += width


def _signs(count: int) -> npt.NDArray[np.bool_]:
    first = [sign == "+" for sign in _FIRST_ROWS[count]]
    cyclic = [first[-shift:] + first[:-shift] if shift else first for shift in range(count - 1)]
    return np.array([*cyclic, [False] * (count - 1)])


def _row(columns: Iterable[tuple[str, tuple[int, ...], Sequence[str]]], signs: npt.NDArray[np.bool_]) -> Row:
    row = {}
    for name, places, values in columns:
        number = sum(int(signs[place]) << bit for bit, place in enumerate(places))
        if 0 < number <= len(values):
            row[name] = values[number - 1]
    return row


def suspects(crashed: Sequence[Row], ran: Sequence[Row]) -> set[Factor]:
    """The one setting that more of the processes that broke down had than any other, and none that ran; empty with
    fewer than two that broke down, or as long as it could be another one."""
    innocent: set[Factor] = set().union(*map(_factors, ran)) if ran else set()
    counts = Counter(factor for row in crashed for factor in _factors(row) - innocent)
    leaders = counts.most_common(2)
    if not leaders or leaders[0][1] < 2 or (len(leaders) == 2 and leaders[0][1] == leaders[1][1]):
        return set()
    return {leaders[0][0]}


def _factors(row: Row) -> set[Factor]:
    return {Factor(name, value) for name, value in row.items()}


def screen(rows: Sequence[Row], times: Sequence[float]) -> Screened:
    """What the processes of a design say: effects by forward selection, of single settings and of pairs of those that
    have one; the settings that the fit predicts to be the fastest together, without those that add nothing to it."""
    logs, kept = np.log(np.asarray(times, dtype=float)), np.ones(len(times), dtype=bool)
    for _ in range(2):
        lines = [row for row, keep in zip(rows, kept, strict=True) if keep]
        fit = _Fit.selected(lines, logs[kept])
        left = np.abs(logs - fit.predicted(rows))
        spread = 1.4826 * float(np.median(left))
        outliers = left > OUTLIER * spread if spread > 0 else np.zeros(len(times), dtype=bool)
        if not outliers.any() or outliers.sum() > len(times) // 8:
            break
        kept = ~outliers
    chosen, log = fit.fastest()
    effects = tuple(map(Effect, fit.terms, fit.values[1:], fit.errors[1:]))
    fastest = int(np.argmin(logs))
    row = fastest if not chosen or logs[fastest] < fit.values[0] + log else None
    return Screened(effects, {one.name: one.value for one in sorted(chosen)}, log, row, fit.detectable)


Term = tuple[Factor, ...]


class _Presence:
    """Which rows have which settings, as columns of 0 and 1."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.count = len(rows)
        self.columns: dict[Factor, npt.NDArray[np.float64]] = {}
        for place, row in enumerate(rows):
            for factor in _factors(row):
                self.columns.setdefault(factor, np.zeros(len(rows)))[place] = 1.0
        shares = [float(column.mean()) for column in self.columns.values()]
        #: Of the rows that have a setting, for the setting that fewest have.
        self.least_share = min([0.5, *shares])

    def matrix(self, terms: Sequence[Term]) -> npt.NDArray[np.float64]:
        """A column of ones, and for each term one that says which rows have all its settings."""
        ones, nothing = np.ones(self.count), np.zeros(self.count)
        found = [math.prod((self.columns.get(one, nothing) for one in term), start=ones) for term in terms]
        return np.column_stack([ones, *found])


@dataclass
class _Fit:
    """Least squares of ln(time) on an intercept and ``terms``."""

    terms: tuple[Term, ...]
    values: npt.NDArray[np.float64]
    errors: npt.NDArray[np.float64]
    sigma: float
    count: int
    least_share: float = 0.5  # of the processes that have a setting, for the setting that fewest have

    @classmethod
    def selected(cls, rows: Sequence[Row], logs: npt.NDArray[np.float64]) -> _Fit:
        """The term that explains most, again and again, as long as it stands out of what is left."""
        presence = _Presence(rows)
        singles = [(factor,) for factor in sorted(presence.columns)]
        fit = cls.of((), presence, logs)
        while len(fit.terms) < MOST_TERMS:
            pairs = ((a, b) for a, b in itertools.combinations(fit.mains, 2) if a.name != b.name)
            candidates = [term for term in (*singles, *pairs) if term not in fit.terms]
            tried = [cls.of((*fit.terms, term), presence, logs) for term in candidates]
            best = min(tried, key=lambda one: one.sigma, default=fit)
            if best is fit or abs(best.values[-1]) < LEAST_T * best.errors[-1]:
                return fit
            fit = best
        return fit

    @classmethod
    def of(cls, terms: tuple[Term, ...], presence: _Presence, logs: npt.NDArray[np.float64]) -> _Fit:
        """With these terms; sigma and the errors are infinite if they cannot be separated."""
        matrix = presence.matrix(terms)
        freedom = presence.count - matrix.shape[1]
        if freedom < _LEAST_FREEDOM or np.linalg.matrix_rank(matrix) < matrix.shape[1]:
            nothing = np.zeros(matrix.shape[1])
            return cls(terms, nothing, nothing + math.inf, math.inf, presence.count)
        values = np.asarray(np.linalg.lstsq(matrix, logs, rcond=None)[0], dtype=np.float64)
        sigma = math.sqrt(float(np.sum((logs - matrix @ values) ** 2)) / freedom)
        errors: npt.NDArray[np.float64] = sigma * np.sqrt(np.diag(np.linalg.inv(matrix.T @ matrix)))
        return cls(terms, values, errors, sigma, presence.count, presence.least_share)

    @property
    def mains(self) -> list[Factor]:
        """The settings in any of its terms."""
        return sorted({factor for term in self.terms for factor in term})

    def predicted(self, rows: Sequence[Row]) -> npt.NDArray[np.float64]:
        """ln(time) of each row."""
        found: npt.NDArray[np.float64] = _Presence(rows).matrix(self.terms) @ self.values
        return found

    def effect_of(self, factors: Iterable[Factor]) -> float:
        """ln(time) with these settings together, over none."""
        having = set(factors)
        return sum(float(value) for term, value in zip(self.terms, self.values[1:], strict=True) if having >= set(term))

    def fastest(self) -> tuple[frozenset[Factor], float]:
        """The settings that together are predicted fastest."""
        mains = self.mains
        least = LEAST_GAIN * max(self.errors[1:], default=0.0)
        best: tuple[frozenset[Factor], float] = (frozenset(), 0.0)
        for count in range(1, len(mains) + 1):
            for some in itertools.combinations(mains, count):
                if len({one.name for one in some}) == count:
                    log = self.effect_of(some)
                    if log < best[1] - least * (count - len(best[0])):
                        best = (frozenset(some), log)
        return best

    @property
    def detectable(self) -> float:
        """Of the setting that fewest processes have: a value of several, whose variable is set in more of them."""
        if self.count < _LEAST_FREEDOM or not math.isfinite(self.sigma):
            return math.inf
        error = self.sigma / math.sqrt(self.count * self.least_share * (1 - self.least_share))
        return math.expm1((LEAST_T + 0.84) * error)
