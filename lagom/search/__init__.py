"""Search: what to try next, and what the measurements show. Start with session.py, then base.py and strategies/."""

from lagom.search.base import Answer, Comparison, Proposal, Strategy
from lagom.search.decision import Move, Outcome
from lagom.search.measurements import Measurements, Trial
from lagom.search.policy import BLOCKS, LIVE, Policy
from lagom.search.replay import ReplayMismatch, moves_of, replay
from lagom.search.session import IllegalProposal, TuningSession
from lagom.search.space import Space
from lagom.search.strategies import STRATEGIES, UnknownStrategy, make_strategy
from lagom.search.window import WindowRequest, WindowResult

__all__ = [
    "BLOCKS",
    "LIVE",
    "STRATEGIES",
    "Answer",
    "Comparison",
    "IllegalProposal",
    "Measurements",
    "Move",
    "Outcome",
    "Policy",
    "Proposal",
    "ReplayMismatch",
    "Space",
    "Strategy",
    "Trial",
    "TuningSession",
    "UnknownStrategy",
    "WindowRequest",
    "WindowResult",
    "make_strategy",
    "moves_of",
    "replay",
]
