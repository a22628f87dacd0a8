# SPDX-License-Identifier: Apache-2.0
"""Two launchers on two nodes (NCCL_HOSTID) start a job from their caches: both set what was found, or neither does."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from lagom import journal, read_run
from lagom.launch.cached_config import find_cached, keep_config
from tests.forked_commands import Lagom
from tests.system.launched import JOB, bare_environment, events_in, has_event
from tests.system.test_first_contact import HEAD
from tests.waiting import wait_until

SETTING = "NCCL_SOCKET_NTHREADS=4"
#: What a rank of a node was started with, in a file of the node.
SHOW = ("sh", "-c", 'echo "${NCCL_SOCKET_NTHREADS-none}" > "started-$NCCL_HOSTID"')


def environ_of(place: Path, node: str, **more: str) -> dict[str, str]:
    ours = {
        "LAGOM_SHM_DIR": str(place / "shm"),
        "LAGOM_CLOCK": "simulated",
        "LAGOM_CACHE": str(place / f"cache-{node}"),
    }
    return {**bare_environment(), **ours, "NCCL_HOSTID": node, **more}


def keep(
    place: Path, node: str, job: Sequence[str] = SHOW, value: str = "4", exchange: str = "", nodes: int = 2
) -> None:
    """As `lagom tune` on several nodes leaves it on each."""
    (place / "shm").mkdir(exist_ok=True)
    setting = f'environment NCCL_SOCKET_NTHREADS "{value}"\n'
    file = place / f"found-{node}.lagom"
    file.write_text(HEAD.format(ranks=2).replace("\n", f"\n# of {node}\n{setting}", 1).partition("communicator")[0])
    where = exchange or str(place / "meet")
    said = keep_config(job, file, environ_of(place, node), "lagom tune", nodes=nodes, exchange=where).text
    assert said.startswith("the config is kept")


def start(place: Path, node: str, *options: str, job: Sequence[str] = SHOW, **more: str) -> Lagom:
    return Lagom("run", *options, "--dir", f"log-{node}", "--", *job, cwd=place, env=environ_of(place, node, **more))


def ended(process: Lagom, code: int = 0) -> list[str]:
    _, said = process.communicate()
    assert process.returncode == code, said
    return [line for line in said.splitlines() if line.startswith("lagom")]


def about_the_vote(lines: Sequence[str]) -> str:
    (line,) = [line for line in lines if line.startswith("lagom: start settings ")]
    return line


def notes_in(folder: Path) -> list[str]:
    return [event.text for event in events_in(folder) if isinstance(event, journal.Note) and event.level == "warning"]


def has_voted(place: Path) -> set[str]:
    """The nodes that have a seat in the first session."""
    return {json.loads(file.read_text())["node"] for file in place.glob("meet/starts/*/1/seat/[0-9]")}


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def started(place: Path) -> Mapping[str, str]:
    return {file.name.removeprefix("started-"): file.read_text().strip() for file in place.glob("started-*")}


def test_both_start_from_their_caches_and_the_log_and_the_report_name_the_nodes(tmp_path: Path) -> None:
    """On b a wrapper sets another value for its ranks: they are named in b's log, and b does not take part again."""
    job = ("sh", "-c", f"[ $NCCL_HOSTID = a ] || export NCCL_SOCKET_NTHREADS=1; exec {shlex.join(JOB)}")
    for node in "ab":
        keep(tmp_path, node, job)
    processes = {node: start(tmp_path, node, job=job) for node in "ab"}
    for node, process in processes.items():
        wait_until(lambda node=node: has_event(tmp_path / f"log-{node}", journal.StartSettings), node)
        process.send_signal(signal.SIGTERM)
    lines = {node: ended(process) for node, process in processes.items()}
    agreed = {f"lagom: start settings agreed by 2 nodes ({names}): {SETTING}" for names in ("a, b", "b, a")}
    for node in "ab":
        assert about_the_vote(lines[node]) in agreed
        assert not any("set for the saved config" in line for line in lines[node])
        assert any("plan: replay config cached by lagom tune on 2" in line for line in lines[node])
    runs = {node: read_run(tmp_path / f"log-{node}") for node in "ab"}
    assert {node: run.verdict for node, run in runs.items()} == {"a": "replayed", "b": "refused"}
    assert not notes_in(tmp_path / "log-a")
    (note,) = notes_in(tmp_path / "log-b")
    who = "not as the nodes [ab], [ab] agreed: (rank|process) [0-9]+"
    assert re.fullmatch(rf"{who} was not started with {SETTING}: set it for every rank\.", note), note
    report = Lagom("report", "log-a", cwd=tmp_path, env=bare_environment()).communicate()[0]
    assert re.search(r"agreed by nodes +(a, b|b, a)\n", report), report
    again = {node: find_cached(job, environ_of(tmp_path, node), may_use=True) for node in "ab"}
    assert {node: use.config is not None for node, use in again.items()} == {"a": True, "b": False}
    assert all(use.meeting is not None for use in again.values()), "b says so, too"


@pytest.mark.parametrize("first", ["a", "b", "at once"])
def test_one_node_without_the_cache_is_named_and_nothing_is_set_on_either(first: str, tmp_path: Path) -> None:
    keep(tmp_path, "a")
    told = {"LAGOM_EXCHANGE": str(tmp_path / "meet")}
    begin = {"a": lambda: start(tmp_path, "a"), "b": lambda: start(tmp_path, "b", "--nnodes", "2", **told)}
    processes = {}
    for node in sorted("ab", key=lambda node: node != first):
        processes[node] = begin[node]()
        if first != "at once":
            wait_until(lambda node=node: node in has_voted(tmp_path), f"the vote of {node}")
    for process in processes.values():
        text = "lagom: start settings not set: node b has no saved config to use (lagom tune writes it)"
        assert about_the_vote(ended(process)) == text
    assert started(tmp_path) == {"a": "none", "b": "none"}


def test_a_launcher_killed_before_the_outcome_does_not_count_when_it_is_started_again(tmp_path: Path) -> None:
    for node in "ab":
        keep(tmp_path, node)
    killed = start(tmp_path, "a")
    wait_until(lambda: has_voted(tmp_path) == {"a"}, "the vote of a")
    killed.send_signal(signal.SIGKILL)
    killed.communicate()
    assert not started(tmp_path)
    for process in [start(tmp_path, node) for node in "ba"]:
        assert "start settings agreed by 2 nodes" in about_the_vote(ended(process))
    assert started(tmp_path) == {"a": "4", "b": "4"}


def test_who_has_voted_and_loses_the_exchange_does_not_start(tmp_path: Path) -> None:
    keep(tmp_path, "a")
    process = start(tmp_path, "a")
    wait_until(lambda: has_voted(tmp_path) == {"a"}, "the vote of a")
    (tmp_path / "meet").rename(tmp_path / "gone")
    (tmp_path / "meet").touch()
    said = ended(process, 2)
    assert said[-1].startswith("lagom: the command is not started, because other nodes may count on this one: ")
    assert not started(tmp_path)


def test_where_there_is_no_exchange_the_job_starts_without(tmp_path: Path) -> None:
    keep(tmp_path, "a", exchange=str(tmp_path / "no" / "folder"))
    text = about_the_vote(ended(start(tmp_path, "a")))
    why = f"{tmp_path}/no/folder cannot be used (No such file or directory); the config was found with that place"
    assert (
        text == f"lagom: start settings not set: {why}: name one of this job's with --rdzv-endpoint or LAGOM_EXCHANGE"
    )
    assert started(tmp_path) == {"a": "none"}


def test_the_doctor_of_each_node_prints_the_times_of_all(tmp_path: Path) -> None:
    command = ("doctor", "--json", "--nodes", "2", "--out", "meet")
    both = [Lagom(*command, cwd=tmp_path, env={**bare_environment(), "NCCL_HOSTID": node}) for node in "ab"]
    for process in both:
        findings = json.loads(process.communicate()[0])["findings"]
        (finding,) = [one for one in findings if one["area"] == "nodes"]
        assert finding["level"] in ("ok", "note")
        times = r"(a|b) [\d.]+ / [\d.]+ / [\d.]+"
        assert re.search(rf"^2 nodes exchange records at {tmp_path}/meet .*: {times}, {times}$", finding["text"])
