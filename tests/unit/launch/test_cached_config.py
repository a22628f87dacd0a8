# SPDX-License-Identifier: Apache-2.0
"""When a cached config is replayed, when it is only named, and what is said where the cache cannot be used."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import pytest

from lagom import headroom, journal
from lagom.config_cache import ConfigCache, Job, Machine
from lagom.doctor import cache as doctor
from lagom.journal import RunState
from lagom.launch import cached_config
from lagom.launch.cached_config import NO_CACHE, CacheUse, cached_here, find_cached, keep_config
from lagom.launch.launchers import starts_every_rank
from lagom.settings import cache_folder
from lagom.wire.config_refusal import ConfigRefusal

COMMAND = ["torchrun", "train.py"]
CONFIG = "lagom-config 1\nfingerprint ranks 2\ncommunicator ranks=2 nodes=1 ordinal=0\nrule allgather 1M - nc=4\nend\n"
EACH_RANK = {"SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "0"}


@pytest.fixture
def environ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """In a folder of its own, on a machine of its own, with a config of COMMAND in the cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr(cached_config, "_machine", lambda environ: Machine(gpu="H200", nccl=23007))
    (tmp_path / "config.lagom").write_text(CONFIG)
    environ = {"LAGOM_CACHE": str(tmp_path / "cache")}
    kept = keep_config(COMMAND, tmp_path / "config.lagom", environ, "lagom tune").text
    assert kept == "the config is kept: the next start of this job replays it, without a search"
    return environ


def find(environ: dict[str, str], *command: str, may_use: bool = True, **more: str) -> CacheUse:
    return find_cached(command or COMMAND, environ | more, may_use=may_use)


def file_of(environ: dict[str, str]) -> Path:
    (file,) = Path(environ["LAGOM_CACHE"]).glob("configs/*.lagom")
    return file


def test_the_same_job_on_the_same_machine_gets_its_config(
    environ: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    use = find(environ, LAGOM_DIR="elsewhere", LAGOM_JOB_ID="7", HOME="/other")
    assert use.config is not None
    assert use.config.origin.startswith("lagom tune on 2")
    assert use.remarks == ()
    assert find(environ, "torchrun", "other.py").config is None
    assert find(environ, NCCL_ALGO="Ring").config is None
    for name in ("PET_NPROC_PER_NODE", "SLURM_NTASKS", "NPROC_PER_NODE", "CUDA_VISIBLE_DEVICES"):
        assert find(environ, **{name: "4"}).config is None, f"{name}: a world of another size"
    assert find(environ, may_use=False).config is None
    monkeypatch.setattr(cached_config, "_machine", lambda environ: Machine(gpu="H100", nccl=23007))
    assert find(environ).config is None


@pytest.mark.parametrize("name", [".nccl.conf", "named.conf"])
def test_a_file_of_variables_makes_another_job_as_the_environment_does(
    name: str, environ: dict[str, str], tmp_path: Path
) -> None:
    named = {"NCCL_CONF_FILE": str(tmp_path / name)} if name == "named.conf" else {}
    keep_config(COMMAND, tmp_path / "config.lagom", environ | named, "lagom tune")
    assert find(environ, **named).config is not None
    (tmp_path / name).write_text("NCCL_SOCKET_NTHREADS=1\n")
    assert find(environ, **named).config is None


def test_what_a_simulated_job_found_is_kept_for_simulated_jobs_alone(environ: dict[str, str], tmp_path: Path) -> None:
    file_of(environ).unlink()
    simulated = {"LAGOM_CLOCK": "simulated"}
    (tmp_path / "config.lagom").write_text(CONFIG.replace("fingerprint", "fingerprint simulated 1\nfingerprint", 1))
    said = keep_config(COMMAND, tmp_path / "config.lagom", environ, "lagom tune").text
    assert said.startswith("the config is not kept for the next start: ")
    said = keep_config(COMMAND, tmp_path / "config.lagom", environ | simulated, "lagom tune").text
    assert said.startswith("the config is kept: ")
    assert find(environ).config is None
    assert find(environ, **simulated).config is not None
    assert list(cached_here(environ)) == [], "`lagom env` would refuse it"
    assert list(cached_here(environ | simulated)) != []


def test_what_belongs_to_no_start_is_left_alone(environ: dict[str, str]) -> None:
    assert find(environ, LAGOM_CACHE="off") is NO_CACHE
    assert find(environ, LAGOM_CACHE="") is NO_CACHE
    assert find(environ, **EACH_RANK | {"SLURM_LOCALID": "1"}) is NO_CACHE, "another rank of this node speaks"
    assert not NO_CACHE.is_kept


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["torchrun", "--nnodes", "2", "train.py"], {}),
        (["torchrun", "--nnodes=1:4", "train.py"], {}),
        (["torchrun", "train.py"], {"PET_NNODES": "2"}),
        (["torchrun", "train.py"], {"WORLD_SIZE": "16"}),
        (["torchrun", "train.py"], EACH_RANK),
    ],
)
def test_where_not_every_rank_is_started_here_the_config_is_only_named(
    words: list[str], more: dict[str, str], environ: dict[str, str], tmp_path: Path
) -> None:
    assert not starts_every_rank(words, more)
    kept = keep_config(words, tmp_path / "config.lagom", environ | more, "lagom run").text
    assert kept == "the config is kept: the next start of this job names it"
    use = find(environ, *words, **more)
    assert use.config is None
    (remark,) = use.remarks
    assert remark.startswith("tuned before: lagom run --config cache/configs/")
    assert "-- CMD; nothing is set: " in remark
    assert remark.endswith(", and every rank must have the same settings")


@pytest.mark.parametrize("nnodes", [1, 2])
def test_where_the_environment_does_not_reach_the_ranks_the_config_is_only_named(
    nnodes: int, environ: dict[str, str], tmp_path: Path
) -> None:
    """Also where other nodes would agree to set it."""
    words = shlex.split(f"docker run img torchrun --nnodes {nnodes} train.py")
    keep_config(words, tmp_path / "config.lagom", environ, "lagom tune", nodes=nnodes, exchange=str(tmp_path))
    use = find(environ, *words)
    assert use.config is None
    assert "-- CMD; nothing is set: docker does not pass this environment, only " in use.remarks[0]


OTHER_RANKS = ConfigRefusal("ranks", "2", "4")


def ended(reason: str, cause: str, refusal: ConfigRefusal | None = None, config: str = "") -> RunState:
    start = journal.JobStart(job="j", mode="replay", lagom="0", host="h", folder="/f", region="/r")
    aside = journal.Passthrough(reason=reason, cause=cause, refusal=refusal)
    return RunState([start, aside, journal.JobEnd(reason="over", config=config)])


def test_a_config_that_did_not_fit_is_not_used_again(environ: dict[str, str]) -> None:
    use = find(environ)
    (line,) = use.at_end(ended("other words", "config_refused", OTHER_RANKS))
    assert line == "the cached config is not used at the next start: made for 2 ranks, this job has 4"
    again = find(environ)
    assert (again.config, again.is_kept, again.remarks) == (None, True, ())
    assert list(cached_here(environ)) == []
    (kept,) = ConfigCache(Path(environ["LAGOM_CACHE"])).everything(9).configs
    assert kept.entry.refused == OTHER_RANKS, "the cause, and not a sentence"


def test_a_config_of_another_program_is_not_used_again(environ: dict[str, str]) -> None:
    use = find(environ)
    start = journal.JobStart(job="j", mode="replay")
    other = journal.Passthrough(reason="no iteration of its 3 calls", communicator=0, cause="other_program")
    (line,) = use.at_end(RunState([start, other, journal.JobEnd(reason="over")]))
    assert line == "the cached config is not used at the next start: made for another program"
    assert find(environ).config is None


def test_a_job_that_says_nothing_of_the_config_changes_nothing(environ: dict[str, str]) -> None:
    use = find(environ)
    assert list(use.at_end(RunState())) == []
    assert list(use.at_end(ended("no rank registered", "no_rank"))) == []
    assert find(environ).config is not None


def test_words_of_a_launcher_that_differ_at_each_start_make_no_other_job(environ: dict[str, str]) -> None:
    """A port, and the id of a rendezvous; with start settings, too."""
    keep_with(
        environ, 'NCCL_SOCKET_NTHREADS "4"', ["torchrun", "--master-port", "29501", "--rdzv-id=7", "train.py", "-a"]
    )
    use = find(environ, "torchrun", "--master-port=29777", "train.py", "-a")
    assert (use.config is not None, use.is_like, use.may_tune) == (True, False, False)
    use = find(environ, "torchrun", "train.py", "-b")
    assert use.config is None, "start settings are for the same arguments"
    assert use.remarks == (
        "not used, because of -b: the config found with torchrun --master-port 29501 --rdzv-id=7 train.py -a",
    )


@pytest.mark.parametrize(
    ("command", "is_same"),
    [
        ("torchrun --nproc-per-node=8 train.py --x=1 ./data", True),
        ("torchrun --nproc_per_node 8 ./train.py --x=1 ./data", True),
        ("torchrun --rdzv_id=3 --nproc_per_node=8 .//./train.py --x=1 ./data", True),
        ("torchrun --nproc-per-node 8 train.py --x 1 ./data", False),  # what train.py makes of it is its own affair
        ("torchrun --nproc-per-node 8 train.py --x=1 data", False),
        ("torchrun --nproc-per-node 8 ../train.py --x=1 ./data", False),
        ("torchrun --nproc-per-node 4 train.py --x=1 ./data", False),
    ],
)
def test_another_spelling_of_the_launchers_options_and_the_script_makes_no_other_job(
    command: str, is_same: bool, environ: dict[str, str], tmp_path: Path
) -> None:
    kept = ["torchrun", "--nproc-per-node", "8", "train.py", "--x=1", "./data"]
    keep_config(kept, tmp_path / "config.lagom", environ, "lagom tune")
    assert (find(environ, *command.split()).config is not None) is is_same


@pytest.mark.parametrize("command", ["torchrun --nproc_per_node=8 ./train.py", "srun --nodes=2 python train.py"])
def test_what_an_older_release_has_kept_in_any_spelling_is_found(
    command: str, environ: dict[str, str], tmp_path: Path
) -> None:
    """It took the words as they are, and what NCCL prints for another job."""
    words = tuple(command.split())
    job = Job(
        command=words, words=words, program=words, folder=str(tmp_path),
        variables={"NCCL_ALGO": "Ring", "NCCL_DEBUG": "WARN"},
    )  # fmt: skip
    cache = ConfigCache(tmp_path / "cache")
    cache.keep(job, Machine(gpu="H200", nccl=23007), tmp_path / "config.lagom", "lagom tune")
    before = cache.count()
    assert find(environ, *words).config is None
    use = find(environ, *words, NCCL_ALGO="Ring", NCCL_DEBUG="INFO")
    assert use.config is not None or use.remarks[0].startswith("tuned before: "), "srun's is only named"
    keep_config(command.replace("=", " ").split(), tmp_path / "config.lagom", environ | {"NCCL_ALGO": "Ring"}, "x")
    assert cache.count() == before, "it was replaced"


@pytest.mark.parametrize(
    ("command", "is_same"),
    [
        ("mpirun -np 2 -x NCCL_DEBUG_SUBSYS=INIT,NET -x NCCL_DEBUG python t.py", True),
        ("mpirun -np 2 -x NCCL_ALGO=Ring python t.py", False),
        ("NCCL_DEBUG=INFO mpirun -np 2 python t.py", True),
    ],
)
def test_what_nccl_prints_and_dumps_makes_no_other_job(
    command: str, is_same: bool, environ: dict[str, str], tmp_path: Path
) -> None:
    told = {"NCCL_DEBUG": "INFO", "NCCL_TOPO_DUMP_FILE": "topo.xml", "NCCL_GRAPH_DUMP_FILE": "graph.xml"}
    keep_config(["mpirun", "-np", "2", "python", "t.py"], tmp_path / "config.lagom", environ, "lagom tune")
    assert (find(environ, *command.split(), **told).config is not None) is is_same


def keep_program(environ: dict[str, str], *command: str, by: str = "lagom run") -> None:
    """Keep what a search has found for the iterations of one program."""
    config = Path("program.lagom")
    config.write_text(CONFIG.replace("rule allgather 1M - nc=4", "site 0 allgather 1M nc=4\nprogram 3x0"))
    assert keep_config(command, config, environ, by).text.startswith("the config is kept")


def test_another_seed_or_folder_is_tried_and_searched_where_other_calls_are_made(environ: dict[str, str]) -> None:
    keep_program(environ, "torchrun", "pretrain.py", "--seed", "1", "--out", "run-1")
    use = find(environ, "torchrun", "--master-port", "5", "pretrain.py", "--seed", "2")
    assert use.config is not None
    assert (use.is_like, use.may_tune) == (True, True)
    assert use.remarks == ("its config was found with torchrun pretrain.py --seed 1 --out run-1",)
    assert find(environ, "torchrun", "--nproc-per-node", "4", "pretrain.py", "--seed", "1").config is None
    assert find(environ, "torchrun", "other.py", "--seed", "1").config is None
    use = find(environ, "torchrun", "pretrain.py", "--seed", "1", "--tokens", "512")
    assert (use.config, use.is_like) == (None, False), "the same calls, and more or less time beside them"
    assert use.remarks == (
        "not used, because of --tokens 512: the config found with torchrun pretrain.py --seed 1 --out run-1",
    )
    assert list(use.at_end(ended("other words", "config_refused", OTHER_RANKS))) == []
    assert find(environ, "torchrun", "pretrain.py", "--seed", "1", "--out", "run-1").config is not None, "it fits there"


def test_what_could_come_into_force_in_another_program_is_for_its_own_arguments_alone(
    environ: dict[str, str], tmp_path: Path
) -> None:
    """Rules by size, whatever `lagom tune` has found, and what did not fit."""
    keep_config(["torchrun", "rules.py", "--seed=1"], tmp_path / "config.lagom", environ, "lagom run")
    assert find(environ, "torchrun", "rules.py", "--seed=2").config is None
    keep_program(environ, "torchrun", "tuned.py", "--seed=1", by="lagom tune")
    assert find(environ, "torchrun", "tuned.py", "--seed=2").config is None
    keep_program(environ, "torchrun", "refused.py", "--seed=1")
    use = find(environ, "torchrun", "refused.py", "--seed=1")
    start = journal.JobStart(job="j", mode="tune")
    (line,) = use.at_end(RunState([start, journal.JobEnd(reason="over")]))
    assert line == "the cached config is not used at the next start: made for another program"
    assert find(environ, "torchrun", "refused.py", "--seed=2").config is None


def test_with_variables_alone_the_config_is_named(environ: dict[str, str]) -> None:
    said, how = cached_here(environ)
    assert said == "tuned before in this folder: torchrun train.py"
    assert how.startswith('to use it on every rank: eval "$(lagom env --config cache/configs/')
    assert list(cached_here({"LAGOM_CACHE": "off"})) == []


def keep_with(environ: dict[str, str], variable: str, command: Sequence[str] = COMMAND) -> None:
    """Keep the same config with a start setting."""
    config = Path("with.lagom")
    config.write_text(CONFIG.replace("fingerprint", f"environment {variable}\nfingerprint", 1))
    assert keep_config(command, config, environ, "lagom tune").text.startswith("the config is kept")


def test_a_config_with_head_room_is_not_used_unasked(environ: dict[str, str]) -> None:
    keep_with(environ, f'{headroom.VARIABLE} "32:24"')
    assert find(environ).config is None


def damage(environ: dict[str, str], how: str) -> None:
    folder, file = Path(environ["LAGOM_CACHE"]), file_of(environ)
    if how == "others may write":
        folder.chmod(0o777)
    elif how == "no entry":
        file.write_text("lagom-config 1\n")
    elif how == "no config":
        file.write_text(file.read_text().replace("rule ", "rul "))
    elif how == "no folder":
        file.unlink()
        file.parent.rmdir()
        folder.rmdir()
        folder.write_text("")


@pytest.mark.parametrize("how", ["others may write", "no entry", "no config", "no folder"])
def test_a_cache_that_cannot_be_used_costs_one_sentence(how: str, environ: dict[str, str], tmp_path: Path) -> None:
    damage(environ, how)
    use = find(environ)
    assert use.config is None
    assert len(use.remarks) == 1
    assert "\n" not in use.remarks[0]
    kept = keep_config(COMMAND, tmp_path / "config.lagom", environ, "lagom run").text
    repairs = how in ("no entry", "no config")
    assert kept.startswith("the config is kept" if repairs else "the config is not kept")
    assert (find(environ).config is not None) == repairs


def test_the_folder_is_the_users_own_or_the_named_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    assert cache_folder({}) == Path("/home/me/.cache/lagom")
    assert cache_folder({"XDG_CACHE_HOME": "/scratch"}) == Path("/scratch/lagom")
    assert cache_folder({"XDG_CACHE_HOME": "scratch"}) == Path("/home/me/.cache/lagom")
    assert cache_folder({"LAGOM_CACHE": "/fast/lagom", "XDG_CACHE_HOME": "/scratch"}) == Path("/fast/lagom")
    assert cache_folder({"LAGOM_CACHE": "off"}) is None


def test_the_doctor_counts_the_configs_or_says_why_they_are_not_used(environ: dict[str, str]) -> None:
    (fine,) = doctor.examine(environ)
    assert (fine.level.value, fine.text) == ("ok", f"1 config of tuned jobs in {environ['LAGOM_CACHE']}")
    damage(environ, "others may write")
    (note,) = doctor.examine(environ)
    assert note.level.value == "note"
    assert "may be written by every user" in note.text
    assert note.remedy
    (off,) = doctor.examine({"LAGOM_CACHE": "off"})
    assert off.text.startswith("off")


def test_the_doctor_says_of_a_file_in_its_place_that_it_cannot_be_used(environ: dict[str, str]) -> None:
    damage(environ, "no folder")
    (note,) = doctor.examine(environ)
    assert note.level.value == "note"


def test_start_settings_are_not_replaced_by_a_search_in_a_running_job(environ: dict[str, str], tmp_path: Path) -> None:
    keep_with(environ, 'NCCL_SOCKET_NTHREADS "4"')
    assert "stays" in keep_config(COMMAND, tmp_path / "config.lagom", environ, "lagom run").text
    assert "NCCL_SOCKET_NTHREADS" in file_of(environ).read_text()
    assert keep_config(COMMAND, tmp_path / "config.lagom", environ, "lagom tune").text.startswith("the config is kept")
    assert "NCCL_SOCKET_NTHREADS" not in file_of(environ).read_text()


@pytest.mark.parametrize(
    "why", ["the kept one has none", "has start settings itself", "the kept one is refused", "it is of another GPU"]
)
def test_start_settings_are_replaced_where_nothing_is_lost(
    why: str, environ: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What `lagom run` found is kept: it has start settings too, or those that are kept are not used here anyway."""
    if why != "the kept one has none":
        keep_with(environ, 'NCCL_SOCKET_NTHREADS "4"')
    found = tmp_path / "config.lagom"
    if why == "has start settings itself":
        found.write_text(CONFIG.replace("fingerprint", 'environment NCCL_SOCKET_NTHREADS "8"\nfingerprint', 1))
    elif why == "the kept one is refused":
        list(find(environ).at_end(ended("other words", "config_refused", OTHER_RANKS)))
    elif why == "it is of another GPU":
        monkeypatch.setattr(cached_config, "_machine", lambda environ: Machine(gpu="H100", nccl=23007))
    assert keep_config(COMMAND, found, environ, "lagom run").text.startswith("the config is kept")
    used = find(environ).config
    assert used is not None
    assert used.origin.startswith("lagom run")
    assert ("NCCL_SOCKET_NTHREADS" in used.path.read_text()) == (why == "has start settings itself")
