# SPDX-License-Identifier: Apache-2.0
"""``lagom convert`` as a user meets it: exit codes, what goes to stdout, what is written."""

from __future__ import annotations

import contextlib
import io
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from unittest import mock

import pytest

from lagom import journal
from lagom.cli.main import main
from lagom.config_file import Fingerprint, SavedConfig, Section, load_config, save_config
from lagom.program.detect import CallProgram
from lagom.program.sites import cut_into_sites
from lagom.records import STOCK, Algorithm, Assignment, CommConfig, Function, Protocol
from lagom.wire.plan import Rule

CSV = """\
allgather,0,65536,ring,ll,2,-1,-1
allgather,65537,4294967295,ring,simple,8,-1,-1,-1,1
reduce,0,9,ring,ll,0,-1,-1
"""


@dataclass(frozen=True)
class Done:
    returncode: int
    stdout: str
    stderr: str


def lagom(*arguments: str | Path) -> Done:
    """The console script, in this process: it is the parsing and the words that matter."""
    out, err = io.StringIO(), io.StringIO()
    with (
        mock.patch.object(sys, "argv", ["lagom", *map(str, arguments)]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as left,
    ):
        main()
    return Done(int(left.value.code or 0), out.getvalue(), err.getvalue())


@pytest.fixture
def csv(tmp_path: Path) -> Path:
    file = tmp_path / "tuner.csv"
    file.write_text("\ufeff" + CSV, encoding="utf-8")  # as spreadsheets save it
    return file


def test_a_refused_line_stops_everything_unless_a_part_is_wanted(csv: Path) -> None:
    whole = lagom("convert", csv)
    assert (whole.returncode, whole.stdout) == (2, "")
    assert "lagom: refused: line 2: it is only for regBuff 1" in whole.stderr
    part = lagom("convert", csv, "--partial")
    assert part.returncode == 0
    assert part.stdout.splitlines() == ["allgather:<=64K:algo=ring,proto=ll,nc=2", "reduce:<=9:algo=ring,proto=ll"]
    assert "line 2" in part.stderr


def test_an_import_can_be_a_saved_config(csv: Path, tmp_path: Path) -> None:
    out = tmp_path / "imported.lagom"
    assert lagom("convert", csv, out, "--partial").returncode == 2  # for whom?
    assert not out.exists()
    done = lagom("convert", csv, out, "--partial", "--ranks", "8", "--communicators", "2")
    assert (done.returncode, done.stdout) == (0, "")
    sections = load_config(out).sections
    assert [(section.ranks, section.nodes, section.ordinal) for section in sections] == [(8, 1, 0), (8, 1, 1)]
    assert sections[0].rules[0] == Rule(Function.ALL_GATHER, 0, 65536, CommConfig(Algorithm.RING, Protocol.LL, 2))


def tuned(folder: Path, configs: tuple[CommConfig, ...], calls: tuple[tuple[Function, int], ...]) -> Path:
    """A log folder with a saved config, and the log that says what NCCL itself picked."""
    program = cut_into_sites(CallProgram(calls, 0, len(calls), 9, 1e6), [0.9, 0.1, 0.9][: len(calls)])
    with journal.Journal(folder) as log:
        log.write(journal.Communicator(communicator=0, comm_id="0x1", name="fsdp", ranks=8, nodes=1))
        pick = CommConfig(Algorithm.NVLS, Protocol.SIMPLE, 16)
        sites = tuple(journal.SiteRecord.of(site, pick) for site in program.sites)
        log.write(journal.Program(communicator=0, period=len(calls), sites=sites))
    section = Section(8, 1, 0, "fsdp", program, Assignment(configs))
    save_config(SavedConfig(Fingerprint(), (section,)), folder / "config.lagom")
    return folder


def test_a_saved_config_is_exported_with_the_pair_that_nccl_itself_chose(tmp_path: Path) -> None:
    calls = ((Function.ALL_GATHER, 2 << 20), (Function.REDUCE_SCATTER, 1 << 20))
    folder = tuned(tmp_path / "lagom-a", (CommConfig(channels=3), STOCK), calls)
    done = lagom("convert", folder)
    assert done.returncode == 0
    lines = [line for line in done.stdout.splitlines() if not line.startswith("#")]
    assert lines == ["allgather,2097152,2097152,nvls,simple,3,1,8,-1,-1"]
    assert "that NCCL itself chose" in done.stderr
    lines = lagom("convert", folder, "--fill", "ring/ll128").stdout.splitlines()
    assert lines[-1] == "allgather,2097152,2097152,ring,ll128,3,1,8,-1,-1"


def test_sites_told_apart_by_their_place_are_refused_by_name(tmp_path: Path) -> None:
    calls = ((Function.ALL_GATHER, 2 << 20), (Function.ALL_GATHER, 2 << 20), (Function.REDUCE_SCATTER, 1 << 20))
    folder = tuned(
        tmp_path / "lagom-b", (CommConfig(channels=3), CommConfig(channels=5), CommConfig(channels=2)), calls
    )
    out = tmp_path / "out.conf"
    done = lagom("convert", folder, out)
    assert done.returncode == 2
    assert not out.exists()
    assert done.stderr.count("distinguishes calls of this size by their place in the iteration") == 2
    assert lagom("convert", folder, out, "--partial").returncode == 0
    assert "reducescatter,1048576,1048576,nvls,simple,2,1,8,-1,-1" in out.read_text()


def test_a_file_without_a_single_rule_is_not_written(tmp_path: Path) -> None:
    folder = tuned(tmp_path / "lagom-c", (CommConfig(chunk_bytes=131072),), ((Function.ALL_GATHER, 2 << 20),))
    (folder / journal.LOG_NAME).unlink()  # which would know NCCL's own pick
    out = tmp_path / "out.conf"
    for where in ((), (out,)):
        done = lagom("convert", folder, *where, "--without", "chunk", "--partial")
        assert (done.returncode, done.stdout) == (2, "")
        assert "no rule is left to write" in done.stderr
        assert "leaves everything to NCCL" in done.stderr
        assert "runs on ONE channel" in done.stderr
    assert not out.exists()


def test_a_saved_config_of_stock_alone_makes_no_file(tmp_path: Path) -> None:
    folder = tuned(tmp_path / "lagom-d", (STOCK,), ((Function.ALL_GATHER, 2 << 20),))
    done = lagom("convert", folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert "runs on ONE channel" in done.stderr


@pytest.mark.parametrize(
    "text",
    [
        ("\x1b]0;pwned\x07\x1b[31mX,0,10,tree,simple,2,-1,-1"),
        ("allgather,0,10,tree,simple,\x9b31m,-1,-1"),
    ],
)
def test_no_word_of_a_file_steers_the_terminal(text: str, tmp_path: Path) -> None:
    (tmp_path / "evil").write_text(text)
    done = lagom("convert", tmp_path / "evil")
    assert done.returncode == 2
    assert "refused:" in done.stderr
    assert all(letter.isprintable() or letter == "\n" for letter in done.stdout + done.stderr)


def test_communicators_of_one_size_must_agree(tmp_path: Path) -> None:
    file = tmp_path / "p.lagom"
    rule = Rule(Function.ALL_GATHER, 0, 9, CommConfig(Algorithm.RING, Protocol.LL, 2))
    other = Rule(Function.ALL_GATHER, 0, 9, CommConfig(Algorithm.RING, Protocol.LL, 4))
    save_config(
        SavedConfig(Fingerprint(), (Section(8, 1, 0, "dp", rules=(rule,)), Section(8, 1, 1, "tp", rules=(rule,)))), file
    )
    assert lagom("convert", file).stdout.count("\nallgather") == 1
    save_config(
        SavedConfig(Fingerprint(), (Section(8, 1, 0, "dp", rules=(rule,)), Section(8, 1, 1, "tp", rules=(other,)))),
        file,
    )
    assert "another communicator of the same size as dp" in lagom("convert", file).stderr


def test_a_folder_that_is_no_log_folder_is_refused_as_such(tmp_path: Path) -> None:
    folder = tmp_path / "lagom-e"
    folder.mkdir()
    done = lagom("convert", folder)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == lagom("log", folder).stderr, "the other commands call it something else"
    assert "there is no log at" in done.stderr
    with journal.Journal(folder) as log:
        log.write(journal.Note(text="nothing found"))
    for source in (folder, folder / journal.LOG_NAME):
        assert "nothing was found there that is better than stock" in lagom("convert", source).stderr


def test_the_log_of_a_folder_stands_for_its_saved_config(tmp_path: Path) -> None:
    folder = tuned(tmp_path / "lagom-f", (CommConfig(channels=3),), ((Function.ALL_GATHER, 2 << 20),))
    done = lagom("convert", folder / journal.LOG_NAME)
    assert (done.returncode, done.stdout) == (0, lagom("convert", folder).stdout)


def test_a_saved_config_of_an_earlier_job_in_the_folder_is_exported_with_a_word(tmp_path: Path) -> None:
    folder = tuned(tmp_path / "lagom-g", (CommConfig(channels=3),), ((Function.ALL_GATHER, 2 << 20),))
    assert "earlier job" not in lagom("convert", folder).stderr
    with journal.Journal(folder) as log:
        log.write(journal.JobStart(job="second", mode="tune", t=time.time() + 60))
    assert "is of an earlier job" in lagom("convert", folder).stderr


def test_an_import_waits_for_no_fifo_and_reads_no_device(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for other in (tmp_path / "fifo", Path("/dev/null")):
        done = lagom("convert", other)
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr.startswith(f"lagom: {other} cannot be read (it is no regular file); ")


def test_an_import_of_what_is_far_too_large_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "tuner.csv"
    with file.open("wb") as sparse:
        sparse.truncate(5 << 20)
    done = lagom("convert", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"lagom: {file} is larger than 4 MiB, and no tuner's rules are; check the path.\n"


def test_lines_may_end_as_another_system_ends_them(tmp_path: Path) -> None:
    file = tmp_path / "tuner.csv"
    file.write_bytes(b"\xef\xbb\xbfallgather,0,9,ring,ll,2,-1,-1\r\nreduce,0,9,ring,ll,0,-1,-1\r\n")
    assert lagom("convert", file).stdout == "allgather:<=9:algo=ring,proto=ll,nc=2\nreduce:<=9:algo=ring,proto=ll\n"


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("any:any:nc=1", "--fill", "ring"), "--fill wants ALGO/PROTO"),
        (("any:any:nc=1", "--without", "nc"), "--without wants chunk or nt"),
        (("any:any",), "a rule is written function:sizes:knobs"),
        (("any:any:nc=1", "rules.lagom"), "a saved config is for communicators of one size"),
        (("nothing.csv",), "there is no nothing.csv"),
        ((), "there is no lagom-*/decisions.jsonl"),
        (("tuner.csv", "--ranks", "2", "--nodes", "3"), "2 ranks cannot span 3 nodes"),
    ],
)
def test_what_cannot_be_meant_is_one_sentence(
    arguments: tuple[str, ...], sentence: str, csv: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(csv.parent)
    done = lagom("convert", *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in done.stderr
    assert done.stderr.startswith("lagom: ")


def test_a_file_that_is_no_tuners_is_called_that(tmp_path: Path) -> None:
    file = tmp_path / "rules.json"
    file.write_text('{"rules": []}')
    done = lagom("convert", file)
    assert (done.returncode, done.stdout) == (2, "")
    assert "is neither a CSV file of NVIDIA's example tuner nor a saved config" in done.stderr


def test_a_file_with_its_columns_in_another_order_is_refused_and_no_part_of_it_is_taken(tmp_path: Path) -> None:
    file = tmp_path / "tuner.csv"
    columns = "collective_type,min_bytes,max_bytes,algorithm,protocol,channels,nRanks,nNodes"
    file.write_text(f"{columns}\nallreduce,0,1048576,ring,simple,4,8,1\n")
    whole, part = lagom("convert", file, "--ranks", "8"), lagom("convert", file, "--ranks", "8", "--partial")
    assert (whole.returncode, whole.stdout, part.stdout) == (2, "", "")
    assert "lagom: refused: line 1: its column 7 is nRanks, where the example plugin reads nNodes" in whole.stderr


def test_a_saved_config_does_not_become_a_saved_config(tmp_path: Path) -> None:
    folder = tuned(tmp_path / "lagom-h", (CommConfig(channels=3),), ((Function.ALL_GATHER, 2 << 20),))
    done = lagom("convert", folder, tmp_path / "other.lagom")
    assert (done.returncode, (tmp_path / "other.lagom").exists()) == (2, False)
    assert "name it like rules.csv" in done.stderr


def test_rules_by_hand_become_a_file_or_a_saved_config_and_come_back(tmp_path: Path) -> None:
    rules = "allgather:>=1M:algo=ring,proto=simple,nc=4; allreduce:any:algo=tree,proto=ll"
    csv, config = tmp_path / "rules.csv", tmp_path / "rules.lagom"
    assert lagom("convert", rules, csv).returncode == 0
    assert lagom("convert", csv).stdout.splitlines() == [rule.strip() for rule in rules.split(";")]
    assert lagom("convert", rules, config, "--ranks", "8").returncode == 0
    assert [section.ranks for section in load_config(config).sections] == [8]
    assert lagom("convert", config).stdout.count("ring,simple,4,1,8") == 1
