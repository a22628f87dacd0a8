# SPDX-License-Identifier: Apache-2.0
"""A job that was tuned before starts with its config from the cache: after a search while it ran, with two jobs at
once; and it runs as without a cache where the config does not fit, or the cache is not trusted."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lagom import journal, read_run
from lagom.atlas import load_atlas
from lagom.experiment.process import ProcessStart
from lagom.launch.cached_config import keep_config
from tests.forked_commands import Lagom
from tests.system.launched import JOB, UNHURRIED_JOB, bare_environment, has_event, launch
from tests.system.test_candidates import after, after_something_faster, moves_of
from tests.system.test_first_contact import HEAD, RULE
from tests.tiers import amount
from tests.waiting import wait_until

TUNES = "lagom: plan: tune while it runs;"
#: Of another number of layers and tokens, with like communicators.
OTHER_SIZES = ("--layers", "3", "--tokens", "4096")
#: What is planned is said before the job begins, whatever it is.
NO_JOB = ("true",)


def keep(
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    ranks: int = 2,
    job: tuple[str, ...] = UNHURRIED_JOB,
    start: str = "",
    **more: str,
) -> str:
    """Put a config into the cache of ``place``, as if the job had been tuned there; the cache's folder."""
    monkeypatch.chdir(place)
    (place / "found.lagom").write_text(HEAD.format(ranks=ranks).replace("\n", f"\n{start}", 1) + RULE)
    environ = {**bare_environment(), "LAGOM_CLOCK": "simulated", "LAGOM_CACHE": str(place / "cache"), **more}
    assert keep_config(job, place / "found.lagom", environ, "lagom tune").text.startswith("the config is kept")
    return environ["LAGOM_CACHE"]


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    """What lagom said of a job that went well."""
    assert done.returncode == 0, done.stderr
    return [line for line in done.stderr.splitlines() if line.startswith("lagom")]


def plan_of(done: subprocess.CompletedProcess[str]) -> str:
    plan = next(line for line in lines(done) if line.startswith("lagom: plan: "))
    assert len(plan) <= 100
    return plan


@pytest.mark.slow
def test_the_config_is_replayed_and_fresh_or_another_variable_searches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = keep(tmp_path, monkeypatch)
    _, done = launch(tmp_path, job=UNHURRIED_JOB, until=journal.PlanCommitted, LAGOM_CACHE=cache)
    assert "plan: replay config cached by lagom tune on 20" in lines(done)[0]
    assert "tune if it does not fit (or --fresh)" in lines(done)[0]
    assert any("in force: saved config (1 site or rule) on 2 ranks" in line for line in lines(done))
    assert read_run(tmp_path / "log").verdict == "replayed"
    keep(tmp_path, monkeypatch, job=NO_JOB)
    for options, variables in ((("--fresh",), {}), (("--mode", "tune"), {}), ((), {"NCCL_ALGO": "Ring"})):
        _, done = launch(tmp_path, *options, job=NO_JOB, LAGOM_CACHE=cache, **variables)
        assert lines(done)[0].startswith(TUNES)


def is_refused(events: list[Any]) -> bool:
    return any(getattr(event, "refusal", None) is not None for event in events)


def test_a_config_that_the_ranks_refuse_is_not_used_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = keep(tmp_path, monkeypatch, ranks=16)
    _, done = launch(tmp_path, job=UNHURRIED_JOB, until=is_refused, LAGOM_CACHE=cache)
    assert "plan: replay config cached by" in plan_of(done)
    assert any(
        "not in force: saved config refused: made for 16 ranks, this job has 2; the job is" in x for x in lines(done)
    )
    refused = "lagom: the cached config is not used at the next start: made for 16 ranks, this job has 2"
    assert refused in lines(done), done.stderr
    (tmp_path / "log").rename(tmp_path / "first")
    _, done = launch(tmp_path, job=UNHURRIED_JOB, until=journal.RankJoined, LAGOM_CACHE=cache)
    assert lines(done)[0].startswith(TUNES)


def test_start_settings_of_a_config_that_the_ranks_refuse_are_said_to_have_been_in_force(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = keep(tmp_path, monkeypatch, ranks=16, start='environment NCCL_SOCKET_NTHREADS "4"\n')
    _, done = launch(tmp_path, job=UNHURRIED_JOB, until=is_refused, LAGOM_CACHE=cache)
    assert "lagom: set for the saved config: NCCL_SOCKET_NTHREADS=4" in lines(done)
    assert "start settings were in force, not at the next start: made for 16" in lines(done)[-2]


def test_where_every_rank_has_a_launcher_the_config_is_named_and_nothing_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ranks = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0", "LAGOM_JOB_ID": "named"}
    cache = keep(tmp_path, monkeypatch, job=NO_JOB, **ranks)
    _, done = launch(tmp_path, job=NO_JOB, LAGOM_CACHE=cache, **ranks)
    assert lines(done)[0].startswith("lagom: tuned before: lagom run --config cache/configs/")
    assert plan_of(done).startswith(TUNES)


def test_two_jobs_at_once_replay_one_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache = keep(tmp_path, monkeypatch)
    (tmp_path / "shm").mkdir()
    ours = {"LAGOM_SHM_DIR": str(tmp_path / "shm"), "LAGOM_CLOCK": "simulated", "LAGOM_CACHE": cache}

    names = ("one", "two")
    both = [Lagom("run", "--dir", name, "--", *UNHURRIED_JOB, env=bare_environment() | ours) for name in names]
    for name in names:
        wait_until(lambda name=name: has_event(tmp_path / name, journal.PlanCommitted), f"the saved config in {name}")
    for process, name in zip(both, names, strict=True):
        process.send_signal(signal.SIGTERM)
        said = process.communicate()
        assert process.returncode == 0, said
        assert "plan: replay config cached by" in said[1]
        assert read_run(tmp_path / name).verdict == "replayed"


@pytest.mark.parametrize("how", ["foreign", "writable", "damaged", "no folder"])
def test_a_cache_that_is_not_to_be_trusted_costs_one_line(
    how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = Path(keep(tmp_path, monkeypatch, job=NO_JOB))
    (file,) = cache.glob("configs/*")
    if how == "foreign":
        if os.geteuid() != 0:
            pytest.skip("only root can give a folder away")
        os.chown(cache, 4711, 4711)
    elif how == "writable":
        cache.chmod(0o770)
    elif how == "damaged":
        file.write_bytes(file.read_bytes()[:50])
    elif how == "no folder":
        cache = tmp_path / "found.lagom" / "cache"
    _, done = launch(tmp_path, job=NO_JOB, LAGOM_CACHE=str(cache))
    said = lines(done)
    assert said[1].startswith(TUNES), said
    reasons = {"foreign": "another user (4711)", "writable": "written by others", "damaged": "damaged"}
    assert reasons.get(how, "cannot be used") in said[0]


def test_processes_that_measure_neither_use_the_cache_nor_fill_it(tmp_path: Path) -> None:
    for options in (None, ["--mode", "tune"]):
        environ = ProcessStart(["true"], tmp_path, "one", options).environment()
        assert (environ["LAGOM_CACHE"], environ["LAGOM_ATLAS"]) == ("off", "off")


def script_with(file: Path, *options: str) -> tuple[str, ...]:
    """The command of an unhurried job, which is the same whatever the script in ``file`` gives its job."""
    file.write_text(
        f"import runpy, sys\nsys.argv[1:1] = {[*options]!r}\nrunpy.run_path({JOB[1]!r}, run_name='__main__')\n"
    )
    return (JOB[0], str(file), "--ranks", "2", "--real-ms", "50")


def test_an_interrupted_search_goes_on_and_what_it_proves_serves_this_job_and_a_like_one(tmp_path: Path) -> None:
    """Ended as soon as a config stood out; the next search, in another log folder, tries that first and forgets it once
    it has come to an end. What it proved is replayed at the next start, and tried first by a job of another length. The
    same command with an edited script is noticed and searched; one with other sizes is searched from its start on."""
    cache = {"LAGOM_CACHE": str(tmp_path / "cache")}
    job = script_with(tmp_path / "job.py", "--layers", "4")
    events, done = launch(tmp_path, until=after_something_faster, job=job, **cache)
    assert [event.verdict for event in events if isinstance(event, journal.Outcome)] == ["stopped"], done.stderr
    assert list((tmp_path / "cache").glob("unfinished/*.lagom"))
    assert any("the next start of this job tries what it had found first" in line for line in lines(done))

    shutil.rmtree(tmp_path / "log")  # nothing of the first run but the cache
    events, done = launch(tmp_path, until=journal.Outcome, job=job, **cache)
    assert any("an interrupted search of this job is continued" in line for line in done.stderr.splitlines())
    assert next(move for move in moves_of(events) if move.purpose == "trial").phase == "candidate"
    (outcome,) = [event for event in events if isinstance(event, journal.Outcome)]
    assert outcome.verdict == "improved", "or there is nothing to be replayed"
    assert not list((tmp_path / "cache").glob("unfinished/*.lagom"))
    assert len([line for line in lines(done) if line.startswith("lagom: the config is kept")]) == 1
    (entry,) = load_atlas(cache).own
    assert (entry.key.ranks, entry.key.nodes, entry.speedup) == (2, 1, outcome.speedup)
    assert entry.key.regime, "virtual ranks show X and Y"

    shutil.rmtree(tmp_path / "log")
    _, done = launch(tmp_path, until=journal.PlanCommitted, job=job, **cache)
    assert "plan: replay config cached by lagom run on 20" in plan_of(done)

    shutil.rmtree(tmp_path / "log")  # an argument that is another at each start
    again = (*job, "--folder", str(tmp_path / "out"))
    events, done = launch(tmp_path, until=journal.PlanCommitted, job=again, **cache)
    assert "plan: replay config cached by lagom run on 20" in plan_of(done)
    assert any(line.startswith("lagom: its config was found with ") for line in lines(done))
    assert [event.purpose for event in events if isinstance(event, journal.PlanPublished)] == ["replay"]

    words = f"from the atlas ({entry.speedup:.3f}x with 2 ranks: lagom run on 2"
    without: list[tuple[tuple[str, ...], dict[str, str]]] = [(("--no-atlas",), {}), ((), {"LAGOM_ATLAS": "off"})]
    for options, variables in [((), {}), *amount(without[:1], [*without, (("--fresh",), {})])]:
        shutil.rmtree(tmp_path / "log")
        is_asked = not options and not variables
        if is_asked:
            script_with(tmp_path / "job.py", *OTHER_SIZES)
        other = again if is_asked else (*job, *OTHER_SIZES)
        events, done = launch(tmp_path, *options, until=after(2), job=other, **cache, **variables)
        baseline, tried, *_ = moves_of(events)
        if is_asked:
            assert "plan: replay config cached by lagom run on 20" in plan_of(done)
            assert "saved config of another program" in done.stderr
        elif "--fresh" not in options:
            assert plan_of(done).startswith(TUNES)
            assert "lagom: not used, because of --layers 3 --tokens 4096: the config found with" in done.stderr
        purposes = {event.purpose for event in events if isinstance(event, journal.PlanPublished)}
        assert purposes.isdisjoint({"replay"}), "nothing was in force of a config that was found for another program"
        assert (baseline.purpose, words in tried.reason) == ("baseline", is_asked), tried.reason
        assert not is_asked or tried.phase == "candidate"
        assert is_asked or not [move for move in moves_of(events) if "the atlas" in move.reason]
