# SPDX-License-Identifier: Apache-2.0
"""Drives a :class:`lagom.search.TuningSession` on the simulator, as the controller drives it on a live job."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from lagom.records import Sample
from lagom.search import TuningSession, WindowRequest, WindowResult
from lagom.search.moves import Pairs
from lagom.sim.simulator import Iteration, Simulator, noisy


class SimulatedJob:
    """A job that runs on the simulator: answers windows with noisy pairs, alternating as a live window does.

    ``noise``: one sigma of an iteration's Z, as a share. ``drift``: how far everything wanders (sigma of a slow sine of
    random phase, as a share), the same for both arms of a pair but not for two windows.
    """

    def __init__(self, simulator: Simulator, seed: int, noise: float = 0.02, drift: float = 0.0) -> None:
        self.simulator, self.noise, self.drift = simulator, noise, drift
        self.iterations = 0
        self._rng = np.random.default_rng(seed)
        self._phase = float(self._rng.uniform(0.0, 2.0 * math.pi))

    def measure(self, request: WindowRequest, should_cut: Callable[[Pairs], bool] | None = None) -> WindowResult:
        """One window: incumbent, candidate, candidate, incumbent, ..., cut short if ``should_cut`` says so."""
        incumbent, candidate = (self.simulator.run(a) for a in (request.incumbent, request.candidate))
        pairs: list[tuple[Sample, Sample]] = []
        for number in range(request.pairs):
            if number % 2 == 0:
                first = self._iteration(incumbent)
                pairs.append((first, self._iteration(candidate)))
            else:
                first = self._iteration(candidate)
                pairs.append((self._iteration(incumbent), first))
            if should_cut is not None and number + 1 < request.pairs and should_cut(tuple(pairs)):
                return WindowResult(tuple(pairs), ended_early=True)
        return WindowResult(tuple(pairs))

    def drive(self, session: TuningSession) -> TuningSession:
        """Run the session to its end."""
        while (request := session.request()) is not None:
            session.report(self.measure(request, session.should_cut))
        return session

    def _iteration(self, truth: Iteration) -> Sample:
        self.iterations += 1
        sample = noisy(truth, self._rng, self.noise)
        if self.drift == 0.0:
            return sample
        return sample.scaled(1.0 + self.drift * math.sqrt(2.0) * math.sin(self._phase + self.iterations / 500.0))
