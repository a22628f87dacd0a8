# SPDX-License-Identifier: Apache-2.0
"""The decision log: what happened in a job and why, one JSON object a line, in ``<log folder>/decisions.jsonl``."""

from __future__ import annotations

from lagom.journal.comm_state import CommState, SiteChange, Step
from lagom.journal.reader import find_log, find_own_logs, find_written, is_torn, read
from lagom.journal.run_state import RunState
from lagom.journal.schema import (
    SCHEMA,
    Cause,
    Communicator,
    ConfigRecord,
    Drift,
    Dropped,
    Event,
    JobEnd,
    JobStart,
    Level,
    Move,
    NotAsked,
    Note,
    Outcome,
    Passthrough,
    Phase,
    PhaseName,
    PlanAborted,
    PlanCommitted,
    PlanPublished,
    Program,
    RankJoined,
    SiteRecord,
    StartSettings,
    json_schema,
)
from lagom.journal.stopped_search import describe_pinned, describe_stopped, summarize_stopped
from lagom.journal.text import COLUMNS, Formatter
from lagom.journal.verdict import Verdict, refusal_of, replay_command, verdict_of
from lagom.journal.writer import DEFAULT_MAX_BYTES, LOG_NAME, Journal

__all__ = [
    "COLUMNS",
    "DEFAULT_MAX_BYTES",
    "LOG_NAME",
    "SCHEMA",
    "Cause",
    "CommState",
    "Communicator",
    "ConfigRecord",
    "Drift",
    "Dropped",
    "Event",
    "Formatter",
    "JobEnd",
    "JobStart",
    "Journal",
    "Level",
    "Move",
    "NotAsked",
    "Note",
    "Outcome",
    "Passthrough",
    "Phase",
    "PhaseName",
    "PlanAborted",
    "PlanCommitted",
    "PlanPublished",
    "Program",
    "RankJoined",
    "RunState",
    "SiteChange",
    "SiteRecord",
    "StartSettings",
    "Step",
    "Verdict",
    "describe_pinned",
    "describe_stopped",
    "find_log",
    "find_own_logs",
    "find_written",
    "is_torn",
    "json_schema",
    "read",
    "refusal_of",
    "replay_command",
    "summarize_stopped",
    "verdict_of",
]
