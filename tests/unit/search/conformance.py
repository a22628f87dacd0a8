"""What every strategy owes the session, whoever wrote it. test_conformance.py runs all of it on each of ours.

Each check takes ``make(problem, seed)`` and fails with an AssertionError that says what was broken.
"""

from __future__ import annotations

from collections.abc import Callable

from lagom.records import Algorithm, Assignment, Knobs, Problem, Protocol
from lagom.search import Policy, Strategy, TuningSession, replay
from lagom.search.testing import Bench, Communication, Landscape, comm_bound, compute_bound, flat

Make = Callable[[Problem, int], Strategy]

EPSILON = 0.01
MANY = Policy(max_configs=100_000, max_iterations=None)
VERDICTS = {"baseline", "better", "worse", "tie", "more", "missing", "confirmed", "rejected"}


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


def run(make: Make, landscape: Landscape, seed: int = 0, **disturbance: float) -> tuple[TuningSession, Bench]:
    """One whole tuning run."""
    problem = landscape.problem()
    bench = Bench(landscape, seed=seed, **disturbance)  # type: ignore[arg-type]
    return bench.drive(TuningSession(make(problem, seed), problem, MANY, seed)), bench


def check_finishes(make: Make) -> None:
    """An outcome comes, each window has its move, and nothing more is wanted."""
    for name, landscape in landscapes().items():
        session, _ = run(make, landscape)
        assert session.outcome is not None, f"{name}: no outcome"
        assert session.request() is None
        assert session.outcome.windows == len(session.moves)
        assert session.outcome.verdict in ("improved", "stock_is_best")


def check_stays_legal(make: Make) -> None:
    """Every assignment asked for, and the final one, may be given to NCCL."""
    for landscape in landscapes().values():
        session, _ = run(make, landscape, noise=0.03)
        space = session.strategy.space
        for move in session.moves:
            assert space.why_illegal(move.candidate) is None
        assert session.outcome is not None
        assert space.why_illegal(session.outcome.assignment) is None


def check_never_ends_below_stock(make: Make) -> None:
    """True Z of the outcome is not above stock's by more than epsilon, whatever the noise suggested on the way."""
    for name, landscape in landscapes().items():
        for seed in range(6):
            session, bench = run(make, landscape, seed, noise=0.03)
            assert session.outcome is not None
            gain = bench.gain(session.outcome.assignment)
            assert gain >= 1.0 - EPSILON, f"{name}, seed {seed}: ended at {gain:.3f}x of stock"


def check_is_deterministic(make: Make) -> None:
    """The same seed and the same measurements: the same moves, to the last digit."""
    for seed in (0, 7):
        first, _ = run(make, compute_bound(ceiling=8), seed, noise=0.02)
        second, _ = run(make, compute_bound(ceiling=8), seed, noise=0.02)
        assert first.moves == second.moves
        assert first.outcome == second.outcome


def check_replays_from_its_log(make: Make) -> None:
    """A new session fed with the logged windows takes the same decisions and ends the same way."""
    landscape = comm_bound()
    session, _ = run(make, landscape, 3, noise=0.03, lose=0.1)
    again = replay(session.moves, make(landscape.problem(), 3), landscape.problem(), MANY)
    assert again.outcome == session.outcome


def check_survives_outliers(make: Make) -> None:
    """Iterations three times as long, one in twenty: no worse than stock, no exception."""
    for name, landscape in landscapes().items():
        session, bench = run(make, landscape, 1, noise=0.02, straggle=0.05)
        assert session.outcome is not None
        assert bench.gain(session.outcome.assignment) >= 1.0 - EPSILON, name


def check_survives_missing_windows(make: Make) -> None:
    """A third of the windows empty, then all of them: the run ends, and never on something unmeasured."""
    for seed in range(3):
        session, bench = run(make, comm_bound(), seed, noise=0.02, lose=0.33)
        assert session.outcome is not None
        assert bench.gain(session.outcome.assignment) >= 1.0 - EPSILON
    session, _ = run(make, comm_bound(), 0, lose=1.0)
    assert session.outcome is not None
    assert session.outcome.verdict == "stopped"
    assert session.outcome.assignment.is_stock


def check_explains_each_move(make: Make) -> None:
    """Each move has a known verdict and one sentence that names what was done; trials carry Z."""
    for landscape in (compute_bound(ceiling=8), comm_bound(see_kernels=False)):
        session, _ = run(make, landscape, 2, noise=0.02)
        for number, move in enumerate(session.moves, 1):
            assert move.number == number
            assert move.verdict in VERDICTS
            assert 10 < len(move.reason) < 400, f"not a sentence: {move.reason!r}"
            assert "\n" not in move.reason
            assert move.z is not None
        assert session.outcome is not None
        assert session.outcome.reason


def check_stops_when_told(make: Make) -> None:
    """``stop`` at any moment ends the run on what is confirmed."""
    landscape = comm_bound()
    problem = landscape.problem()
    for windows in range(0, 12, 3):
        bench, session = Bench(landscape, noise=0.01), TuningSession(make(problem, 0), problem)
        for _ in range(windows):
            if (request := session.request()) is None:
                break
            session.report(bench.measure(request))
        confirmed = session.incumbent
        over = session.outcome
        session.stop("the job is ending")
        assert session.request() is None
        assert session.outcome is not None
        assert over or (session.outcome.verdict, session.outcome.assignment) == ("stopped", confirmed)


def check_works_for_every_number_of_sites(make: Make) -> None:
    """One communication to five; one of them may have nothing to move."""
    for count in (1, 3, 5):
        landscape = Landscape(tuple(Communication(5e6 * (i + 1)) for i in range(count)), 20e6, ceiling=2)
        session, bench = run(make, landscape, noise=0.01)
        assert session.outcome is not None
        assert len(session.outcome.assignment) == count
        assert bench.gain(session.outcome.assignment) >= 1.0 - EPSILON
        assert session.measurements.stock == Assignment.stock(count)


CHECKS = tuple(check for name, check in list(globals().items()) if name.startswith("check_"))
