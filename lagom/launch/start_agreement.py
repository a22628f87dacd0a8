# SPDX-License-Identifier: Apache-2.0
"""A saved config on several nodes: their launchers vote before any rank is started. All use it, or none does.

Each node has the config in its own cache. What is compared is what the node would do: the config, and the start
settings that would be in force. Nothing in the job waits for another node because of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from lagom.config_file import load_config, without_comments
from lagom.doctor.nodes import facts_of_node
from lagom.environment import with_conf_files
from lagom.errors import UsageError
from lagom.format import format_count, format_variables
from lagom.launch.cached_config import CacheUse, Meeting
from lagom.launch.job_plan import JobOptions, JobPlan, plan_job, say
from lagom.launch.launchers import names_of_job, starts_one_node, words_that_stay
from lagom.launch.start_variables import Start, choose_start
from lagom.nodes.enrolment import node_name
from lagom.nodes.exchange import ExchangeError, NodeFacts
from lagom.nodes.heartbeat import Life
from lagom.nodes.opening import open_exchange
from lagom.nodes.vote import VOTE_LIFE, VOTE_SECONDS, Vote, vote
from lagom.settings import read
from lagom.wire.library import plugin_path

#: Of the exchange: where starts meet. `lagom tune` has its own.
SPACE = "starts"
#: Whoever is to host a remembered HOST:PORT gets so many seconds. srun, mpirun and the controllers of Kubernetes start
#: the launchers of a job within a second or two, in any order, and whoever hosts listens half a second after its start,
#: before it imports torch. So a refused connection does not yet say that nobody comes, and neither does a name that is
#: not known yet (that of a pod which is being started); but a place of an old allocation, which never answers, is asked
#: at every start. A place that the user names for this start is waited for as long as the nodes are.
REMEMBERED_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Agreed:
    """``is_set``: every node uses the saved config; if not, none does. ``nodes``: those that voted, as far as is known;
    ``text``: a line about it."""

    is_set: bool
    nodes: tuple[str, ...]
    text: str


def plan_start(
    command: list[str], options: JobOptions, use: CacheUse, asked: str, source: Path | None
) -> tuple[JobPlan, CacheUse]:
    """Plan the start of a job with what the cache holds for it, if no other node is asked or all of them agree; returns
    the plan, and what of the cache it uses. ``asked``: value of --headroom; ``source``: of --headroom-from. Raises
    :class:`LagomError` where nothing may be started."""
    plan, start = _planned(command, options, use, asked, source)
    remarks = use.remarks
    if use.meeting is not None:
        agreement = agree(use, start, os.environ)
        remarks = (*remarks, agreement.text)
        if not agreement.is_set:
            use = use.without_config()
            plan, start = _planned(command, options, use, asked, source)
        elif start.is_of_config:
            start = replace(start, remarks=())  # said already, with the nodes
        plan = replace(plan, nodes=agreement.nodes if agreement.is_set else ())
    plan = plan.with_variables(start.variables, (*remarks, *start.remarks))
    return replace(plan, sets_start=start.is_of_config), use


def _planned(
    command: list[str], options: JobOptions, use: CacheUse, asked: str, source: Path | None
) -> tuple[JobPlan, Start]:
    if use.config is not None:
        options = replace(options, config=use.config.path, cached_by=use.config.origin, or_tune=use.may_tune)
    plan = plan_job(options, os.environ, plugin_path())
    return plan, choose_start(asked, source, plan.config, os.environ, command)


def told_meeting(nodes: int, endpoint: str, command: Sequence[str], environ: Mapping[str, str]) -> Meeting:
    """What options and settings say about where this job's nodes meet; 0 and empty where they do not. ``nodes``: value
    of --nnodes; ``endpoint``: of --rdzv-endpoint. Raises :class:`UsageError` where an address is not understood."""
    exchange = endpoint or read("LAGOM_EXCHANGE", environ)
    if endpoint:
        from lagom.nodes.store_exchange import read_endpoint

        read_endpoint(endpoint)
    if exchange and not nodes:
        nodes = starts_one_node(command, environ)
    if endpoint and nodes < 2:
        raise UsageError("--rdzv-endpoint is for a job on several nodes; give their number with --nnodes.")
    return Meeting(nodes, exchange)


def agree(
    use: CacheUse, start: Start, environ: Mapping[str, str], wait: float = VOTE_SECONDS, life: Life = VOTE_LIFE
) -> Agreed:
    """Vote for what this node would use, and wait ``wait`` seconds at most for the others. ``start``: what its config
    would set. Raises :class:`UsageError` where the command must not be started: the others may have agreed."""
    meeting = use.meeting
    assert meeting is not None
    settings = {} if use.config is None else _in_force(use, start, environ)
    facts = _facts(use, settings, environ)
    say(f"waiting for {meeting.nodes} nodes at {meeting.exchange}, {wait:.0f} s at most, to agree on a saved config")
    patience = min(wait, REMEMBERED_SECONDS) if meeting.is_remembered else wait
    try:
        exchange = open_exchange(meeting.exchange, f"{SPACE}/{_digest(use.command, environ)}", patience)
    except ExchangeError as error:
        return Agreed(False, (), _not_set(_clause(str(error)) + _elsewhere(meeting)))
    found = vote(exchange, meeting.nodes, node_name(environ), facts, wait, life)
    if not found.may_start:
        raise UsageError(
            f"the command is not started, because other nodes may count on this one: {_clause(found.text)}; "
            "start it anew on all nodes."
        )
    return Agreed(found.agreed and use.config is not None, found.nodes, _describe(found, meeting, settings, use, wait))


def _in_force(use: CacheUse, start: Start, environ: Mapping[str, str]) -> dict[str, str]:
    """The settings that the ranks would have of the config: set for them now, whatever its file says by now, or by the
    user."""
    assert use.config is not None
    wanted = load_config(use.config.path).environment
    here = {**with_conf_files(environ), **start.variables}
    return {**start.variables, **{name: value for name, value in wanted.items() if here.get(name) == value}}


def _facts(use: CacheUse, settings: Mapping[str, str], environ: Mapping[str, str]) -> NodeFacts:
    text = "" if use.config is None else without_comments(use.config.path.read_text())
    return facts_of_node(words_that_stay(use.command), settings, environ, text.encode())


def _digest(command: Sequence[str], environ: Mapping[str, str]) -> str:
    """Of what all launchers of this job have alike and those of another job at the same time have not."""
    return hashlib.sha256(json.dumps(names_of_job(command, environ)).encode(errors="replace")).hexdigest()[:16]


def _describe(found: Vote, meeting: Meeting, settings: Mapping[str, str], use: CacheUse, wait: float) -> str:
    names, count = ", ".join(found.nodes), format_count(len(found.nodes), "node")
    if found.agreed and use.config is not None:
        what = f"start settings agreed by {count} ({names}): {format_variables(settings)}"
        return what if settings else f"saved config agreed by {count} ({names})"
    if found.agreed:
        return _not_set(f"none of {count} ({names}) has a saved config{_WRITES}")
    if found.reason == "differs" and found.without:
        which = "node" if len(found.without) == 1 else "nodes"
        has = "has" if len(found.without) == 1 else "have"
        return _not_set(f"{which} {', '.join(found.without)} {has} no saved config{_WRITES}")
    if found.reason == "late" and found.nodes:
        return _not_set(f"{len(found.nodes)} of {meeting.nodes} nodes came within {wait:.0f} s ({names})")
    return _not_set(_clause(found.text) + _elsewhere(meeting, nobody_came=found.reason == "late"))


_WRITES = " (lagom tune writes it)"


def _elsewhere(meeting: Meeting, *, nobody_came: bool = True) -> str:
    """What to do about a place that is perhaps that of other nodes."""
    if not (meeting.is_remembered and nobody_came):
        return ""
    return "; the config was found with that place: name one of this job's with --rdzv-endpoint or LAGOM_EXCHANGE"


def _not_set(why: str) -> str:
    return f"start settings not set: {why}"


def _clause(sentence: str) -> str:
    """Without what to do about it: that is said for `lagom tune`."""
    return sentence.partition(";")[0].rstrip(".")
