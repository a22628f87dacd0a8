# SPDX-License-Identifier: Apache-2.0
"""Which implementation a call takes: the same on every rank of its group.

At a call's first use every rank enters the same exchanges, whatever it finds in its cache or was told by name: what
each knows is gathered first, and from there on all decide by the same numbers. Nothing is measured, and no rank is
asked, while a CUDA graph is captured. A graph's launches cost the host nothing, so what it captures is chosen by the
device's time, and never torch's fused operators: their workspace moves when a later call needs more.
"""

from __future__ import annotations

import dataclasses
import functools
import statistics
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Literal

import torch

from lagom import settings
from lagom.errors import SettingError, UsageError
from lagom.parallel.choice_cache import key_of, load_choice, save_choice
from lagom.parallel.copies import Copies
from lagom.parallel.fused import Fused
from lagom.parallel.host_lead import HostLead
from lagom.parallel.looped import Looped
from lagom.parallel.matmul_call import DTYPES, CannotPrepare, Implementation, MatmulCall
from lagom.parallel.measuring import best_of, measure, measure_ahead
from lagom.parallel.plain import PlainCollective
from lagom.parallel.rank_group import RankGroup, digest_number
from lagom.parallel.said_once import log, say_once
from lagom.parallel.symmetric_pool import settle, workspace

PLAIN = PlainCollective()
_ALL: tuple[Implementation, ...] = (PLAIN, Fused(), Copies("copies", 1), Copies("copies_two_streams", 2), Looped())
IMPLEMENTATIONS: Mapping[str, Implementation] = {one.name: one for one in _ALL}
#: The place of a name in the numbers that ranks exchange; 0 = none.
_NAMES = dict(enumerate(IMPLEMENTATIONS, 1))
_NUMBERS = {name: number for number, name in _NAMES.items()}
#: By these no CUDA graph is captured.
NEVER_CAPTURED = ("fused",)
VARIABLE = "LAGOM_PARALLEL"
RunWith = Callable[[Implementation], object]


@dataclass(frozen=True, slots=True)
class Choice:
    """What a call takes, and why. Equal on all ranks, but for ``refusals``, the reasons of this rank.

    ``shape``: rows, inner sizes, columns of the whole product; ``dim``: along which the caller's tensors are split;
    ``times_ns``: median nanoseconds a call of each that was measured, empty = none was; ``gain``: plain's time over
    that of ``chosen``, None = not measured; ``captured``: what a CUDA graph takes, ``device_times_ns``: the device's
    time of each, which decides it; ``refusals``: why an implementation cannot be used, by name; ``limited``: the host's
    launches limit the job, so calls outside CUDA graphs take plain now.
    """

    operator: str
    shape: tuple[int, tuple[int, ...], tuple[int, ...]]
    dtype: str
    dim: int
    ranks: int
    device: str
    chosen: str
    source: Literal["measured", "cache", "named"]
    times_ns: dict[str, float] = field(default_factory=dict)
    captured: str = "plain"
    device_times_ns: dict[str, float] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    limited: bool = False

    @property
    def gain(self) -> float | None:
        """2.0 = half of plain's time."""
        took = self.times_ns
        return took["plain"] / took[self.chosen] if took.keys() >= {"plain", self.chosen} else None

    def __str__(self) -> str:
        """The line of the log."""
        rows, inner, columns = self.shape
        size = f"{rows} x {'+'.join(map(str, inner))} x {'+'.join(map(str, columns))} {self.dtype}"
        gain = "" if self.gain is None else f", {self.gain:.3f} times as fast as plain"
        times = ", ".join(f"{name} {took / 1e6:.3f} ms" for name, took in self.times_ns.items())
        graphs = "" if self.captured == self.chosen else f"CUDA graphs: {self.captured}"
        limited = "plain outside CUDA graphs now, because the host's launches limit the job" if self.limited else ""
        refused = "; ".join(f"no {name}: {reason}" for name, reason in self.refusals.items())
        where = f"dim {self.dim}, {self.ranks} ranks, {self.device}"
        more = "".join(f" ({part})" for part in (times, graphs, limited, refused) if part)
        return f"{self.operator} {size}, {where}: {self.chosen}, {self.source}{gain}{more}"


_records: list[tuple[Choice, RankGroup]] = []


def choices() -> list[Choice]:
    """What was chosen in this process so far, in order of first use."""
    return [
        dataclasses.replace(one, limited=_may_be_limited(one) and bool(group.lead.limits)) for one, group in _records
    ]


def _may_be_limited(choice: Choice) -> bool:
    """What was asked for by name stays."""
    return choice.source != "named" and choice.chosen != "plain"


@dataclass(frozen=True, slots=True)
class Chosen:
    """The implementations of a call. ``limited``: where the host's launches limit the job."""

    usual: Implementation
    captured: Implementation
    limited: Implementation

    def now(self, group: RankGroup, device: torch.device) -> Implementation:
        """The one to take. Ranks of a group have equal choices, so they look at their devices at the same calls."""
        if self.usual is self.captured is self.limited or device.type != "cuda":
            return self.usual
        if torch.cuda.is_current_stream_capturing():
            return self.captured
        if self.usual is self.limited:
            return self.usual
        if group.lead.limits is None:
            group.lead.look(torch.cuda.current_stream(device), lambda share: group.largest([share], device)[0])
        if not group.lead.limits:
            return self.usual
        say_once(
            "The host's launches limit this job, so calls of lagom.parallel take the plain way, which has the fewest; "
            "with CUDA graphs or larger batches they would gain."
        )
        return self.limited


def _captures(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.is_current_stream_capturing()


def choose(call: MatmulCall, group: RankGroup, device: torch.device, named: str, run: RunWith) -> Chosen | None:
    """The implementations for a call. The first time this is a collective; ``run`` carries the call out with one. None:
    a CUDA graph is being captured, and nothing was chosen before. LAGOM_PARALLEL is read at a call's first use."""
    known = group.chosen.get((call, named))  # not by the variable: ranks may have another one, and all enter or none
    if known is not None:
        return known
    asked = named or settings.read(VARIABLE)
    if _captures(device):
        if asked != "plain":
            say_once(
                f"{call.operator} was first called while a CUDA graph was captured, so it is plain; call it before."
            )
        return None
    before = workspace(group)
    record = _agree(call, group, device, "" if asked == "auto" else asked, run)
    settle(group, before, any(isinstance(IMPLEMENTATIONS[one], Copies) for one in (record.chosen, record.captured)))
    _records.append((record, group))
    log.info("%s", record)
    usual = IMPLEMENTATIONS[record.chosen]
    limited = PLAIN if _may_be_limited(record) else usual
    chosen = Chosen(usual, IMPLEMENTATIONS[record.captured], limited)
    group.lead = HostLead()  # other shapes may be another job
    group.chosen[call, named] = chosen
    return chosen


def check_named(named: str | None) -> str:
    """The name of an implementation or ``auto``, empty for None; raises :class:`SettingError` for another one."""
    if named and named != "auto" and named not in IMPLEMENTATIONS:
        raise SettingError(f"implementation={named} is unknown; name one of: auto, {', '.join(IMPLEMENTATIONS)}.")
    return named or ""


def _agree(call: MatmulCall, group: RankGroup, device: torch.device, named: str, run: RunWith) -> Choice:
    """The exchanges of a call's first use, the same on all ranks."""
    stored = load_choice(call)
    cached = _pair_number(stored.chosen, stored.captured) if stored else 0
    refusals, every = _exchange(call, group, device, _NUMBERS.get(named, 0), cached)
    found = PendingChoice(call, group, device, run, refusals)
    if asked := _asked_for(every):
        chosen = asked if found.is_ready(asked) else "plain"
        if chosen != asked:
            reason = refusals[asked]
            say_once(f"{asked} was asked for and cannot be used ({reason}), so {call.operator} takes plain.", reason)
        return found.record("named", chosen, {}, "plain" if chosen in NEVER_CAPTURED else chosen, {})
    if stored and cached and {numbers[2] for numbers in every} == {cached}:
        kept = (stored.chosen, stored.times_ns, stored.captured, stored.device_times_ns)
        if all(found.is_ready(name) for name in (stored.chosen, stored.captured)):
            return found.record("cache", *kept)
    return found.measured()


def _pair_number(chosen: str, captured: str) -> int:
    """Both in one number that ranks compare; 0 = one of them has no implementation."""
    numbers = _NUMBERS.get(chosen, 0), _NUMBERS.get(captured, 0)
    return numbers[0] * (len(_NUMBERS) + 1) + numbers[1] if all(numbers) else 0


@dataclass(frozen=True)
class PendingChoice:
    """On the way to a choice: ``refusals`` grow as more is known."""

    call: MatmulCall
    group: RankGroup
    device: torch.device
    run: RunWith
    refusals: dict[str, str]

    def is_ready(self, name: str) -> bool:
        """Whether an implementation has the buffers it needs. A collective, if no rank refused it before."""
        if name in self.refusals or name not in IMPLEMENTATIONS:
            return False
        try:
            IMPLEMENTATIONS[name].prepare(self.call, self.group, self.device)
        except CannotPrepare as reason:
            self.refusals[name] = str(reason)
        return name not in self.refusals

    def measured(self) -> Choice:
        """The fastest, or plain where there is nothing else."""
        ready = [name for name in IMPLEMENTATIONS if self.is_ready(name)]
        if len(ready) == 1:
            return self.record("measured", "plain", {}, "plain", {})
        runs = {name: functools.partial(self.run, IMPLEMENTATIONS[name]) for name in ready}
        seed = digest_number(key_of(self.call))
        rounds = measure(runs, self.group, self.device, seed)
        self.refusals.update({name: "it raised an error" for name in ready if name not in rounds})
        ahead = {name: took for name, took in rounds.items() if name not in NEVER_CAPTURED}
        if self.device.type == "cuda":
            left = {name: runs[name] for name in ahead}
            ahead = measure_ahead(left, _medians(rounds), self.group, self.device, seed)
        found = best_of(rounds), _medians(rounds), best_of(ahead), _medians(ahead)
        if self.group.rank == 0:
            save_choice(self.call, *found)
        return self.record("measured", *found)

    def record(
        self,
        source: Literal["measured", "cache", "named"],
        chosen: str,
        times: dict[str, float],
        captured: str,
        device_times: dict[str, float],
    ) -> Choice:
        """What users can read of it."""
        call, refusals = self.call, dict(sorted(self.refusals.items()))
        shape = (call.rows, call.inner, call.columns)
        about = (call.operator, shape, call.dtype, call.dim, call.ranks, call.device)
        return Choice(*about, chosen, source, times, captured, device_times, refusals)


def _medians(rounds: Mapping[str, list[float]]) -> dict[str, float]:
    return {name: statistics.median(took) for name, took in rounds.items()}


def _exchange(
    call: MatmulCall, group: RankGroup, device: torch.device, named: int, cached: int
) -> tuple[dict[str, str], list[list[int]]]:
    """Why implementations cannot be used on all ranks; by rank, a digest of the call, what was named, what is kept."""
    group.meet(device)
    refusals = _refusals(call, group, device)
    usable = [int(name not in refusals) for name in IMPLEMENTATIONS]
    every = group.gather([digest_number(key_of(call)), named, cached, *usable], device)
    if len({numbers[0] for numbers in every}) > 1:
        raise UsageError(
            f"the ranks called {call.operator} with different shapes, dtypes or versions of torch (here: {call}); give "
            "every rank of the group tensors of the same shape, and `size` where the last ranks have fewer rows."
        )
    for name, *oks in zip(IMPLEMENTATIONS, *(numbers[3:] for numbers in every), strict=True):
        if not all(oks):
            refusals.setdefault(name, "another rank cannot use it")
    return refusals, every


def _refusals(call: MatmulCall, group: RankGroup, device: torch.device) -> dict[str, str]:
    """By name, what this rank knows against it."""
    if getattr(torch, call.dtype) not in DTYPES:
        return {name: f"it is not made for {call.dtype}" for name in IMPLEMENTATIONS if name != "plain"}
    found = {name: one.refusal(call, group, device) for name, one in IMPLEMENTATIONS.items()}
    return {name: reason for name, reason in found.items() if reason}


def _asked_for(every: list[list[int]]) -> str:
    """What was asked for by name; where ranks were told different names, that of the first that was told one."""
    numbers = [numbers[1] for numbers in every]
    if len(set(numbers)) > 1:
        say_once(f"The ranks were told different implementations ({VARIABLE}); that of the first one told counts.")
    return _NAMES.get(next((number for number in numbers if number), 0), "")
