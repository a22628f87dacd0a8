# SPDX-License-Identifier: Apache-2.0
"""What a plan says for every call, worked out a second time: in Python, from the plan's bytes and the rank's calls.

Shares no code with csrc/plan. It does not say what NCCL makes of a config (that is the machine's business), only which
config the plan names for a call: the incumbent's, the candidate's while its lease lasts and it is its turn, a rule's,
or none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from lagom.records import STOCK, CommConfig, Function
from lagom.wire.layout import ANY_FUNCTION, TRANSPARENT_BELOW_BYTES, ffi
from lagom.wire.plan import read_config

HAS_CANDIDATE, START_SEARCHING = 1, 2
Shape = tuple[int, int]  # function, bytes


@dataclass(frozen=True)
class Named:
    """What a plan names for one call."""

    config: CommConfig
    candidate: bool = False


class Schedule:
    """A plan, from its bytes."""

    def __init__(self, raw: bytes) -> None:
        self._raw = ffi.from_buffer("struct lagom_plan *", raw)
        plan: Any = self._raw
        self.start, self.end = int(plan.start_call), int(plan.end_call)
        self.leased = bool(plan.flags & HAS_CANDIDATE)
        self._searching = bool(plan.flags & START_SEARCHING)
        self._block = int(plan.alternate_iterations)
        sites = [plan.sites[i] for i in range(plan.site_count)]
        self._sites = [(read_config(site.incumbent), read_config(site.candidate)) for site in sites]
        self._positions = [int(plan.positions[i]) for i in range(plan.position_count)]
        self._pattern: list[Shape] = [(sites[i].function, sites[i].bytes) for i in self._positions]
        rules = [plan.rules[i] for i in range(plan.rule_count)]
        self._rules = [
            (r.function, r.bytes_min, r.bytes_max, read_config(r.incumbent), read_config(r.candidate)) for r in rules
        ]

    def iteration(self, *, candidate: bool) -> list[tuple[Shape, CommConfig]]:
        """The calls of an iteration from position 0 on, and what the plan names for them in that turn."""
        configs = (self._sites[position][candidate] for position in self._positions)
        return list(zip(self._pattern, configs, strict=True))

    def names(self, shapes: Sequence[Shape]) -> Iterator[Named]:
        """For each call from :attr:`start` on, in order."""
        armed = bool(self._pattern) and not self._searching
        begun, position = 0, 0  # iterations begun while armed; place in the current one
        recent: list[Shape] = []  # what may be the beginning of a whole iteration, while not armed
        for call, shape in enumerate(shapes, self.start):
            leased = self.leased and call < self.end
            if is_transparent(shape):
                yield self._by_rule(shape, leased and (not self._pattern or (armed and self._turn(begun))))
            elif armed and shape == self._pattern[position]:
                begun += position == 0
                candidate = leased and self._turn(begun)
                yield Named(self._sites[self._positions[position]][candidate], candidate)
                position = (position + 1) % len(self._pattern)
            else:
                if armed:
                    armed, recent = False, self._pattern[:position]
                recent = [*recent, shape][-max(len(self._pattern), 1) :]
                yield self._by_rule(shape, leased and not self._pattern)
                if self._pattern and recent == self._pattern:
                    armed, position, recent = True, 0, []

    def _turn(self, begun: int) -> bool:
        """Whether the iteration is the candidate's: incumbent, candidate, candidate, incumbent, in blocks."""
        return begun > 0 and (begun - 1) // max(self._block, 1) % 4 in (1, 2)

    def _by_rule(self, shape: Shape, candidate: bool) -> Named:
        function, size = shape
        for rule_function, smallest, largest, *configs in self._rules:
            if rule_function in (function, ANY_FUNCTION) and smallest <= size <= largest:
                return Named(configs[candidate], candidate)
        return Named(STOCK, candidate)


def is_transparent(shape: Shape) -> bool:
    """Calls that do not advance a program."""
    return shape[1] < TRANSPARENT_BELOW_BYTES or shape[0] in (Function.BROADCAST, Function.REDUCE)
