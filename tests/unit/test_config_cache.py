# SPDX-License-Identifier: Apache-2.0
"""The cache of configs: which job an entry is for, what replaces it, and what of it is not trusted."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lagom import files
from lagom.config_cache import CHECK, ENTRY, CachedConfig, CacheRefused, ConfigCache, Job, Machine
from lagom.config_file import BadConfig, load_config
from lagom.wire.config_refusal import ConfigRefusal

CONFIG = "lagom-config 1\n# by hand\nfingerprint ranks 2\ncommunicator ranks=2 nodes=1 ordinal=0\n{}end\n"
HERE = Machine(gpu="H200", nccl=23007)
OTHER_RANKS = ConfigRefusal("ranks", "16", "8")
BY = "lagom tune"


def a_job(*command: str, folder: str = "/work", **variables: str) -> Job:
    return Job(command=command or ("train", "a"), folder=folder, variables=variables)


@pytest.fixture
def cache(tmp_path: Path) -> ConfigCache:
    return ConfigCache(tmp_path / "cache")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    return write_config(tmp_path / "config.lagom")


def write_config(file: Path, channels: int = 4) -> Path:
    file.write_text(CONFIG.format(f"rule allgather 1M - nc={channels}\n"))
    return file


def only(cache: ConfigCache, folder: str = "/work") -> CachedConfig:
    found = cache.of_folder(folder)
    (config,) = found.configs
    assert found.damaged == []
    return config


def test_what_is_kept_is_a_saved_config_that_says_whose_it_is(cache: ConfigCache, config: Path) -> None:
    job = a_job("train", "ä\n# job: {}\u2028", NCCL_ALGO="Ring")
    path = cache.keep(job, HERE, config, BY)
    entry = only(cache).entry
    assert (entry.job, entry.machine, entry.by, entry.refused) == (job, HERE, BY, None)
    assert load_config(path) == load_config(config)
    assert "# by hand" in path.read_text()
    assert (cache.folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    assert cache.count() == 1


def test_a_umask_that_lets_the_group_write_does_no_harm(cache: ConfigCache, config: Path) -> None:
    before = os.umask(0o002)
    try:
        cache.keep(a_job(), HERE, config, BY)
        cache.keep(a_job(), HERE, config, BY)
    finally:
        os.umask(before)
    assert only(cache).entry.job == a_job()


@pytest.mark.parametrize(
    "other",
    [
        a_job("train", "b"),
        a_job("train"),
        a_job("train", "a", "b"),
        a_job(NCCL_ALGO="Ring"),
        a_job(folder="/work/b"),
    ],
)
def test_command_folder_and_variables_make_a_job(other: Job, cache: ConfigCache, config: Path) -> None:
    assert a_job().is_same(a_job())
    assert not a_job().is_same(other)
    assert not other.is_same(a_job())
    cache.keep(a_job(), HERE, config, BY)
    cache.keep(other, HERE, config, BY)
    assert cache.count() == 2


def test_the_placeholder_of_lagom_tune_stands_for_any_text() -> None:
    tuned = a_job("train", "--out=run-{trial}", "8")
    assert tuned.is_same(a_job("train", "--out=run-final", "8"))
    assert a_job("train", "--out=run-final", "8").is_same(tuned)
    assert not tuned.is_same(a_job("train", "--out=run-final", "4"))
    assert a_job("train", "{trial}").is_same(a_job("train", "final"))
    assert not a_job("train", "{trial}").is_same(a_job("train", "--hidden=99"))


@pytest.mark.parametrize(
    "script",
    ["python other.py", "python train.py --out final", "python train.py --out run-1 --batch 64",
     "python train.py --out run-1; python other.py", "cd x && python train.py --out run-1"],
)  # fmt: skip
def test_the_text_around_the_placeholder_is_of_the_job(script: str) -> None:
    tuned = a_job("bash", "-c", "python train.py --out run-{trial}")
    assert tuned.is_same(a_job("bash", "-c", "python train.py --out run-7"))
    assert not tuned.is_same(a_job("bash", "-c", script))
    assert not a_job("bash", "-c", script).is_same(tuned)


def test_a_new_config_replaces_that_of_its_job_alone(cache: ConfigCache, config: Path, tmp_path: Path) -> None:
    cache.keep(a_job(), HERE, config, BY)
    cache.keep(a_job(), HERE.model_copy(update={"nccl": 23004}), config, BY)
    path = cache.keep(a_job(), HERE, write_config(tmp_path / "new", channels=2), "lagom run")
    assert cache.count() == 2, "one for each NCCL"
    newest = cache.of_folder("/work").configs[0]
    assert (newest.path, newest.entry.by) == (path, "lagom run")
    assert "nc=2" in path.read_text()


def test_a_command_with_the_placeholder_stays_when_one_without_replaces_its_config(
    cache: ConfigCache, config: Path
) -> None:
    cache.keep(a_job("train", "a"), HERE, config, BY)
    cache.keep(a_job("train", "b"), HERE, config, BY)
    cache.keep(a_job("train", "{trial}"), HERE, config, BY)
    assert only(cache).entry.job.command == ("train", "{trial}")
    cache.keep(a_job("train", "c"), HERE, config, "lagom run")
    assert (only(cache).entry.job.command, only(cache).entry.by) == (("train", "{trial}"), "lagom run")


def test_a_refused_config_says_why_until_it_is_replaced(cache: ConfigCache, config: Path) -> None:
    path = cache.keep(a_job(), HERE, config, BY)
    used = only(cache)
    cache.refuse(used, OTHER_RANKS)
    assert only(cache).entry.refused == OTHER_RANKS
    assert load_config(path) == load_config(config)
    cache.keep(a_job(), HERE, config, BY)
    assert only(cache).entry.refused is None
    cache.refuse(used, OTHER_RANKS)
    assert only(cache).entry.refused is None, "that one was replaced since"
    path.unlink()
    cache.refuse(used, OTHER_RANKS)
    assert cache.count() == 0


def test_what_the_plugin_could_not_read_is_not_kept(cache: ConfigCache, tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("lagom-config 1\nwhat\n")
    with pytest.raises(BadConfig):
        cache.keep(a_job(), HERE, tmp_path / "bad", BY)
    assert not cache.folder.exists()


def test_an_empty_cache_is_not_made_by_looking(cache: ConfigCache) -> None:
    assert cache.of_folder("/work").configs == []
    assert cache.count() == 0
    assert not cache.folder.exists()


@pytest.mark.parametrize("part", ["", "configs"])
@pytest.mark.parametrize("mode", [0o770, 0o702])
def test_a_folder_that_others_may_write_is_refused(part: str, mode: int, cache: ConfigCache, config: Path) -> None:
    cache.keep(a_job(), HERE, config, BY)
    (cache.folder / part).chmod(mode)
    for attempt in (cache.check, lambda: cache.of_folder("/work"), lambda: cache.keep(a_job(), HERE, config, BY)):
        with pytest.raises(CacheRefused, match="may be written by"):
            attempt()


def test_a_folder_of_another_user_is_refused(cache: ConfigCache, config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cache.keep(a_job(), HERE, config, BY)
    monkeypatch.setattr(files, "trusted_owners", lambda: {os.geteuid() + 1})
    with pytest.raises(CacheRefused, match="belongs to another user"):
        cache.of_folder("/work")


def chmod(path: Path) -> None:
    path.chmod(0o660)


def link(path: Path) -> None:
    path.rename(path.with_suffix(".moved"))
    path.symlink_to(path.with_suffix(".moved"))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:60])


def cut_after_a_variable(path: Path) -> None:
    """What is left is a saved config that sets this one alone."""
    whole = path.read_text()
    path.write_text(whole[: whole.index("\n", whole.index("environment NCCL_SOCKET_NTHREADS")) + 1])
    assert load_config(path).environment == {"NCCL_SOCKET_NTHREADS": "4"}


def cut_after_the_fingerprint(path: Path) -> None:
    path.write_text(path.read_text().partition("communicator")[0])
    assert load_config(path).sections == ()


def edit(path: Path) -> None:
    path.write_text(path.read_text().replace("nc=4", "nc=2"))


def fill(path: Path) -> None:
    path.write_bytes(b"\xff" * 100)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def retype(path: Path) -> None:
    path.write_text(path.read_text().replace('"nccl":23007', '"nccl":"23007"'))


@pytest.mark.parametrize(
    "damage",
    [chmod, link, cut, cut_after_a_variable, cut_after_the_fingerprint, edit, fill, empty, folder, retype],
)
def test_a_damaged_file_is_named_and_the_others_are_used(damage: object, cache: ConfigCache, config: Path) -> None:
    start = 'environment NCCL_SOCKET_NTHREADS "4"\nenvironment NCCL_NSOCKS_PERTHREAD "4"\n'
    config.write_text(config.read_text().replace("fingerprint", f"{start}fingerprint", 1))
    path = cache.keep(a_job("train", "b"), HERE, config, BY)
    cache.keep(a_job(), HERE, config, BY)
    damage(path)  # type: ignore[operator]
    found = cache.of_folder("/work")
    assert [one.entry.job for one in found.configs] == [a_job()]
    (said,) = found.damaged
    assert str(path) in said
    assert "damaged" in said


WRITER = """
import sys
from pathlib import Path
from lagom.config_cache import ConfigCache, Job, Machine
folder, config = Path(sys.argv[1]), Path(sys.argv[2])
for _ in range(40):
    for command in (("train", "a"), ("train", sys.argv[3])):
        job = Job(command=command, folder="/work", variables={})
        ConfigCache(folder).keep(job, Machine(), config, "lagom run")
"""


def test_a_cached_file_can_be_kept_and_refused_again(cache: ConfigCache, config: Path) -> None:
    path = cache.keep(a_job(), HERE, config, BY)
    cache.refuse(only(cache), OTHER_RANKS)
    cache.keep(a_job(), HERE, path, BY)
    assert only(cache).entry.refused is None
    assert [path.read_text().count(comment) for comment in (ENTRY, CHECK)] == [1, 1]


def test_jobs_at_once_never_leave_half_a_file(cache: ConfigCache, tmp_path: Path) -> None:
    configs = [write_config(tmp_path / f"{channels}", channels) for channels in (2, 3, 4)]
    writers = [
        subprocess.Popen([sys.executable, "-c", WRITER, str(cache.folder), str(config), config.name])
        for config in configs
    ]
    while any(writer.poll() is None for writer in writers):
        assert cache.of_folder("/work").damaged == []
    assert [writer.returncode for writer in writers] == [0, 0, 0]
    kept = cache.of_folder("/work").configs
    assert sorted(one.entry.job.command[1] for one in kept) == ["2", "3", "4", "a"]
    assert all(len(load_config(one.path).sections) == 1 for one in kept)
    assert len(list(cache.folder.rglob(".*"))) == 0, "nothing that was being written is left"
