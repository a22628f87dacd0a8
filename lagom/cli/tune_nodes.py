# SPDX-License-Identifier: Apache-2.0
"""``lagom tune --nnodes N``: the launchers of all nodes find each other before anything is started."""

from __future__ import annotations

import contextlib
import os
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from lagom.errors import UsageError

if TYPE_CHECKING:
    from lagom.experiment.request import Request
    from lagom.nodes.enrolment import Session
    from lagom.nodes.exchange import FoundStart, NodeFacts

Say = Callable[[str], None]
#: Of the results folder: where launchers exchange records, and how the folders of other nodes' samples begin.
EXCHANGE, OF_NODE = "nodes", "node-"
#: Of the exchange: where searches meet. Starts have their own.
SPACE = "tune"


@contextlib.contextmanager
def session_of(request: Request, facts: NodeFacts, say: Say) -> Iterator[Session]:
    """The launchers of all nodes, once they are there and agree about ``facts``. What ends the session before its
    search is said, and the command then ends with exit code 3."""
    from lagom.nodes.enrolment import WAIT_SECONDS, enrol
    from lagom.nodes.node_facts import node_name
    from lagom.nodes.opening import open_exchange
    from lagom.nodes.rounds import EXIT_CODE, NodesEnded

    exchange = open_exchange(request.exchange, SPACE, WAIT_SECONDS)
    say(f"waiting for {request.nnodes} nodes at {exchange.name}.")
    try:
        with enrol(exchange, request.nnodes, node_name(os.environ), facts, say=say) as session:
            names = session.nodes
            say(f"{len(names)} nodes ({', '.join(names)}), coordinator {names[0]}; this one is {session.node}.")
            yield session
    except NodesEnded as error:
        say(str(error))
        raise typer.Exit(EXIT_CODE) from error
    finally:
        exchange.close()


def at_exchange(request: Request, count: int, endpoint: str) -> Request:
    """The request of a job on ``count`` nodes whose launchers meet at ``endpoint``, or in its folder."""
    if not endpoint:
        try:
            request.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            why = error.strerror or error
            raise UsageError(f"{request.folder} cannot be made ({why}); name a folder with --out.") from error
    return replace(request, nnodes=count, exchange=endpoint or str(request.folder / EXCHANGE))


def facts_of_search(request: Request, transport: str, *, fresh: bool) -> NodeFacts:
    """What the launchers of a search compare: the job's command and lagom's options, releases, NCCL, GPU, variables."""
    from lagom.doctor.nodes import facts_of_node
    from lagom.environment import with_conf_files
    from lagom.experiment.fingerprint import env_fingerprint
    from lagom.launch.launchers import words_that_stay

    # or values of two kinds are compared, or whoever comes first decides what is deleted and how long it takes
    asked = (request.metric, request.higher_is_better, request.samples, request.budget, request.run_limit, request.seed)
    words = [*words_that_stay(request.command), *map(str, (*asked, transport, fresh))]
    return facts_of_node(words, env_fingerprint(with_conf_files(os.environ)), os.environ)


def request_of(session: Session, request: Request) -> Request:
    """The request of this node: the coordinator has the folder that was asked for, each other one a folder in it."""
    if session.is_coordinator:
        return request
    return replace(request, folder=request.folder / f"{OF_NODE}{session.node}")


def keep_found(request: Request, found: FoundStart, say: Say) -> None:
    """Write what the coordinator's search found on this node too, and keep it for the next start."""
    from lagom.tune.on_nodes import saved_of
    from lagom.tune.tune_result import write_found

    config, _ = write_found(saved_of(found), request.folder, found.text)
    say(f"{found.text}; written: {config}")
    keep_on_nodes(request, config, say)


def keep_on_nodes(request: Request, config: Path, say: Say) -> None:
    """Keep the config for the next start, and say how to start the job with it. The nodes agree on what is in their
    caches alone: on a file that one of them is given nobody is asked."""
    from lagom.launch.cached_config import keep_config

    kept = keep_config(
        request.command, config, os.environ, "lagom tune", nodes=request.nnodes, exchange=request.exchange
    )
    if kept.text:
        say(kept.text)
    command = shlex.join(request.command)
    if kept.is_kept:
        say(f"next: on each node: lagom run -- {command}")
        return
    file = shlex.quote(os.path.relpath(config))
    say(f"next: on each of the {request.nnodes} nodes, or on none: lagom run --config {file} -- {command}")
