# SPDX-License-Identifier: Apache-2.0
"""A saved config on several nodes: their launchers vote before any rank is started. All use it, or none does.

Each node has the config in its own cache. What is compared is what the node would do: the config, and the start
settings that would be in force. Nothing in the job waits for another node because of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import signal
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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
from lagom.nodes.exchange import ExchangeError, NodeFacts
from lagom.nodes.heartbeat import Life
from lagom.nodes.node_facts import node_name
from lagom.nodes.opening import open_exchange
from lagom.nodes.vote import VOTE_LIFE, VOTE_SECONDS, Vote, vote
from lagom.settings import read
from lagom.wire.library import plugin_path

#: Of the exchange: where starts meet. `lagom tune` has its own. In a folder all of them stay: if some were removed, a
#: launcher that looks for the newest could come to another one than those that have looked before.
SPACE = "starts"
#: A remembered HOST:PORT of an old allocation never answers, and is asked at every start: so many seconds. A place that
#: the user names for this start, or whose host the job's command or launcher names, is waited for as long as the nodes
#: are: pods and launchers of one job may be started half a minute apart, and torch may come from a cold disk.
REMEMBERED_SECONDS = 5.0
#: Where launchers name the nodes of this start.
NAMES_HOSTS = (
    "MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT", "SLURM_LAUNCH_NODE_IPADDR", "SLURM_JOB_NODELIST",
    "SLURM_STEP_NODELIST",
)  # fmt: skip


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
        with _leaving_in_order():
            agreement = agree(use, start, os.environ)
        remarks = (*remarks, agreement.text)
        if not agreement.is_set:
            use = use.without_config()
            plan, start = _planned(command, options, use, asked, source)
        elif start.is_of_config:
            start = replace(start, remarks=())  # said already, with the nodes
        plan = replace(plan, nodes=agreement.nodes if agreement.is_set else ())
    elif start.is_of_config and use.config is None and (count := starts_one_node(command, os.environ)) > 1:
        remarks = (*remarks, f"nobody is asked about --config: give the same one on all {count} nodes, or on none")
    plan = plan.with_variables(start.variables, (*remarks, *start.remarks))
    return replace(plan, sets_start=start.is_of_config), use


@contextmanager
def _leaving_in_order() -> Iterator[None]:
    """A launcher that is ended while it waits gives its seat back: else the others count it until they see it dead."""
    from lagom.experiment.process import leave_in_order

    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)}
    leave_in_order()
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    is_old = meeting.is_remembered and not _is_named(meeting.exchange, use.command, environ)
    patience = min(wait, REMEMBERED_SECONDS) if is_old else wait
    try:
        exchange = open_exchange(meeting.exchange, f"{SPACE}/{_digest(use.command, environ)}", patience)
    except ExchangeError as error:
        return Agreed(False, (), _not_set(_clause(str(error)) + _elsewhere(meeting)))
    found = vote(exchange, meeting.nodes, node_name(environ), facts, wait, life, say)
    if not found.may_start:
        raise UsageError(
            f"the command is not started, because other nodes may count on this one: {_clause(found.text)}; "
            "start it anew on all nodes."
        )
    return Agreed(found.agreed and use.config is not None, found.nodes, _describe(found, meeting, settings, use, wait))


def _is_named(exchange: str, command: Sequence[str], environ: Mapping[str, str]) -> bool:
    """Whether this start names the host of a place."""
    host = re.compile(rf"(?<![\w.-]){re.escape(exchange.rpartition(':')[0])}(?![\w.-])")
    return any(host.search(text) for text in (*command, *(environ.get(name, "") for name in NAMES_HOSTS)))


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
        return _not_set(f"none of {count} ({names}) has a saved config to use{_WRITES}")
    return _not_set(_why_not(found, meeting, names, wait))


def _why_not(found: Vote, meeting: Meeting, names: str, wait: float) -> str:
    if found.reason == "differs" and found.without:
        which = "node" if len(found.without) == 1 else "nodes"
        has = "has" if len(found.without) == 1 else "have"
        return f"{which} {', '.join(found.without)} {has} no saved config to use{_WRITES}"
    if found.reason == "late" and found.nodes:
        came = f"{len(found.nodes)} of {meeting.nodes} nodes came within {wait:.0f} s ({names})"
        return f"{came}; a node that runs already, or whose variables are others, comes to no vote"
    if found.reason == "unreachable" and found.text.startswith(f"{SPACE}/"):
        return f"{_clause(found.text)}; remove {SPACE} there, or name another place with LAGOM_EXCHANGE"
    return _clause(found.text) + _elsewhere(meeting, nobody_came=found.reason == "late")


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
