# SPDX-License-Identifier: Apache-2.0
"""The parts of ``benchmarks.sim_suite``: cases, runs, rows, ablations, convergence, and what must be seen."""
