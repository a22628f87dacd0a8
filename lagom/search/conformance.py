# SPDX-License-Identifier: Apache-2.0
"""The conformance suite: what every strategy owes the session, whoever wrote it.

    from lagom.search.conformance import check_conformance

    check_conformance(MyStrategy)

``MyStrategy`` is a class, or any function that makes a strategy from a problem and a seed. Each check of :data:`CHECKS`
can be run alone (``pytest.mark.parametrize("check", CHECKS)``). A check raises :class:`NonConforming`, which says what
was broken and where.
"""

from __future__ import annotations

from collections.abc import Callable

from lagom.records import Algorithm, Assignment, Knobs, Problem, Protocol
from lagom.search.base import NonConforming, Strategy
from lagom.search.landscape import Communication, Landscape, LandscapeDriver, comm_bound, compute_bound, flat
from lagom.search.moves import SearchOutcome
from lagom.search.replay import replay
from lagom.search.session import TuningSession
from lagom.search.stopping_rule import Policy

Make = Callable[[Problem, int], Strategy]

EPSILON = 0.01
MANY = Policy(max_configs=100_000, max_iterations=None)
SEEDS = 6  # of noise, for what may go wrong by chance
VERDICTS = {"baseline", "better", "worse", "tie", "more", "missing", "confirmed", "rejected"}


def check_conformance(make: Make) -> None:
    """Run every check on the strategy that ``make(problem, seed)`` gives. Takes seconds to a minute.

    Raises
    ------
    NonConforming
        At the first check that fails.
    """
    for check in CHECKS:
        check(make)


def landscapes() -> dict[str, Landscape]:
    """Small enough for an exhaustive search of coarse ladders, different enough to lead searches astray."""
    mixed = Landscape((Communication(8e6), Communication(3e6, exposed=1.0)), 30e6, ceiling=4)
    return {
        "compute_bound": compute_bound(ceiling=8),
        "comm_bound": comm_bound(),
        "one_exposed": mixed,
        "z_only": comm_bound(see_kernels=False),
        "flat": flat(1, ceiling=4),
        "one_site": Landscape((Communication(30e6),), 10e6, ceiling=8),
        "every_knob": every_knob(),
    }


def every_knob() -> Landscape:
    """Threads, and another protocol that is faster, offered with an algorithm for which no threads may be set too."""
    pairs = ((Algorithm.RING, Protocol.SIMPLE), (Algorithm.RING, Protocol.LL128), (Algorithm.TREE, Protocol.LL128))
    usable = tuple((int(algorithm), int(protocol)) for algorithm, protocol in pairs)
    return comm_bound(ceiling=2, usable=usable, knobs=Knobs(threads=True), protocol_factor=0.8)


def run(make: Make, landscape: Landscape, seed: int = 0, **disturbance: float) -> tuple[TuningSession, LandscapeDriver]:
    """One whole tuning run."""
    problem = landscape.problem()
    driver = LandscapeDriver(landscape, seed=seed, **disturbance)  # type: ignore[arg-type]
    return driver.drive(TuningSession(made(make, problem, seed), problem, MANY, seed)), driver


def made(make: Make, problem: Problem, seed: int) -> Strategy:
    """The strategy that ``make`` gives; raises :class:`NonConforming` where it cannot be called so, or gives another
    thing."""
    try:
        strategy = make(problem, seed)
    except TypeError as error:
        raise NonConforming(f"it cannot be made from a problem and a seed: {error}") from error
    _require(isinstance(strategy, Strategy), f"{type(strategy).__name__} is no subclass of lagom.Strategy")
    return strategy


def check_finishes(make: Make) -> None:
    """An outcome comes, each window has its move, and nothing more is wanted."""
    for name, landscape in landscapes().items():
        session, _ = run(make, landscape)
        outcome = _outcome(session, name)
        _require(session.request() is None, f"{name}: a window is wanted after the outcome")
        _require(outcome.windows == len(session.moves), f"{name}: {outcome.windows} windows counted")
        _require(outcome.verdict in ("improved", "stock_is_best"), f"{name}: the verdict is {outcome.verdict}")


def check_stays_legal(make: Make) -> None:
    """Every assignment asked for, and the final one, may be given to NCCL."""
    for name, landscape in landscapes().items():
        session, _ = run(make, landscape, noise=0.03)
        for assignment in (*(move.candidate for move in session.moves), _outcome(session, name).assignment):
            wrong = session.strategy.space.why_illegal(assignment)
            _require(wrong is None, f"{name}: not legal: {wrong}")


def check_never_ends_below_stock(make: Make) -> None:
    """True Z of the outcome is not above stock's by more than epsilon, whatever the noise suggested on the way."""
    for name, landscape in landscapes().items():
        for seed in range(SEEDS):
            session, driver = run(make, landscape, seed, noise=0.03)
            _not_below_stock(session, driver, f"{name}, seed {seed}")


def check_is_deterministic(make: Make) -> None:
    """The same seed and the same measurements: the same moves, to the last digit."""
    for seed in (0, 7):
        first, _ = run(make, compute_bound(ceiling=8), seed, noise=0.02)
        second, _ = run(make, compute_bound(ceiling=8), seed, noise=0.02)
        _require(first.moves == second.moves, f"seed {seed}: two runs with the same measurements differ in their moves")
        _require(first.outcome == second.outcome, f"seed {seed}: two runs with the same moves end differently")


def check_replays_from_its_log(make: Make) -> None:
    """A new session fed with the logged windows takes the same decisions and ends the same way."""
    landscape = comm_bound()
    session, _ = run(make, landscape, 3, noise=0.03, lose=0.1)
    again = replay(session.moves, made(make, landscape.problem(), 3), landscape.problem(), MANY)
    _require(again.outcome == session.outcome, "a replay of the moves ends differently")


def check_survives_outliers(make: Make) -> None:
    """Iterations three times as long, one in twenty: no worse than stock, no exception."""
    for name, landscape in landscapes().items():
        session, driver = run(make, landscape, 1, noise=0.02, outliers=0.05)
        _not_below_stock(session, driver, f"{name}, with outliers")


def check_survives_missing_windows(make: Make) -> None:
    """A third of the windows empty, then all of them: the run ends, and never on something unmeasured."""
    for seed in range(3):
        session, driver = run(make, comm_bound(), seed, noise=0.02, lose=0.33)
        _not_below_stock(session, driver, f"a third of the windows empty, seed {seed}")
    session, _ = run(make, comm_bound(), 0, lose=1.0)
    outcome = _outcome(session, "all windows empty")
    stopped = outcome.verdict == "stopped" and outcome.assignment.is_stock
    _require(stopped, f"all windows empty: ended as {outcome.verdict} on {outcome.assignment}")


def check_explains_each_move(make: Make) -> None:
    """Each move has a known verdict and one sentence that names what was done; trials carry Z."""
    for landscape in (compute_bound(ceiling=8), comm_bound(see_kernels=False)):
        session, _ = run(make, landscape, 2, noise=0.02)
        for number, move in enumerate(session.moves, 1):
            _require(move.number == number, f"move {number} has the number {move.number}")
            _require(move.verdict in VERDICTS, f"move {number}: unknown verdict {move.verdict!r}")
            one_sentence = 10 < len(move.reason) < 400 and "\n" not in move.reason
            _require(one_sentence, f"move {number}: not a sentence: {move.reason!r}")
            _require(move.z is not None, f"move {number}: no Z")
        _require(bool(_outcome(session, "explanations").reason), "the outcome has no reason")


def check_stops_when_told(make: Make) -> None:
    """``stop`` at any moment ends the run on what is confirmed."""
    landscape = comm_bound()
    problem = landscape.problem()
    for windows in range(0, 12, 3):
        driver, session = LandscapeDriver(landscape, noise=0.01), TuningSession(made(make, problem, 0), problem)
        for _ in range(windows):
            if (request := session.request()) is None:
                break
            session.report(driver.measure(request))
        confirmed = session.incumbent
        over = session.outcome
        session.stop("the job is ending")
        _require(session.request() is None, f"a window is wanted after a stop at window {windows}")
        outcome = _outcome(session, f"stopped at window {windows}")
        ended_there = over is not None or (outcome.verdict, outcome.assignment) == ("stopped", confirmed)
        _require(ended_there, f"stopped at window {windows}: {outcome.verdict} on {outcome.assignment}")


def check_works_for_every_number_of_sites(make: Make) -> None:
    """One communication to five; one of them may have nothing to move."""
    for count in (1, 3, 5):
        landscape = Landscape(tuple(Communication(5e6 * (i + 1)) for i in range(count)), 20e6, ceiling=2)
        session, driver = run(make, landscape, noise=0.01)
        _not_below_stock(session, driver, f"{count} sites")
        found = len(_outcome(session, f"{count} sites").assignment)
        _require(found == count, f"{count} sites: the outcome has {found} configs")
        _require(session.measurements.stock == Assignment.stock(count), f"{count} sites: stock was changed")


CHECKS = (
    check_finishes,
    check_stays_legal,
    check_never_ends_below_stock,
    check_is_deterministic,
    check_replays_from_its_log,
    check_survives_outliers,
    check_survives_missing_windows,
    check_explains_each_move,
    check_stops_when_told,
    check_works_for_every_number_of_sites,
)


def _require(condition: bool, broken: str) -> None:
    if not condition:
        raise NonConforming(broken)


def _outcome(session: TuningSession, where: str) -> SearchOutcome:
    if session.outcome is None:
        raise NonConforming(f"{where}: the run has no outcome")
    return session.outcome


def _not_below_stock(session: TuningSession, driver: LandscapeDriver, where: str) -> None:
    gain = driver.gain(_outcome(session, where).assignment)
    _require(gain >= 1.0 - EPSILON, f"{where}: ended at {gain:.3f}x of stock")
