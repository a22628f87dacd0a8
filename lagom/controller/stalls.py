"""Iterations by the host's clock that say nothing of the GPU: a pause of the job, and the host catching up after it.

A data loader that waits, a logger that blocks: no call tells of it, but the host's iteration is far longer than the
others, and those after it are shorter until the host is as far ahead of the GPU as it was. Rare ones can be left out.
A job that waits for its GPU every few iterations is another matter: there the short iterations are the host's own pace,
whatever the GPU does, and only long and short ones together are the truth. So where they are not rare, all count.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

#: An iteration outside these shares of the typical one of its config is odd.
SHORT, LONG = 0.75, 1.33
#: Odd ones that follow each other are one stall; more than one in so many iterations is the job's way of running.
RARE = 27


def stalls(ranks: Sequence[Mapping[int, float]], labels: Mapping[int, bool], counted: Sequence[int]) -> set[int]:
    """Those of the ``counted`` iterations that are odd on any rank, if they are rare; else none.

    ``ranks``: iteration -> its time, for each rank; ``labels``: iteration -> was it the candidate's. An iteration is
    held against its rank's others with that config. Odd ones that follow what does not count for reasons known are the
    rest of that, and no stall of their own.
    """
    known, odd = set(counted), set[int]()
    for times in ranks:
        for label in (False, True):
            own = [iteration for iteration in counted if labels[iteration] == label]
            typical = float(np.median([times[iteration] for iteration in own])) if own else 0.0
            odd.update(iteration for iteration in own if not SHORT < times[iteration] / typical < LONG)
    separate = sum(iteration - 1 in known and iteration - 1 not in odd for iteration in odd)
    return odd if separate * RARE <= len(labels) else set()
