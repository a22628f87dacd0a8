"""``lagom advise``: what to start the next job with, because no tuner can change it while the job runs.

Every advice is either *measured*, with the comparison that measured it, or a *proposal*, with the command that would
measure it; the two are never mixed. Evidence comes from a decision log (:mod:`lagom.advise.from_log`: why a proposal is
worth a try) and from a benchmark (:mod:`lagom.advise.from_bench`: what came of it). :mod:`lagom.advise.output` writes
them as export lines, as a profile's environment, or as Megatron's communicator file.
"""
