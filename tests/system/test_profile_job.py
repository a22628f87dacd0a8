# SPDX-License-Identifier: Apache-2.0
"""``lagom profile -- CMD``: some iterations of an unchanged job are recorded, and the question is answered from them.

The job is virtual ranks: their simulated kernels take the way that CUPTI's would.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np

from lagom import journal
from tests.forked_commands import lagom
from tests.system.test_user_paths import finish, start, until

LAGOM = [sys.executable, "-m", "lagom"]


def log_of(place: Path) -> list[object]:
    path = place / "out" / "log" / "decisions.jsonl"
    return list(journal.read(path)) if path.exists() else []


def notes(place: Path) -> str:
    return "\n".join(event.text for event in log_of(place) if isinstance(event, journal.Note))


def test_a_job_is_profiled_as_it_is(tmp_path: Path) -> None:
    process = start(
        tmp_path, *LAGOM, "profile", "--iterations", "6", "--out", str(tmp_path / "out"), "--json",
        str(tmp_path / "numbers.json"), "--",
    )  # fmt: skip
    until(lambda: "profiled 6 iterations" in notes(tmp_path), "the profile", process)
    out, _ = finish(process, tmp_path)
    assert "compute time" in out
    assert not [event for event in log_of(tmp_path) if isinstance(event, journal.PlanPublished)], "nothing is tuned"
    kernels = np.load(tmp_path / "out" / "log" / "kernels.npy")
    assert set(kernels["process"].tolist()) == {0, 1}
    numbers = json.loads((tmp_path / "numbers.json").read_text())
    assert numbers, "the answers are there for programs, too"
    assert (tmp_path / "out" / "profile.html").exists()


def test_a_job_that_is_ended_or_fails_has_its_profile_all_the_same(tmp_path: Path) -> None:
    process = start(
        tmp_path, *LAGOM, "profile", "--iterations", "6", "--out", str(tmp_path / "out"), "--",
        "sh", "-c", '"$@"; exit 3', "job",
    )  # fmt: skip
    until(lambda: "profiled 6 iterations" in notes(tmp_path), "the profile", process)
    out, told = finish(process, tmp_path, code=3)
    assert "compute time" in out
    assert "nothing is recorded any more" in told
    assert (tmp_path / "out" / "profile.html").exists()
    again = profile(tmp_path, "--trace", str(tmp_path / "out"))
    assert again.returncode == 0, again.stderr
    assert again.stdout.splitlines()[0] == next(line for line in out.splitlines() if "compute time" in line)


def test_a_job_that_is_too_short_says_so(tmp_path: Path) -> None:
    done = subprocess.run(
        [*LAGOM, "profile", "--out", str(tmp_path / "out"), "--", "true"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "ended before 20 iterations" in " ".join(done.stderr.split())


def profile(place: Path, *words: str, **environ: str) -> subprocess.CompletedProcess[str]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("LAGOM_", "NCCL_"))}
    (place / "shm").mkdir(exist_ok=True)
    ours = {"LAGOM_SHM_DIR": str(place / "shm"), "LAGOM_CLOCK": "simulated", "LAGOM_CACHE": "off"}
    return lagom("profile", "--out", str(place / "out"), *words, cwd=place, env={**clean, **ours, **environ})


def test_records_of_the_job_before_are_not_this_jobs(tmp_path: Path) -> None:
    log = tmp_path / "out" / "log"
    log.mkdir(parents=True)
    for name in ("calls.npy", "kernels.npy"):
        (log / name).write_bytes(b"of a job before")
    done = profile(tmp_path, "--", "true")
    assert done.returncode == 2
    assert "ended before 20 iterations" in " ".join(done.stderr.split())


def test_the_jobs_words_reach_it_as_they_are(tmp_path: Path) -> None:
    script = tmp_path / "job.sh"
    script.write_text('#!/bin/sh\nprintf "[%s]" "$@" > words\n')
    script.chmod(0o755)
    profile(tmp_path, "--", "./job.sh", "s3://bucket//x", "", "a/", "./y")
    assert (tmp_path / "words").read_text() == "[s3://bucket//x][][a/][./y]"


def test_nothing_of_the_environment_tunes_the_job(tmp_path: Path) -> None:
    done = profile(tmp_path, "--", "sh", "-c", 'echo "rules=[$LAGOM_SET]" > seen', LAGOM_SET="any:any:nc=1")
    assert (tmp_path / "seen").read_text() == "rules=[]\n"
    assert "LAGOM_SET is left out" in done.stderr


def test_what_cannot_be_is_refused_before_the_job_runs(tmp_path: Path) -> None:
    for words, environ in (
        (("--json", "/nonexistent/numbers.json"), {}),
        ((), {"LAGOM_NT": "7"}),
        ((), {"LAGOM_HEADROOM": "abc"}),
    ):
        done = profile(tmp_path, *words, "--", "touch", "ran", **environ)
        assert done.returncode == 2, done.stderr
        assert not (tmp_path / "ran").exists()


def test_traces_without_their_option_are_no_command(tmp_path: Path) -> None:
    done = subprocess.run([*LAGOM, "profile", "a.json"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "--trace" in done.stderr
