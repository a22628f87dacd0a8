# SPDX-License-Identifier: Apache-2.0
"""The fuzz targets, briefly: the kept corpus and some seconds of mutations, under AddressSanitizer and UBSan.

With gcc everywhere (``standalone.c``); with libFuzzer too where clang is installed. The hunt itself is ``make fuzz``.
``LAGOM_FUZZ_SECONDS`` says how many seconds a target and engine are fuzzed here (default 1).
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from tests.fuzz.build import CORPUS, ROOT, TARGETS, build, have_libfuzzer
from tests.fuzz.run import ENVIRONMENT

SECONDS = os.environ.get("LAGOM_FUZZ_SECONDS", "1")


def run(command: list[str], environ: dict[str, str]) -> None:
    """Runs a fuzzer to its end; a crash fails the test with what the sanitizer said."""
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, **ENVIRONMENT, **environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    )
    try:
        output, _ = process.communicate()
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        raise
    assert process.returncode == 0, f"{command[0]} exited {process.returncode}\n{output[-6000:]}"


@pytest.mark.parametrize("target", TARGETS)
def test_corpus_and_some_mutants(target: str, tmp_path: Path) -> None:
    """No crash, no report of a sanitizer, no broken expectation: with the compiler that is always there."""
    kept = tmp_path / "input"
    command = [str(build(target, "standalone")), f"-seconds={SECONDS}", str(CORPUS / target)]
    run(command, {"LAGOM_FUZZ_INPUT": str(kept)})


@pytest.mark.parametrize("target", TARGETS)
def test_a_few_seconds_of_libfuzzer(target: str, tmp_path: Path) -> None:
    """The same, guided by coverage."""
    if not have_libfuzzer():
        pytest.skip("clang with libFuzzer is not installed (apt install clang)")
    corpus = tmp_path / "corpus"
    shutil.copytree(CORPUS / target, corpus)
    run(
        [
            str(build(target, "libfuzzer")),
            f"-max_total_time={SECONDS}",
            "-timeout=20",
            f"-artifact_prefix={tmp_path}/",
            str(corpus),
        ],
        {},
    )


@pytest.mark.parametrize("target", TARGETS)
def test_every_target_has_a_corpus(target: str) -> None:
    """Small files, and few: they are read at every run of the tests."""
    files = list((CORPUS / target).iterdir())
    assert files
    assert sum(path.stat().st_size for path in files) < 200_000


def test_what_a_killed_run_left_in_shared_memory_goes_with_the_next(tmp_path: Path) -> None:
    """A folder named after a process that is gone; that of one that lives stays."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    left, kept = (Path(f"/dev/shm/lagom-fuzz-{pid}-{tmp_path.name[-8:]}") for pid in (ended.pid, os.getpid()))
    try:
        for folder in (left, kept):
            made = folder.with_name(f".{folder.name}")  # a fuzzer beside this test takes `left` away once it sees it
            made.mkdir()
            (made / "lagom-0-0").touch()
            made.rename(folder)
        run([str(build("region", "standalone")), "-seconds=0"], {"LAGOM_FUZZ_INPUT": str(tmp_path / "input")})
        assert not left.exists()
        assert kept.exists()
    finally:
        for folder in (left, kept):
            shutil.rmtree(folder, ignore_errors=True)
