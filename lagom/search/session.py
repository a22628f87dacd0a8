# SPDX-License-Identifier: Apache-2.0
"""The tuning session: what the simulator and the live job both drive.

    while (request := session.request()) is not None:
        session.report(measure(request))

A request names two assignments, the incumbent (the best confirmed so far; stock at first) and a candidate. Whoever
drives measures them alternately within one window and hands back pairs. The session owns everything that decides: the
strategy, the statistics, the final A/B, what becomes incumbent. The driver owns everything that touches the world.

The course of a run::

    baseline   stock against stock: the noise, and the levels of X, Y, Z
    trial      what the strategy proposes, beside the incumbent, until its question is answered
    confirm    a clearly faster trial, on fresh samples: it becomes the incumbent, and is proven
    final      an end result that is not proven yet against stock, on fresh samples: used only if it is proven

A session is deterministic: the same problem, strategy, seed and results lead to the same requests (``replay.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from typing import cast

import numpy as np

from lagom.errors import LagomError
from lagom.format import format_percent
from lagom.records import Against, Assignment, MoveVerdict, OutcomeVerdict, Problem, Sample
from lagom.search import statistics
from lagom.search.accounting import Accounting, with_best
from lagom.search.base import JUDGED, Answer, Comparison, MoveNote, NonConforming, Proposal, Strategy, percent
from lagom.search.best_so_far import best_so_far
from lagom.search.measurements import Measurements, Trial
from lagom.search.moves import SearchMove, SearchOutcome, Suggestion, WindowRequest, WindowResult, roomier
from lagom.search.proof import NOTHING_PROVEN
from lagom.search.proof_budget import ProofBudget
from lagom.search.sequential_test import SequentialTest
from lagom.search.space import Space
from lagom.search.stopping_rule import LIVE, Policy, StoppingRule

Windows = Generator[WindowRequest, WindowResult, None]
Suggest = Callable[[float | None, float | None], Sequence[Suggestion]]
"""Asked for candidates when stock's X and Y are known (ns, ``None`` where unseen)."""
MOST_FINALS = 2  # tests at the level of a final A/B in one run
FEW = 3  # pairs of which the median may still be an outlier
CANDIDATE = "candidate"  # phase of the moves that try what an earlier search found
EARLIER = "an earlier search"  # where a candidate is from, if that is not said


class IllegalProposal(LagomError):
    """A strategy proposed a config that this communicator must not be given; nothing was measured."""


class TuningSession:
    """One tuning run of one communicator, driven from outside a window at a time."""

    def __init__(
        self,
        strategy: Strategy,
        problem: Problem,
        policy: Policy = LIVE,
        seed: int = 0,
        *,
        candidates: Sequence[Assignment] = (),
        suggest: Suggest | None = None,
    ) -> None:
        """``seed`` is kept for the log; a strategy brings its own. ``candidates``: what earlier searches found, tried
        in this order before anything else; :attr:`left_out` says which are not legal here and why. ``suggest``: asked
        for more of them after the baseline; they are tried after these. Nothing is measured before the first
        request."""
        self.strategy = strategy
        self.problem = problem
        self.policy = policy
        self.seed = seed
        self.outcome: SearchOutcome | None = None
        self.measurements = Measurements(Assignment.stock(len(problem.sites)))
        self.candidates, self.left_out = fitting(strategy.space, candidates)
        self._suggest, self._origins = suggest, dict[Assignment, str]()
        self._accounting = Accounting(self.measurements, policy)
        self._stopping_rule = StoppingRule(self.measurements, policy)
        self._failed: set[Assignment] = set()  # confirmations that did not hold
        self._confirmations = 0
        self._finals = 0  # tests against stock at the level of a final A/B
        self._final: SequentialTest | None = None  # the final A/B under way
        self._proof = NOTHING_PROVEN  # of the incumbent
        self._is_proof_missing = False  # the time was over before a final A/B, or in the midst of it
        self._enough = ""  # why the driver wants no more trials
        self._budget = ProofBudget(self.measurements, policy)
        self._is_not_proven_next = False  # a replay knows that the log confirmed nothing here
        self._is_last_look = False  # the driver knows that the test under way ends with the next window
        self._course = self._run()
        self._wanted: WindowRequest | None = next(self._course)

    @property
    def incumbent(self) -> Assignment:
        """The best confirmed assignment so far; stock at first."""
        return self.measurements.incumbent

    @property
    def lost_iterations(self) -> float:
        """What the search has cost the job so far, in stock iterations; gains do not pay for it."""
        return self._accounting.lost_iterations

    @property
    def untried(self) -> tuple[Assignment, ...]:
        """The candidates that were not measured yet."""
        return tuple(each for each in self.candidates if self.measurements.trial(each) is None)

    @property
    def moves(self) -> tuple[SearchMove, ...]:
        """Every move so far."""
        return tuple(self._accounting.moves)

    def request(self) -> WindowRequest | None:
        """The window wanted next, the same one until it is reported; ``None`` = the session is over."""
        return self._wanted

    def report(self, result: WindowResult) -> SearchMove:
        """Hand in the wanted window; returns what was made of it. Raises RuntimeError if none was wanted."""
        if self._wanted is None:
            raise RuntimeError("no window is wanted: the session is over (see its outcome)")
        before = len(self._accounting.moves)
        result = result.plausible()
        self._accounting.take(result)
        if self._budget.time.pairs < self._budget.kept(self._proven) + self.policy.pairs_first:
            self.wrap_up(self._budget.time.reason)
        try:
            self._wanted = self._course.send(result)
        except StopIteration:
            self._wanted = None
        self._is_not_proven_next = False
        assert len(self._accounting.moves) == before + 1, "one window, one move"
        return self._accounting.moves[-1]

    def should_cut(self, pairs: Sequence[tuple[Sample, Sample]]) -> bool:
        """True if these pairs of the running window already show a candidate slower beyond doubt: end the window."""
        if self._wanted is None or self._wanted.purpose == "baseline" or len(pairs) < 2:
            return False
        slower = [math.log(candidate.z / incumbent.z) for incumbent, candidate in pairs]
        doubt = 3.0 * self.measurements.noise.sigma / math.sqrt(len(slower))
        surely = np.median(slower) if len(slower) > FEW else min(slower)  # one pause of the job must not speak for all
        return float(surely) - doubt > math.log1p(self.policy.cut_above)

    def wrap_up(self, reason: str) -> None:
        """Try nothing new: the best so far goes into the final A/B. No effect once that has begun."""
        self._enough = self._enough or reason

    def set_time_left(self, pairs: float, reason: str) -> None:
        """The driver's time limit, told before each report: about ``pairs`` more pairs can be measured. What a final
        A/B most likely needs is kept for it, at most half of what there was at first. ``reason``: why the search will
        have ended."""
        self._budget.set_time(pairs, reason)

    def end_test(self) -> None:
        """The test under way, if any, has its last look after the next window (a replay knows where a log's ended)."""
        self._is_last_look = True

    def skip_proof(self) -> None:
        """What the next window shows is not confirmed, if proofs have used up their time (a replay knows that the log
        went on without)."""
        self._is_not_proven_next = self._budget.spent > 0

    def stop(self, reason: str) -> None:
        """End at once, on the incumbent. No effect on a session that is over."""
        if self.outcome is None:
            self._course.close()
            self._wanted = None
            self.outcome = self._accounting.stopped(reason, self._final, self._proof)

    # -- the course of a run

    def _run(self) -> Windows:
        if not (yield from self._baseline()):
            why = "no window of stock iterations could be measured"
            self.outcome = self._accounting.outcome("stopped", self.measurements.stock, why)
            return
        answer = yield from self._search()
        yield from self._conclude(answer)

    def _baseline(self) -> Generator[WindowRequest, WindowResult, bool]:
        stock, why = self.measurements.stock, "stock against itself: noise and reference levels"
        wanted = self.policy.pairs_baseline
        for attempt in range(self.policy.retries + 1):
            result = yield self._accounting.ask("baseline", stock, stock, roomier(wanted, attempt), why)
            if len(result.pairs) >= (wanted // 2 if attempt < self.policy.retries else 2):
                level = self.measurements.set_baseline(result.pairs)
                self._write("baseline", self._accounting.describe_baseline(level), against="stock")
                return True
            self._write("missing", f"the window came back with {len(result.pairs)} of {wanted} pairs", against="stock")
        return False

    def _search(self) -> Generator[WindowRequest, WindowResult, Answer]:
        """Drive the strategy until it answers or the budget is spent."""
        yield from self._try_candidates()
        try:
            course = self.strategy.moves(self.measurements)
        except TypeError as error:
            raise NonConforming(f"moves() of strategy {self.strategy.name} cannot be called: {error}") from error
        if not isinstance(course, Generator):
            raise NonConforming(f"moves() of strategy {self.strategy.name} is no generator: it yields its proposals")
        given_up = 0
        step = _advance(course, None)
        while isinstance(step, Proposal):
            if self._open(step) and (spent := self._accounting.limit_reached(step.candidate, given_up) or self._enough):
                course.close()
                self._accounting.expected_gain = self.strategy.expected_gain
                return Answer(self.measurements.fastest(), spent, cut_short=True)
            if self.strategy.checked and (wrong := self.strategy.space.why_illegal(step.candidate)):
                raise IllegalProposal(f"strategy {self.strategy.name} proposed what is not legal here: {wrong}")
            comparison = yield from self._settle(step)
            given_up = given_up + 1 if comparison.new is None else 0
            proposal, step = step, _advance(course, comparison)
            self._explain(proposal, comparison)
            if comparison.new is not None and (due := self._due(comparison.new)) is not None:
                yield from self._confirm(due.assignment)
        return step

    def _try_candidates(self) -> Windows:
        """What earlier searches found is measured like any trial, but given up after a window whose pairs are all
        slower: one that was found where something else was the bottleneck costs one window."""
        self._ask_for_suggestions()
        for number, candidate in enumerate(self.candidates, 1):
            if self._enough or self._accounting.limit_reached(candidate, 0):
                return
            origin = self._origins.get(candidate, EARLIER)
            why = f"candidate {number} of {len(self.candidates)} from {origin}"
            comparison = yield from self._settle(Proposal(candidate, why, cautious=True), CANDIDATE)
            if self._accounting.unwritten:
                measured = f"{why}: {percent(comparison.delta, 'the incumbent')}"
                self._write(cast("MoveVerdict", comparison.verdict), measured, phase=CANDIDATE)
            if comparison.new is None:
                return  # nothing can be measured now
            if comparison.better and self._worth_confirming(comparison.new, self.policy.promote_gain):
                yield from self._confirm(candidate)

    def _ask_for_suggestions(self) -> None:
        if self._suggest is None:
            return
        stock = self.measurements.known(self.measurements.stock)
        for suggestion in self._suggest(stock.x, stock.y):
            kept, left_out = fitting(self.strategy.space, [suggestion.assignment])
            fresh = [each for each in kept if each not in self.candidates]
            self._origins |= dict.fromkeys(fresh, suggestion.origin)
            self.candidates, self.left_out = (*self.candidates, *fresh), (*self.left_out, *left_out)

    def _settle(self, proposal: Proposal, phase: str = "") -> Generator[WindowRequest, WindowResult, Comparison]:
        """Windows until the proposal's question is answered. The last one stays unwritten: its sentence is the
        strategy's."""
        new, old = proposal.candidate, proposal.against or self.incumbent
        empty = 0
        while self._open(proposal) and not (self._enough and self.measurements.trial(new)):
            target = self._stopping_rule.less_sure(new, old)
            pairs = self._stopping_rule.pairs_for(target, old, proposal.cautious)
            if self._accounting.unwritten:
                why = f"not decided yet, measured again: {proposal.why}"
                self._write("more", why, site=proposal.site, phase=phase)
            result = yield self._accounting.ask(
                "trial", self.incumbent, target, roomier(pairs, empty), proposal.why, about=new
            )
            if result.pairs:
                empty = 0
                self.measurements.add(target, self.incumbent, result.pairs)
            elif (empty := empty + 1) > self.policy.retries:
                break
            else:
                why = f"the window came back empty, asked again: {proposal.why}"
                self._write("missing", why, site=proposal.site, phase=phase)
            if proposal.once or (result.ended_early and target == new):
                break
            if phase == CANDIDATE and result.pairs and all(its.z > other.z for other, its in result.pairs):
                break
        return self._stopping_rule.comparison(new, old)

    def _open(self, proposal: Proposal) -> bool:
        """True while the proposal needs a window (more)."""
        fresh = proposal.once and proposal.candidate != self.incumbent
        return fresh or self._stopping_rule.undecided(proposal, proposal.against or self.incumbent)

    def _explain(self, proposal: Proposal, comparison: Comparison) -> None:
        """Write the trial's last window with what the strategy made of it."""
        note = self.strategy.take_explanation()
        if not self._accounting.unwritten:
            return  # answered from what was known already: no window, no move
        note = note or MoveNote(f"{proposal.why}: {percent(comparison.delta)}")
        verdict = note.verdict or comparison.verdict
        if verdict not in JUDGED:
            raise NonConforming(f"the verdict of a comparison is one of {', '.join(JUDGED)}, not {verdict!r}")
        against: Against = "incumbent" if proposal.against in (None, self.incumbent) else "point"
        self._accounting.write(cast("MoveVerdict", verdict), note, against=against, site=proposal.site)

    def _write(
        self,
        verdict: MoveVerdict,
        reason: str,
        *,
        against: Against = "incumbent",
        site: int | None = None,
        phase: str = "",
    ) -> None:
        """A window that decided nothing, or that no strategy asked for."""
        self._accounting.write(verdict, MoveNote(reason, phase=phase), against=against, site=site)

    # -- what becomes the incumbent, and what the job is left with

    def _due(self, new: Trial) -> Trial | None:
        """What is confirmed now: the trial just measured, if it is much faster than the incumbent; or else the best so
        far, if the search has gone on for long with nothing proven."""
        if self._worth_confirming(new, self.policy.promote_gain):
            return new
        if not self.strategy.proves_early or self._finals:
            return None
        best = self.measurements.known(self.measurements.fastest())
        is_overdue = self._budget.is_overdue(best, self._accounting.pairs)
        return best if is_overdue and self._worth_confirming(best, 0.0) else None

    def _worth_confirming(self, trial: Trial, least: float) -> bool:
        if trial.assignment in self._failed or trial.assignment == self.incumbent:
            return False
        gain = -math.log(trial.z / self.measurements.known(self.incumbent).z)
        if self._enough or gain < max(least, self.policy.certainty * trial.z_se):
            return False
        if self._budget.time.pairs < self.policy.looks[0]:
            self.wrap_up(self._budget.time.reason)
        return not self._enough and self._may_prove()

    def _may_prove(self) -> bool:
        """Proofs get at most half of a search with a time limit."""
        return self._budget.is_left and not self._is_not_proven_next

    @property
    def _proven(self) -> Assignment | None:
        """The incumbent, once it is proven to be faster than stock."""
        return self._proof.assignment if self._proof.tests else None

    def _confirm(self, candidate: Assignment) -> Windows:
        """Fresh samples against the incumbent; promoted if they hold. The first of a run, against stock, has the level
        of a final A/B; each other one has its own share of alpha."""
        if self._finals == 0 and self.incumbent.is_stock:
            self._finals += 1
            level = statistics.final_level(self.policy.alpha)
        else:
            self._confirmations += 1
            level = statistics.confirmation_level(self.policy.alpha, self._confirmations)
        policy = self.policy
        test = SequentialTest("confirm", self.incumbent, candidate, level, policy.looks, policy.epsilon)
        yield from self._run_test(test, "fresh samples before it becomes the incumbent")
        if not test.passed:
            self._failed.add(candidate)

    def _run_test(self, test: SequentialTest, why: str) -> Windows:
        """Windows of fresh pairs until the claim stands or falls; a proven candidate becomes the incumbent."""
        empty = 0
        while test.open:
            pairs = self._budget.time.fitting(roomier(test.pairs_wanted, empty))
            result = yield self._accounting.ask(test.purpose, test.against, test.candidate, pairs, why)
            if result.pairs:
                empty = 0
                self._budget.spent += len(result.pairs)
                self.measurements.add(test.candidate, test.against, result.pairs)
                test.add(result, self.measurements.noise.sigma, last=self._takes_last_look(test))
            elif (empty := empty + 1) > self.policy.retries:
                test.give_up()
            if test.passed:
                self.measurements.promote(test.candidate)
                self._proof = self._proof.followed_by(test)
            verdict: MoveVerdict = test.verdict if result.pairs or not test.open else "missing"
            note = MoveNote(f"{why}: {test.sentence or 'the window came back empty'}")
            against: Against = "stock" if test.against.is_stock else "incumbent"
            self._accounting.write(verdict, note, against=against, measured=test.measured)

    def _takes_last_look(self, test: SequentialTest) -> bool:
        """Whether a test ends here, because there is no time for another window."""
        is_last, self._is_last_look = self._is_last_look, False
        is_last |= test.purpose == "confirm" and not self._may_prove()
        return is_last or self._budget.time.pairs < self.policy.pairs_first

    def _conclude(self, answer: Answer) -> Windows:
        """The final A/B against stock of what is not proven yet; the job is left with what is proven."""
        for contender in self._contenders(answer.assignment):
            if contender == self._proven or self._finals == MOST_FINALS:
                break
            level, policy = statistics.final_level(self.policy.alpha), self.policy
            stock, proven = self.measurements.stock, self._proof.speedup
            test = SequentialTest("final", stock, contender, level, policy.looks, policy.epsilon, proven)
            if self._budget.time.fitting(test.pairs_wanted) < test.least:  # as many as fit could prove nothing
                answer, self._final, self._is_proof_missing = replace(answer, cut_short=True), None, True
                break
            self._final, self._finals = test, self._finals + 1
            yield from self._run_test(test, "final A/B against plain NCCL")
            if test.passed:
                break
            if test.cut_off:
                answer, self._is_proof_missing = replace(answer, cut_short=True), True
        self.outcome = self._proven_outcome(answer) if self._proof.tests else self._outcome_without_proof(answer)

    def _proven_outcome(self, answer: Answer) -> SearchOutcome:
        reason = f"{self._proof.sentence}; search stopped: {answer.reason}"
        return self._accounting.outcome(
            "improved", self._proof.assignment, reason, self._proof.tests[-1], answer, self._proof
        )

    def _outcome_without_proof(self, answer: Answer) -> SearchOutcome:
        test, stock = self._final, self.measurements.stock
        self.measurements.incumbent = stock
        best = best_so_far(self.measurements, self.policy, test) if self._is_proof_missing else None
        verdict: OutcomeVerdict = "cut_short" if answer.cut_short else "stock_is_best"
        what = "nothing faster than plain NCCL found" if answer.cut_short else "plain NCCL is already best here"
        if best is not None:
            what = f"no proof yet of {best}"
        tried, effect = self.measurements.tried, format_percent(self._accounting.resolvable(test))
        reason = f"{what}: {tried} configs, smallest detectable effect {effect}; search stopped: {answer.reason}"
        if test is not None:
            reason += f"; final A/B of its choice: {test.sentence}"
        return with_best(self._accounting.outcome(verdict, stock, reason, test, answer), best)

    def _contenders(self, answer: Assignment) -> list[Assignment]:
        """What the job may be left with, the best first: the answer unless the incumbent is clearly faster, then the
        incumbent. Where that is proven, the answer only if it is likely faster still."""
        stock, incumbent = self.measurements.known(self.measurements.stock), self.measurements.known(self.incumbent)
        trial = self.measurements.trial(answer)
        chosen = [incumbent]
        margin = 1.0 + self.policy.epsilon
        if trial is not None and self._proof.tests:
            margin = math.exp(-trial.z_se)
        if trial is not None and trial.z <= incumbent.z * margin:
            chosen.insert(0, trial)
        return list(dict.fromkeys(each.assignment for each in chosen if each.z < stock.z))


def fitting(space: Space, candidates: Iterable[Assignment]) -> tuple[tuple[Assignment, ...], tuple[str, ...]]:
    """Of ``candidates`` those that may be tried, each once and stock not at all; and a sentence for each other one."""
    kept, left_out = [], []
    for candidate in dict.fromkeys(map(space.normal, candidates)):
        if wrong := space.why_illegal(candidate):
            left_out.append(f"a candidate from an earlier search is left out, it is not legal here: {wrong}")
        elif not candidate.is_stock:
            kept.append(candidate)
    return tuple(kept), tuple(left_out)


def _advance(course: Generator[Proposal, Comparison, Answer], comparison: Comparison | None) -> Proposal | Answer:
    """The strategy's next proposal, or its answer. What else it does is a fault of the strategy; it ends the search."""
    try:
        step = course.send(comparison)  # type: ignore[arg-type]  # None starts a generator
    except StopIteration as stopped:
        step = stopped.value
    except LagomError:
        raise
    except Exception as error:
        raise NonConforming(f"the strategy's moves() raised {type(error).__name__}: {error}") from error
    if not isinstance(step, Proposal | Answer):
        raise NonConforming(f"moves() gave {step!r}; it yields Proposal and returns Answer")
    return step
