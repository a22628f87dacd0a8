# SPDX-License-Identifier: Apache-2.0
"""Start settings of a job on several nodes: its launchers vote before any rank is started. All set them, or none."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from lagom.nodes.enrolment import Enrolment, NotEnrolled, Say
from lagom.nodes.exchange import Exchange, ExchangeError, NodeFacts, SessionEnd
from lagom.nodes.heartbeat import Life

VOTE_SECONDS = 60.0
#: The launchers of a job are started together, so that one which is gone is known soon.
VOTE_LIFE = Life(beat=0.5, silent=30.0)
Reason = Literal["agreed", "late", "differs", "twice", "full", "unreachable"]


@dataclass(frozen=True, slots=True)
class Vote:
    """``agreed``: the settings are in force on every node. ``may_start``: whether the command may be started, with the
    settings where ``agreed``, else without; if not, other nodes may have agreed with a vote of this one. ``nodes``:
    those that voted, as far as is known; ``without``: those of them that have no saved config, where not all have the
    same; ``text``: a sentence why not."""

    agreed: bool
    may_start: bool
    reason: Reason
    nodes: tuple[str, ...] = ()
    text: str = ""
    without: tuple[str, ...] = ()


def vote(
    exchange: Exchange, count: int, node: str, facts: NodeFacts, wait: float = VOTE_SECONDS, life: Life = VOTE_LIFE,
    say: Say = lambda text: None,
) -> Vote:  # fmt: skip
    """Vote for what ``facts`` describes (config, and the variables that it sets), and wait for ``count`` nodes. The
    exchange is closed when this returns. ``say``: as of :func:`lagom.nodes.enrolment.enrol`."""
    enrolment = Enrolment(exchange, count, node, facts, wait, life, say)
    try:
        with enrolment.run() as session:
            with suppress(ExchangeError):  # all have agreed, whether or not they hear this
                session.end(SessionEnd(kind="finished", by=session.seat, of=session.seat))
            return Vote(True, True, "agreed", session.nodes)
    except NotEnrolled as error:
        reason: Reason = error.why if error.why in ("late", "differs", "twice", "full") else "late"  # type: ignore[assignment]
        # More nodes than were named: those that were have perhaps agreed, and this one belongs to their job.
        return Vote(False, reason != "full", reason, error.nodes, str(error), error.without)
    except ExchangeError as error:
        return Vote(False, not enrolment.has_voted, "unreachable", (), str(error))
    finally:
        exchange.close()
