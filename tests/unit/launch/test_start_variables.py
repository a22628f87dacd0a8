# SPDX-License-Identifier: Apache-2.0
"""What a job is started with: head-room only where stock's channels are known, a saved config's environment, the user's
own settings first."""

from __future__ import annotations

from pathlib import Path

import pytest

from lagom import headroom, journal
from lagom.config_file import Fingerprint, SavedConfig, Section, save_config
from lagom.errors import LagomError, UsageError
from lagom.headroom import Headroom, NoHeadroom
from lagom.launch import choose_headroom
from lagom.launch.start_variables import choose_start
from lagom.records import Algorithm, CommConfig, Function, Protocol, Site

JOB = ["torchrun", "--nproc-per-node", "8", "train.py"]
ROOM = {"NCCL_MIN_NCHANNELS": "32", "NCCL_MAX_P2P_NCHANNELS": "24", "LAGOM_HEADROOM": "32:24"}
RING = CommConfig(Algorithm.RING, Protocol.SIMPLE, 24, 512)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No logs of others, no GPU, no nccl.conf."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("lagom.environment.GPUS", tmp_path / "gpus")
    monkeypatch.setattr("lagom.launch.start_variables.find_nccl", lambda environ: 0)


def log(folder: Path, *built: int, threads: int = 512, gpu: str = "", **more: object) -> Path:
    """A log of a job in which each communicator of ``built`` showed so many channels."""
    stock = CommConfig(RING.algorithm, RING.protocol, 24, threads)
    with journal.Journal(folder) as out:
        out.write(journal.JobStart(job="j", mode="tune", headroom=str(more.get("headroom", ""))))
        out.write(journal.RankJoined(process=0, pid=1, gpu=gpu, environment=more.get("environment", {})))
        for number, channels in enumerate(built):
            site = journal.SiteRecord.of(Site(0, Function.ALL_GATHER, 1 << 28), stock)
            out.write(journal.Program(communicator=number, period=1, sites=(site,), channels_built=channels))
    return folder


def config(folder: Path, environment: dict[str, str], gpu: str = "") -> Path:
    save_config(SavedConfig(Fingerprint(gpu=gpu), (Section(8, 1, 0),), environment=environment), folder / "p")
    return folder / "p"


def refused(because: str, *arguments: object, **environ: str) -> None:
    with pytest.raises(LagomError, match=because):
        choose_start(*arguments, environ, JOB)  # type: ignore[arg-type]


def test_an_nccl_whose_tuner_cannot_set_nc_alone_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lagom.launch.start_variables.find_nccl", lambda environ: 22105)
    refused("NCCL 2.21", "32:24", None, None)
    monkeypatch.setattr("lagom.launch.start_variables.find_nccl", lambda environ: 22809)
    assert choose_start("32:24", None, None, {}, JOB).variables == ROOM


def test_nothing_asked_nothing_set() -> None:
    assert choose_start("", None, None, {}, JOB).variables == {}


def test_without_stocks_number_it_is_refused_and_says_how_to_get_it() -> None:
    refused("run the job once without --headroom", "32", None, None)


def test_stocks_number_can_be_said() -> None:
    start = choose_start("32:24", None, None, {}, JOB)
    assert start.variables == ROOM
    assert "74 MiB" in start.remarks[0]
    assert "not measured" in start.remarks[0]


def test_stocks_number_comes_from_the_newest_log_that_knows_it(tmp_path: Path) -> None:
    log(tmp_path / "lagom-a", 24)
    log(tmp_path / "lagom-b", 32, headroom="32:24")
    log(tmp_path / "lagom-c")
    assert choose_start("32", None, None, {}, JOB).variables == ROOM
    log(tmp_path / "x", 4, threads=256)
    named = choose_start("8", tmp_path / "x", None, {}, JOB).variables
    assert named["LAGOM_HEADROOM"] == "8:4:256"


def test_a_log_that_is_of_something_else_is_refused(tmp_path: Path) -> None:
    refused("24 and 4 channels|4 and 24 channels", "32", log(tmp_path / "two", 24, 4), None)
    refused("with head-room", "32", log(tmp_path / "room", 32, headroom="32:24"), None)
    refused("does not say", "32", log(tmp_path / "nothing"), None)
    refused("ran on NVIDIA B900", "32", log(tmp_path / "gpu", 24, gpu="NVIDIA B900"), None)
    refused("by itself; ask for more", "24", log(tmp_path / "enough", 24), None)
    other = log(tmp_path / "env", 4, environment={"NCCL_P2P_DISABLE": "1"})
    refused("NCCL_P2P_DISABLE=1", "8", other, None)
    assert choose_start("8", other, None, {"NCCL_P2P_DISABLE": "1"}, JOB).variables["LAGOM_HEADROOM"] == "8:4"


@pytest.mark.parametrize("name", [*choose_headroom.USERS_OWN, *choose_headroom.SIZES])
def test_the_users_own_settings_win(name: str, tmp_path: Path) -> None:
    refused(f"{name}=8", "32:24", None, None, **{name: "8"})
    (tmp_path / ".nccl.conf").write_text(f"{name}=8\n")
    refused(f"{name}=8", "32:24", None, None)


def test_a_lower_p2p_limit_of_the_user_stays() -> None:
    start = choose_start("32:24", None, None, {"NCCL_MAX_P2P_NCHANNELS": "8"}, JOB)
    assert start.variables["NCCL_MAX_P2P_NCHANNELS"] == "8"
    assert choose_start("32:24", None, None, {"NCCL_MAX_P2P_NCHANNELS": "64"}, JOB).variables == ROOM


@pytest.mark.parametrize("words", [["--nnodes", "2"], ["--nnodes=2"], ["--nnodes=1:4"], ["--nnodes", "$N"]])
def test_several_nodes_are_refused(words: list[str]) -> None:
    with pytest.raises(NoHeadroom, match="several nodes"):
        choose_start("32:24", None, None, {}, ["torchrun", *words, "x"])
    assert choose_start("32:24", None, None, {}, ["torchrun", "--nnodes=1", "x"]).variables == ROOM
    with pytest.raises(NoHeadroom, match="several nodes"):
        choose_start("32:24", None, None, {"WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, JOB)


@pytest.mark.parametrize("text", ["x", "32:", "32:24:512:1", "65:24", "24:32", "32:0", "-1:2", "²:1"])
def test_what_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(NoHeadroom):
        choose_start(text, None, None, {}, JOB)


def test_head_room_is_read_back_as_written() -> None:
    for room in (Headroom(32, 24), Headroom(8, 4, 256)):
        assert headroom.parse(str(room)) == room
    assert headroom.parse("") is None


# -- saved configs


def test_what_a_saved_config_asks_for_is_set_and_said(tmp_path: Path) -> None:
    start = choose_start("", None, config(tmp_path, {"NCCL_BUFFSIZE": "1"}), {}, JOB)
    assert start.variables == {"NCCL_BUFFSIZE": "1"}
    assert "NCCL_BUFFSIZE=1" in start.remarks[0]


def test_what_a_simulated_job_found_is_set_in_a_simulated_job_alone(tmp_path: Path) -> None:
    file = tmp_path / "p"
    saved = SavedConfig(Fingerprint(simulated=True), (Section(8, 1, 0),), environment={"NCCL_BUFFSIZE": "1"})
    save_config(saved, file)
    refused("p is refused: made in a simulated job, this job is real; `lagom run -- CMD` tunes", "", None, file)
    start = choose_start("", None, file, {"LAGOM_CLOCK": "simulated"}, JOB)
    assert start.variables == {"NCCL_BUFFSIZE": "1"}


def test_the_users_value_wins_over_a_saved_configs(tmp_path: Path) -> None:
    start = choose_start("", None, config(tmp_path, {"NCCL_BUFFSIZE": "1"}), {"NCCL_BUFFSIZE": "2"}, JOB)
    assert start.variables == {}
    assert "will not be replayed" in start.remarks[0]


def test_head_room_of_a_saved_config_must_be_asked_for(tmp_path: Path) -> None:
    file = config(tmp_path, ROOM)
    with pytest.raises(UsageError, match="add --headroom 32"):
        choose_start("", None, file, {}, JOB)
    assert choose_start("32", None, file, {}, JOB).variables == ROOM
    assert choose_start("", None, file, ROOM, JOB).variables == {}, "set by hand already"
    refused("ask for --headroom 32", "48", None, file)
    refused("ask for --headroom 32", "32:20", None, file)


@pytest.mark.parametrize("place", ["environment", "at home", "named"])
def test_what_the_user_has_set_stays_wherever_it_is_set(place: str, tmp_path: Path) -> None:
    (tmp_path / {"at home": ".nccl.conf"}.get(place, "mine")).write_text("NCCL_BUFFSIZE=1\n")
    named = {"NCCL_CONF_FILE": str(tmp_path / "mine")}
    environ = {"environment": {"NCCL_BUFFSIZE": "1"}, "named": named}.get(place, {})
    file = config(tmp_path, {"NCCL_BUFFSIZE": "4", "NCCL_SOCKET_NTHREADS": "4"})
    start = choose_start("", None, file, environ, JOB)
    assert start.variables == {}, "all of it or nothing"
    assert start.remarks == (
        "the saved config asks for NCCL_BUFFSIZE=4 (here 1); yours wins, so it will not be replayed",
    )
    same = choose_start("", None, config(tmp_path, {"NCCL_BUFFSIZE": "1"}), environ, JOB)
    assert (same.variables, same.remarks) == ({}, ())


def test_a_limit_of_the_user_is_not_undone_by_another_variable(tmp_path: Path) -> None:
    file = config(tmp_path, {"NCCL_MIN_NCHANNELS": "8", "NCCL_SOCKET_NTHREADS": "4"})
    start = choose_start("", None, file, {"NCCL_MAX_CTAS": "2", "NCCL_MIN_P2P_NCHANNELS": "4"}, JOB)
    assert start.variables == {}
    assert start.remarks == (
        "the saved config asks for NCCL_MIN_NCHANNELS=8 (here NCCL_MAX_CTAS=2); yours wins, so it will not be replayed",
    )
    both = config(tmp_path, {"NCCL_MIN_NCHANNELS": "8", "NCCL_MAX_CTAS": "8"})
    assert choose_start("", None, both, {"NCCL_MAX_CTAS": "8"}, JOB).variables == {"NCCL_MIN_NCHANNELS": "8"}


def test_the_rest_of_a_saved_configs_environment_is_set_beside_head_room(tmp_path: Path) -> None:
    file = config(tmp_path, {**ROOM, "NCCL_BUFFSIZE": "1"})
    assert choose_start("32", None, file, {}, JOB).variables == {**ROOM, "NCCL_BUFFSIZE": "1"}
    assert choose_start("", None, file, ROOM, JOB).variables == {"NCCL_BUFFSIZE": "1"}


def test_head_room_of_a_saved_config_of_another_gpu_is_refused(tmp_path: Path) -> None:
    refused("made on NVIDIA B900", "32", None, config(tmp_path, ROOM, gpu="NVIDIA B900"))
