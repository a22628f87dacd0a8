# SPDX-License-Identifier: Apache-2.0
"""What goes wrong during a soak, how often, and what is done to bring it about. Drawn from one seed."""

from __future__ import annotations

import heapq
import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.soak.damage import PLACES, Header, scribble
from tests.soak.generation import Generation
from tests.soak.keeper import REFUSED, Keeper, forked_controller

SECOND_CONTROLLER_SECONDS = 180.0  # on a busy machine


class Weather:
    """Does one thing after another to the controller, the ranks and the region. ``haste``: how many times as often."""

    def __init__(self, keeper: Keeper, seed: int, log: Path, environ: dict[str, str], haste: float) -> None:
        self.counts: Counter[str] = Counter()
        self.faults: list[str] = []
        self.generation: Generation | None = None
        self._keeper, self._dice, self._log, self._environ = keeper, random.Random(seed), log, environ
        self._pause = 0.7 / haste
        self.calm = 1.0  # times as long between two blows: now and then a search must come to its end
        self._later: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = 0
        self._header_is_bad = False
        self._repaired = 0.0  # when it was, last
        self._next = time.monotonic() + 1.0
        self._kinds: dict[Callable[[], str], int] = {
            self._kill_controller: 6,
            self._stop_controller: 2,
            self._pause_controller: 4,
            self._pause_ranks: 6,
            self._kill_rank: 1,
            self._kill_everybody: 1,
            self._damage: 9,
            self._pin: 2,
            self._second_controller: 1,
        }

    @property
    def damaged_until(self) -> float:
        """Who began before may have found the region damaged: seconds of the monotonic clock."""
        return float("inf") if self._header_is_bad else self._repaired

    def blow(self) -> None:
        """Whatever is due."""
        now = time.monotonic()
        while self._later and self._later[0][0] <= now:
            heapq.heappop(self._later)[2]()
        if now >= self._next and self.generation is not None and not self.generation.dying:
            (kind,) = self._dice.choices([*self._kinds], weights=[*self._kinds.values()])
            self.counts[kind()] += 1
            self._next = now + self.calm * self._pause * self._dice.expovariate(1.0)

    def settle(self) -> None:
        """Everything that was to be taken back, now."""
        while self._later:
            heapq.heappop(self._later)[2]()

    def _after(self, seconds: float, what: Callable[[], None]) -> None:
        self._serial += 1
        heapq.heappush(self._later, (time.monotonic() + seconds, self._serial, what))

    # -- the controller

    def _kill_controller(self) -> str:
        self._keeper.kill(self._dice.choice([0.0, 0.0, self._dice.expovariate(1.0)]))
        return "controllers killed"

    def _stop_controller(self) -> str:
        self._keeper.stop(self._dice.expovariate(2.0))
        return "controllers stopped and restarted"

    def _pause_controller(self) -> str:
        self._keeper.pause(self._dice.uniform(0.02, 3.0))
        return "controllers paused"

    def _second_controller(self) -> str:
        """A second one for the same job: refused, because the first holds the lock, even if it is paused."""
        if not self._keeper.is_up or self._header_is_bad or not self._keeper.has_attached():
            return "second controllers not tried"
        arguments = ["--job-key", self._keeper.key, "--clock", "simulated", "--dir", str(self._log.parent / "second")]
        (self._log.parent / "second").mkdir(exist_ok=True)
        second = forked_controller(arguments, self._environ, self._log.parent / "second" / "controller.log")
        try:
            code = second.wait(SECOND_CONTROLLER_SECONDS)
        except subprocess.TimeoutExpired:
            second.kill()
            code = second.wait()
        if code != REFUSED:
            self.faults.append(f"a second controller ended with {code} instead of being refused")
        return "second controllers refused"

    def _pin(self) -> str:
        """``lagom set`` writes this file; without it the search begins anew."""
        pins = self._log / "pins"
        if pins.exists():
            pins.unlink()
            return "pins taken back"
        pins.write_text(f"any:>=64K:nc={self._dice.randint(1, 8)}\n")
        self._after(self._dice.uniform(0.5, 3.0), lambda: pins.unlink(missing_ok=True))
        return "pins set"

    # -- the ranks

    def _pause_ranks(self) -> str:
        assert self.generation is not None
        ranks = self.generation.spec.ranks
        chosen = self._dice.sample(range(ranks), self._dice.choice([1, 1, 2, ranks]))
        for rank in chosen:
            self.generation.pause(rank, self._dice.choice([0.01, 0.1, 1.0]) * self._dice.random())
        self.counts["ranks paused"] += len(chosen) - 1
        return "ranks paused"

    def _kill_rank(self) -> str:
        assert self.generation is not None
        self.generation.kill(self._dice.randrange(self.generation.spec.ranks))
        return "ranks killed, the others restarted"

    def _kill_everybody(self) -> str:
        """As when the power goes: every rank and the controller, at once."""
        assert self.generation is not None
        for rank in range(self.generation.spec.ranks):
            self.generation.kill(rank)
        self._keeper.kill(self._dice.choice([0.0, 1.0]))
        return "everybody killed"

    # -- the region

    def _damage(self) -> str:
        kind = self._dice.choice([*PLACES])
        if kind == "header":
            self._damage_header()
        for _ in range(self._dice.choice([3, 20, 100])):
            self._after(self._dice.random() * 0.3, lambda: self._scribble(kind))
        return f"bursts of noise over {kind}"

    def _damage_header(self) -> None:
        """What never changes in it is put back after a while, as by somebody who removes what he finds damaged."""
        if not self._keeper.region.exists() or self._header_is_bad:
            return
        header, self._header_is_bad = Header(self._keeper.region), True
        self._after(self._dice.uniform(0.5, 3.0), lambda: self._repair(header))

    def _repair(self, header: Header) -> None:
        header.repair()
        self._header_is_bad, self._repaired = False, time.monotonic()

    def _scribble(self, kind: str) -> None:
        if kind != "header" or self._header_is_bad:
            self.counts["writes of noise"] += scribble(self._keeper.region, kind, self._dice)
