# SPDX-License-Identifier: Apache-2.0
"""Nothing is decided by a sentence: a log in which every one is worded otherwise gives the same reports, the same watch
and the same replay."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from lagom import journal
from lagom.journal import RunState, refusal_of, verdict_of
from lagom.journal.log_status import describe_log_status, is_death_note
from lagom.journal.reader import parse
from lagom.journal.schema import Base
from lagom.launch.job_plan import JobOptions, plan_job
from lagom.launch.status_text import describe_end, describe_next
from lagom.report import run_text
from lagom.report.from_log import build_report
from lagom.search import TuningSession, make_strategy, moves_of, replay
from lagom.search.landscape import LandscapeDriver, comm_bound
from lagom.watch.build import build_job, read_counters
from lagom.watch.log_view import LogView
from lagom.watch.screen import page
from lagom.watch.snapshot import NodeSnapshot
from lagom.wire.config_refusal import ConfigRefusal
from tests.unit.watch.pictures import group, region, slot

PLUGIN = Path("/opt/lagom/_lib/libnccl-tuner-lagom.so")
SENTENCES = {"reason", "text", "remark"}


def events_of(lines: Iterable[str]) -> list[Base]:
    events = [parse(line) for line in lines]
    assert None not in events
    return [event for event in events if event is not None]


def reworded(lines: Iterable[str]) -> tuple[list[str], dict[str, str]]:
    """The same lines with each sentence replaced by a word of its own, and what each word stands for."""
    words: dict[str, str] = {}

    def change(line: str) -> str:
        data = json.loads(line)
        for name in SENTENCES & data.keys():
            word = f"sentence{len(words)}x"
            words[word], data[name] = data[name], word
        return json.dumps(data)

    return [change(line) for line in lines], words


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """A log of this release: a whole search with every kind of verdict, and a communicator that was left alone."""
    landscape, folder = comm_bound(), tmp_path_factory.mktemp("log")
    problem = landscape.problem()
    session = TuningSession(make_strategy("lagom", problem, 3), problem, seed=3)
    LandscapeDriver(landscape, noise=0.03, seed=3, lose=0.1).drive(session)
    assert session.outcome is not None
    with journal.Journal(folder) as log:
        log.write(journal.JobStart(job="j", mode="tune", strategy="lagom"))
        log.write(journal.RankJoined(process=0, pid=1, remark="NT is off"))
        log.write(journal.Communicator(communicator=0, comm_id="0x7", ranks=2, nodes=1))
        log.write(journal.Communicator(communicator=1, comm_id="0x8", ranks=4, nodes=2))
        log.write(journal.Passthrough(communicator=1, reason="it spans 2 nodes", cause="several_nodes"))
        sites = tuple(journal.SiteRecord.of(site) for site in problem.sites)
        log.write(journal.Program(communicator=0, period=4, sites=sites, tier="timeline"))
        log.write(journal.Phase(communicator=0, phase="searching", purpose="baseline"))
        for move in session.moves:
            log.write(journal.Move.of(move, communicator=0, iteration=move.number))
        log.write(journal.Outcome.of(session.outcome, communicator=0))
        log.write(journal.Note(text="the log is almost full", level="warning"))
        log.write(journal.Passthrough(reason="the controller was killed", cause="controller_died"))
        log.write(journal.JobEnd(reason="over"))
    return (folder / journal.LOG_NAME).read_text().splitlines()


def seen(events: list[Base]) -> dict[str, Any]:
    """Everything that is made of a log, as text."""
    state = RunState(events)
    report = build_report(state, "here")
    shared = region(group(slot(0, calls=60), slot(1, calls=61)))
    job = build_job(shared, LogView(events), "", {}, read_counters(shared, 1.0))
    console = Console(width=400, file=io.StringIO(), record=True)
    console.print(page(NodeSnapshot(1.0, "here", (job,))))
    return {
        "verdict": verdict_of(state),
        "report": json.dumps(run_text.as_json(report)),
        "watch": repr(job),
        "screen": console.export_text(),
        "log": [line for verbose in (False, True) for line in map(journal.Formatter(verbose=verbose).line, events)],
        "status": describe_log_status(RunState(events[:-1])),
        "died": [is_death_note(event) for event in events],
    }


def restored(value: Any, words: dict[str, str]) -> Any:
    if isinstance(value, str):
        for word, sentence in sorted(words.items(), key=lambda pair: -len(pair[0])):
            value = value.replace(word, json.dumps(sentence)[1:-1] if value.startswith("{") else sentence)
        return value
    return [restored(one, words) for one in value] if isinstance(value, list) else value


def test_reports_watch_and_log_are_the_same_however_the_sentences_are_worded(written: list[str]) -> None:
    lines, words = reworded(written)
    before, after = seen(events_of(written)), seen(events_of(lines))
    assert words
    for what, value in before.items():
        assert restored(after[what], words) == value, what
    assert '"kept": true' in before["report"] or "kept by" in before["report"]


def test_a_replay_is_the_same_however_the_sentences_are_worded(written: list[str]) -> None:
    problem = comm_bound().problem()
    lines, _ = reworded(written)
    session = replay(moves_of(events_of(lines)), make_strategy("lagom", problem, 3), problem)
    outcome = next(event for event in events_of(written) if isinstance(event, journal.Outcome))
    assert session.outcome is not None
    assert session.outcome.verdict == outcome.verdict
    forged = [line.replace('"kept": true', '"kept": false') for line in lines]
    assert forged != lines
    from lagom.search import ReplayMismatch

    with pytest.raises(ReplayMismatch, match="kept"):
        replay(moves_of(events_of(forged)), make_strategy("lagom", problem, 3), problem)


REFUSALS = [
    ConfigRefusal("ranks", "2", "4"),
    ConfigRefusal("peer_access", "with", "without"),
    ConfigRefusal("setting", "4", "", "NCCL_SOCKET_NTHREADS"),
]


@pytest.mark.parametrize("sets_start", [True, False])
@pytest.mark.parametrize("refusal", REFUSALS, ids=lambda refusal: refusal.cause)
def test_a_refused_config_ends_in_one_clause_however_the_rank_words_it(
    refusal: ConfigRefusal, sets_start: bool, tmp_path: Path
) -> None:
    """The last lines of `lagom run`, and what becomes of the cached config."""
    plan = plan_job(JobOptions(mode="replay", directory=tmp_path, config=tmp_path / "config.lagom"), {}, PLUGIN)
    plan = replace(plan, sets_start=sets_start)
    ends = set()
    for words in ("saved config refused: made for another job", "made on another machine", "x"):
        aside = journal.Passthrough(reason=words, cause="config_refused", refusal=refusal)
        run = RunState([journal.JobStart(job="j", mode="replay"), aside, journal.JobEnd(reason="over")])
        ends.add((describe_end(plan, run, 0, 1.0), describe_next(plan, run, ["train"]), refusal_of(run)))
    ((end, _, found),) = ends
    assert " ".join(refusal.clause.split()[:4]) in end, "a line is cut at its end"
    assert found == refusal


def test_why_a_search_ended_is_the_same_verdict_however_it_is_worded() -> None:
    """A strategy's reason may begin with any word."""
    outcomes = set()
    for words in ("stopped because nothing is left", "nothing is left"):
        landscape = comm_bound()
        session = TuningSession(make_strategy("lagom", landscape.problem(), 3), landscape.problem(), seed=3)
        session.wrap_up(words)
        LandscapeDriver(landscape, noise=0.03, seed=3).drive(session)
        assert session.outcome is not None
        assert f"search stopped: {words}" in session.outcome.reason
        outcomes.add((session.outcome.verdict, session.outcome.cut_short, session.outcome.reason.replace(words, "")))
    assert len(outcomes) == 1
