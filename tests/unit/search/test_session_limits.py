"""The driver's ways to end a session early."""

from __future__ import annotations

from lagom.records import Sample
from lagom.search import Policy, TuningSession, WindowRequest, WindowResult, make_strategy
from lagom.search.testing import flat
from lagom.sim import Simulator, machine, workloads

ENOUGH = 9


def measured(simulator: Simulator, request: WindowRequest) -> WindowResult:
    """A noise-free window."""
    sides = [simulator.run(assignment) for assignment in (request.incumbent, request.candidate)]
    incumbent, candidate = (Sample(side.z, side.x, side.y, side.x_by_site) for side in sides)
    return WindowResult(((incumbent, candidate),) * request.pairs)


def test_wrapped_up_session_goes_to_its_final_with_the_best_so_far() -> None:
    simulator = Simulator(workloads.fsdp("llama3_8b", layers=4, tokens=4096), machine.A40_NVLINK)
    problem = simulator.problem()
    session = TuningSession(make_strategy("lagom", problem), problem, Policy())
    purposes = []
    while (request := session.request()) is not None:
        purposes.append(request.purpose)
        if len(purposes) == ENOUGH:
            session.wrap_up("10 seconds of searching are over")
        session.report(measured(simulator, request))
    assert purposes[:ENOUGH].count("trial") == ENOUGH - 1, "it was in the middle of its search"
    assert set(purposes[ENOUGH + 1 :]) <= {"confirm", "final"}, "one proposal at most is brought to its end"
    assert purposes[-1] == "final"
    assert session.outcome is not None
    assert session.outcome.verdict == "improved"
    assert not session.outcome.assignment.is_stock


def test_what_was_never_measured_resolves_nothing() -> None:
    problem = flat(2, ceiling=4).problem()
    session = TuningSession(make_strategy("lagom", problem), problem)
    session.stop("the job ended")
    assert session.outcome is not None
    assert session.outcome.resolvable is None
