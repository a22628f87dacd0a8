# SPDX-License-Identifier: Apache-2.0
"""``lagom bench``: how much faster each of several settings makes a job, with confidence intervals. See README.md."""

from lagom.bench.arm_words import BenchArm, Kind, parse_arms
from lagom.bench.request import Request
from lagom.bench.results import Ratio, Result, ratio_between, results_of
from lagom.bench.runner import run_bench
from lagom.bench.store import BenchRecord, RunRecord, Store

__all__ = [
    "BenchArm",
    "BenchRecord",
    "Kind",
    "Ratio",
    "Request",
    "Result",
    "RunRecord",
    "Store",
    "parse_arms",
    "ratio_between",
    "results_of",
    "run_bench",
]
