# SPDX-License-Identifier: Apache-2.0
"""What `make test` leaves to `make test-full`, and which tests may cost more than others.

`make test` has every property with a small fixed set of seeds, so it sees what is plainly wrong. `make test-full`
(LAGOM_TEST_FULL=1) repeats the same tests with so many seeds that a wrong level or a lost percent of power is seen too.
"""

from __future__ import annotations

import math
import os
from typing import TypeVar

FULL = os.environ.get("LAGOM_TEST_FULL", "") == "1"
Amount = TypeVar("Amount")

#: Tests that may take more than `LIMIT_S` of tests/processor_time.py, with the reason; by their ids without folders,
#: and where all their parameters may, without these. What goes on until enough has happened costs more on a busy
#: machine.
EXPENSIVE = {
    "test_native.py::test_program[none-agreement_interleavings]": "every interleaving: fewer would prove less",
    "test_native.py::test_program[none-plugin_many]": "ranks call until a plan is agreed on",
    "test_native.py::test_program[address,undefined-plugin_many]": "ranks call until a plan is agreed on",
    "test_native.py::test_program[thread-plugin_many]": "ranks call until a plan is agreed on",
    "test_native.py::test_program[thread-agreement_threads]": "ranks call until enough plans are agreed on",
    "test_fallback.py::test_random_bytes_neither_crash_nor_disagree": "goes on until enough plans are agreed on",
    "test_agreement.py::test_agreement_of_all_ranks_at_every_call": "goes on until enough plans are agreed on",
    "test_soak.py::test_short_soak": "goes on until enough faults were injected",
    "test_kills.py::test_killed_controllers_leave_the_ranks_agreed_and_going": "goes on until enough were killed",
    "test_bench.py::test_a_comparison_that_is_cut_off_goes_on_until_all_its_cycles_are_there":
        "its limit is doubled until something is measured",
    "test_bench.py::test_arms_that_need_processes_of_their_own_get_them": "repeated where a pin comes late",
    "test_bench.py::test_a_process_that_failed_is_not_scored_and_one_that_gave_nothing_says_why":
        "a process of its own for each way to fail",
    "test_tune.py::test_the_demo_finds_sockets_with_channels_and_the_saved_config_starts_the_job_with_them":
        "a whole search of eight processes, and two starts with what it found",
    "test_tune.py::test_an_interrupted_search_keeps_what_was_measured_and_no_process_touches_another_one_s_folder":
        "two interruptions and the end of one search",
    "test_tune.py::test_a_rank_that_was_started_otherwise_is_named_and_its_process_does_not_count":
        "repeated where a rank was over before it was looked at",
    "test_tune_nodes.py::test_an_interruption_on_one_node_ends_both_and_both_have_run_the_same":
        "two launchers, each with two processes of a job of two ranks",
    "test_launcher_recipes.py::test_the_launchers_of_both_nodes_agree_and_run_a_round":
        "two launchers, each with a process of a job of two ranks",
    "test_cached_start.py::test_an_interrupted_search_goes_on_and_what_it_proves_serves_this_job_and_a_like_one":
        "one search to its end, and all that uses what it found: five starts of a job",
    "test_mutants.py::test_every_python_fault_can_be_read_and_every_area_has_tests":
        "every fault of every area is made",
    "test_candidates.py::test_an_interrupted_search_goes_on_with_its_best_so_far":
        "a search that is interrupted, and one to its end",
    "test_candidates.py::test_in_the_same_log_folder_it_goes_on_by_itself_until_it_has_ended":
        "a search that is interrupted, and one to its end",
    "test_examples.py::test_an_example_runs_under_torchrun": "torchrun and both ranks import torch",
}  # fmt: skip


def amount(quick: Amount, full: Amount) -> Amount:
    """Of seeds, runs or plans: for `make test`, and for `make test-full`."""
    return full if FULL else quick


def least_share(target: float, runs: int) -> float:
    """The share that so many runs show at least where ``target`` is met: less two standard errors."""
    return target - 2 * math.sqrt(target * (1 - target) / runs)


def most_accepted(level: float, runs: int) -> int:
    """So many wrong verdicts in so many runs are passed once in a thousand times where their rate is ``level``."""
    from scipy.stats import binom  # most of a second to import, in every process that collects tests

    return int(binom.ppf(0.999, runs, level))
