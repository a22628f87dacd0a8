# SPDX-License-Identifier: Apache-2.0
"""A job that spans nodes is not searched node by node: the slowest node sets the time of an iteration.

While each of N nodes tries configs, some node nearly always tries a slow one, so that the job is slower for as long as
they search; and a better config of one node is not seen, because the others still wait for none.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from lagom.controller.tuner import CommunicatorTuner
from lagom.environment import count_nodes_told, count_ranks_told


def leave_to_nccl(tuners: Collection[CommunicatorTuner], environ: Mapping[str, str]) -> None:
    """End the searches within this node if the job spans others. ``environ``: of one of its ranks."""
    nodes = _count_nodes(tuners, environ)
    if nodes > 1:
        reason = f"the job spans {nodes} nodes; use `lagom tune`, or set LAGOM_NODES=alone"
        for tuner in tuners:
            tuner.pass_through(reason)


def _count_nodes(tuners: Collection[CommunicatorTuner], environ: Mapping[str, str]) -> int:
    """By the communicators, as NCCL tells it; by the launcher's variables where none spans nodes, or none yet. These
    count launchers: two of them may share a node, and then one communicator within it holds all ranks of the job."""
    views = [tuner.view for tuner in tuners]
    spanned = max((view.node_count for view in views), default=1)
    ranks = count_ranks_told(environ)
    if spanned > 1 or any(view.rank_count >= ranks > 0 for view in views):
        return spanned
    return count_nodes_told(environ)
