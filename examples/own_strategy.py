# SPDX-License-Identifier: Apache-2.0
"""A search strategy of one's own: fewer channels at one site after the other, the largest messages first.

    PYTHONPATH=examples lagom run --strategy own_strategy:FewerChannels -- torchrun --nproc-per-node 8 train.py

`lagom.search.conformance.check_conformance(FewerChannels)` says beforehand what a strategy breaks.
"""

from __future__ import annotations

from typing import ClassVar

from lagom import Answer, Proposal, Strategy
from lagom.search import Measurements, Moves


class FewerChannels(Strategy):
    """At each site one value less, as long as that makes the iteration faster."""

    name: ClassVar[str] = "fewer_channels"

    def moves(self, measurements: Measurements) -> Moves:
        """Proposals are compared with the best so far. What is better is kept, and goes on."""
        best = self.space.stock
        for site in sorted(self.problem.sites, key=lambda site: -site.bytes):
            while (candidate := self.space.moved(best, (site.index,), "channels", -1)) is not None:
                comparison = yield Proposal(candidate, f"fewer channels at {site}", site.index, against=best)
                self.explain(f"{candidate[site.index]} at {site}: {'kept' if comparison.better else 'not kept'}")
                if not comparison.better:
                    break
                best = candidate
        return Answer(best, "fewer channels were tried at every site")
