# SPDX-License-Identifier: Apache-2.0
"""``lagom tune``: start settings measured on the job's own command, in short whole processes; the result is a saved
config. Pure decisions in ``trials``, ``screening`` and ``estimate``; ``course`` runs them; ``tune_result`` writes what
was found."""

from __future__ import annotations

from lagom.tune.course import run_tune
from lagom.tune.stages import PLAIN, TunePlan, TuneRecord, TuneTrial, plan_for
from lagom.tune.trials import next_trial
from lagom.tune.tune_result import TuneResult, find_result

__all__ = [
    "PLAIN",
    "TunePlan",
    "TuneRecord",
    "TuneResult",
    "TuneTrial",
    "find_result",
    "next_trial",
    "plan_for",
    "run_tune",
]
