# SPDX-License-Identifier: Apache-2.0
"""The accounting of a run: what was asked, what it cost, and the one move written for each window, the outcome."""

from __future__ import annotations

import math
from dataclasses import replace

from lagom.format import format_percent
from lagom.records import Against, Assignment, MoveVerdict, OutcomeVerdict
from lagom.search import statistics
from lagom.search.base import Answer, MoveNote
from lagom.search.best_so_far import BestSoFar, best_so_far
from lagom.search.measurements import Measurements, Trial
from lagom.search.moves import SearchMove, SearchOutcome, WindowRequest, WindowResult
from lagom.search.proof import Proof
from lagom.search.sequential_test import SequentialTest
from lagom.search.stopping_rule import Policy
from lagom.search.time_lost import TimeLost

KEPT = ("better", "confirmed")  # verdicts, where the strategy does not say


class Accounting:
    """Numbers requests, counts iterations and regret, composes moves."""

    def __init__(self, measurements: Measurements, policy: Policy) -> None:
        self.moves: list[SearchMove] = []
        self.iterations = 0
        self.expected_gain: float | None = None  # of a search that was cut short, as its strategy has it
        self._time_lost = TimeLost()
        self._measurements = measurements
        self._policy = policy
        self._asked: WindowRequest | None = None
        self._about = measurements.stock
        self._taken: WindowResult | None = None

    def ask(
        self,
        purpose: str,
        incumbent: Assignment,
        candidate: Assignment,
        pairs: int,
        why: str,
        *,
        about: Assignment | None = None,
    ) -> WindowRequest:
        """The next request. ``about``: whose question this window serves, where that is not what it measures."""
        self._about = about or candidate
        self._asked = WindowRequest(len(self.moves) + 1, incumbent, candidate, pairs, purpose, why)
        return self._asked

    def take(self, result: WindowResult) -> None:
        """The window came back; :meth:`write` must follow once it is known what it meant."""
        self._taken = result
        self.iterations += 2 * result.candidate_iterations
        asked, measurements = self._asked, self._measurements
        if asked is not None and asked.purpose != "baseline" and result.pairs:
            self._time_lost.add(
                asked.candidate,
                result.pairs,
                result.candidate_iterations,
                sigma=measurements.noise.sigma,
                level=measurements.known(asked.incumbent).z / measurements.known(measurements.stock).z,
            )

    @property
    def lost_iterations(self) -> float:
        """Time lost against stock, in stock iterations."""
        return self._time_lost.lost

    @property
    def pairs(self) -> int:
        """Of all windows so far."""
        return sum(move.pairs for move in self.moves)

    @property
    def unwritten(self) -> bool:
        """True between :meth:`take` and :meth:`write`."""
        return self._taken is not None

    def write(
        self,
        verdict: MoveVerdict,
        note: MoveNote,
        *,
        against: Against = "incumbent",
        site: int | None = None,
        measured: tuple[float, float, float] | None = None,
    ) -> None:
        """Close the window taken last with one move."""
        request, result = self._asked, self._taken
        assert request is not None, "nothing was asked"
        assert result is not None, "one window, one move"
        self._taken = None
        move = SearchMove(
            number=request.number,
            purpose=request.purpose,
            candidate=self._about,
            verdict=verdict,
            reason=note.reason,
            kept=verdict in KEPT if note.kept is None else note.kept,
            phase=note.phase,
            against=against,
            knob=None if note.change is None else note.change.knob,
            before=None if note.change is None else note.change.before,
            after=None if note.change is None else note.change.after,
            h=note.h,
            site=site,
            pairs=len(result.pairs),
            discarded=result.discarded,
            lost_iterations=self._time_lost.lost,
            incumbent=request.incumbent,
            ran=None if request.candidate == self._about else request.candidate,
            samples=result.pairs,
            ended_early=result.ended_early,
            iterations=result.iterations,
        )
        self.moves.append(self._with_levels(move, measured))

    def _with_levels(self, move: SearchMove, measured: tuple[float, float, float] | None) -> SearchMove:
        """X, Y, Z, ratio and interval as known after this window; a sequential test has a ratio of its own samples."""
        trial = self._measurements.trial(move.candidate)
        if trial is None:
            return move
        se = trial.z_se or self._measurements.noise.sigma / math.sqrt(max(1, trial.pairs))
        move = replace(
            move,
            x=trial.x,
            y=trial.y,
            z=trial.z,
            z_error=se * trial.z,
            stragglers=trial.discarded,
            resolvable=statistics.resolvable(se, self._policy.certainty),
        )
        if move.purpose == "baseline":
            return move
        assert move.incumbent is not None
        ratio = trial.z / self._measurements.known(move.incumbent).z
        ratio, low, high = measured or (ratio, ratio * math.exp(-1.96 * se), ratio * math.exp(1.96 * se))
        return replace(move, ratio=ratio, ratio_low=low, ratio_high=high)

    def limit_reached(self, candidate: Assignment, given_up: int) -> str | None:
        """Why the search must end before ``candidate`` is measured, or ``None``."""
        measurements, configs = self._measurements, self._policy.configs_for(len(self._measurements.stock))
        if measurements.tried >= configs and measurements.trial(candidate) is None:
            return f"limit of {configs} configs reached"
        limit = self._policy.max_iterations
        if limit is not None and self.iterations >= limit:
            return f"limit of {limit} iterations reached after {self.iterations}"
        if given_up >= self._policy.missing_limit:
            return f"{given_up} moves in a row could not be measured"
        return None

    def resolvable(self, test: SequentialTest | None) -> float:
        """The smallest gain that would have been seen: in the final A/B, or else by a candidate with a full set of
        pairs."""
        if test is not None and test.found is not None:
            return statistics.resolvable(test.found.se, self._policy.certainty)
        se = self._measurements.noise.sigma / math.sqrt(self._policy.pairs_max)
        return statistics.resolvable(se, self._policy.certainty)

    def describe_baseline(self, level: Trial) -> str:
        """The reason of the baseline's move."""
        times = (("Z", level.z), ("X", level.x), ("Y", level.y))
        text = ", ".join(
            f"{name} {time / 1e6:.2f} ms" if time is not None else f"{name} not seen" for name, time in times
        )
        sigma = format_percent(self._measurements.noise.sigma)
        return f"stock: {text}; standard deviation of a pair: {sigma}"

    def stopped(self, reason: str, final: SequentialTest | None, proof: Proof) -> SearchOutcome:
        """The run ended before its final A/B, or in the midst of it: with what is proven, and the best so far where
        that is another one."""
        best = best_so_far(self._measurements, self._policy, final)
        if not proof.tests:
            return with_best(self.outcome("stopped", self._measurements.incumbent, reason), best)
        outcome = self.outcome("stopped", proof.assignment, f"{proof.sentence}; {reason}", proof=proof)
        if best is None or best.assignment == proof.assignment:
            return replace(outcome, missing_pairs=0)
        return with_best(outcome, best)

    def outcome(
        self,
        verdict: OutcomeVerdict,
        assignment: Assignment,
        reason: str,
        test: SequentialTest | None = None,
        answer: Answer | None = None,
        proof: Proof | None = None,
    ) -> SearchOutcome:
        """How the run ended. ``test``: its final A/B; ``answer``: what the strategy would have used; ``proof``: of
        what the job is left with. The speed-up is the proof's; without one, that of the final A/B which failed."""
        measured = proof or (Proof((test,)) if test is not None and test.found is not None else None)
        low, high = measured.interval if measured else (None, None)
        return SearchOutcome(
            assignment=assignment,
            verdict=verdict,
            reason=reason,
            speedup=measured.speedup if measured else None,
            speedup_low=low,
            speedup_high=high if high != math.inf else None,
            resolvable=self.resolvable(test) if self._measurements.noise.is_measured else None,
            configs=self._measurements.tried,
            windows=len(self.moves),
            iterations=self.iterations,
            regret_iterations=self._time_lost.lost,
            payback_iterations=self._time_lost.payback(proof.speedup) if proof else None,
            moves=tuple(self.moves),
            proposed=answer.assignment if answer else None,
            cut_short=answer is not None and answer.cut_short,
            expected_gain=self.expected_gain,
        )


def with_best(outcome: SearchOutcome, best: BestSoFar | None) -> SearchOutcome:
    """The outcome with the best that was measured and not proven, if there is one."""
    if best is None:
        return outcome
    return replace(
        outcome,
        best=best.assignment,
        best_speedup=best.speedup,
        best_low=best.low,
        best_high=best.high,
        missing_pairs=best.missing_pairs,
    )
