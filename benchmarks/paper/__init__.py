"""The parts of ``benchmarks.figures``: the paper's numbers, the simulator's for the same, plots and a report."""
