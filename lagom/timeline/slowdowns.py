"""Who pays the contention tax: by kernel, by sort of work."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from lagom.timeline.kernel_names import family
from lagom.timeline.kernel_table import KernelTable
from lagom.timeline.reference_kernels import LOUD_FROM, QUIET_UP_TO, Contention
from lagom.timeline.steps import Steps


@dataclass(frozen=True, slots=True)
class Sufferer:
    """One kernel by name: how many a step, mean ns under communication and of their likes when quiet, the ratio of
    both, and its tax a step."""

    name: str
    calls: int
    quiet_ns: float
    loud_ns: float
    slowdown: float
    tax_ns: float
    family: str


@dataclass(frozen=True, slots=True)
class FamilyTax:
    """One sort of work (matmul, attention, ...): a step's time, the part of it under communication, how much slower
    that part is than its likes when quiet (total over total; 1 = not at all, NaN = unknown), and its tax a step, ns."""

    family: str
    ns: float
    under_ns: float
    slowdown: float
    tax_ns: float


def families(table: KernelTable, steps: Steps, contention: Contention) -> list[FamilyTax]:
    """Tax by sort of work, largest time first."""
    words = [family(name) for name in table.names]
    of_place = [words[name] for name in table.name[steps.index[0, contention.places]]]
    found = [
        _family_tax(word, contention, np.array([one == word for one in of_place])) for word in dict.fromkeys(of_place)
    ]
    return sorted(found, key=lambda one: -one.ns)


def _family_tax(word: str, contention: Contention, mine: NDArray[np.bool_]) -> FamilyTax:
    duration, quiet, covered = (part[:, mine] for part in (contention.duration, contention.quiet, contention.covered))
    loud = (covered >= LOUD_FROM) & (quiet > 0)
    reference = float(quiet[loud].sum())
    return FamilyTax(
        family=word,
        ns=float(duration.sum(axis=1).mean()),
        under_ns=float((duration * covered).sum(axis=1).mean()),
        slowdown=float(duration[loud].sum()) / reference if reference else float("nan"),
        tax_ns=float(contention.loss[:, mine].sum(axis=1).mean()),
    )


def sufferers(table: KernelTable, steps: Steps, contention: Contention) -> list[Sufferer]:
    """Kinds of kernels by tax, worst first. Slow-down: total over its kernels under communication of duration /
    quiet."""
    names = table.name[steps.index[0, contention.places]]
    found = [_sufferer(table, int(name), contention, names == name) for name in np.unique(names)]
    return sorted((one for one in found if one is not None), key=lambda one: -one.tax_ns)


def _sufferer(table: KernelTable, name: int, contention: Contention, mine: NDArray[np.bool_]) -> Sufferer | None:
    duration, quiet, covered = (part[:, mine] for part in (contention.duration, contention.quiet, contention.covered))
    loud = (covered >= LOUD_FROM) & (quiet > 0)
    if not loud.any():
        loud = (covered > QUIET_UP_TO) & (quiet > 0)
    if not loud.any():
        return None
    return Sufferer(
        name=table.names[name],
        calls=int(mine.sum()),
        quiet_ns=float(quiet[loud].mean()),
        loud_ns=float(duration[loud].mean()),
        slowdown=float(duration[loud].sum() / quiet[loud].sum()),
        tax_ns=float(contention.loss[:, mine].sum(axis=1).mean()),
        family=family(table.names[name]),
    )
