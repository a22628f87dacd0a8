# SPDX-License-Identifier: Apache-2.0
"""The cost model: the paper's Eq. 1 to 6 made to work, fitted to a few windows, and honest about when it does not.

    model = model_of(problem)                        # or model_of(problem, program_of(problem, kernels))
    fitted = fit(model, observations)                # the first observation is stock
    if judge(fitted).trusted:
        candidate = Ladders(model, choices).best(fitted.theta, incumbent)
        change = compare(fitted, [candidate], incumbent)[0]

It shares no code with ``lagom.sim``; it only ever sees measurements.
"""

from lagom.cost.cost_model import CostModel, model_of
from lagom.cost.fit import FitError, ModelFit, fit
from lagom.cost.fitted_model import FittedModel, Ladders
from lagom.cost.gate import Trust, judge
from lagom.cost.iteration import DependencyError, IterationModel, LumpedIteration, Schedule, TracedIteration, two_queues
from lagom.cost.predict import Change, compare, draws, shrunk
from lagom.cost.traced_kernels import Kernel, KernelTraceError, program_of, traced_program

__all__ = [
    "Change",
    "CostModel",
    "DependencyError",
    "FitError",
    "FittedModel",
    "IterationModel",
    "Kernel",
    "KernelTraceError",
    "Ladders",
    "LumpedIteration",
    "ModelFit",
    "Schedule",
    "TracedIteration",
    "Trust",
    "compare",
    "draws",
    "fit",
    "judge",
    "model_of",
    "program_of",
    "shrunk",
    "traced_program",
    "two_queues",
]
