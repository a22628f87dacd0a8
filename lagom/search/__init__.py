# SPDX-License-Identifier: Apache-2.0
"""Search: what to try next, and what the measurements show. Start with session.py, then base.py and strategies/."""

from lagom.search.base import Answer, Comparison, Moves, NonConforming, Proposal, Strategy
from lagom.search.measurements import Measurements, Trial
from lagom.search.moves import SearchMove, SearchOutcome, Suggestion, WindowRequest, WindowResult
from lagom.search.replay import ReplayMismatch, moves_of, replay
from lagom.search.session import IllegalProposal, Suggest, TuningSession
from lagom.search.space import Space
from lagom.search.stopping_rule import BLOCKS, LIVE, Policy
from lagom.search.strategies import STRATEGIES, UnknownStrategy, find_strategy, make_strategy

__all__ = [
    "BLOCKS",
    "LIVE",
    "STRATEGIES",
    "Answer",
    "Comparison",
    "IllegalProposal",
    "Measurements",
    "Moves",
    "NonConforming",
    "Policy",
    "Proposal",
    "ReplayMismatch",
    "SearchMove",
    "SearchOutcome",
    "Space",
    "Strategy",
    "Suggest",
    "Suggestion",
    "Trial",
    "TuningSession",
    "UnknownStrategy",
    "WindowRequest",
    "WindowResult",
    "find_strategy",
    "make_strategy",
    "moves_of",
    "replay",
]
