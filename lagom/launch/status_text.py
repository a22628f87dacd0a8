# SPDX-License-Identifier: Apache-2.0
"""The lines of ``lagom run`` about its job: what is planned, what is in force, how it ended, and the next command.

Each is made from fields: the plan, and the state that the log gives. On a terminal a line has at most :data:`COLUMNS`
columns where the paths in it allow that; a path is never cut, because it is to be pasted. In a file nothing is cut.
"""

from __future__ import annotations

import os
import shlex
import signal
import sys
import textwrap
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from lagom.format import format_count, format_interval, format_payback, format_speedup
from lagom.journal import (
    CommState,
    RunState,
    Verdict,
    refusal_of,
    replay_command,
    schema,
    summarize_stopped,
    verdict_of,
)
from lagom.journal.log_status import NO_RANK_JOINED
from lagom.launch.job_plan import JobPlan
from lagom.launch.launchers import log_folders, starts_one_node

COLUMNS = 100
PREFIX = "lagom: "
ROOM = COLUMNS - len(PREFIX)
CHOOSES = "NCCL chooses"
TUNE = "lagom tune -- CMD"
#: Exit codes of a job that ended well, or that a signal from outside ended: hang-up, Ctrl-C, SIGTERM.
NO_FAILURE = (0, 128 + signal.SIGHUP, 128 + signal.SIGINT, 128 + signal.SIGTERM)


# -- the first line


def describe_plan(plan: JobPlan) -> list[str]:
    """What will be done, and where the log goes: one line, or two where the folder's path is long."""
    text = f"plan: {_planned(plan)}"
    if not plan.logs:
        return [shorten(text)]
    log = f"log {paste(plan.folder)}"
    whole = f"{text}; {log}"
    return [whole] if len(whole) <= ROOM else [shorten(text), log]


def _planned(plan: JobPlan) -> str:
    if plan.mode == "off":
        return f"off: the plugin does nothing; {CHOOSES}"
    if plan.mode == "replay" and plan.config is None:
        return f"replay {_pins(plan)} on NCCL 2.21 to 2.26, no search"
    if plan.cached_by:
        search = "no search (--fresh searches)" if plan.mode == "replay" else "tune if it does not fit (or --fresh)"
        return f"replay config cached by {plan.cached_by}, {search}"
    if plan.config is not None:
        search = "no search" if plan.mode == "replay" else "tune if it does not fit"
        return f"replay saved config {paste(plan.config)}, {search}"
    if not plan.tunes:
        return f"count calls only (LAGOM_CONTROLLER=none); {CHOOSES}"
    return _planned_with_controller(plan)


def _planned_with_controller(plan: JobPlan) -> str:
    if not plan.has_nccl:
        return "nothing, unless the job brings its own NCCL: none is found here"
    if plan.recorded:
        return f"record {format_count(plan.recorded, 'iteration')} as they are, tune nothing"
    if plan.compared:
        return f"compare {format_count(plan.compared, 'config')} with plain NCCL while the job runs"
    if plan.rules:
        return f"pin {_pins(plan)}, no search"
    limit = "no time limit" if plan.search_seconds is None else f"limit {plan.search_seconds:g} s"
    return f"tune while it runs; strategy {plan.strategy}, {limit}"


def _pins(plan: JobPlan) -> str:
    return f"{format_count(len(plan.rules), 'rule')} of --set"


# -- the second line


def describe_in_force(run: RunState, event: schema.Base) -> str | None:
    """What an event of the log changes about what is in force; None where it changes nothing."""
    if isinstance(event, schema.PlanCommitted):
        return _agreed(run, event)
    if isinstance(event, schema.StartSettings):
        return _started(event)
    if isinstance(event, schema.Program):
        comm = run.comm(event.communicator)
        where = f"{format_count(len(event.sites), 'site')} of {comm.name}, {event.period} calls an iteration"
        return shorten(f"in force: NCCL's choice on {format_count(comm.ranks, 'rank')}; searching {where}")
    if isinstance(event, schema.Outcome):
        return _searched(event)
    if isinstance(event, schema.Passthrough):
        return shorten(f"not in force: {event.reason}" if event.cause in _OF_A_CONFIG else _passthrough(run, event))
    return None


_OF_A_CONFIG = ("config_refused", "other_program", "not_agreed")


def _agreed(run: RunState, event: schema.PlanCommitted) -> str | None:
    """A saved config, or rules given by hand: each rank of the communicator uses them from one call on."""
    comm = run.comm(event.communicator)
    plan = comm.in_force
    if plan is None or plan.epoch != event.epoch or plan.purpose not in ("replay", "pin"):
        return None
    what = format_count(len(plan.rules), "rule")
    if plan.purpose == "replay":
        what = f"saved config ({format_count(len(plan.rules), 'site or rule', 'sites and rules')})"
    ranks = f"{format_count(comm.ranks, 'rank')} of {comm.name} from call {plan.start_call} on"
    return shorten(f"in force: {what} on {ranks}" + (f": {'; '.join(plan.rules)}" if plan.purpose == "pin" else ""))


def _started(event: schema.StartSettings) -> str:
    """The start settings of a saved config: every rank has them, or one has not."""
    if not event.in_force:
        return shorten(f"not in force: {event.reason}")
    gain = f", {_gain(event)} when tuned" if event.speedup is not None else ""
    what = format_count(len(event.settings), "start setting")
    return shorten(f"in force: {what} on {format_count(event.ranks, 'rank')}{gain}")


def _gain(event: schema.StartSettings) -> str:
    return format_speedup(event.speedup or 1.0, event.speedup_low, event.speedup_high)


def _searched(event: schema.Outcome) -> str | None:
    """A search is over; for a job that has ended, the last line says so."""
    if event.verdict == "stopped":
        return None
    won = event.verdict == "improved" and event.speedup is not None
    what = format_speedup(event.speedup or 1.0, event.speedup_low, event.speedup_high) if won else "NCCL's choice"
    cost = f"{format_count(event.configs, 'config')}, {event.regret_iterations:.1f} iterations lost"
    return shorten(f"in force: {what}; search over: {event.verdict.replace('_', ' ')}, {cost}")


def _passthrough(run: RunState, event: schema.Passthrough) -> str:
    where = "" if event.communicator is None else f" {run.comm(event.communicator).name}"
    return f"not tuned{where}: {event.reason}"


# -- the last lines


def describe_end(plan: JobPlan, run: RunState, code: int, seconds: float) -> str:
    """How it ended: the job's exit code, and what became of the plan."""
    return shorten(f"ended: exit {code} after {seconds:.0f} s; {_became(plan, run)}")


def _became(plan: JobPlan, run: RunState) -> str:
    if plan.mode == "off":
        return f"off: {CHOOSES}"
    if not has_log(plan, run):
        return "there is no log to say more"
    verdict = verdict_of(run)
    if plan.recorded and verdict == "not_tuned":
        return next(_reasons(run), "nothing was tuned, as planned")
    refusal = refusal_of(run)
    if plan.sets_start and refusal is not None and refusal.cause not in _OF_A_START:
        # The ranks refuse a saved config after NCCL has read its start settings, and nothing takes those back.
        again = ", not at the next start" if plan.cached_by else ""
        return f"start settings were in force{again}: {refusal.clause}"
    if verdict == "nothing_to_tune" and not (run.ranks or plan.has_nccl):
        return "nothing to tune: no NCCL is found here, and no rank called one"
    return describe_verdict(verdict, run)


#: A rank that lacks the start settings was not started with them.
_OF_A_START = ("setting", "rank")


def describe_verdict(verdict: Verdict, run: RunState) -> str:
    """What became of a job, in a clause."""
    clause = _CLAUSES.get(verdict)
    return summarize_stopped(list(run.comms.values())) if clause is None else clause(run)


def _outcomes(run: RunState, verdict: Verdict) -> list[schema.Outcome]:
    """Of the searches that ended so."""
    ended = (comm.outcome for comm in run.comms.values())
    return [outcome for outcome in ended if outcome is not None and outcome.verdict == verdict]


def _improved(run: RunState) -> str:
    gains = (
        f"{o.speedup:.3f}x {format_interval(o.speedup_low, o.speedup_high)}{format_payback(o.payback_iterations)}"
        for o in _outcomes(run, "improved")
        if o.speedup
    )
    return f"in force: {', '.join(gains)}"


def _cut_short(run: RunState) -> str:
    outcomes = _outcomes(run, "cut_short")
    if any(outcome.best_speedup for outcome in outcomes):
        return summarize_stopped(list(run.comms.values()))
    return f"search cut short by its limit, nothing faster: {sum(o.configs for o in outcomes)} configs tried"


def _replayed(run: RunState) -> str:
    comms, start = _replaying(run), run.start_settings
    if start is None or not start.in_force:
        return f"saved config was in force on {_ranks(run, comms)}"
    more = f"; saved config in force on {_ranks(run, comms)}" if comms else ""
    return f"start settings were in force on {format_count(start.ranks, 'rank')}{more}"


def _pinned(run: RunState) -> str:
    comms = [comm for comm in run.comms.values() if comm.pinned]
    rules = dict.fromkeys(rule for comm in comms for rule in comm.pinned)
    return f"{format_count(len(rules), 'pinned rule')} in force on {_ranks(run, comms)}"


def _refused(run: RunState) -> str:
    """From the fields where they say it all, else the sentence of the log."""
    if run.refusal is not None and run.refusal.wanted:
        return f"saved config refused: {run.refusal.clause}; {CHOOSES}"
    return run.not_tuned[0] if run.not_tuned or run.start_settings is None else run.start_settings.reason


def _nothing_to_tune(run: RunState) -> str:
    reasons = (reason for comm in run.comms.values() for reason in comm.not_tuned)
    return f"nothing to tune: {next(reasons, 'no communicator of 2 ranks') if run.ranks else NO_RANK_JOINED}"


def _not_tuned(run: RunState) -> str:
    return next(_reasons(run), "nothing was tuned: the job ended before its iteration was known")


#: Of the other verdicts the search says how far it came.
_CLAUSES: dict[Verdict, Callable[[RunState], str]] = {
    "improved": _improved,
    "stock_is_best": lambda run: (
        "NCCL's choice is best here: "
        f"{format_count(sum(o.configs for o in _outcomes(run, 'stock_is_best')), 'config')} tried"
    ),
    "cut_short": _cut_short,
    "replayed": _replayed,
    "pinned": _pinned,
    "refused": _refused,
    "other_program": lambda run: f"saved config of another program was not in force; {CHOOSES}",
    "nothing_to_tune": _nothing_to_tune,
    "not_tuned": _not_tuned,
}


def _reasons(run: RunState) -> Iterator[str]:
    """Why nothing was tuned, of the whole job first."""
    yield from run.not_tuned
    for comm in run.comms.values():
        yield from comm.not_tuned


def _replaying(run: RunState) -> list[CommState]:
    return [comm for comm in run.comms.values() if comm.replayed]


def _ranks(run: RunState, comms: Sequence[CommState]) -> str:
    part = "" if len(comms) == len(run.comms) else f", {len(comms)} of {len(run.comms)} communicators"
    ranks = max(len(run.ranks), *(comm.ranks for comm in comms))  # one that came and went between two looks is not met
    return f"{format_count(ranks, 'rank')}{part}"


def describe_next(plan: JobPlan, run: RunState, command: Sequence[str], code: int = 0) -> str:
    """The command that a user would run next, with paths that can be pasted; CMD where the job's own is too long. After
    a failure of the job, where it is said: nothing of ours is about that. ``code``: the job's exit code."""
    if code not in NO_FAILURE:
        attempt = find_attempt(command)
        said = "the job's own output, above" if attempt is None else f"tail -n 40 {paste(attempt)}/*/std*.log"
        return f"next: why the job failed: {said}"
    rest = f" -- {shlex.join(command)}"
    text = f"next: {_next(plan, run)}"
    if nodes := starts_one_node(command, os.environ):
        text = text.replace(TUNE, f"on each node: lagom tune --nnodes {nodes} --out SHARED-FOLDER -- CMD")
    return text.replace(" -- CMD", rest) if len(text) + len(rest) - len(" -- CMD") <= ROOM else text


def _next(plan: JobPlan, run: RunState) -> str:
    if plan.mode == "off":
        return "lagom run --mode tune -- CMD"
    if not has_log(plan, run):
        return "lagom run --dir FOLDER -- CMD"
    verdict = verdict_of(run)
    command = _COMMANDS[verdict](plan, run) if verdict in _COMMANDS else ""
    saved = paste(Path(run.end.config)) if run.end is not None and run.end.config else ""
    replay = replay_command(verdict, saved, is_simulated=run.is_simulated)
    return command or replay or f"lagom report {paste(plan.folder)}"


def find_attempt(command: Sequence[str]) -> Path | None:
    """The folder of what torchrun's ranks said at the last attempt, one below it for each rank; None where it keeps
    none: without --log-dir, or without --redirects and --tee the files stay empty."""
    said = [
        file for folder in log_folders(command) for file in folder.glob("*/attempt_*/*/std*.log") if file.stat().st_size
    ]
    newest = max(said, key=lambda file: file.stat().st_mtime, default=None)
    return None if newest is None else newest.parents[1]


def _search_instead(plan: JobPlan, run: RunState) -> str:
    return "lagom run -- CMD" if plan.cached_by else "lagom run --mode tune -- CMD"


def _compare_rules(plan: JobPlan, run: RunState) -> str:
    return f"lagom run --compare {shlex.quote(';'.join(plan.rules))} -- CMD" if plan.rules else ""


def _compare_replayed(plan: JobPlan, run: RunState) -> str:
    """With plain NCCL: the start settings alone, or the whole saved config."""
    if run.start_settings is not None and not _replaying(run):
        asked = ",".join(f"{name}={value}" for name, value in run.start_settings.settings.items())
        return f"lagom bench --arms {shlex.quote(f'env={asked}')} -- CMD"
    return "" if plan.config is None else f"lagom bench --arms replay={paste(plan.config)} -- CMD"


def _find_out_why(plan: JobPlan, run: RunState) -> str:
    """After a job in which nothing could be tuned; over nodes there are still settings of the start."""
    if any("several_nodes" in comm.causes for comm in run.comms.values()):
        return TUNE
    return "lagom doctor" if plan.has_nccl else "lagom doctor, once the job has an NCCL (torch built with CUDA)"


#: After the other verdicts a proven config is replayed, or the report is read.
_COMMANDS: dict[Verdict, Callable[[JobPlan, RunState], str]] = {
    "refused": _search_instead,
    "other_program": _search_instead,
    "pinned": _compare_rules,
    "replayed": _compare_replayed,
    "nothing_to_tune": _find_out_why,
}


def has_log(plan: JobPlan, run: RunState) -> bool:
    return plan.logs and run.start is not None


# -- how they are written


def paste(path: Path) -> str:
    """A path as a shell takes it: relative where it lies below the working folder."""
    here = Path.cwd()
    whole = path.absolute()
    return shlex.quote(str(whole.relative_to(here)) if whole.is_relative_to(here) else os.fspath(whole))


def shorten(text: str, room: int = ROOM) -> str:
    """One line of stderr: on a terminal at most ``room`` columns, with an ellipsis where words were left out."""
    return textwrap.shorten(text, room if sys.stderr.isatty() else len(text) + 1, placeholder=" …")
