# SPDX-License-Identifier: Apache-2.0
"""``lagom report``: what a log and a saved config say at each site, in NCCL's words, and what they cannot say."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from lagom import journal
from lagom.cli.main import app
from lagom.cli.report import is_config
from lagom.config_file import Fingerprint, SavedConfig, Section, save_config
from lagom.format import SIMULATED
from lagom.journal import RunState
from lagom.journal.schema import records_of
from lagom.journal.writer import Journal
from lagom.records import STOCK, Algorithm, Assignment, CommConfig, Function, Protocol, Site
from lagom.report import from_log as log
from lagom.report import run_text as show
from lagom.report.read_run import read_log
from lagom.report.run_model import RunReport
from lagom.report.tuning_report import write_page
from lagom.search.moves import SearchMove
from lagom.wire.plan import NO_LIMIT, Rule

RING = CommConfig(Algorithm.RING, Protocol.SIMPLE, 24, 512)
SITES = (Site(0, Function.ALL_GATHER, 416 << 20, 12, "hidden"), Site(1, Function.REDUCE_SCATTER, 416 << 20, 6))
FLOOR = Assignment((CommConfig(channels=2), CommConfig(channels=2)))
ONE_UP = FLOOR.with_config(0, CommConfig(channels=6))
OTHER_UP = ONE_UP.with_config(1, CommConfig(channels=4))


def explained(events: Iterable[Any], source: str) -> RunReport:
    return log.build_report(RunState(events), source)


def move(number: int, purpose: str, candidate: Assignment, verdict: str, reason: str, **more: Any) -> journal.Move:
    numbers = {"ratio": 0.95, "ratio_low": 0.94, "ratio_high": 0.96, "pairs": 4, "z": 95e6}
    numbers |= {"kept": verdict in ("better", "confirmed"), **more}
    event = journal.Move.of(
        SearchMove(number=number, purpose=purpose, candidate=candidate, verdict=verdict, reason=reason, **numbers),
        communicator=0, iteration=10 * number,
    )  # fmt: skip
    return event.model_copy(update={"incumbent": records_of(Assignment.stock(2))})


def events() -> list[Any]:
    """The incumbent stays stock while the search walks: floor, one site up, the other up, one back down."""
    sites = tuple(journal.SiteRecord.of(site, RING) for site in SITES)
    counts = {"calls": 900, "send_recv": 48, "symmetric": 0, "copy_engine": 0}
    return [
        journal.JobStart(job="llama", mode="tune", strategy="lagom", headroom="32:24"),
        journal.RankJoined(process=0, pid=1, gpu="NVIDIA H200", nccl="2.30.7", environment={"NCCL_BUFFSIZE": "1"}),
        journal.Communicator(communicator=0, comm_id="7", name="fsdp", ranks=8, nodes=1),
        journal.Communicator(communicator=1, comm_id="8", name="wide", ranks=8, nodes=2),
        journal.Passthrough(communicator=1, reason="the communicator spans 2 nodes, which is not tuned yet"),
        journal.Program(communicator=0, period=18, sites=sites, channels_built=24, tier="timeline"),
        move(1, "baseline", Assignment.stock(2), "baseline", "stock"),
        move(2, "trial", FLOOR, "worse", "all at their floor", phase="floor"),
        move(3, "trial", ONE_UP, "better", "site 0: channels 2 to 6: kept", h=0.5),
        move(4, "trial", OTHER_UP, "more", "measured again: site 1"),
        move(5, "trial", OTHER_UP, "tie", "site 1: channels 2 to 4: rolled back"),
        move(6, "trial", ONE_UP.with_config(0, CommConfig(channels=4)), "tie", "site 0: NC 6 to 4: kept", kept=True),
        move(7, "confirm", ONE_UP, "confirmed", "fresh samples"),
        journal.Outcome(
            communicator=0, verdict="improved", reason="1.05x stock (p = 0.001)", configs_chosen=records_of(ONE_UP),
            speedup=1.05, speedup_low=1.04, speedup_high=1.06, configs=4, windows=7, iterations=90, regret_iterations=2,
            payback_iterations=42.0,
        ),
        journal.JobEnd(reason="over", not_asked=(journal.NotAsked(communicator=0, name="fsdp", **counts),)),
    ]  # fmt: skip


def text_of(story: Any, *, everything: bool = False) -> str:
    console = Console(width=200, file=None, record=True, quiet=False, force_terminal=False, no_color=True)
    with console.capture() as captured:
        show.show(story, console, everything=everything)
    return captured.get()


def test_each_site_has_only_the_moves_that_were_about_it() -> None:
    part = explained(events(), "here").communicators[0]
    first, second = part.sites
    assert [trial.number for trial in first.trials] == [2, 3, 6]
    assert [trial.number for trial in second.trials] == [2, 4, 5]
    assert [trial.joint for trial in first.trials] == [True, False, False]
    assert [trial.kept for trial in first.trials] == [False, True, True]


def test_the_story_is_told_in_nccls_words() -> None:
    text = text_of(explained(events(), "here"), everything=True)
    for wanted in (
        "head-room 32:24", "started with: NCCL_BUFFSIZE=1", "24 channels of plain NCCL",
        "site 0: AllGather 416M hidden, 12 calls an iteration",
        "NCCL:  ring simple nc=24 nt=512 chunk=2M (NCCL's rule, default buffers)",
        "Lagom: nc=6; the rest as NCCL", "proof: 1.05x stock (p = 0.001)",
        "#3 it 30 nc=6: kept, 1.053x plain NCCL [1.042, 1.064] in 4 pairs, H 0.5: site 0",
        "48 × send/recv and AlltoAll", "which `lagom tune` tries", "everything here: the communicator spans 2 nodes",
        "No iteration was found here",
    ):  # fmt: skip
        assert wanted in text, wanted
    assert "symmetric" not in text, "what never came is not told"


def test_without_the_profiler_half_zero_is_not_claimed() -> None:
    blind = journal.JobEnd(reason="over", not_asked=(journal.NotAsked(communicator=0, calls=900),))
    text = text_of(explained([*events()[:-1], blind], "here"))
    assert "only the NCCL profiler plugin (NCCL_PROFILER_PLUGIN) reports it" in text


def test_a_site_is_one_line_unless_all_is_asked_for() -> None:
    more = [
        move(10 + n, "trial", ONE_UP.with_config(0, CommConfig(channels=n + 7)), "worse", f"site 0: try {n}")
        for n in range(6)
    ]
    story = explained([*events()[:-2], *more, *events()[-2:]], "here")
    lines = text_of(story).splitlines()
    assert sum("AllGather 416M hidden: ring simple nc=24 -> nc=6" in line for line in lines) == 1
    assert not any("try" in line for line in lines)
    assert any("`lagom report --all` shows every config that was tried" in line for line in lines)
    assert len(lines) <= 40
    assert "try 0" in text_of(story, everything=True)
    assert "try 5" in text_of(story, everything=True)


def test_an_empty_log_and_a_running_one_are_told_too() -> None:
    assert explained([], "here").communicators == ()
    running = explained(events()[:10], "here").communicators[0]
    assert "still going" in running.answer
    assert all(site.ours == STOCK for site in running.sites)


def test_of_two_jobs_in_one_log_the_newest_is_told() -> None:
    second = [journal.JobStart(job="newer", mode="tune"), *events()[1:]]
    story = explained([*events(), *second], "here")
    assert dict(story.facts)["ranks"] == "1"
    assert dict(story.facts)["job"] == "newer"
    assert "head-room" not in dict(story.facts)
    assert story.communicators == explained(second, "here").communicators


def test_the_floor_in_force_is_told_as_what_it_is() -> None:
    """One site stays where the search began: the only window with its config was worse, for all sites together."""
    chosen = journal.Outcome(communicator=0, verdict="improved", reason="1.05x", configs_chosen=records_of(ONE_UP))
    up = [move(8, "trial", OTHER_UP, "worse", "site 1: 2 to 4")]
    first, second = explained([*events()[:-2], *up, chosen], "here").communicators[0].sites
    assert first.evidence.startswith("kept by #3, better; changes from it were kept, and not what was confirmed (#6)")
    assert second.evidence == (
        "the smallest config, where this search began (#2 with other sites: worse); changes from it were "
        "not kept (#5) or worse (#8); proven with all sites together"
    )
    assert f"evidence: {second.evidence}" in text_of(explained([*events()[:-2], *up, chosen], "here"), everything=True)
    later = [move(8, "trial", OTHER_UP, "tie", "predicted", phase="predict")]
    chosen = chosen.model_copy(update={"configs_chosen": records_of(OTHER_UP)})
    (_, second) = explained([*events()[:-2], *later, chosen], "here").communicators[0].sites
    assert second.evidence == "measured by #8; proven with all sites together"
    running = explained(events()[:-2], "here").communicators[0].sites[1]
    assert "proven" not in running.evidence
    stock = chosen.model_copy(update={"configs_chosen": records_of(Assignment.stock(2)), "verdict": "stock_is_best"})
    assert {site.evidence for site in explained([*events()[:-2], stock], "here").communicators[0].sites} == {""}


def test_a_replay_says_by_how_much_where_the_saved_config_does(tmp_path: Path) -> None:
    proof = {"ranks": 8, "ordinal": 0, "outcome": {"verdict": "improved", "speedup": 1.1, "speedup_low": 1.05}}
    file = config(tmp_path, Fingerprint(ranks=8), evidence=(proof,))
    start = journal.JobStart(job="llama", mode="replay", config=str(file))
    put = journal.PlanPublished(communicator=0, epoch=1, start_call=9, purpose="replay", rules=("allgather: nc=4",))
    told = [start, *events()[1:3], put, journal.PlanCommitted(communicator=0, epoch=1, start_call=9)]
    (part,) = explained(told, "here").communicators
    assert "Where it was made, the job ran 1.100× as fast as with plain NCCL" in part.answer
    assert part.answer.endswith(f"Its evidence: lagom report {file}")
    file.unlink()
    (part,) = explained(told, "here").communicators
    assert part.answer.endswith(f"nothing was tried here. Its speed-up and evidence: lagom report {file}")


def test_a_replay_is_told_as_one() -> None:
    put = journal.PlanPublished(communicator=0, epoch=1, start_call=9, purpose="replay", rules=("allgather: nc=4",))
    agreed = journal.PlanCommitted(communicator=0, epoch=1, start_call=9)
    (part,) = explained([*events()[:3], put, agreed], "here").communicators
    assert part.answer.startswith("Replayed from a saved config")
    assert part.rules == ("allgather: nc=4",)
    by_hand = put.model_copy(update={"purpose": "pin"})
    assert explained([*events()[:3], by_hand, agreed], "here").communicators[0].answer.startswith("Pinned by hand")


def test_what_a_search_found_is_not_shown_as_in_force_once_rules_are_pinned() -> None:
    put = journal.PlanPublished(communicator=0, epoch=9, start_call=9, purpose="pin", rules=("allgather: nc=2",))
    text = text_of(explained([*events(), put, journal.PlanCommitted(communicator=0, epoch=9, start_call=9)], "here"))
    assert "rule: allgather: nc=2\n  By the search before these rules, and not in force now:\n  AllGather" in text
    assert "not in force now" not in text_of(explained(events(), "here"))


def test_json_names_algorithms_as_nccl_does() -> None:
    value = json.loads(json.dumps(show.as_json(explained(events(), "here"))))
    site = value["communicators"][0]["sites"][0]
    assert site["stock"] == {
        "algorithm": "Ring", "protocol": "Simple", "channels": 24, "threads": 512, "chunk_bytes": None
    }  # fmt: skip
    assert value["schema"] == show.SCHEMA


@pytest.mark.parametrize(
    ("function", "config", "chunk"),
    [
        ("allgather", RING, 2 << 20),
        ("broadcast", RING, 512 << 10),
        ("allreduce", replace(RING, protocol=Protocol.LL), 32 << 10),
        ("allreduce", replace(RING, algorithm=Algorithm.TREE), 512 << 10),
        ("allreduce", replace(RING, algorithm=Algorithm.NVLS), None),
        ("allreduce", STOCK, None),
    ],
)
def test_nccls_own_chunk_is_told_only_where_its_rule_says(function: str, config: CommConfig, chunk: int | None) -> None:
    assert show.default_chunk(function, config) == chunk


# -- saved configs


def config(folder: Path, fingerprint: Fingerprint, **more: Any) -> Path:
    rules = (Rule(Function.ALL_GATHER, 1 << 20, NO_LIMIT, CommConfig(channels=4)),)
    save_config(SavedConfig(fingerprint, (Section(8, 1, 0, "fsdp", rules=rules),), **more), folder / "p.lagom")
    return folder / "p.lagom"


def run(*words_: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["report", *words_])
    return result.exit_code, result.output


def test_a_saved_config_that_fits_says_what_was_not_compared(tmp_path: Path) -> None:
    code, text = run(str(config(tmp_path, Fingerprint(ranks=8))))
    assert code == 0
    assert "It fits this machine" in text
    assert "not compared: 8 ranks" in text
    assert "rule: allgather from 1M: nc=4" in text
    assert "no evidence" in text


def test_a_saved_config_of_another_gpu_is_refused_in_the_plugins_words(tmp_path: Path) -> None:
    code, text = run(str(config(tmp_path, Fingerprint(gpu="NVIDIA B900"))))
    assert code == 1
    assert "made on NVIDIA B900, this GPU is" in text


def test_a_saved_config_of_another_environment_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = config(tmp_path, Fingerprint(), environment={"NCCL_MIN_NCHANNELS": "32"})
    monkeypatch.setenv("NCCL_MIN_NCHANNELS", "16")
    code, text = run(str(file))
    assert code == 1
    assert "NCCL_MIN_NCHANNELS=32 (here 16)" in text
    monkeypatch.setenv("NCCL_MIN_NCHANNELS", "32")
    assert run(str(file))[0] == 0


def test_what_lagom_run_sets_is_no_reason_to_refuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NCCL_MIN_NCHANNELS", raising=False)
    code, text = run(str(config(tmp_path, Fingerprint(), environment={"NCCL_MIN_NCHANNELS": "32"})))
    assert code == 0
    assert "NCCL_MIN_NCHANNELS=32, which `lagom run` sets" in " ".join(text.split())
    asked = {"LAGOM_HEADROOM": "32:24", "NCCL_MIN_NCHANNELS": "32"}
    assert run(str(config(tmp_path, Fingerprint(), environment=asked)))[0] == 1, "it wants --headroom"


def test_evidence_of_a_saved_config_is_told(tmp_path: Path) -> None:
    proof = {
        "ranks": 8, "ordinal": 0, "job": "llama", "channels_built": 24,
        "outcome": {"verdict": "improved", "speedup": 1.1, "speedup_low": 1.05, "speedup_high": 1.15,
                    "reason": "1.1x in 10 pairs", "configs": 9, "windows": 12, "iterations": 300,
                    "regret_iterations": 3.0, "payback_iterations": 33.0, "resolvable": 0.01},
    }  # fmt: skip
    code, text = run(str(config(tmp_path, Fingerprint(), evidence=[proof])))
    assert code == 0
    for wanted in (
        "1.100× as fast",
        "proof: 1.1x in 10 pairs",
        "24 channels built",
        "9 configs in 12 windows, 300 iterations, 3.0 of them lost against plain NCCL, paid back after 33 iterations;",
        "llama",
    ):
        assert wanted in text


@pytest.mark.parametrize(
    "proof", [{"ranks": 8, "ordinal": 0, "outcome": 3, "stock": "x", "z_ns": "y"}, {"ranks": None}]
)
def test_evidence_that_makes_no_sense_is_passed_over(tmp_path: Path, proof: dict[str, Any]) -> None:
    assert run(str(config(tmp_path, Fingerprint(), evidence=[proof])))[0] == 0


def test_what_is_neither_log_nor_saved_config_is_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "x").write_text("hello\n")
    result = CliRunner().invoke(app, ["report", str(tmp_path / "x")])
    assert result.exit_code != 0
    assert "line 1" in str(result.exception)
    assert "there is no log" in str(CliRunner().invoke(app, ["report", str(tmp_path / "nothing")]).exception)


def test_a_fifo_is_no_saved_config_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    assert not is_config(tmp_path / "fifo")


def test_the_counts_of_configs_add_up_however_often_one_was_measured() -> None:
    again = [
        move(10 + n, "trial", ONE_UP.with_config(0, CommConfig(channels=7)), "worse", f"site 0: try {n}")
        for n in range(3)
    ]
    text = text_of(explained([*events()[:-2], *again, *events()[-2:]], "here"), everything=True)
    counts = re.findall(r"tried: (\d+) configs?: (\d+) kept, (\d+) not", text)
    assert counts
    assert all(int(configs) == int(kept) + int(rest) for configs, kept, rest in counts), text


@pytest.mark.parametrize(("verdict", "shown"), [("improved", True), ("stock_is_best", False), ("stopped", False)])
def test_only_a_proven_config_is_the_next_command(tmp_path: Path, verdict: str, shown: bool) -> None:
    """A job that was stopped or pinned has a saved config, too, and nothing proves that it is faster."""
    saved = config(tmp_path, Fingerprint(ranks=8)).rename(tmp_path / "config.lagom")
    outcome = events()[-2].model_copy(update={"verdict": verdict})
    end = journal.JobEnd(reason="over", config=str(saved))
    told = [*events()[:-2], outcome, end]
    with Journal(tmp_path) as written:
        for event in told:
            written.write(event)
    report = CliRunner().invoke(app, ["report", str(tmp_path)]).output
    assert ("proof: 1.05x stock" in report) == shown, report
    assert ("ended: 1.05x stock" in report) != shown, report
    assert "simulated" not in report
    for command in ("report", "log"):
        output = CliRunner().invoke(app, [command, str(tmp_path)]).output
        assert ("lagom run --config" in output) == shown, output


def test_a_simulated_run_is_said_to_be_one_before_anything_else_and_gives_no_command(tmp_path: Path) -> None:
    saved = config(tmp_path, Fingerprint(ranks=8)).rename(tmp_path / "config.lagom")
    start = journal.JobStart(job="demo", mode="tune", simulated_clock=True)
    with Journal(tmp_path) as written:
        for event in [start, *events()[1:-1], journal.JobEnd(reason="over", config=str(saved))]:
            written.write(event)
    for command in ("report", "log"):
        output = CliRunner().invoke(app, [command, str(tmp_path)]).output
        assert output.startswith(SIMULATED), output
        assert "lagom run --config" not in output, "which would be refused"
    write_page(read_log(tmp_path).state, tmp_path / "page.html", "here")
    page = (tmp_path / "page.html").read_text()
    assert page.index(f'<p class="answer">{SIMULATED}</p>') == page.index('<p class="answer">')


def test_the_config_of_a_simulated_job_is_said_to_be_one_before_anything_else(tmp_path: Path) -> None:
    code, text = run(str(config(tmp_path, Fingerprint(ranks=8, simulated=True))))
    assert code == 1
    assert text.splitlines()[:2] == [SIMULATED, "Here it would be refused: made in a simulated job, this job is real"]
    assert "fits this machine" not in text


def test_every_ratio_is_over_plain_nccl_and_one_over_the_incumbent_says_so() -> None:
    """Once something is confirmed, trials are run in turn with it: what they gain is the product of both."""
    later = move(8, "trial", OTHER_UP, "better", "site 1: 2 to 4", against="point")
    later = later.model_copy(update={"incumbent": records_of(ONE_UP)})
    text = text_of(explained([*events()[:-2], later, *events()[-2:]], "here"), everything=True)
    assert "#3 it 30 nc=6: kept, 1.053x plain NCCL [1.042, 1.064] in 4 pairs, H 0.5: site 0" in text
    assert "#8 it 80 nc=4: kept, 1.108x plain NCCL [1.096, 1.120] in 4 pairs, 1.053x the incumbent: site 1" in text
    line = journal.Formatter(state=(state := RunState())).line
    said = [line(event) for event in [*events()[:-2], later] if state.apply(event) is None]
    assert any(" #8   kept      1.108x [1.096, 1.120] " in str(one) for one in said), "lagom log, in the same words"
    assert not re.search(r"\bstock\b", text.replace("1.05x stock (p = 0.001)", "")), text
