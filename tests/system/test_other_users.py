# SPDX-License-Identifier: Apache-2.0
"""What another user of the machine tries, tried: SECURITY.md names each promise with its test here.

The other user is uid 65534 in a child that has given root up; without root there is nobody to play him.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from lagom.atlas.sources import load_atlas
from lagom.config_cache import CacheRefused, ConfigCache
from lagom.journal import JobStart, Journal
from lagom.wire.job_key import key_and_region
from lagom.wire.library import LIBRARY_FOLDER, plugin_path
from lagom.wire.peek import peek_region
from lagom.wire.region import Region, RegionRefused
from tests.forked_commands import lagom
from tests.waiting import wait_until

OTHER = 65534
ROOT = Path(__file__).resolve().parent.parent.parent
pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can play another user")

RANK = """
import os, sys
sys.path[:] = [path for path in sys.path if path]
from lagom.sim.virtual.nccl import VirtualNccl
from lagom.sim.virtual.selection import nccl_version
from pathlib import Path
os.chdir(sys.argv[2])
nccl = VirtualNccl(Path(sys.argv[1]), nccl_version("2.30"))
one = nccl.communicator(0x5EC, 2)
print("ready", flush=True)
sys.stdin.read()
one.destroy()
"""


def as_other(action: Callable[[], object]) -> str:
    """Run ``action`` as another user; what it returned, or the name of the exception, as text."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        said = "nothing"
        try:
            os.setgroups([])
            os.setgid(OTHER)
            os.setuid(OTHER)
            said = str(action())
        except BaseException as error:  # noqa: BLE001 - the child ends here, whatever it was
            said = type(error).__name__
        finally:
            os.write(writing, said.encode())
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as pipe:
        return pipe.read().decode()


@pytest.fixture
def common() -> Iterator[Path]:
    """A folder like /dev/shm or /tmp: everybody may write, nobody may take away another's."""
    folder = Path(tempfile.mkdtemp(prefix="lagom-others-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
    folder.chmod(0o1777)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def region(common: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Region]:
    """A region of ours in the common folder, made with the most careless umask."""
    monkeypatch.setenv("LAGOM_SHM_DIR", str(common))
    before = os.umask(0)
    with Region.create("others") as made:
        os.umask(before)
        yield made
        made.close(unlink=True)


# ---- The region ------------------------------------------------------------------------------------------------------


def test_nobody_else_can_read_or_write_a_region(region: Region) -> None:
    status = region.path.stat()
    assert (status.st_uid, stat.S_IMODE(status.st_mode)) == (os.geteuid(), 0o600)
    assert as_other(lambda: region.path.read_bytes()) == "PermissionError"
    assert as_other(lambda: region.path.open("r+b")) == "PermissionError"
    assert as_other(lambda: region.path.chmod(0o666)) == "PermissionError"
    assert as_other(lambda: peek_region(region.path).fault) != ""
    assert as_other(lambda: Region.attach(region.path)) == "RegionRefused"


def test_nobody_else_can_take_a_region_away(region: Region, common: Path) -> None:
    assert as_other(lambda: region.path.unlink()) == "PermissionError"
    assert as_other(lambda: region.path.rename(common / "mine")) == "PermissionError"
    assert region.path.exists()


def test_the_same_job_name_means_another_region_to_another_user(region: Region) -> None:
    seen = as_other(lambda: Region.create("others").path.name)
    assert seen.startswith(f"lagom-{OTHER}-")


def planted(kind: str, path: Path, victim: Path) -> None:
    """What another user puts where our region would be."""
    if kind == "file":
        path.write_bytes(b"\0" * 4096)
        path.chmod(0o600)
    elif kind == "open file":
        path.write_bytes(b"\0" * (8 << 20))
        path.chmod(0o666)
    elif kind == "link to a file of ours":
        path.symlink_to(victim)
    elif kind == "link to nothing":
        path.symlink_to(victim.with_name("not-there"))
    elif kind == "fifo":
        os.mkfifo(path, 0o666)
        path.chmod(0o666)
    elif kind == "folder":
        path.mkdir()


@pytest.mark.parametrize("kind", ["file", "open file", "link to a file of ours", "link to nothing", "fifo", "folder"])
def test_what_another_user_planted_is_neither_used_nor_followed(
    kind: str, common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LAGOM_SHM_DIR", str(common))
    _, path = key_and_region({"LAGOM_JOB_ID": "planted", "LAGOM_SHM_DIR": str(common)})
    victim = tmp_path / "victim"
    victim.write_bytes(b"as it was")
    assert as_other(lambda: planted(kind, path, victim)) == "None"
    before = sorted(common.iterdir())
    with pytest.raises(RegionRefused):  # at once: a fifo or lock of somebody else's would be waited for without end
        Region.create(_key("planted", common))
    assert victim.read_bytes() == b"as it was"
    assert not victim.with_name("not-there").exists()
    assert sorted(common.iterdir()) == before, "something was left, or another user's file was taken away"


def test_a_link_to_a_living_region_of_ours_is_refused(region: Region, common: Path) -> None:
    """By a hard link two of our jobs would meet in one region, where a kernel lets another user make one."""
    key = _key("second job", common)
    _, path = key_and_region({"LAGOM_JOB_ID": "second job", "LAGOM_SHM_DIR": str(common)})
    os.link(region.path, path)
    with pytest.raises(RegionRefused, match="not this job's own region"):
        Region.create(key)
    path.unlink()
    as_other(lambda: path.symlink_to(region.path))
    with pytest.raises(RegionRefused):
        Region.create(key)


def test_what_lies_about_under_names_like_ours_stays(
    common: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever makes a region removes stale ones: only this user's, only regions, and never through a link."""
    monkeypatch.setenv("LAGOM_SHM_DIR", str(common))
    victim = tmp_path / "victim"
    victim.write_bytes(b"as it was")
    victim.chmod(0o600)
    theirs, link = common / f"lagom-{os.geteuid()}-00000000000000aa", common / f"lagom-{os.geteuid()}-00000000000000ab"
    assert as_other(lambda: (theirs.write_text("theirs"), link.symlink_to(victim))) != "PermissionError"
    with Region.create("sweeper") as made:
        assert theirs.read_text() == "theirs"
        assert link.is_symlink()
        assert victim.read_bytes() == b"as it was"
        made.close(unlink=True)


@pytest.mark.parametrize(
    ("ending", "stays"),
    [("0123456789abcdef", False), ("0123456789abcdef.tmp.fedcba9876543210", False), ("notes", True)]
    + [(f"0123456789abcdef{more}", True) for more in ("0", ".tmp", ".tmp.1234", ".tmp.fedcba9876543210.bak", ".txt")],
)
def test_only_names_that_we_make_are_cleared_away(
    ending: str, stays: bool, common: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A private file of the user's own may be called almost like a region."""
    monkeypatch.setenv("LAGOM_SHM_DIR", str(common))
    file = common / f"lagom-{os.geteuid()}-{ending}"
    file.touch(0o600)
    with Region.create("sweeper") as made:
        assert file.exists() == stays
        made.close(unlink=True)


def _key(job: str, shared: Path) -> str:
    return key_and_region({"LAGOM_JOB_ID": job, "LAGOM_SHM_DIR": str(shared)})[0]


# ---- What a rank loads and starts ------------------------------------------------------------------------------------


class Rank:
    """One rank with the real plugin, which is to start a controller."""

    def __init__(self, folder: Path, plugin: Path, environ: dict[str, str], cwd: Path | None = None) -> None:
        self.folder, self.log = folder, folder / "log"
        variables = {
            "LAGOM_JOB_ID": "security",
            "LAGOM_SHM_DIR": str(folder),
            "LAGOM_DIR": str(self.log),
            "LAGOM_PYTHON": sys.executable,
            "PYTHONPATH": str(ROOT),
            **environ,
        }
        _, self.region = key_and_region({name: variables[name] for name in ("LAGOM_JOB_ID", "LAGOM_SHM_DIR")})
        self._process = subprocess.Popen(
            [sys.executable, "-c", RANK, str(plugin), str(cwd or folder)],
            env={**os.environ, **variables},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n", self._process.communicate()[1]
        (alive,) = peek_region(self.region).processes
        self.remark = alive.remark

    def end(self) -> str:
        """Let it go; what it said on stderr."""
        return self._process.communicate()[1]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Rank]]:
    """Starts ranks that are gone afterwards."""
    ranks: list[Rank] = []

    def begin(plugin: Path | None = None, cwd: Path | None = None, **environ: str) -> Rank:
        ranks.append(Rank(tmp_path, plugin or plugin_path(), environ, cwd))
        return ranks[-1]

    yield begin
    for rank in ranks:
        rank.end()


def trap(path: Path) -> Path:
    """A program that leaves a trace if it is ever run; the trace."""
    trace = path.with_name(path.name + ".ran")
    path.write_text(f"#!/bin/sh\ntouch {trace}\n")
    path.chmod(0o755)
    return trace


def never(trace: Path) -> bool:
    """Whether nothing ran, after giving it the time to."""
    time.sleep(0.3)
    return not trace.exists()


@pytest.mark.parametrize("how", ["another user's", "in a folder open to all", "through another user's link"])
def test_no_interpreter_that_another_user_could_change(how: str, start: Callable[..., Rank], tmp_path: Path) -> None:
    folder = tmp_path / "bin"
    folder.mkdir()
    python = folder / "python"
    trace = trap(python)
    if how == "another user's":
        os.chown(python, OTHER, OTHER)
    elif how == "in a folder open to all":
        folder.chmod(0o777)
    else:
        (tmp_path / "python").symlink_to(python)
        os.chown(tmp_path / "python", OTHER, OTHER, follow_symlinks=False)
        python = tmp_path / "python"
    rank = start(LAGOM_PYTHON=str(python))
    assert "is not started" in rank.remark
    assert never(trace)


def test_no_interpreter_by_a_name_that_path_or_folder_decide(start: Callable[..., Rank], tmp_path: Path) -> None:
    trace = trap(tmp_path / "python3")
    rank = start(LAGOM_PYTHON="python3", PATH=f"{tmp_path}:{os.environ['PATH']}")
    assert "absolute path" in rank.remark
    assert never(trace)


@pytest.mark.parametrize("where", ["in the installation", "on PATH"])
@pytest.mark.parametrize("how", ["another user's", "open to all", "in a folder of another user"])
def test_no_interpreter_that_another_users_script_names(
    where: str, how: str, start: Callable[..., Rank], tmp_path: Path
) -> None:
    """Where LAGOM_PYTHON is not set, the first line of the installed `lagom` script names it."""
    libraries = tmp_path / "prefix" / "lib" / "python3" / "site-packages" / "lagom" / "_lib"
    shutil.copytree(LIBRARY_FOLDER, libraries)
    script = tmp_path / ("prefix" if where == "in the installation" else "elsewhere") / "bin" / "lagom"
    script.parent.mkdir(parents=True)
    trace = trap(tmp_path / "python")
    script.write_text(f"#!{tmp_path}/python\n")
    script.chmod(0o777 if how == "open to all" else 0o755)
    if how != "open to all":
        theirs = script if how == "another user's" else script.parent
        os.chown(theirs, OTHER, OTHER)
    path = f"{script.parent}:{os.environ['PATH']}" if where == "on PATH" else os.environ["PATH"]
    rank = start(libraries / "libnccl-tuner-lagom.so", LAGOM_PYTHON="", PATH=path)
    assert "the controller is not started: " in rank.remark
    assert ("every user may write" if how == "open to all" else f"another user ({OTHER}) owns") in rank.remark
    assert never(trace)


def test_our_own_script_names_the_interpreter(start: Callable[..., Rank], tmp_path: Path) -> None:
    """What the refusals above are compared with: the same places, and nobody else's."""
    (tmp_path / "bin").mkdir()
    trace = trap(tmp_path / "python")
    script = tmp_path / "bin" / "lagom"
    script.write_text(f"#!{tmp_path}/python\n")
    script.chmod(0o755)
    rank = start(LAGOM_PYTHON="", PATH=f"relative:{tmp_path}/bin:{os.environ['PATH']}")
    assert rank.remark == ""
    wait_until(trace.exists, "the program that the script names")


def test_no_module_from_the_folder_the_job_runs_in(start: Callable[..., Rank], tmp_path: Path) -> None:
    """`python -m` would look there first."""
    work = tmp_path / "work"
    package = work / "lagom" / "controller"
    package.mkdir(parents=True)
    trace = tmp_path / "trace"
    planted_module = f"open({str(trace)!r}, 'a').write(__name__ + chr(10))\n"
    for path in (work / "typing.py", work / "numpy.py", work / "lagom" / "__init__.py", package / "__init__.py"):
        path.write_text(planted_module)
    (package / "__main__.py").write_text(planted_module)
    rank = start(cwd=work)
    assert rank.remark == ""
    wait_until(lambda: "lagom controller" in _text(rank.log / "controller.log"), "the controller")
    assert not trace.exists(), trace.read_text()


def trap_library(library: Path, trace: Path) -> None:
    """A library that leaves a trace if it is ever loaded."""
    source = trace.with_suffix(".c")
    words = f'__attribute__((constructor)) static void run(void) {{ fclose(fopen("{trace}", "w")); }}'
    source.write_text(f"#include <stdio.h>\n{words}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)


def test_no_timeline_library_that_another_user_put_beside_the_plugin(
    start: Callable[..., Rank], tmp_path: Path
) -> None:
    """A plugin that was copied alone, into a folder where everybody may write."""
    folder, trace = tmp_path / "open", tmp_path / "loaded"
    folder.mkdir()
    shutil.copy(plugin_path(), folder)
    trap_library(folder / "liblagom_timeline.so", trace)
    folder.chmod(0o1777)
    os.chown(folder / "liblagom_timeline.so", OTHER, OTHER)
    start(folder / plugin_path().name, LAGOM_TIMELINE="1", LAGOM_CONTROLLER="none")
    assert never(trace)


@pytest.mark.parametrize("owner", [0, OTHER])
def test_no_cupti_that_another_user_put_near_the_cuda_runtime(owner: int, tmp_path: Path) -> None:
    """Where CUPTI is looked for depends on where CUDA's runtime lies; our own copy there is loaded, to show it."""
    runtime, cupti, trace = tmp_path / "libcudart.so.12", tmp_path / "libcupti.so.12", tmp_path / "loaded"
    trap_library(runtime, tmp_path / "runtime")
    trap_library(cupti, trace)
    os.chown(cupti, owner, owner)
    words = (
        f"import ctypes; ctypes.CDLL({str(runtime)!r}); "
        f"ctypes.CDLL({str(LIBRARY_FOLDER / 'liblagom_timeline.so')!r}).InitializeInjection()"
    )
    subprocess.run([sys.executable, "-c", words], env={**os.environ, "RANK": "0"}, check=True)
    assert trace.exists() == (owner == 0)


def test_no_word_of_the_environment_is_read_by_a_shell(start: Callable[..., Rank], tmp_path: Path) -> None:
    trace = Path(tempfile.mkdtemp()) / "ran"  # three times in the name of a file, which may be 255 characters long
    words = f"x; touch {trace}; $(touch {trace}) `touch {trace}` \"'"
    folder = tmp_path / words.replace("/", "_")
    rank = start(LAGOM_JOB_ID=words, LAGOM_DIR=str(folder))
    assert rank.remark == ""
    wait_until(lambda: "lagom controller" in _text(folder / "controller.log"), "the controller")
    assert not trace.exists()
    trace.parent.rmdir()
    assert not list(tmp_path.glob("_*"))


# ---- The log ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["a link", "a second name", "a fifo", "another user's"])
def test_the_log_is_written_to_no_file_but_our_own(how: str, start: Callable[..., Rank], tmp_path: Path) -> None:
    folder, victim = tmp_path / "log", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("as it was")
    log = folder / "controller.log"
    if how == "a link":
        log.symlink_to(victim)
    elif how == "a second name":
        os.link(victim, log)
    elif how == "a fifo":
        os.mkfifo(log)
    else:
        log.write_text("")
        os.chown(log, OTHER, OTHER)
    rank = start()
    assert "in the log folder" in rank.remark
    assert victim.read_text() == "as it was"


@pytest.mark.parametrize("how", ["another user's folder", "another user's link to a folder", "a folder open to all"])
def test_a_log_folder_is_ours_or_there_is_no_log(how: str, start: Callable[..., Rank], tmp_path: Path) -> None:
    folder, elsewhere = tmp_path / "log", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if how == "another user's folder":
        folder.mkdir()
        os.chown(folder, OTHER, OTHER)
    elif how == "a folder open to all":
        folder.mkdir()
        folder.chmod(0o1777)
    else:
        folder.symlink_to(elsewhere)
        os.chown(folder, OTHER, OTHER, follow_symlinks=False)
    rank = start()
    assert "in the log folder" in rank.remark
    assert list(folder.iterdir()) == []


def test_our_own_folder_is_never_open_to_all(start: Callable[..., Rank]) -> None:
    before = os.umask(0)
    try:
        rank = start()
    finally:
        os.umask(before)
    assert rank.remark == ""
    assert stat.S_IMODE(rank.log.stat().st_mode) & stat.S_IWOTH == 0


# ---- The folders of lagom tune and lagom bench, the cache, files that a user names -----------------------------------

PRINTS = "print('step 1 step time: 1.0')"
MEASURING = {
    "tune": ("tune", "--transport", "sockets", "--metric", "step time: ([0-9.]+)", "--budget", "20s"),
    "bench": ("bench", "--arms", "own:stock,off", "--rounds", "1", "--metric", "step time: ([0-9.]+)"),
}


def measure(command: str, folder: Path, ran: Path, **environ: str) -> subprocess.CompletedProcess[str]:
    """The job leaves the file ``ran``, so that one can see whether it was started."""
    job = f"open({str(ran)!r}, 'w'); {PRINTS}"
    line = (*MEASURING[command], "--out", str(folder), "--", sys.executable, "-c", job)
    return lagom(*line, cwd=ran.parent, env={**os.environ, "LAGOM_CACHE": "off", **environ})


@pytest.mark.parametrize("how", ["another user's", "another user's link", "open to all", "a record of another user"])
@pytest.mark.parametrize("command", MEASURING)
def test_samples_that_another_user_could_have_written_are_not_continued(command: str, how: str, tmp_path: Path) -> None:
    folder, elsewhere, ran = tmp_path / "samples", tmp_path / "elsewhere", tmp_path / "ran"
    elsewhere.mkdir()
    if how == "another user's link":
        folder.symlink_to(elsewhere)
        os.chown(folder, OTHER, OTHER, follow_symlinks=False)
    else:
        folder.mkdir()
        folder.chmod(0o777 if how == "open to all" else 0o755)
    if how == "another user's":
        os.chown(folder, OTHER, OTHER)
    if how == "a record of another user":
        (folder / "bench.json").write_text("{}")
        os.chown(folder / "bench.json", OTHER, OTHER)
    before = sorted(folder.iterdir())
    done = measure(command, folder, ran)
    assert done.returncode == 2, done.stderr
    assert len(done.stderr.strip().splitlines()) == 1, done.stderr
    assert [file for file in sorted(folder.iterdir()) if file.name != ".lock"] == before
    assert not ran.exists()


def test_a_folder_below_another_users_link_is_not_made(tmp_path: Path) -> None:
    link, elsewhere, ran = tmp_path / "link", tmp_path / "elsewhere", tmp_path / "ran"
    elsewhere.mkdir()
    link.symlink_to(elsewhere)
    os.chown(link, OTHER, OTHER, follow_symlinks=False)
    done = measure("bench", link / "samples", ran)
    assert done.returncode == 2
    assert "a link of another user" in done.stderr
    assert list(elsewhere.iterdir()) == []
    assert not ran.exists()


def test_a_folder_whose_owner_the_file_system_made_up_is_used_when_the_user_says_so(tmp_path: Path) -> None:
    folder, ran = tmp_path / "samples", tmp_path / "ran"
    folder.mkdir()
    os.chown(folder, OTHER, OTHER)
    refused = measure("bench", folder, ran)
    assert "LAGOM_TRUSTED_OWNER" in refused.stderr
    assert not ran.exists()
    measure("bench", folder, ran, LAGOM_TRUSTED_OWNER=str(OTHER))
    assert ran.exists()


def test_links_under_the_names_of_our_files_are_not_followed(tmp_path: Path) -> None:
    """As far as they lie in a folder of ours at all: a link of ours may lead anywhere, and is not written through."""
    folder, victim, ran = tmp_path / "samples", tmp_path / "victim", tmp_path / "ran"
    folder.mkdir()
    victim.write_text("precious")
    for name in ("00-process-own-stock-00.out", "01-process-off-00.out", "look.out", "bench.json.partial"):
        (folder / name).symlink_to(victim)
    measure("bench", folder, ran)
    assert ran.exists()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("kind", ["configs", "unfinished"])
def test_what_another_user_put_into_the_cache_is_not_used(kind: str, tmp_path: Path) -> None:
    """Its configs are replayed, tried first, or taken into the atlas."""
    cache = tmp_path / "cache"
    (cache / kind).mkdir(parents=True)
    os.chown(cache / kind, OTHER, OTHER)
    with pytest.raises(CacheRefused, match="belongs to another user"):
        ConfigCache(cache, kind).of_folder(str(tmp_path))  # type: ignore[arg-type]
    assert load_atlas({"LAGOM_CACHE": str(cache)}).entries == load_atlas({"LAGOM_CACHE": "off"}).entries


def test_a_page_is_not_written_through_another_users_link(tmp_path: Path) -> None:
    victim, page, log = tmp_path / "victim", tmp_path / "page.html", tmp_path / "log"
    victim.write_text("precious")
    page.symlink_to(victim)
    os.chown(page, OTHER, OTHER, follow_symlinks=False)
    with Journal(log) as events:
        events.write(JobStart(job="j", mode="tune"))
    lagom("report", str(log), "--html", str(page))
    assert victim.read_text() == "precious"


# ---- What a rank reads -----------------------------------------------------------------------------------------------


def test_another_users_saved_config_can_choose_and_nothing_else(tmp_path: Path) -> None:
    """At worst it names legal configs. It names no file, and no variable but those NCCL is sized by."""
    from lagom.environment import KNOWN

    assert not [name for name in KNOWN if any(word in name for word in ("PLUGIN", "PATH", "LIB", "PRELOAD", "FILE"))]


def _text(path: Path) -> str:
    return path.read_text(errors="replace") if path.exists() else ""
