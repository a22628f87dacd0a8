"""``guided``: the paper's loop, but a fitted cost model says where to start, what to leave out and when to stop.

1. **Learn**: three designed windows near NCCL's own pick, every site on another level in each (``lagom.cost.design``).
2. **Believe**: fit; if the gate lets the model pass, measure its optimum, refit, and go on while it promises a gain.
   Then single rungs up and down around the best, most promising first; moves predicted to lose by more than three
   standard deviations are never measured.
3. **Or measure**: if the gate says no, the measured moves of ``lagom`` take over from the fastest config so far.

What is returned is the best by measurement and model together: each weighs what it is sure of, so a lucky window of a few
pairs does not win. The budget is four configs and four more a site.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from lagom.records import Assignment, CommConfig
from lagom.search.base import Answer, Comparison, Moves, Proposal, percent
from lagom.search.lagom import Lagom
from lagom.search.ledger import Ledger, Trial

if TYPE_CHECKING:
    from lagom.cost import Change, Fit, Program
    from lagom.search.problem import Problem

CONFIGS = 4  # budget: this many configs, and as many more for each site
EPSILON = 0.005  # predicted gains below this fraction of Z are not worth a window
OPTIMISM = 1.0  # standard deviations by which a single rung may beat its prediction when the list is drawn up
SHARES = (1.0, 0.7, 0.5)  # of NCCL's own NC and C, where the learning windows look
