"""``lagom explain``: at every site, what NCCL would do, what is done instead, and the evidence; and what no tuner is
asked about.

From a decision log (:mod:`lagom.explain.log`) or from a profile alone (:mod:`lagom.explain.profile`) into one model
(:mod:`lagom.explain.model`), which :mod:`lagom.explain.show` tells to a terminal, a pipe or a program.
"""
