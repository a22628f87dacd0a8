"""The cost model: the paper's Eq. 1 to 6 made to work, fitted to a few windows, and honest about when it does not.

    model = model_of(problem)                        # or model_of(problem, traced_program(kernels, sites))
    fitted = fit(model, observations)                # the first observation is stock
    if judge(fitted).trusted:
        candidate = best(fitted, ladders, starts)
        change = compare(fitted, candidate, incumbent)

It shares no code with ``lagom.sim``; it only ever sees measurements.
"""

from lagom.cost.design import latin_square, nearby
from lagom.cost.events import DependencyError, Schedule, two_queues
from lagom.cost.fit import Fit, FitError, Observation, fit
from lagom.cost.forward import CostModel, model_of
from lagom.cost.gate import Trust, judge
from lagom.cost.kernels import Kernel, TraceError, traced_program
from lagom.cost.predict import Change, Prediction, best, compare, predict
from lagom.cost.program import LumpedProgram, Program, TracedProgram

__all__ = [
    "Change",
    "CostModel",
    "DependencyError",
    "Fit",
    "FitError",
    "Kernel",
    "LumpedProgram",
    "Observation",
    "Prediction",
    "Program",
    "Schedule",
    "TraceError",
    "TracedProgram",
    "Trust",
    "best",
    "compare",
    "fit",
    "judge",
    "latin_square",
    "model_of",
    "nearby",
    "predict",
    "traced_program",
    "two_queues",
]
